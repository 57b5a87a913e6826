"""poptorch.DataLoader and AsynchronousDataAccessor: batching arithmetic, modes, processes, and failures.

Every test has a deadline: a loader that waits for ever is a failure here, not a stuck build.
"""

import gc
import logging
import math
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from poptorch import _logging, _ring, async_data, custom_arg    # noqa: E402
from poptorch.custom_arg import ICustomArgParser, registerCustomArgParser    # noqa: E402
from poptorch.data import AsynchronousDataAccessor, DataLoader, microBatchesPerCall    # noqa: E402
from poptorch.enums import CommGroupType, DataLoaderMode, SharingStrategy    # noqa: E402
from poptorch.errors import Error    # noqa: E402
from poptorch.options import Options    # noqa: E402
from torch.utils.data import BatchSampler, IterableDataset, SequentialSampler    # noqa: E402

SECONDS = 100
FORK = {"sharing_strategy": SharingStrategy.Fork}


def wait_for(condition):
    """Until it holds, however busy the machine is; the deadline below ends it."""
    while not condition():
        time.sleep(0.01)


@pytest.fixture(autouse=True)
def deadline():
    def late(*_):
        raise TimeoutError(f"still running after {SECONDS} s")
    old = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, old)


@pytest.fixture(autouse=True)
def nothing_left_behind():
    """Whatever a test started is stopped after it, and no file of a ring is left."""
    before = set(leftovers())
    yield
    async_data._terminateAll()
    assert not set(leftovers()) - before


def leftovers():
    """Rings of this process, and of those that are gone; other tests that run now have theirs."""
    files = [f for f in os.listdir("/dev/shm") if f.startswith("poptorch-")] if os.path.isdir("/dev/shm") else []
    owners = {f: int(f.split("-")[1]) for f in files}
    return [f for f, pid in owners.items() if pid == os.getpid() or not os.path.exists(f"/proc/{pid}")]


@pytest.fixture
def log():
    """The messages logged during a test, as (level, text)."""
    records = []
    handler = logging.Handler()
    handler.emit = lambda r: records.append((r.levelname, r.getMessage()))
    _logging.logger.addHandler(handler)
    yield records
    _logging.logger.removeHandler(handler)


class Numbers(torch.utils.data.Dataset):
    """n items: (a row of two floats, a label)."""

    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        if not 0 <= i < self.n:
            raise IndexError(i)
        return torch.tensor([i, -i], dtype=torch.float32), torch.tensor(i)


class Stream(IterableDataset):
    """The same without an index; every worker yields its share."""

    def __init__(self, n, sized=True):
        self.n = n
        if sized:
            self.__class__ = SizedStream

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        start, step = (info.id, info.num_workers) if info else (0, 1)
        return ((torch.tensor([i, -i], dtype=torch.float32), torch.tensor(i)) for i in range(start, self.n, step))


class SizedStream(Stream):
    def __len__(self):
        return self.n


class Items:
    """Yields what it is given. A callable among the items is called instead."""

    def __init__(self, *items, epochs=None):
        self.items = items
        self.epoch = 0

    def __len__(self):
        return len(self.items)

    def __iter__(self):
        self.epoch += 1
        for item in self.items:
            yield item() if callable(item) else item


def opts(D=1, A=1, R=1, P=None, g=1, seed=None):
    o = Options().deviceIterations(D).replicationFactor(R)
    o.Training.gradientAccumulation(A)
    o.Distributed.disable()
    if g != 1:
        o.inputReplicaGrouping(g, CommGroupType.Consecutive)
    if P is not None:
        o.Distributed.configureProcessId(*P)
    if seed is not None:
        o.randomSeed(seed)
    return o


def labels(loader):
    """The labels of one epoch, as a list per item; checks the rows that go with them."""
    out = []
    for x, y in loader:
        assert torch.equal(x, torch.stack((y.float(), -y.float()), 1))
        out.append(y.tolist())
    return out


def flat(lists):
    return [i for x in lists for i in x]


# Batching arithmetic: B, D, A, R, g -> micro-batches, rows of a call.

ROWS = [
    (16, 1, 1, 1, 1, 1, 16), (8, 50, 1, 1, 1, 50, 400), (40, 10, 10, 1, 1, 100, 4000), (8, 100, 1, 1, 1, 100, 800),
    (16, 20, 1, 2, 1, 40, 640), (5, 2, 3, 4, 1, 24, 120), (1, 1000, 1, 1, 1, 1000, 1000), (1, 10, 1, 1, 1, 10, 10),
    (4, 1, 1, 4, 2, 2, 8), (4, 1, 1, 4, 4, 1, 4), (3, 2, 2, 6, 3, 8, 24), (1, 1, 1, 1, 1, 1, 1), (2, 1, 7, 1, 1, 7, 14),
    (2, 1, 1, 8, 1, 8, 16), (2, 3, 5, 7, 1, 105, 210), (2, 3, 5, 8, 8, 15, 30),
]


