"""Datasets that are in memory: their batches are gathered in C, without a worker.

A dataset is recognised only when what its samples are can be read off it: torch's TensorDataset, and
torchvision's MNIST, CIFAR and their like with ToTensor, Normalize or a Compose of these; and a Subset of such.
Everything else, a transform of the user's own or a subclass with its own __getitem__ included, is loaded by
torch's loader. Batches have the values, types and order that torch's loader gives them, and the random numbers
it draws in this process are drawn here too, as often and at the same time.

To a byte of an image, ToTensor and Normalize are a table of 256 floats. It is made by the transform itself, so
the values cannot differ; and the images stay bytes.
"""

import sys
from collections import deque
from typing import Any, Deque, Iterator, List, Optional, Tuple

import torch
import torch.utils.data

from . import _core
from .errors import check

_DTYPES = {torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.uint8, torch.int8, torch.int16,
           torch.int32, torch.int64, torch.bool}


class Column:
    """A tensor of every sample: row i of `data`, or that row of bytes with `values` [channels, 256] for each."""

    def __init__(self, data: torch.Tensor, values: Optional[torch.Tensor] = None) -> None:
        self.data = data
        self.values = values
        self.dtype = data.dtype if values is None else torch.float32
        self.shape: Tuple[int, ...] = tuple(data.shape[1:])
        if values is not None:
            self.shape = (len(values), *data.shape[1:3])

    def spec(self) -> Tuple[int, int, int, int]:
        """For _core.Table."""
        count = self.data[0].numel() if len(self.data) else 0
        values = self.values
        return (self.data.data_ptr(), count * self.data.element_size(),
                0 if values is None else values.data_ptr(), 0 if values is None else len(values))


class Table:
    """The samples of a dataset. `chosen` are the rows of a Subset."""

    def __init__(self, columns: List[Column], chosen: Optional[List[int]] = None) -> None:
        self.columns = columns
        self.chosen = chosen
        self._gather = _core.Table(len(columns[0].data), [c.spec() for c in columns]).gather
        self._makers = [(c.shape, c.dtype) for c in columns]

    def batch(self, indices: List[int]) -> Optional[List[torch.Tensor]]:
        """What default_collate makes of these samples; None when an index is not one of a row."""
        if self.chosen is not None:
            try:
                indices = [self.chosen[i] for i in indices]
            except (IndexError, TypeError):
                return None
        n = len(indices)
        out = [torch.empty((n, *shape), dtype=dtype, device="cpu") for shape, dtype in self._makers]
        return out if n and self._gather(indices, *[t.data_ptr() for t in out]) else None


def _plain(t: Any) -> bool:
    """Memory that can be copied row by row."""
    return type(t) is torch.Tensor and t.device.type == "cpu" and t.layout is torch.strided and \
        t.dtype in _DTYPES and t.dim() > 0 and t.is_contiguous() and not t.requires_grad and \
        not t.is_neg() and t.numel() > 0


def _tensors(dataset: Any) -> Optional[Table]:
    columns = dataset.tensors
    if not columns or len(columns) > 64 or not all(map(_plain, columns)) or len({len(t) for t in columns}) > 1:
        return None
    return Table([Column(t) for t in columns])


def _plainNormalize(step: Any, transforms: Any) -> bool:
    """It is a module, so it might have been given hooks."""
    return type(step) is transforms.Normalize and "forward" not in step.__dict__ and \
        not step._forward_hooks and not step._forward_pre_hooks


def _values(transform: Any, channels: int) -> Optional[torch.Tensor]:
    """The float that each byte of each channel becomes; None where a pixel's value depends on anything else."""
    transforms = sys.modules["torchvision.transforms"]
    steps = transform.transforms if type(transform) is transforms.Compose else [transform]
    if not steps or type(steps[0]) is not transforms.ToTensor or \
            not all(_plainNormalize(s, transforms) for s in steps[1:]):
        return None
    from PIL import Image
    grey = Image.frombytes("L", (16, 16), bytes(range(256)))
    try:
        out = transform(grey if channels == 1 else Image.merge("RGB", [grey] * channels))
    except Exception:    # a mean for other channels, say: whoever loads the first sample will tell
        return None
    if out.dtype is not torch.float32 or out.shape != (channels, 16, 16):
        return None
    return out.reshape(channels, 256).contiguous()


def _labels(targets: Any) -> Optional[torch.Tensor]:
    """As default_collate makes them of ints."""
    if isinstance(targets, list) and targets and all(type(t) is int for t in targets):
        return torch.tensor(targets)
    if _plain(targets) and targets.dim() == 1 and not targets.is_floating_point() and \
            targets.dtype is not torch.bool:
        return targets.to(torch.int64)
    return None


def _bytes(array: Any) -> Optional[torch.Tensor]:
    numpy = sys.modules["numpy"]
    usable = type(array) is numpy.ndarray and array.dtype == numpy.uint8 and array.flags.writeable
    return torch.from_numpy(array) if usable else None


def _images(dataset: Any, channels: int) -> Optional[Table]:
    own = dataset.__dict__
    if own.get("target_transform", 0) is not None or "data" not in own or "targets" not in own:
        return None
    data, targets = own["data"], _labels(own["targets"])
    if channels > 1:
        data = _bytes(data)
    if not _plain(data) or data.dtype is not torch.uint8 or targets is None or len(targets) != len(data):
        return None
    if data.dim() != (3 if channels == 1 else 4) or (channels > 1 and data.shape[3] != channels):
        return None
    values = _values(own.get("transform"), channels)
    return None if values is None else Table([Column(data, values), Column(targets)])


