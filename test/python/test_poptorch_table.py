"""Datasets in memory: poptorch.DataLoader gathers their batches in C, and nobody can tell but by the time.

The oracle is torch's own loader over the same dataset: values, types, order, and the random numbers that are left.
"""

import itertools
import os
import random
import signal
import time

import numpy as np
import pytest

torch = pytest.importorskip("torch")
torchvision = pytest.importorskip("torchvision")

from poptorch import _core, _table, async_data    # noqa: E402
from poptorch.data import AsynchronousDataAccessor, DataLoader    # noqa: E402
from poptorch.enums import DataLoaderMode, SharingStrategy    # noqa: E402
from poptorch.options import Options    # noqa: E402
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler, Subset, TensorDataset    # noqa: E402
from torchvision.transforms import Compose, Lambda, Normalize, RandomCrop, Resize, ToTensor    # noqa: E402

SECONDS = 60
FORK = {"sharing_strategy": SharingStrategy.Fork}
NORMAL = Compose([ToTensor(), Normalize((0.1307,), (0.3081,))])


@pytest.fixture(autouse=True)
def deadline():
    def late(*_):
        raise TimeoutError(f"still running after {SECONDS} s")
    old = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, old)
    async_data._terminateAll()


def images(kind, n, transform, **given):
    """A torchvision dataset of random pictures, without files."""
    rng = np.random.default_rng(n)
    dataset = kind.__new__(kind)
    colour = issubclass(kind, torchvision.datasets.CIFAR10)
    data = rng.integers(0, 256, (n, 28, 20, 3) if colour else (n, 28, 20), dtype=np.uint8)
    data.reshape(-1)[:256] = range(256)    # every byte is there
    targets = rng.integers(0, 10, n).tolist()
    dataset.__dict__.update(dict(data=data if colour else torch.from_numpy(data), transform=transform,
                                 targets=targets if colour else torch.tensor(targets), target_transform=None,
                                 root="", train=True), **given)
    return dataset


class Renamed(torchvision.datasets.MNIST):
    """Only its name differs."""


class Negative(torchvision.datasets.MNIST):
    def __getitem__(self, index):
        x, t = super().__getitem__(index)
        return -x, t


class Longer(TensorDataset):
    pass


MNIST, FASHION = torchvision.datasets.MNIST, torchvision.datasets.FashionMNIST
CIFAR = torchvision.datasets.CIFAR10
FAST = {
    "tensors": lambda: TensorDataset(torch.randn(53, 3, 4), torch.arange(53), torch.rand(53).half()),
    "bytes": lambda: TensorDataset(torch.randint(0, 256, (53, 5), dtype=torch.uint8), torch.rand(53) > 0.5),
    "mnist": lambda: images(MNIST, 53, NORMAL),
    "fashion": lambda: images(FASHION, 53, Compose([ToTensor(), Normalize((0.5,), (0.5,))])),
    "only ToTensor": lambda: images(MNIST, 53, ToTensor()),
    "twice Normalize": lambda: images(MNIST, 53, Compose([ToTensor(), Normalize(0.1, 0.3), Normalize(0.2, 0.7, True)])),
    "subclass": lambda: images(Renamed, 53, NORMAL),
    "labels of 32 bits": lambda: images(MNIST, 53, NORMAL, targets=torch.arange(53, dtype=torch.int32)),
    "cifar": lambda: images(CIFAR, 53, Compose([ToTensor(), Normalize((0.1, 0.2, 0.3), (0.4, 0.5, 0.6))])),
    "subset": lambda: Subset(images(MNIST, 80, NORMAL), random.Random(1).sample(range(80), 53)),
}


def epoch(loader):
    return [[t.clone() for t in item] for item in loader]


def assert_same(ours, theirs):
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs):
        assert type(a) is list and len(a) == len(b)
        for x, y in zip(a, b):
            assert x.dtype is y.dtype and x.shape == y.shape and torch.equal(x, y)