@pytest.mark.parametrize("B, D, A, R, g, k, rows", ROWS)
def test_combined_batch_size(B, D, A, R, g, k, rows):
    o = opts(D, A, R, g=g)
    assert microBatchesPerCall(o) == k
    loader = DataLoader(o, Numbers(2 * rows + rows // 2), batch_size=B)
    assert loader.combinedBatchSize == rows
    assert loader.options is o
    assert [len(y) for y in labels(loader)] == [rows, rows]


STEPS = [(60000, 16, 1, 1, 1, 1, 3750), (10000, 32, 1, 1, 1, 1, 312), (60000, 8, 50, 1, 1, 1, 150),
         (10000, 80, 1, 1, 1, 1, 125), (60000, 40, 10, 10, 1, 1, 15), (10000, 8, 100, 1, 1, 1, 12),
         (60000, 16, 1, 1, 1, 4, 937), (100, 1, 1, 1, 2, 3, 16), (10, 4, 1, 1, 1, 3, 0), (9, 10, 1, 1, 1, 1, 0)]


@pytest.mark.parametrize("N, B, D, A, R, P, steps", STEPS)
def test_steps_per_epoch(N, B, D, A, R, P, steps):
    assert len(DataLoader(opts(D, A, R, P=(P - 1, P)), Numbers(N), batch_size=B)) == steps


@pytest.mark.parametrize("N, drop_last, sizes", [(10, True, [4, 4]), (10, False, [4, 4, 2]), (8, False, [4, 4]),
                                                 (3, True, []), (3, False, [3])])
def test_drop_last(log, N, drop_last, sizes):
    loader = DataLoader(opts(D=2), Numbers(N), batch_size=2, drop_last=drop_last)
    assert [len(y) for y in labels(loader)] == sizes and len(loader) == len(sizes)
    assert ("short" in str(log)) == (not drop_last and N % 4 != 0)


def test_defaults():
    loader = DataLoader(opts(), Numbers(4))
    assert loader.combinedBatchSize == 1 and loader.drop_last is True and loader.persistent_workers is False
    assert labels(loader) == [[0], [1], [2], [3]]
    assert isinstance(loader, torch.utils.data.DataLoader)
    loader.terminate()
    assert labels(loader) == [[0], [1], [2], [3]], "nothing to terminate"


def test_no_batches():
    loader = DataLoader(opts(D=7), Numbers(3), batch_size=None)
    assert loader.combinedBatchSize is None
    with pytest.raises(AttributeError):
        loader.options    # pylint: disable=pointless-statement
    assert [int(y) for _, y in loader] == [0, 1, 2]


def test_options_are_frozen():
    o = opts()
    DataLoader(o, Numbers(4))
    with pytest.raises(AttributeError, match="Can't modify frozen Options"):
        o.deviceIterations(2)
    with pytest.raises(AttributeError, match="Can't modify frozen Options"):
        o.Training.gradientAccumulation(2)
    DataLoader(o, Numbers(4), batch_size=2)


@pytest.mark.parametrize("thing", [None, {}, 1, "opts"])
def test_options_are_required(thing):
    with pytest.raises(AssertionError, match="poptorch.Options"):
        DataLoader(thing, Numbers(4))


@pytest.mark.parametrize("workers, given, expected", [(0, None, False), (2, None, True), (2, False, False)])
def test_persistent_workers(workers, given, expected):
    loader = DataLoader(opts(), Numbers(8), batch_size=2, num_workers=workers, persistent_workers=given)
    assert loader.persistent_workers is expected
    assert flat(labels(loader)) == list(range(8))
    assert flat(labels(loader)) == list(range(8))


def test_shuffle():
    loader = DataLoader(opts(D=5), Numbers(100), batch_size=2, shuffle=True)
    first, second = flat(labels(loader)), flat(labels(loader))
    assert sorted(first) == sorted(second) == list(range(100))
    assert first != second and first != list(range(100))


def test_torch_arguments_are_passed_on():
    loader = DataLoader(opts(), Numbers(4), batch_size=2, collate_fn=lambda items: [int(y) for _, y in items])
    assert list(loader) == [[0, 1], [2, 3]]
    loader = DataLoader(opts(), Numbers(4), batch_size=2, sampler=[3, 2, 1, 0])
    assert labels(loader) == [[3, 2], [1, 0]]


@pytest.mark.parametrize("drop_last, expected", [(True, [[0, 1, 2, 3], [4, 5, 6, 7]]),
                                                 (False, [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]])])
def test_batch_sampler(drop_last, expected):
    sampler = BatchSampler(SequentialSampler(range(10)), 2, True)
    loader = DataLoader(opts(D=2), Numbers(10), batch_sampler=sampler, drop_last=drop_last)
    assert labels(loader) == expected and len(loader) == len(expected)
    assert loader.combinedBatchSize == 4


def test_batch_sampler_with_batches_of_any_size():
    loader = DataLoader(opts(D=2), Numbers(10), batch_sampler=[[0], [1, 2], [9, 8, 7], [3]])
    assert labels(loader) == [[0, 1, 2], [9, 8, 7, 3]]


def padded(items):
    """A batch with its length: what a micro-batch is must not be told from its neighbours."""
    x = torch.zeros(4, dtype=torch.int64)
    x[:len(items)] = torch.stack([y for _, y in items])
    return x, torch.tensor(len(items))


@pytest.mark.parametrize("mode", [DataLoaderMode.Sync, DataLoaderMode.Async])
@pytest.mark.parametrize("workers", [0, 2])
def test_each_micro_batch_is_collated_by_itself(mode, workers):
    sampler = [[1], [2, 3], [9, 8, 7], [4], [5]]
    loader = DataLoader(opts(D=2), Numbers(10), batch_sampler=sampler, collate_fn=padded, mode=mode, num_workers=workers,
                        async_options=FORK if mode == DataLoaderMode.Async else None)
    for _ in range(2):
        found = [(x.tolist(), n.tolist()) for x, n in loader]
        assert found == [([1, 0, 0, 0, 2, 3, 0, 0], [1, 2]), ([9, 8, 7, 0, 4, 0, 0, 0], [3, 1])]
    assert len(loader) == 2
    loader.terminate()


def test_micro_batches_of_one_call_must_fit_together():
    wide = DataLoader(opts(D=2), Numbers(4), batch_sampler=[[0], [1, 2]], collate_fn=lambda items: torch.zeros(1, len(items)))
    with pytest.raises(Error, match="differ in more than dim 0: .1, 1., .1, 2."):
        next(iter(wide))


def test_batches_of_any_size_cannot_be_put_together_again():
    with pytest.raises(AssertionError, match="rebatched_size"):
        DataLoader(opts(D=2), Numbers(4), batch_sampler=[[0], [1, 2]], drop_last=False, mode=DataLoaderMode.Async,
                   async_options=FORK)


SAMPLER = [[0, 1], [2, 3]]
ERRORS = [
    ({"batch_sampler": SAMPLER, "batch_size": 2}, None, Error, "batch_sampler"),
    ({"batch_sampler": SAMPLER, "shuffle": True}, None, Error, "batch_sampler"),
    ({"batch_sampler": SAMPLER}, (0, 2), Error, "divided between processes"),
    ({"sampler": [0, 1]}, (0, 2), Error, "divided between processes"),
    ({"shuffle": True}, (0, 2), AssertionError, "randomSeed"),
    ({"batch_size": None}, (0, 2), AssertionError, "divided between processes"),
    ({"batch_size": 2, "rebatched_worker_size": 3}, None, AssertionError, "combined batch size"),
    ({"mode": DataLoaderMode.AsyncRebatched, "batch_size": 4, "rebatched_worker_size": 5}, None, AssertionError,
     "combined batch size"),
    ({"mode": DataLoaderMode.Async, "async_options": {"rebatched_size": 4}}, None, AssertionError, "rebatched_size"),
    ({"mode": 1}, None, AssertionError, "DataLoaderMode"),
    ({"batch_size": 0}, None, ValueError, "batch_size"),
    ({"batch_size": -1}, None, ValueError, "batch_size"),
]


@pytest.mark.parametrize("kwargs, process, error, words", ERRORS, ids=range(len(ERRORS)))
def test_errors(kwargs, process, error, words):
    with pytest.raises(error, match=words):
        DataLoader(opts(P=process), Numbers(8), **kwargs)


def test_iterable_dataset_in_several_processes():
    with pytest.raises(AssertionError, match="IterableDataset"):
        DataLoader(opts(P=(0, 2)), Stream(8))
    loader = DataLoader(opts(P=(0, 2)), Stream(8), auto_distributed_partitioning=False)
    assert flat(labels(loader)) == list(range(8))


@pytest.mark.parametrize("workers, init, warns", [(0, None, False), (1, None, False), (2, None, True),
                                                  (2, lambda i: None, False)])
def test_iterable_dataset_with_workers(log, workers, init, warns):
    DataLoader(opts(), Stream(8), num_workers=workers, worker_init_fn=init)
    assert ("every element" in str(log)) == warns


# Several processes.

PARTITIONS = [(N, B, P, drop) for N, B in ((24, 2), (25, 2), (31, 3), (7, 1), (100, 7), (5, 3)) for P in (2, 3, 4)
              for drop in (True, False)]


@pytest.mark.parametrize("N, B, P, drop", PARTITIONS)
def test_partition(N, B, P, drop):
    parts = [flat(labels(DataLoader(opts(P=(i, P)), Numbers(N), batch_size=B, drop_last=drop))) for i in range(P)]
    if drop:
        each = B * (N // (B * P))
        assert parts == [list(range(i * each, (i + 1) * each)) for i in range(P)]
    else:
        assert flat(parts) == list(range(N))
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize("N, B, P, drop", PARTITIONS)
def test_shuffled_partition(N, B, P, drop):
    loaders = [DataLoader(opts(P=(i, P), seed=5), Numbers(N), batch_size=B, shuffle=True, drop_last=drop)
               for i in range(P)]
    each = B * (N // (B * P))
    generator = torch.Generator()
    generator.manual_seed(5)
    for epoch in range(3):
        order = torch.randperm(N, generator=generator).tolist()
        offset = N % each if drop and each and epoch % 2 else 0
        found = flat(flat(labels(loader)) for loader in loaders)
        assert found == (order[offset:offset + P * each] if drop else order)


def test_partition_can_be_switched_off():
    loader = DataLoader(opts(P=(1, 2)), Numbers(4), auto_distributed_partitioning=False)
    assert flat(labels(loader)) == [0, 1, 2, 3]


def test_shuffled_partition_of_an_asynchronous_loader():
    def make(**kwargs):
        return DataLoader(opts(P=(1, 2), seed=3), Numbers(21), batch_size=2, shuffle=True, **kwargs)
    sync, async_ = make(), make(mode=DataLoaderMode.Async, async_options=FORK)
    for _ in range(3):
        assert labels(sync) == labels(async_)


# Modes.

@pytest.mark.parametrize("mode", list(DataLoaderMode))
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("N, drop_last", [(20, True), (23, True), (23, False)])
def test_modes_agree(mode, workers, N, drop_last):
    loader = DataLoader(opts(D=2, A=2), Numbers(N), batch_size=1, num_workers=workers, mode=mode, async_options=FORK,
                        drop_last=drop_last)
    n = N // 4 if drop_last else math.ceil(N / 4)
    expected = [list(range(i, min(i + 4, N))) for i in range(0, 4 * n, 4)]
    assert len(loader) == n
    for _ in range(2):
        assert labels(loader) == expected
    loader.terminate()


@pytest.mark.parametrize("size", [None, 1, 4, 5])
@pytest.mark.parametrize("drop_last", [True, False])
def test_rebatching(size, drop_last):
    loader = DataLoader(opts(D=3), Numbers(20), batch_size=2, rebatched_worker_size=size, drop_last=drop_last,
                        mode=DataLoaderMode.AsyncRebatched, async_options=FORK)
    found = labels(loader)
    assert flat(found) == list(range(18 if drop_last else 20))
    assert [len(y) for y in found] == [6, 6, 6] + ([] if drop_last else [2])
    assert len(loader) == len(found)


@pytest.mark.parametrize("drop_last, rows", [(True, 24), (False, 26)])
def test_rebatching_an_iterable_dataset_loses_less(drop_last, rows):
    loader = DataLoader(opts(), Stream(26), batch_size=4, num_workers=2, mode=DataLoaderMode.AsyncRebatched,
                        rebatched_worker_size=1, drop_last=drop_last, async_options=FORK,
                        worker_init_fn=int)
    found = labels(loader)
    assert len(flat(found)) == rows and len(set(flat(found))) == rows
    assert len(loader) == len(found)


def test_rebatching_a_batch_sampler():
    loader = DataLoader(opts(D=2), Numbers(10), mode=DataLoaderMode.Async, drop_last=False, async_options=FORK,
                        batch_sampler=BatchSampler(SequentialSampler(range(10)), 2, False))
    assert labels(loader) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]] and len(loader) == 3
    loader = DataLoader(opts(D=2), Numbers(10), mode=DataLoaderMode.AsyncRebatched, async_options=FORK,
                        batch_sampler=BatchSampler(SequentialSampler(range(10)), 2, False))
    assert labels(loader) == [[0, 1, 2, 3], [4, 5, 6, 7]] and len(loader) == 2


@pytest.mark.parametrize("mode", [DataLoaderMode.Async, DataLoaderMode.AsyncRebatched])
def test_async_of_batches_of_one(mode):
    loader = DataLoader(opts(), Numbers(3), mode=mode, drop_last=False, async_options=FORK)
    assert labels(loader) == [[0], [1], [2]] and len(loader) == 3


def test_async_without_batches():
    loader = DataLoader(opts(), Numbers(3), batch_size=None, mode=DataLoaderMode.Async, async_options=FORK)
    assert [int(y) for _, y in loader] == [0, 1, 2]


def test_async_shuffle_follows_the_seed():
    def run(seed):
        torch.manual_seed(seed)
        loader = DataLoader(opts(), Numbers(50), batch_size=5, shuffle=True, mode=DataLoaderMode.Async, async_options=FORK)
        return flat(labels(loader)), flat(labels(loader))
    first, second = run(1)
    assert sorted(first) == sorted(second) == list(range(50)) and first != second
    assert run(1) == (first, second)
    assert run(2) != (first, second)


def test_tuples_arrive_as_lists():
    loader = DataLoader(opts(), Numbers(4), mode=DataLoaderMode.Async, async_options=FORK)
    assert all(isinstance(item, list) for item in loader)


@pytest.mark.parametrize("strategy", list(SharingStrategy))
def test_sharing_strategies(strategy):
    loader = DataLoader(opts(D=2), Numbers(12), batch_size=2, num_workers=int(strategy == SharingStrategy.ForkServer),
                        mode=DataLoaderMode.Async, async_options={"sharing_strategy": strategy, "buffer_size": 2})
    for _ in range(2):
        assert labels(loader) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]


