"""Memory that a loader's process writes and the model's process reads.

One mapped file holds `slots` items side by side; an item is a flat list of tensors at fixed offsets:

    | slot 0: tensor 0, tensor 1, ... | slot 1: tensor 0, tensor 1, ... | ...

The file has a name only until both sides have mapped it, so nothing is left behind when one of them dies.
It is reserved before it is mapped: running out of shared memory must be an error here, not a bus error
in the middle of a copy.
"""

import mmap
import os
import pickle
import tempfile
from typing import Any, List, NamedTuple, Optional, Tuple

import torch

from .custom_arg import findParser
from .errors import check

_ALIGN = 64


class TensorSpec(NamedTuple):
    """One tensor of an item."""

    dtype: torch.dtype
    shape: Tuple[int, ...]
    offset: int    # bytes from the start of the slot
    elements: int


class Layout(NamedTuple):
    """What an item is made of. `kind` is tensor, list, dict or custom."""

    kind: str
    keys: Tuple[Any, ...]
    sample: bytes    # a custom item to rebuild others from
    specs: Tuple[TensorSpec, ...]
    slot_bytes: int


def flatten(item: Any) -> Tuple[str, Tuple[Any, ...], List[torch.Tensor]]:
    """An item's kind, keys and tensors. Nested structures are refused."""
    if isinstance(item, torch.Tensor):
        return "tensor", (), [item]
    parser = findParser(item)
    if parser is not None:
        return "custom", (), list(parser.yieldTensors(item))
    if isinstance(item, dict):
        kind, keys, tensors = "dict", tuple(item.keys()), list(item.values())
    else:
        check(isinstance(item, (list, tuple)),
              f"Expected a tensor, a list, tuple or dict of tensors, or a registered type, got {type(item)}")
        kind, keys, tensors = "list", (), list(item)
    for t in tensors:
        check(isinstance(t, torch.Tensor), f"Expected a flat {kind} of tensors, found a {type(t)} in it")
    return kind, keys, tensors


def makeLayout(item: Any, rows: Optional[int] = None) -> Layout:
    """The layout of items like this one; with `rows`, of that size in dim 0."""
    kind, keys, tensors = flatten(item)
    check(tensors, "An item needs at least one tensor")
    specs, offset = [], 0
    for t in tensors:
        shape = tuple(t.shape)
        if rows is not None:
            check(shape, "Rebatching needs tensors with a batch dimension, got one of rank 0")
            shape = (rows,) + shape[1:]
        elements = int(torch.Size(shape).numel())
        specs.append(TensorSpec(t.dtype, shape, offset, elements))
        offset += -(-elements * t.element_size() // _ALIGN) * _ALIGN
    sample = pickle.dumps(item) if kind == "custom" else b""
    return Layout(kind, keys, sample, tuple(specs), max(offset, _ALIGN))


def tensorsOf(layout: Layout, item: Any) -> List[torch.Tensor]:
    """The tensors of an item, in the layout's order. Another kind or other keys are refused."""
    kind, keys, tensors = flatten(item)
    check(kind == layout.kind and len(tensors) == len(layout.specs),
          f"Items must not change: expected a {layout.kind} of {len(layout.specs)} tensors, got a {kind} of "
          f"{len(tensors)}")
    if kind == "dict":
        check(set(keys) == set(layout.keys), f"Items must not change: expected keys {list(layout.keys)}, got "
              f"{list(keys)}")
        tensors = [item[k] for k in layout.keys]
    return tensors


def rebuild(layout: Layout, tensors: List[torch.Tensor], sample: Any) -> Any:
    """An item of these tensors. Tuples come back as lists. `sample` is the unpickled custom item."""
    if layout.kind == "tensor":
        return tensors[0]
    if layout.kind == "dict":
        return dict(zip(layout.keys, tensors))
    if layout.kind == "custom":
        parser = findParser(sample)
        check(parser is not None, f"No parser is registered for {type(sample)}")
        return parser.reconstruct(sample, iter(tensors))    # type: ignore[union-attr]
    return tensors


class Ring:
    """The mapped file, as tensors."""

    def __init__(self, memory: mmap.mmap, layout: Layout, slots: int) -> None:
        self.layout = layout
        self._memory = memory
        self._slots = [[self._view(s, spec) for spec in layout.specs] for s in range(slots)]

    def _view(self, slot: int, spec: TensorSpec) -> torch.Tensor:
        if spec.elements == 0:
            return torch.empty(spec.shape, dtype=spec.dtype)
        offset = slot * self.layout.slot_bytes + spec.offset
        flat = torch.frombuffer(self._memory, dtype=spec.dtype, count=spec.elements, offset=offset)
        return flat.view(spec.shape)

    def tensors(self, slot: int) -> List[torch.Tensor]:
        """Views on a slot."""
        return self._slots[slot]


def createRing(layout: Layout, slots: int) -> Tuple[Ring, str]:
    """A new ring and the path to open it by; shared memory if there is enough, else a temporary file."""
    size = layout.slot_bytes * slots
    folders = [f for f in ("/dev/shm", tempfile.gettempdir()) if os.path.isdir(f) and os.access(f, os.W_OK)]
    failure: Optional[OSError] = None
    for folder in folders:
        fd, path = tempfile.mkstemp(prefix=f"poptorch-{os.getpid()}-", dir=folder)
        try:
            os.posix_fallocate(fd, 0, size)
            return Ring(mmap.mmap(fd, size), layout, slots), path
        except OSError as e:
            os.unlink(path)
            failure = e
        finally:
            os.close(fd)
    raise RuntimeError(f"No room for {slots} items of {layout.slot_bytes} bytes in {folders}: {failure}")


def openRing(path: str, layout: Layout, slots: int) -> Ring:
    """Map the ring at this path and take its name away."""
    fd = os.open(path, os.O_RDWR)
    try:
        return Ring(mmap.mmap(fd, layout.slot_bytes * slots), layout, slots)
    finally:
        os.close(fd)
        os.unlink(path)
