"""DataLoader: torch's loader with batches of the size that one call of a model consumes.

A call runs deviceIterations x gradientAccumulation micro-batches on each of replicationFactor replicas (or
groups of replicas that share their rows), so the loader's batch is that many times the micro-batch.
"""

import copy
import math
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple, Union

import torch
import torch.utils.data

from . import _args, _profile, _table, profiling
from ._logging import logger
from .async_data import AsynchronousDataAccessor, checkArguments
from .enums import DataLoaderMode
from .errors import check, createPoptorchError
from .options import Options


def microBatchesPerCall(options: Options) -> int:
    """How many micro-batches a single call consumes."""
    groups = options.replication_factor // options.input_group_size
    return options.device_iterations * groups * options.Training.gradient_accumulation


class _CombinedBatchSampler(torch.utils.data.Sampler):
    """Batches of another sampler, `count` at a time."""

    def __init__(self, base: Any, count: int, drop_last: bool) -> None:
        # Not Sampler.__init__: its argument is deprecated in newer torch and missing in the newest.
        self._base = base
        self.count = count
        self._drop_last = drop_last

    def __iter__(self) -> Iterator[List[int]]:
        for group in self.groups():
            yield [i for batch in group for i in batch]

    def groups(self) -> Iterator[List[List[int]]]:
        """The batches that go together."""
        group: List[List[int]] = []
        for batch in self._base:
            group.append(list(batch))
            if len(group) == self.count:
                yield group
                group = []
        if group and not self._drop_last:
            yield group

    def __len__(self) -> int:
        n = self.numBatches()
        return n // self.count if self._drop_last else math.ceil(n / self.count)

    def numBatches(self) -> int:
        """Of the other sampler."""
        return len(self._base)


class _Groups:
    """What a loader draws whose items are groups of micro-batches."""

    def __init__(self, sampler: _CombinedBatchSampler) -> None:
        self._sampler = sampler

    def __iter__(self) -> Iterator[List[List[int]]]:
        return self._sampler.groups()

    def __len__(self) -> int:
        return len(self._sampler)


