"""What popart calls a tensor's type and place: plain descriptions."""

from typing import Any, List, Sequence, Union

import numpy as np

from ._errors import popart_exception
from .enums import DataType, ReplicatedTensorSharding, TensorStorage, TileSet

_MODES = ("Final", "EveryN", "All", "Sum")

_NUMPY = {
    "FLOAT": np.float32, "FLOAT16": np.float16, "DOUBLE": np.float64, "INT8": np.int8, "INT16": np.int16, "INT32": np.int32,
    "INT64": np.int64, "UINT8": np.uint8, "UINT16": np.uint16, "UINT32": np.uint32, "UINT64": np.uint64, "BOOL": np.bool_,
}


class AnchorReturnType:
    """Which results come back: "Final", "All", "Sum", or "EveryN" with a period."""

    def __init__(self, mode: str, period: int = 1, *_: Any) -> None:
        names = {m.lower(): m for m in _MODES}
        if mode.lower() not in names:
            raise popart_exception(f"AnchorReturnType {mode!r}: there are {', '.join(_MODES)}")
        if period < 1:
            raise popart_exception(f"AnchorReturnType: the period must be at least 1, got {period}")
        self._mode, self._period = names[mode.lower()], period

    def id(self) -> int:
        """The number of the mode, that of poptorch.OutputMode."""
        return _MODES.index(self._mode)

    def rp(self) -> int:
        """The period; of EveryN."""
        if self._mode != "EveryN":
            raise popart_exception(f"AnchorReturnType {self._mode} has no period")
        return self._period

    def __repr__(self) -> str:
        return f"AnchorReturnType({self._mode!r}{f', {self._period}' if self._mode == 'EveryN' else ''})"


class TensorInfo:
    """The type and shape of a tensor: TensorInfo("FLOAT", [1, 2]), or of a numpy array."""

    def __init__(self, dtype: Any, shape: Union[Sequence[int], None] = None) -> None:
        if isinstance(dtype, np.ndarray):
            dtype, shape = dtype.dtype, dtype.shape
        self._type = _typeName(dtype)
        if shape is None:
            raise popart_exception("TensorInfo takes a type and a shape, or an array")
        self._shape = [int(n) for n in shape]

    def data_type(self) -> DataType:
        """The type of an element."""
        return DataType[self._type]

    def data_type_lcase(self) -> str:
        """The name of the type in small letters."""
        return {"FLOAT": "float32", "DOUBLE": "float64"}.get(self._type, self._type.lower())

    def shape(self) -> List[int]:
        """The sizes."""
        return list(self._shape)

    def nelms(self) -> int:
        """How many elements there are."""
        return int(np.prod(self._shape, dtype=np.int64))

    def nbytes(self) -> int:
        """How many bytes they take."""
        return self.nelms() * np.dtype(_NUMPY[self._type]).itemsize

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, TensorInfo) and (self._type, self._shape) == (other._type, other._shape)

    def __hash__(self) -> int:
        return hash((self._type, *self._shape))

    def __repr__(self) -> str:
        return f"TensorInfo({self._type!r}, {self._shape})"


def _typeName(dtype: Any) -> str:
    if isinstance(dtype, DataType):
        dtype = dtype.name
    if isinstance(dtype, str) and dtype.upper() in _NUMPY:
        return dtype.upper()
    try:
        found = [name for name, t in _NUMPY.items() if np.dtype(dtype) == t]
    except TypeError:
        found = []
    if not found:
        raise popart_exception(f"TensorInfo: no type {dtype!r}; there are {', '.join(_NUMPY)}")
    return found[0]


class TensorLocation:
    """Where a tensor is kept. poptorch.TensorLocationSettings is what Options takes."""

    def __init__(self, storage: TensorStorage = TensorStorage.OnChip, *places: Any) -> None:
        self.storage = TensorStorage(storage)
        self.loadTileSet, self.storageTileSet = TileSet.Compute, TileSet.Compute
        self.replicatedTensorSharding = ReplicatedTensorSharding.Off
        if len(places) in (1, 3):
            self.replicatedTensorSharding = ReplicatedTensorSharding(places[-1])
        if len(places) in (2, 3):
            self.loadTileSet, self.storageTileSet = TileSet(places[0]), TileSet(places[1])
        if len(places) > 3:
            raise popart_exception("TensorLocation takes a storage, two sets of tiles, and whether it is split over replicas")

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, TensorLocation) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(tuple(vars(self).values()))

    def __repr__(self) -> str:
        return f"TensorLocation({', '.join(f'{k}={v.name}' for k, v in vars(self).items())})"


class TensorLocationSettings:
    """A location, and the sizes from which it counts."""

    def __init__(self, location: Any = None, minElementsForOffChip: int = 2,
                 minElementsForReplicatedTensorSharding: int = 8192) -> None:
        self.location = location if isinstance(location, TensorLocation) else \
            TensorLocation() if location is None else TensorLocation(location)
        self.minElementsForOffChip = minElementsForOffChip
        self.minElementsForReplicatedTensorSharding = minElementsForReplicatedTensorSharding


__all__ = ["AnchorReturnType", "TensorInfo", "TensorLocation", "TensorLocationSettings"]