@pytest.mark.parametrize("strategy", [SharingStrategy.FileSystem, SharingStrategy.ForkServer])
def test_dataset_that_cannot_be_pickled(strategy):
    with pytest.raises(Error, match="SharingStrategy.Fork"):
        AsynchronousDataAccessor(Items(torch.zeros(1), lambda: torch.zeros(1)), sharing_strategy=strategy)


# The accessor: items.

DTYPES = [torch.float32, torch.float64, torch.float16, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8,
          torch.bool, torch.bfloat16]


def accessor(*items, **kwargs):
    return AsynchronousDataAccessor(Items(*items), **{**FORK, **kwargs})


@pytest.mark.parametrize("dtype", DTYPES)
def test_types_and_shapes(dtype):
    shapes = [(), (1,), (3, 5), (2, 1, 7)]
    items = [[(torch.arange(64)[:int(torch.Size(s).numel())] + i).view(s).to(dtype) for s in shapes] for i in range(4)]
    found = [[t.clone() for t in item] for item in accessor(*items, buffer_size=2)]
    assert len(found) == 4
    assert all(a.dtype == b.dtype and torch.equal(a, b) for x, y in zip(items, found) for a, b in zip(x, y))


def test_empty_and_strided_tensors():
    items = [[torch.zeros(0, 3), torch.arange(6).view(2, 3).t() + i] for i in range(3)]
    for want, found in zip(items, accessor(*items)):
        assert all(torch.equal(a, b) for a, b in zip(want, found))