class _MicroBatches(torch.utils.data.Dataset):
    """The items of a micro-batch, by their indices."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __getitem__(self, indices: List[int]) -> List[Any]:
        several = getattr(self._dataset, "__getitems__", None)
        return several(indices) if several is not None else [self._dataset[i] for i in indices]


class _Combined:
    """Collates each micro-batch by itself, and puts them one after the other along dim 0."""

    def __init__(self, collate: Callable) -> None:
        self._collate = collate

    def __call__(self, groups: List[List[Any]]) -> Any:
        return combine([self._collate(items) for items in groups])


def combine(batches: List[Any]) -> Any:
    """Structures of tensors as one: tensors along dim 0, anything else as in the first."""
    tensors: List[List[torch.Tensor]] = [[] for _ in batches]
    tree = [_args.flatten(b, found) for b, found in zip(batches, tensors)][0]
    if len({len(found) for found in tensors}) > 1:
        raise createPoptorchError("Micro-batches of one call must have the same tensors")
    for parts in zip(*tensors):
        if len({(t.dtype, t.shape[1:]) for t in parts}) > 1:
            raise createPoptorchError("Micro-batches of one call differ in more than dim 0: "
                                      f"{', '.join(str(tuple(t.shape)) for t in parts)}")
    return _args.rebuild(tree, [torch.cat(p) if p[0].dim() else torch.stack(p) for p in zip(*tensors)])


class _PartitionSampler(torch.utils.data.Sampler):
    """The indices of one process of several.

    With drop_last every process has the same number of whole steps; else the remainder goes to the first
    processes, one each. When shuffling, all processes draw the same permutation every epoch, and take their
    parts from its start and from its end in turn, so that what one epoch leaves over the next one uses.
    """

    def __init__(self, size: int, options: Options, step: int, drop_last: bool, shuffle: bool) -> None:
        processes, me = options.Distributed.numProcesses, options.Distributed.processId
        self._size = size
        self._leftover = 0
        if drop_last:
            self._length = step * (size // (step * processes))
            self._start = me * self._length
            self._leftover = size % self._length if self._length else 0
        else:
            base, remainder = divmod(size, processes)
            self._length = base + int(me < remainder)
            self._start = me * base + min(me, remainder)
        self._generator: Optional[torch.Generator] = None
        if shuffle:
            self._generator = torch.Generator()
            self._generator.manual_seed(options.random_seed)
        self._epoch = 0

    def __iter__(self) -> Iterator[int]:
        if self._generator is None:
            return iter(range(self._start, self._start + self._length))
        order = torch.randperm(self._size, generator=self._generator)
        start = self._start + (self._leftover if self._epoch % 2 else 0)
        self._epoch += 1
        return iter(order[start:start + self._length].tolist())

    def __len__(self) -> int:
        return self._length

    def __getstate__(self) -> Dict[str, Any]:    # older torch cannot pickle a generator
        state = self.__dict__.copy()
        if self._generator is not None:
            state["_generator"] = self._generator.get_state()
        return state

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__dict__.update(state)
        if state["_generator"] is not None:
            self._generator = torch.Generator()
            self._generator.set_state(state["_generator"])


class DataLoader(torch.utils.data.DataLoader):
    """torch.utils.data.DataLoader for a model with these options, which it freezes.

    :param batch_size: the micro-batch: rows that one forward pass sees. Each item that the loader yields
        has `combinedBatchSize` rows. None: items come as the dataset has them.
    :param drop_last: True by default, unlike torch's.
    :param persistent_workers: by default True if there are workers.
    :param auto_distributed_partitioning: give each process of several its own part of the dataset.
    :param mode: Sync: as torch. Async: in another process; becomes AsyncRebatched with drop_last=False.
        AsyncRebatched: the same, and batches are put together from smaller ones. A dataset in memory
        (_table.py) needs neither the process nor workers, and is loaded without them in every mode.
    :param async_options: arguments of the AsynchronousDataAccessor.
    :param rebatched_worker_size: rows of those smaller batches; by default combinedBatchSize.
    :param batch_sampler: yields lists of indices, a micro-batch each, which collate_fn sees by itself.
    :param kwargs: torch's other arguments.
    """

    def __init__(self, options: Options, dataset: torch.utils.data.Dataset, batch_size: Optional[int] = 1,
                 shuffle: Optional[bool] = None, num_workers: int = 0, drop_last: bool = True,
                 persistent_workers: Optional[bool] = None, auto_distributed_partitioning: bool = True,
                 mode: DataLoaderMode = DataLoaderMode.Sync, async_options: Optional[Dict[str, Any]] = None,
                 rebatched_worker_size: Optional[int] = None,
                 batch_sampler: Optional[torch.utils.data.Sampler] = None, **kwargs: Any) -> None:
        check(isinstance(options, Options),
              f"Expected poptorch.Options as first argument, got {type(options)}")
        check(isinstance(mode, DataLoaderMode), f"Expected a poptorch.DataLoaderMode but got {mode!r}")
        options._freeze()
        self._accessor: Union[AsynchronousDataAccessor, _table.TableAccessor, None] = None
        self._order = _table.Order()
        self._poptorch_options = options
        self._rebatched_size: Optional[int] = None
        self._keep_remainder = not drop_last
        self._combined_batch_size = self._combine(batch_size, batch_sampler)
        shuffle = bool(shuffle)
        partition = auto_distributed_partitioning and options.Distributed.numProcesses > 1
        if partition:
            self._checkPartition(dataset, batch_size, shuffle, batch_sampler, kwargs)
        async_options = dict(async_options or {})
        check("rebatched_size" not in async_options,
              "rebatched_size is the combined batch size and cannot be in async_options")
        self._warnAbout(dataset, drop_last, num_workers, batch_sampler, kwargs)

        whole = batch_sampler is not None and getattr(batch_sampler, "batch_size", None) is None    # of any size
        mode, size = (mode, None) if whole else self._chooseRebatching(mode, drop_last, rebatched_worker_size)
        if persistent_workers is None:
            persistent_workers = num_workers > 0
        arguments = dict(kwargs, num_workers=num_workers, persistent_workers=persistent_workers)
        if batch_sampler is not None:
            arguments["batch_sampler"] = self._sampler(batch_sampler, batch_size, shuffle, drop_last)
        else:
            rebatching = self._rebatched_size is not None
            arguments.update(batch_size=size, drop_last=drop_last and not rebatching and size is not None)
            if partition:
                arguments["sampler"] = _PartitionSampler(len(dataset), options,    # type: ignore[arg-type]
                                                         self._combined_batch_size or 1, drop_last, shuffle)
            elif shuffle:
                arguments["shuffle"] = True
        super().__init__(dataset, **arguments)
        self._grouped = self._perMicroBatch(arguments) if batch_sampler is not None else None
        if mode != DataLoaderMode.Sync:
            own_order = batch_sampler is None and not kwargs.get("sampler") and not kwargs.get("generator")
            self._accessor = (own_order and self._tableAccessor(async_options)) or \
                self._makeAccessor(async_options)

    def _perMicroBatch(self, arguments: Dict[str, Any]) -> Optional[torch.utils.data.DataLoader]:
        """The loader of groups of micro-batches: collate_fn must not see two of them as one."""
        if microBatchesPerCall(self._poptorch_options) == 1:
            return None
        arguments = dict(arguments, batch_sampler=_Groups(arguments["batch_sampler"]), collate_fn=_Combined(self.collate_fn))
        return torch.utils.data.DataLoader(_MicroBatches(self.dataset), **arguments)

    def _combine(self, batch_size: Optional[int], batch_sampler: Any) -> Optional[int]:
        if batch_sampler is not None:
            batch_size = getattr(batch_sampler, "batch_size", None) or 1
        if batch_size is None:
            return None
        return batch_size * microBatchesPerCall(self._poptorch_options)

    def _checkPartition(self, dataset: Any, batch_size: Optional[int], shuffle: bool, batch_sampler: Any,
                        kwargs: Dict[str, Any]) -> None:
        off = "set auto_distributed_partitioning=False and give each process its part"
        check(not isinstance(dataset, torch.utils.data.IterableDataset),
              f"An IterableDataset cannot be divided between processes: {off}")
        if batch_sampler is not None or kwargs.get("sampler") is not None:
            raise createPoptorchError(f"A sampler cannot be divided between processes: {off}")
        check(batch_size is not None, f"A dataset without batches cannot be divided between processes: {off}")
        check(not shuffle or self._poptorch_options.exists("random_seed"),
              "Shuffling in several processes needs poptorch.Options().randomSeed(), the same in all of them")

    def _warnAbout(self, dataset: Any, drop_last: bool, num_workers: int, batch_sampler: Any,
                   kwargs: Dict[str, Any]) -> None:
        if isinstance(dataset, torch.utils.data.IterableDataset):
            if num_workers > 1 and kwargs.get("worker_init_fn") is None:
                logger.warning("Each of the %d workers iterates the whole IterableDataset: every element is "
                               "returned %d times. A worker_init_fn can divide it", num_workers, num_workers)
            return
        combined = self._combined_batch_size
        if drop_last or combined is None or batch_sampler is not None:
            return
        total = combined * self._poptorch_options.Distributed.numProcesses
        if total > 1 and len(dataset) % total != 0:
            logger.warning("The dataset's size %d is not a multiple of %d (batch_size x micro-batches per call "
                           "x processes) and drop_last is False: the last tensor will be short, and a compiled "
                           "model will refuse it", len(dataset), total)

    def _chooseRebatching(self, mode: DataLoaderMode, drop_last: bool,
                          worker_size: Optional[int]) -> Tuple[DataLoaderMode, Optional[int]]:
        """The effective mode, and the size of the batches that torch's loader makes."""
        combined = self._combined_batch_size
        if mode == DataLoaderMode.Async and not drop_last and combined is not None and combined > 1:
            mode = DataLoaderMode.AsyncRebatched
        check(worker_size is None or (combined is not None and 0 < worker_size <= combined),
              f"rebatched_worker_size ({worker_size}) must not be greater than the combined batch size "
              f"({combined})")
        if mode != DataLoaderMode.AsyncRebatched or combined is None or combined <= 1:
            return mode, combined
        self._rebatched_size = combined
        return mode, worker_size or combined

    def _sampler(self, batch_sampler: Any, batch_size: Optional[int], shuffle: bool, drop_last: bool) -> Any:
        if batch_size != 1 or shuffle:
            raise createPoptorchError("batch_sampler cannot be used together with batch_size or shuffle")
        # When rebatching, the accessor drops the rest, not the sampler.
        drop_last = drop_last and self._rebatched_size is None
        return _CombinedBatchSampler(batch_sampler, microBatchesPerCall(self._poptorch_options), drop_last)

    def _makeAccessor(self, async_options: Dict[str, Any]) -> AsynchronousDataAccessor:
        loader = copy.copy(self)
        loader._synchronous = True
        return AsynchronousDataAccessor(loader, rebatched_size=self._rebatched_size,
                                        _keep_remainder=self._keep_remainder, **async_options)

    def _tableAccessor(self, async_options: Dict[str, Any]) -> Optional[_table.TableAccessor]:
        """For a dataset in memory, which needs no process; None for others."""
        known = ("buffer_size", "miss_sleep_time_in_ms", "load_indefinitely", "early_preload", "sharing_strategy")
        table = _table.ofLoader(self)
        if table is None or len(self.batch_sampler) == 0 or set(async_options) - set(known):
            return None
        checkArguments(**{k: v for k, v in async_options.items()
                          if k not in ("load_indefinitely", "early_preload")})
        return _table.TableAccessor(self, table, self._rebatched_size, self._keep_remainder)

    _synchronous = False

    @property
    def combinedBatchSize(self) -> Optional[int]:
        """Rows of each item: batch_size x micro-batches per call. None if batch_size is."""
        return self._combined_batch_size

    @property
    def options(self) -> Options:
        """The options, frozen. Not there when batch_size is None."""
        if self._combined_batch_size is None:
            raise AttributeError("A DataLoader with batch_size=None does not depend on its options")
        return self._poptorch_options

    def __len__(self) -> int:
        if self._rebatched_size is None or self._synchronous:
            return super().__len__()
        size = self._rebatched_size
        n = self._rows(size)
        return math.ceil(n / size) if self._keep_remainder else n // size

    def _rows(self, combined: int) -> int:
        """Of an epoch of this process."""
        if isinstance(self.dataset, torch.utils.data.IterableDataset):
            return len(self.dataset)    # type: ignore[arg-type]
        if isinstance(self.batch_sampler, _CombinedBatchSampler):
            return self.batch_sampler.numBatches() * (combined // self.batch_sampler.count)
        return len(self.sampler)    # type: ignore[arg-type]

    def __iter__(self) -> Any:
        if not self._synchronous and (profiling.enabled() or _profile.times(self._poptorch_options)):
            return profiling.Channel("poptorch.DataLoader").items(self._items())
        return self._items()

    def _items(self) -> Any:
        if self._accessor is not None:
            return iter(self._accessor)
        table = _table.ofLoader(self)
        if table is not None:
            return _table.TableIterator(self, table, self._order)
        if profiling.enabled() and not isinstance(self.dataset, torch.utils.data.IterableDataset):
            profiling.Channel("dataset").instrument(self.dataset, "__getitem__")
        return super().__iter__() if self._grouped is None else iter(self._grouped)

    def terminate(self) -> None:
        """Stop the process of an asynchronous loader. It cannot be iterated any more."""
        if self._accessor is not None:
            self._accessor.terminate()


__all__ = ["AsynchronousDataAccessor", "DataLoader"]