def _subset(dataset: Any) -> Optional[Table]:
    table = find(dataset.dataset)
    if table is None or table.chosen is not None or type(dataset.indices) is not list:
        return None
    return Table(table.columns, dataset.indices)


def find(dataset: Any) -> Optional[Table]:
    """The table of a dataset, if it is one of those that are recognised."""
    kind = type(dataset)
    if kind is torch.utils.data.TensorDataset:
        return _tensors(dataset)
    if kind is torch.utils.data.Subset:
        return _subset(dataset)
    vision = sys.modules.get("torchvision.datasets")
    if vision is None or hasattr(kind, "__getitems__"):
        return None
    get = getattr(kind, "__getitem__", None)
    # A subclass may load its data in its own way, as long as it gives out samples as its base does.
    for base, channels in ((vision.MNIST, 1), (vision.CIFAR10, 3)):
        if get is base.__getitem__ and kind.__len__ is base.__len__:
            return _images(dataset, channels)
    return None


def ofLoader(loader: Any) -> Optional[Table]:
    """The table of a loader's dataset, unless the loader has a part in what a batch is."""
    if loader.batch_sampler is None or loader.worker_init_fn is not None or \
            loader.collate_fn is not torch.utils.data.dataloader.default_collate:
        return None
    if loader.pin_memory and (torch.cuda.is_available() or getattr(loader, "pin_memory_device", "")):
        return None
    return find(loader.dataset)


class Order:
    """The indices of a loader's batches, epoch after epoch.

    Torch's iterator draws a seed for its workers. With workers it asks the sampler for as many batches as
    they may have in hand, at once; and workers that persist keep their seed.
    """

    def __init__(self) -> None:
        self._begun = False

    def epoch(self, loader: Any) -> Tuple[Iterator[List[int]], Deque[List[int]]]:
        """The sampler's iterator, and what was taken from it in advance."""
        batches = iter(loader.batch_sampler)
        if not (self._begun and loader.persistent_workers and loader.num_workers > 0):
            torch.empty((), dtype=torch.int64).random_(generator=loader.generator)
        self._begun = True
        taken: Deque[List[int]] = deque()
        for _ in range(loader.num_workers * (loader.prefetch_factor or 0)):
            indices = next(batches, None)
            if indices is None:
                break
            taken.append(indices)
        return batches, taken


class TableIterator:
    """An epoch of a loader over a table."""

    def __init__(self, loader: Any, table: Table, order: Order) -> None:
        self._batch = table.batch
        self._loader = loader
        self._batches, self._taken = order.epoch(loader)
        self._ahead = bool(self._taken)

    def __iter__(self) -> "TableIterator":
        return self

    def __len__(self) -> int:
        return len(self._loader.batch_sampler)

    def __next__(self) -> List[torch.Tensor]:
        if self._ahead:
            if not self._taken:
                raise StopIteration
            indices = self._taken.popleft()
            following = next(self._batches, None)
            if following is not None:
                self._taken.append(following)
        else:
            indices = next(self._batches)
        return self._batch(indices) or fetch(self._loader, indices)


def fetch(loader: Any, indices: Any) -> Any:
    """A batch as torch makes it: indices that are not plain ints of a row, and their errors."""
    return loader.collate_fn([loader.dataset[i] for i in indices])


class TableAccessor:
    """What an AsynchronousDataAccessor does for a loader over a table, without a process: nothing has to be
    loaded ahead. The order is that of the process, which has random numbers of its own.
    """

    def __init__(self, loader: Any, table: Table, rebatched_size: Optional[int], keep_remainder: bool) -> None:
        self._loader = loader
        self._table: Optional[Table] = table
        self._rows = rebatched_size
        self._keep_remainder = keep_remainder
        self._order = Order()
        generator = torch.Generator()
        generator.manual_seed(int(torch.empty((), dtype=torch.int64).random_().item()))
        self._random = generator.get_state()

    def _epoch(self) -> List[List[int]]:
        """The indices of all batches, drawn with the random numbers of our own."""
        outside = torch.get_rng_state()
        torch.set_rng_state(self._random)
        try:
            batches, taken = self._order.epoch(self._loader)
            lists = [*taken, *batches]
            self._random = torch.get_rng_state()
        finally:
            torch.set_rng_state(outside)
        return lists if self._rows is None else self._rebatch([i for x in lists for i in x], self._rows)

    def _rebatch(self, indices: List[int], rows: int) -> List[List[int]]:
        end = len(indices) if self._keep_remainder else len(indices) // rows * rows
        return [indices[at:at + rows] for at in range(0, end, rows)]

    def __iter__(self) -> Iterator[Any]:
        check(self._table is not None, "An error occurred in the data fetcher: it was terminated")
        return self._items()

    def _items(self) -> Iterator[Any]:
        for indices in self._epoch():
            table = self._table
            check(table is not None, "An error occurred in the data fetcher: it was terminated")
            yield table.batch(indices) or fetch(self._loader, indices)    # type: ignore[union-attr]

    def terminate(self) -> None:
        """It cannot be iterated any more."""
        self._table = None