def test_dictionaries():
    a, b = torch.tensor([1]), torch.tensor([2.0])
    found = [{k: v.clone() for k, v in d.items()} for d in accessor({"a": a, "b": b}, {"b": b + 1, "a": a + 1})]
    assert [list(d) for d in found] == [["a", "b"], ["a", "b"]]
    assert found[1]["a"].item() == 2 and found[1]["b"].item() == 3.0


class Pair:
    def __init__(self, name, a, b):
        self.name, self.a, self.b = name, a, b


class PairParser(ICustomArgParser):
    def yieldTensors(self, struct):
        yield struct.a
        yield struct.b

    def reconstruct(self, original_structure, tensor_iterator):
        return Pair(original_structure.name, next(tensor_iterator), next(tensor_iterator))


@pytest.fixture
def pair_parser():
    registerCustomArgParser(Pair, PairParser())
    yield
    registerCustomArgParser(Pair, None)
    assert not custom_arg.parsers


@pytest.mark.parametrize("strategy", [SharingStrategy.Fork, SharingStrategy.ForkServer])
def test_custom_types(pair_parser, strategy):
    items = [Pair("p", torch.tensor([i]), torch.tensor([[i * 2.0]])) for i in range(5)]
    found = [(p.name, int(p.a), float(p.b)) for p in accessor(*items, sharing_strategy=strategy)]
    assert found == [("p", i, i * 2.0) for i in range(5)]