def theirs(dataset, **kwargs):
    return torch.utils.data.DataLoader(dataset, **kwargs)


@pytest.mark.parametrize("shuffle, drop_last", itertools.product([False, True], [False, True]))
@pytest.mark.parametrize("name", FAST)
def test_batches_are_torchs(name, shuffle, drop_last):
    dataset = FAST[name]()
    assert _table.find(dataset) is not None
    made = {}
    for make in (theirs, lambda d, **k: DataLoader(Options(), d, **k)):
        torch.manual_seed(3)
        loader = make(dataset, batch_size=8, shuffle=shuffle, drop_last=drop_last)
        made[make] = [epoch(loader), epoch(loader), [torch.get_rng_state()]]
    a, b = made.values()
    for x, y in zip(a[:2], b[:2]):
        assert_same(y, x)
    assert torch.equal(a[2][0], b[2][0])


@pytest.mark.parametrize("persistent", [False, True])
def test_order_is_that_of_torchs_workers(persistent):
    """Where a generator is shared, even when the sampler is asked is to be seen."""
    dataset = FAST["mnist"]()
    orders = []
    for make in (theirs, lambda d, **k: DataLoader(Options(), d, **k)):
        torch.manual_seed(5)
        sampler = RandomSampler(dataset, replacement=True, num_samples=200, generator=torch.default_generator)
        loader = make(dataset, batch_size=7, sampler=sampler, num_workers=2, persistent_workers=persistent,
                      drop_last=True)
        seen = []
        for _ in range(3):
            for x, t in loader:
                seen += [t.tolist(), torch.rand(1).item()]
        orders.append(seen)
        del loader
    assert orders[0] == orders[1]


ASYNC, REBATCHED = DataLoaderMode.Async, DataLoaderMode.AsyncRebatched


@pytest.mark.parametrize("mode, shuffle, drop_last, extra", [
    (ASYNC, False, True, {}), (ASYNC, True, True, {}), (ASYNC, True, False, {}), (ASYNC, True, True, {"num_workers": 2}),
    (REBATCHED, False, True, {}), (REBATCHED, True, False, {}), (REBATCHED, True, True, {"num_workers": 2}),
    (REBATCHED, True, False, {"rebatched_worker_size": 3})])
def test_asynchronous_modes_agree_with_the_process(monkeypatch, mode, shuffle, drop_last, extra):
    results = []
    for fast in (True, False):
        if not fast:
            monkeypatch.setattr(_table, "find", lambda dataset: None)
        torch.manual_seed(9)
        loader = DataLoader(Options().deviceIterations(2), FAST["mnist"](), batch_size=4, shuffle=shuffle,
                            drop_last=drop_last, mode=mode, async_options=FORK, **extra)
        assert isinstance(loader._accessor, _table.TableAccessor) is fast
        results.append((len(loader), [epoch(loader) for _ in range(3)], torch.get_rng_state()))
        loader.terminate()
        with pytest.raises(AssertionError, match="terminated"):
            next(iter(loader))
    (n, a, left), (m, b, right) = results
    assert n == m == len(a[0]) and torch.equal(left, right)
    for x, y in zip(a, b):
        assert_same(x, y)


def test_an_asynchronous_loop_can_be_left():
    loader = DataLoader(Options(), FAST["mnist"](), batch_size=4, shuffle=True, mode=DataLoaderMode.Async)
    first = next(iter(loader))
    again = epoch(loader)
    assert len(again) == len(loader) == 13 and not torch.equal(first[0], again[0][0])
    with pytest.raises(Exception, match="asynchronous already"):
        AsynchronousDataAccessor(loader, **FORK)
    with pytest.raises(AssertionError, match="buffer_size"):
        DataLoader(Options(), FAST["mnist"](), mode=DataLoaderMode.Async, async_options={"buffer_size": 0})