def test_custom_types_are_found_by_base(pair_parser):
    class Derived(Pair):
        pass
    assert isinstance(custom_arg.findParser(Derived("d", 1, 2)), PairParser)
    assert custom_arg.findParser(3) is None
    with pytest.raises(Error, match="ICustomArgParser"):
        registerCustomArgParser(Derived, object())


T = torch.zeros(2)


@pytest.mark.parametrize("item", [[T, [T]], (T, (T,)), {"a": [T]}, {"a": {"b": T}}, [T, 3], 3, "text", None, [], {}],
                         ids=str)
def test_items_that_are_refused(item):
    with pytest.raises(Error, match="failed to start"):
        accessor(item)


@pytest.mark.parametrize("item", [torch.zeros(3), torch.zeros(2, 1), torch.zeros(2, dtype=torch.int32), [T], {"a": T}],
                         ids=str)
def test_items_that_change(item):
    found = accessor(T, T, item)
    with pytest.raises(AssertionError, match="(?s)An error occurred in the data fetcher.*must not change"):
        list(found)


@pytest.mark.parametrize("first, second", [([T, T], [T]), ({"a": T}, {"b": T}), ({"a": T}, {"a": T, "b": T})], ids=str)
def test_structures_that_change(first, second):
    with pytest.raises(AssertionError, match="must not change"):
        list(accessor(first, second))


# The accessor: iteration.

def numbers(n):
    return [torch.tensor([i]) for i in range(n)]


@pytest.mark.parametrize("buffer_size", [1, 2, 3, 7])
@pytest.mark.parametrize("load_indefinitely", [True, False])
@pytest.mark.parametrize("early_preload", [True, False])
def test_epochs(buffer_size, load_indefinitely, early_preload):
    a = accessor(*numbers(5), buffer_size=buffer_size, load_indefinitely=load_indefinitely,
                 early_preload=early_preload)
    for _ in range(4):
        assert [int(x) for x in a] == [0, 1, 2, 3, 4]
    assert len(a) == 5
    with pytest.raises(StopIteration):
        next(a)


@pytest.mark.parametrize("buffer_size", [1, 2, 3, 5])
@pytest.mark.parametrize("seed", range(3))
def test_leaving_loops_early(buffer_size, seed):
    """Breaks at random places, short and long epochs: never a stale, missing or torn item, never a hang."""
    rng = random.Random(seed)
    n = rng.choice([1, 2, 4, 9])
    a = accessor(*[torch.full((1000,), i) for i in range(n)], buffer_size=buffer_size)
    for _ in range(60):
        stop = rng.randrange(n + 2)
        seen = []
        for x in a:
            seen.append(x[0].item())
            assert (x == x[0]).all()
            if len(seen) == stop:
                break
        assert seen == list(range(min(stop or n, n)))
        if rng.random() < 0.2:
            iter(a)


@pytest.mark.parametrize("mode", [DataLoaderMode.Async, DataLoaderMode.AsyncRebatched])
def test_leaving_loops_of_a_loader_with_workers(mode):
    loader = DataLoader(opts(D=2), Numbers(40), batch_size=2, num_workers=2, mode=mode, async_options=FORK)
    for stop in (1, 3, 9, 1, 10, 2):
        seen = []
        for _, y in loader:
            seen += y.tolist()
            if len(seen) == 4 * stop:
                break
        assert seen == list(range(4 * stop))


def test_iter_twice_starts_once():
    a = accessor(*numbers(3))
    for _ in range(5000):
        iter(a)    # no message each: the pipe must not fill up
    assert [int(x) for x in a] == [0, 1, 2]
    it = iter(a)
    assert int(next(it)) == 0
    assert [int(x) for x in a] == [0, 1, 2]


def test_next_without_iter():
    a = accessor(*numbers(2))
    assert int(next(a)) == 0 and int(next(a)) == 1
    with pytest.raises(StopIteration):
        next(a)


@pytest.mark.parametrize("buffer_size", [1, 2, 3])
def test_an_item_is_valid_until_the_next_request(buffer_size):
    a = accessor(*[torch.full((4,), i) for i in range(10)], buffer_size=buffer_size)
    for i, x in enumerate(a):
        time.sleep(0.002)
        assert x.tolist() == [i] * 4
    x = next(iter(a))
    time.sleep(0.03)
    assert x.tolist() == [0] * 4
    x = next(a)
    iter(a)
    time.sleep(0.03)
    assert x.tolist() == [1] * 4, "a new epoch must not touch it either"


@pytest.mark.parametrize("buffer_size", [2, 3])
def test_the_last_item_outlives_its_loop(buffer_size):
    a = accessor(*[torch.full((4,), i) for i in range(10)], buffer_size=buffer_size)
    for _ in range(3):
        for x in a:
            pass
        time.sleep(0.03)
        assert x.tolist() == [9] * 4, "loading the next epoch ahead must not touch it"


def count_loaded(tmp_path, at_least, **kwargs):
    """How many items the worker loads before anyone asks."""
    path = tmp_path / "count"

    def item():
        with open(path, "a", encoding="ascii") as f:
            f.write(".")
        return torch.zeros(1)
    a = accessor(*[item] * 10, **kwargs)
    wait_for(lambda: len(path.read_text()) >= at_least)
    time.sleep(0.2)
    first = len(path.read_text())
    list(a)
    return first


def test_one_item_is_loaded_at_construction(tmp_path):
    assert count_loaded(tmp_path, 1, buffer_size=4) == 1


def test_early_preload_fills_the_ring(tmp_path):
    assert 4 <= count_loaded(tmp_path, 4, buffer_size=4, early_preload=True) <= 5


@pytest.mark.parametrize("load_indefinitely, epochs", [(True, 2), (False, 1)])
def test_the_next_epoch_is_loaded_ahead(tmp_path, load_indefinitely, epochs):
    path = tmp_path / "epochs"

    class Counting(Items):
        def __iter__(self):
            with open(path, "a", encoding="ascii") as f:
                f.write(".")
            return super().__iter__()
    a = AsynchronousDataAccessor(Counting(*numbers(2)), load_indefinitely=load_indefinitely, buffer_size=8, **FORK)
    list(a)
    wait_for(lambda: len(path.read_text()) >= epochs)
    time.sleep(0.2)
    assert len(path.read_text()) == epochs


def test_over_a_torch_loader():
    loader = torch.utils.data.DataLoader(Numbers(12), batch_size=4, num_workers=1)
    a = AsynchronousDataAccessor(loader, **FORK)
    assert len(a) == 3 and labels(a) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]


@pytest.mark.parametrize("N, B, size, lengths", [(12, 4, 6, [6, 6]), (10, 3, 4, [4, 4]), (10, 4, 2, [2] * 5),
                                                 (5, 2, 8, [])])
def test_rebatching_alone(N, B, size, lengths):
    loader = torch.utils.data.DataLoader(Numbers(N), batch_size=B)
    a = AsynchronousDataAccessor(loader, rebatched_size=size, **FORK)
    assert [len(y) for y in labels(a)] == lengths
    assert len(a) == (len(loader) * B) // size