SLOW = {
    "own class": lambda: images(Negative, 20, NORMAL),
    "subclass of TensorDataset": lambda: Longer(torch.randn(20, 2)),
    "random": lambda: images(MNIST, 20, Compose([RandomCrop(8), ToTensor()])),
    "lambda": lambda: images(MNIST, 20, Compose([ToTensor(), Lambda(lambda x: x + torch.rand(1))])),
    "function": lambda: images(MNIST, 20, lambda x: ToTensor()(x) + torch.rand(1)),
    "resized": lambda: images(MNIST, 20, Compose([Resize(9), ToTensor()])),
    "target": lambda: images(MNIST, 20, NORMAL, target_transform=lambda t: t + 1),
    "gradients": lambda: TensorDataset(torch.randn(20, 2, requires_grad=True)),
    "strided": lambda: TensorDataset(torch.randn(3, 20).t()),
    "no rows": lambda: TensorDataset(torch.randn(20, 0)),
    "other means": lambda: images(CIFAR, 20, Compose([ToTensor(), Normalize((0.1, 0.2, 0.3), (1, 1, 1))]),
                                  data=np.zeros((20, 4, 4, 4), np.uint8)),
    "a set": lambda: torch.utils.data.ConcatDataset([FAST["mnist"](), FAST["mnist"]()]),
    "labels of text": lambda: images(MNIST, 20, NORMAL, targets=["a"] * 20),
}


@pytest.mark.parametrize("name", SLOW)
def test_others_are_left_to_torch(name):
    dataset = SLOW[name]()
    assert _table.find(dataset) is None
    if name in ("other means", "labels of text"):
        with pytest.raises(Exception):
            next(iter(DataLoader(Options(), dataset, batch_size=4)))
        return
    results = []
    for make in (theirs, lambda d, **k: DataLoader(Options(), d, **k)):
        torch.manual_seed(3)
        results.append(epoch(make(dataset, batch_size=8, shuffle=True, drop_last=True)))
    assert_same(results[1], results[0])


def double(items):
    return [t * 2 for t in torch.utils.data.default_collate(items)]


def test_a_loader_with_a_part_in_its_batches():
    dataset = FAST["tensors"]()
    for extra in ({"collate_fn": double}, {"worker_init_fn": print}, {"batch_size": None}):
        loader = DataLoader(Options(), dataset, **{"batch_size": 5, **extra})
        assert _table.ofLoader(loader) is None
    assert torch.equal(next(iter(DataLoader(Options(), dataset, batch_size=5, collate_fn=double)))[0],
                       dataset.tensors[0][:5] * 2)
    dataset.tensors = (dataset.tensors[0], dataset.tensors[1][:9])    # rows that are not there
    assert _table.find(dataset) is None
    hooked = Normalize((0.5,), (0.5,))
    hooked.register_forward_hook(lambda *_: None)
    assert _table.find(images(MNIST, 20, Compose([ToTensor(), hooked]))) is None
    torch.set_default_dtype(torch.float64)
    try:
        assert _table.find(FAST["mnist"]()) is None
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("name", ["tensors", "mnist", "subset"])
def test_indices_of_any_kind(name):
    """Those of a sampler that are not plain ints of a row get torch's answer."""
    dataset = FAST[name]()
    for indices in ([-1, 0, -53], [torch.tensor(3), 4], [np.int64(3)], [True, 2] if name == "subset" else [7]):
        ours = DataLoader(Options(), dataset, batch_sampler=[indices], drop_last=False)
        assert_same(epoch(ours), epoch(theirs(dataset, batch_sampler=[indices])))
    for indices in ([53], [0, -54], [2**70]):
        with pytest.raises((IndexError, OverflowError, RuntimeError, ValueError)):    # as torch's release has it
            epoch(DataLoader(Options(), dataset, batch_sampler=[indices], drop_last=False))