def test_rebatching_needs_rows():
    with pytest.raises(Error, match="rank 0"):
        accessor(torch.tensor(1), rebatched_size=2)
    with pytest.raises(AssertionError, match="same number of rows"):
        list(accessor([torch.zeros(2), torch.zeros(3)], rebatched_size=2))


@pytest.mark.parametrize("kwargs", [{"rebatched_size": 1}, {"rebatched_size": 0}, {"rebatched_size": "2"},
                                    {"buffer_size": 0}, {"buffer_size": 1.5}, {"miss_sleep_time_in_ms": -1},
                                    {"sharing_strategy": 2}])
def test_accessor_misuse(kwargs):
    with pytest.raises(AssertionError):
        accessor(T, **kwargs)


def test_over_poptorch_loaders():
    with pytest.raises(Error, match="asynchronous already"):
        AsynchronousDataAccessor(DataLoader(opts(), Numbers(4), mode=DataLoaderMode.Async, async_options=FORK), **FORK)
    short = DataLoader(opts(), Numbers(4), batch_size=2, drop_last=False)
    with pytest.raises(AssertionError, match="rebatched_size"):
        AsynchronousDataAccessor(short, **FORK)
    assert labels(AsynchronousDataAccessor(short, rebatched_size=4, **FORK)) == [[0, 1, 2, 3]]
    assert labels(AsynchronousDataAccessor(DataLoader(opts(), Numbers(4), batch_size=2), **FORK)) == [[0, 1], [2, 3]]


# Failures.

def fail(*_):
    raise ValueError("no such picture")


def leave():
    sys.exit(3)


def vanish():
    os._exit(4)


def killed():
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("cause, words", [(fail, "no such picture"), (leave, "SystemExit"), (vanish, "code 4"),
                                          (killed, "code -9")])
@pytest.mark.parametrize("place", [1, 6])
@pytest.mark.parametrize("buffer_size", [1, 3])
def test_worker_fails(cause, words, place, buffer_size):
    items = numbers(place) + [cause] + numbers(3)
    a = accessor(*items, buffer_size=buffer_size)
    seen = []
    with pytest.raises(AssertionError, match=f"(?s)An error occurred in the data fetcher.*{words}"):
        for x in a:
            seen.append(int(x))
    assert seen == list(range(place))
    with pytest.raises(AssertionError, match="An error occurred in the data fetcher"):
        next(a)
    with pytest.raises(AssertionError, match="An error occurred in the data fetcher"):
        iter(a)


@pytest.mark.parametrize("cause, words", [(fail, "no such picture"), (leave, "SystemExit"), (vanish, "code 4"),
                                          (killed, "code -9")])
def test_worker_fails_to_start(cause, words):
    with pytest.raises(Error, match=f"(?s)worker thread failed to start.*{words}"):
        accessor(cause)


def test_empty_dataset():
    with pytest.raises(Error, match="(?s)worker thread failed to start.*is empty"):
        accessor()


def test_an_epoch_that_is_empty_later():
    class Once(Items):
        def __iter__(self):
            self.epoch += 1
            return iter(self.items if self.epoch == 1 else ())
    a = AsynchronousDataAccessor(Once(*numbers(2)), **FORK)
    assert [int(x) for x in a] == [0, 1]
    for _ in range(20):
        assert list(a) == []


def test_dataset_of_a_loader_fails():
    class Broken(Numbers):
        def __getitem__(self, i):
            return fail() if i == 5 else super().__getitem__(i)
    for workers in (0, 2):
        loader = DataLoader(opts(), Broken(8), batch_size=2, num_workers=workers, mode=DataLoaderMode.Async,
                            async_options=FORK)
        with pytest.raises(AssertionError, match="(?s)data fetcher.*no such picture"):
            list(loader)


@pytest.mark.parametrize("when", ["before", "during", "after"])
@pytest.mark.parametrize("buffer_size", [1, 3])
def test_worker_is_killed(when, buffer_size):
    a = accessor(*[torch.zeros(10)] * 50, buffer_size=buffer_size)
    process = a._process
    if when != "before":
        next(iter(a))
    if when == "after":
        list(a)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    with pytest.raises(AssertionError, match="An error occurred in the data fetcher"):
        for _ in range(3):
            list(a)


@pytest.mark.parametrize("when", ["before", "during", "after"])
def test_terminate(when):
    a = accessor(*numbers(50))
    process = a._process
    if when == "during":
        next(iter(a))
    if when == "after":
        list(a)
    a.terminate()
    assert not process.is_alive() and process.exitcode == 0
    a.terminate()
    with pytest.raises(AssertionError, match="terminated"):
        iter(a)
    with pytest.raises(AssertionError, match="terminated"):
        next(a)


def test_terminating_a_loader_frees_its_workers():
    loader = DataLoader(opts(), Numbers(100), batch_size=2, num_workers=2, mode=DataLoaderMode.Async, async_options=FORK)
    next(iter(loader))
    process = loader._accessor._process
    loader.terminate()
    assert process.exitcode == 0
    with pytest.raises(AssertionError, match="terminated"):
        list(loader)


@pytest.mark.parametrize("deaf, seconds, code", [(False, 30, 0), (True, 0.3, -signal.SIGKILL)])
def test_a_stuck_dataset_is_interrupted_then_killed(monkeypatch, tmp_path, deaf, seconds, code):
    monkeypatch.setattr(async_data, "STOP_SECONDS", 0.2)
    monkeypatch.setattr(async_data, "INTERRUPT_SECONDS", seconds)

    def wait():
        if deaf:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        (tmp_path / "stuck").touch()
        time.sleep(1000)
    a = accessor(T, wait)
    next(iter(a))
    process = a._process
    wait_for((tmp_path / "stuck").exists)
    a.terminate()
    assert process.exitcode == code


def test_a_forgotten_accessor_stops():
    a = accessor(*numbers(5))
    next(iter(a))
    process = a._process
    del a
    gc.collect()
    process.join(10)
    assert process.exitcode == 0


def test_tensors_outlive_the_accessor():
    a = accessor(torch.full((1000,), 7))
    x = next(iter(a))
    a.terminate()
    del a
    gc.collect()
    assert (x == 7).all()


SCRIPT = """
import os, sys, time
sys.path.insert(0, {path!r})
import torch
from poptorch.async_data import AsynchronousDataAccessor
from poptorch.enums import SharingStrategy

class Items:
    def __iter__(self):
        return iter([torch.zeros(3)] * 100)

def main():
    a = AsynchronousDataAccessor(Items(), sharing_strategy=SharingStrategy.{strategy})
    next(iter(a))
    print(a._process.pid, flush=True)
    {end}

if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize("strategy, end, code", [("Fork", "globals()['keep'] = a; sys.exit(5)", 5),
                                                 ("ForkServer", "os.kill(os.getpid(), 9)", -9)])
def test_a_program_ends_and_its_worker_too(build_dir, tmp_path, strategy, end, code):
    script = tmp_path / "program.py"
    script.write_text(SCRIPT.format(path=str(build_dir / "python"), strategy=strategy, end=end))
    out = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=SECONDS - 10)
    assert out.returncode == code, out.stderr
    wait_until_gone(int(out.stdout))


@pytest.mark.parametrize("buffer_size", [1, 3])
@pytest.mark.parametrize("end", [lambda: os._exit(0), lambda: os.kill(os.getpid(), signal.SIGKILL)],
                         ids=["abrupt", "killed"])
def test_a_worker_notices_that_its_parent_is_gone(buffer_size, end):
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        a = accessor(*numbers(50), buffer_size=buffer_size)
        next(iter(a))
        os.write(write, str(a._process.pid).encode())
        end()
    os.waitpid(pid, 0)
    worker = int(os.read(read, 20))
    os.close(read)
    os.close(write)
    wait_until_gone(worker)


def wait_until_gone(pid):
    wait_for(lambda: not is_running(pid))    # or the worker outlives its program


def is_running(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_a_script_without_a_guard_is_told(build_dir, tmp_path):
    script = tmp_path / "program.py"
    script.write_text(SCRIPT.format(path=str(build_dir / "python"), strategy="SharedMemory", end="pass")
                      .replace('if __name__ == "__main__":', "if True:"))
    out = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=SECONDS - 10)
    assert out.returncode != 0
    assert "__main__" in out.stderr


# The ring.

def test_ring_without_room(monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(RuntimeError, match="No room for 3 items"):
        _ring.createRing(_ring.makeLayout(T), 3)


def test_ring_falls_back_to_a_file(monkeypatch):
    real, calls = os.posix_fallocate, []

    def full_once(*args):
        calls.append(args)
        if len(calls) == 1:
            raise OSError(28, "No space left on device")
        return real(*args)
    monkeypatch.setattr(os, "posix_fallocate", full_once)
    layout = _ring.makeLayout([torch.zeros(3, dtype=torch.int8), torch.zeros(2)])
    ring, path = _ring.createRing(layout, 2)
    other = _ring.openRing(path, layout, 2)
    assert not os.path.exists(path) and len(calls) == 2
    ring.tensors(1)[1].fill_(5)
    assert other.tensors(1)[1].tolist() == [5, 5] and other.tensors(0)[1].tolist() == [0, 0]


@pytest.mark.parametrize("shapes", [[(1,)], [(3,), (5,)], [(), (7, 3), (0,)], [(64,), (65,)]])
def test_ring_layout_does_not_overlap(shapes):
    layout = _ring.makeLayout([torch.zeros(s, dtype=torch.uint8) for s in shapes])
    end = 0
    for spec in layout.specs:
        assert spec.offset % 64 == 0 and spec.offset >= end
        end = spec.offset + spec.elements
    assert layout.slot_bytes >= end and layout.slot_bytes % 64 == 0