def test_combined_batches_and_batch_samplers():
    dataset = FAST["mnist"]()
    sampler = BatchSampler(SequentialSampler(dataset), 4, True)
    ours = epoch(DataLoader(Options().deviceIterations(3), dataset, batch_sampler=sampler))
    assert_same(ours, epoch(theirs(dataset, batch_size=12, drop_last=True)))


def test_changes_of_the_dataset_are_seen():
    dataset = FAST["mnist"]()
    loader = DataLoader(Options(), dataset, batch_size=53)
    (before, _), = epoch(loader)
    dataset.data[0] = 7
    dataset.targets[0] = 3
    dataset.transform = ToTensor()
    (after, t), = epoch(loader)
    assert not torch.equal(before[1:], after[1:]) and t[0] == 3
    assert torch.equal(after[0], torch.full((1, 28, 20), 7 / 255))


def test_batches_are_the_users():
    a, b = itertools.islice(iter(DataLoader(Options(), FAST["mnist"](), batch_size=4)), 2)
    kept = a[0].clone()
    b[0].zero_()
    assert torch.equal(a[0], kept)


def test_no_process_is_started(monkeypatch):
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("a process was started"))
    loader = DataLoader(Options(), FAST["mnist"](), batch_size=4, num_workers=20)
    assert len(epoch(loader)) == 13
    assert len(epoch(DataLoader(Options(), FAST["mnist"](), batch_size=4, num_workers=16, shuffle=True,
                                mode=DataLoaderMode.Async))) == 13
    with pytest.raises(BaseException, match="a process was started"):
        epoch(DataLoader(Options(), SLOW["resized"](), batch_size=4, num_workers=1))


def test_the_c_table():
    data = torch.arange(6, dtype=torch.uint8)
    out = torch.zeros(2, 2, dtype=torch.uint8)
    table = _core.Table(3, [(data.data_ptr(), 2, 0, 0)])
    assert table.gather([2, 0], out.data_ptr()) and out.tolist() == [[4, 5], [0, 1]]
    for wrong in ([3], [-1], ["0"], [0.0], [2**80], [True]):
        assert table.gather(wrong, out.data_ptr()) is False
    assert out.tolist() == [[4, 5], [0, 1]]
    for call in (lambda: table.gather([0]), lambda: table.gather((0,), out.data_ptr()), lambda: _core.Table(1, [(1,)]),
                 lambda: _core.Table(1, [(0, 7, 1, 3)]), lambda: _core.Table(1, [(0, 1, 0, 0)] * 65)):
        with pytest.raises((TypeError, ValueError)):
            call()


def test_large_batches():
    """More indices than fit the stack, and more bytes than are copied under the interpreter's lock."""
    dataset = images(MNIST, 3000, NORMAL)
    (ours,), (other,) = (epoch(make(dataset, batch_size=3000)) for make in
                         (lambda d, **k: DataLoader(Options(), d, **k), theirs))
    assert_same([ours], [other])


# Workers that die: what a loader with workers of its own says then, and that it says it.

class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 10000

    def __getitem__(self, i):
        time.sleep(0.01)
        return torch.zeros(2), torch.tensor(os.getpid())


def workers_of(pids):
    return {int(p) for p in pids.tolist()} - {os.getpid()}


@pytest.mark.parametrize("mode", [DataLoaderMode.Sync, DataLoaderMode.Async])
@pytest.mark.parametrize("every", [False, True])
def test_killed_workers_are_an_error(mode, every):
    extra = {} if mode == DataLoaderMode.Sync else {"mode": mode, "async_options": FORK}
    loader = DataLoader(Options(), Slow(), batch_size=4, num_workers=2, **extra)
    items = iter(loader)
    seen = workers_of(torch.cat([next(items)[1].clone() for _ in range(4)]))
    assert len(seen) == 2
    for pid in seen if every else sorted(seen)[:1]:
        os.kill(pid, signal.SIGKILL)
    with pytest.raises((RuntimeError, AssertionError)):
        for _ in items:
            pass
    del items
    loader.terminate()
