"""AsynchronousDataAccessor: a process that stays ahead of the model.

The process iterates the dataset and copies each item into a free slot of a ring in shared memory
(_ring.py). The two sides only talk through one pipe, and whoever waits, waits for the pipe and for the
other side's death at once. There is no lock that a dying process could keep and no flag to poll, so the
worst that a killed worker can cause is an exception.

    model's process                               worker
      start(epoch)           ------------------>    may load this epoch (and the next, if indefinitely)
                             <------------------  item(epoch, slot, rows)
      free(slot)             ------------------>    may write the slot again
      reset(epoch, held)     ------------------>    drop what is loaded; all slots but `held` are free
                             <------------------  end(epoch)
      stop                   ------------------>    ends
                             <------------------  error(text), and ends

The worker is never more than one epoch ahead, so the pipe cannot fill up however small the dataset is.
"""

import atexit
import multiprocessing
import multiprocessing.util    # registers its exit handler before ours, so that ours runs first
import os
import pickle
import signal
import tempfile
import traceback
import weakref
from collections import deque
from multiprocessing.connection import Connection, wait
from typing import Any, Deque, Dict, Iterator, List, Optional, Tuple

import torch

from . import custom_arg
from ._logging import logger
from ._ring import Ring, createRing, makeLayout, openRing, rebuild, tensorsOf
from .enums import SharingStrategy
from .errors import Error, check, createPoptorchError

#: How long a worker may take to stop when asked, and then when interrupted.
STOP_SECONDS = 10.0
INTERRUPT_SECONDS = 2.0

_FAILED = "An error occurred in the data fetcher"
_NOT_STARTED = ("The AsynchronousDataAccessor's worker thread failed to start. A script that uses it must "
                "start its work under `if __name__ == \"__main__\":`")


class _Stop(Exception):
    """The worker was told to end, or its parent is gone."""


class _Reset(Exception):
    """The worker was told to start another epoch."""


class _Worker:
    """The other process's side."""

    def __init__(self, dataset: Any, conn: Connection, settings: Dict[str, Any]) -> None:
        self.dataset = dataset
        self.conn = conn
        self.slots: int = settings["buffer_size"]
        self.rebatched_size: Optional[int] = settings["rebatched_size"]
        self.keep_remainder: bool = settings["keep_remainder"]
        self.ahead: int = 1 if settings["load_indefinitely"] else 0
        self.granted: int = 0 if settings["early_preload"] else -1    # the last epoch it may load
        self.epoch = 0
        self.free: Deque[int] = deque(range(self.slots))
        self.ring: Optional[Ring] = None
        self.filled = 0    # rows in the first free slot, when rebatching

    def run(self) -> None:
        """Load epoch after epoch, until told to stop."""
        while True:
            try:
                if self.ring is not None:
                    self.waitForGrant()
                self.loadEpoch()
                self.epoch += 1
            except _Reset:
                pass

    def loadEpoch(self) -> None:
        for item in self.dataset:
            if self.ring is None:
                self.setUp(item)
            if self.rebatched_size is None:
                self.putWhole(item)
            else:
                self.putRows(item)
            self.receiveAll()
            self.waitForGrant()    # the first item of all is loaded without one
        if self.ring is None:
            raise createPoptorchError("The dataset is empty: there is nothing to load")
        if self.filled and self.keep_remainder:
            self.send(self.filled)
        self.filled = 0
        self.conn.send(("end", self.epoch))

    def waitForGrant(self) -> None:
        while self.epoch > self.granted:
            self.receive()

    def setUp(self, item: Any) -> None:
        layout = makeLayout(item, self.rebatched_size)
        self.ring, path = createRing(layout, self.slots)
        self.conn.send(("ready", layout, path))

    def slot(self) -> List[torch.Tensor]:
        """The slot to write, once there is one."""
        while not self.free:
            self.receive()
        return self.ring.tensors(self.free[0])    # type: ignore[union-attr]

    def putWhole(self, item: Any) -> None:
        source = tensorsOf(self.ring.layout, item)    # type: ignore[union-attr]
        target = self.slot()
        for from_, to in zip(source, target):
            check(from_.shape == to.shape and from_.dtype == to.dtype,
                  f"Items must not change: expected {to.dtype} of shape {list(to.shape)}, got "
                  f"{from_.dtype} of shape {list(from_.shape)}")
            to.copy_(from_)
        self.send(0)

    def putRows(self, item: Any) -> None:
        """Append an item's rows, sending each slot that becomes full."""
        source = tensorsOf(self.ring.layout, item)    # type: ignore[union-attr]
        check(len({t.shape[0] for t in source}) == 1, "Rebatching needs tensors with the same number of "
              f"rows, got {[list(t.shape) for t in source]}")
        rows, done = source[0].shape[0], 0
        while done < rows:
            target = self.slot()
            n = min(rows - done, self.rebatched_size - self.filled)    # type: ignore[operator]
            for from_, to in zip(source, target):
                check(from_.shape[1:] == to.shape[1:] and from_.dtype == to.dtype,
                      f"Items must not change: expected rows of {to.dtype} and shape "
                      f"{list(to.shape[1:])}, got {from_.dtype} and {list(from_.shape[1:])}")
                to[self.filled:self.filled + n].copy_(from_[done:done + n])
            done += n
            self.filled += n
            if self.filled == self.rebatched_size:
                self.filled = 0
                self.send(0)

    def send(self, rows: int) -> None:
        """Hand over the slot that was written; `rows` is 0 for all."""
        self.conn.send(("item", self.epoch, self.free.popleft(), rows))

    def receiveAll(self) -> None:
        while self.conn.poll(0):
            self.receive()

    def receive(self) -> None:
        """Wait for a message and obey it."""
        parent = multiprocessing.parent_process()
        ready = wait([self.conn] + ([parent.sentinel] if parent is not None else []))
        if self.conn not in ready:
            raise _Stop()
        try:
            message = self.conn.recv()
        except (EOFError, OSError):
            raise _Stop() from None
        if message[0] == "stop":
            raise _Stop()
        if message[0] == "free":
            self.free.append(message[1])
        elif message[0] == "start":
            self.granted = message[1] + self.ahead
        else:
            _, self.epoch, held = message
            self.granted = self.epoch + self.ahead
            self.free = deque(s for s in range(self.slots) if s != held)
            self.filled = 0
            raise _Reset()


def _loadDataset(strategy: SharingStrategy, payload: Any) -> Any:
    if strategy == SharingStrategy.FileSystem:
        with open(payload, "rb") as f:
            return pickle.load(f)
    if strategy == SharingStrategy.ForkServer:
        return pickle.loads(payload)
    return payload


def _work(strategy: SharingStrategy, payload: Any, conn: Connection, settings: Dict[str, Any]) -> None:
    """The worker's main function."""
    # A loader's own workers start as they would in the parent: through a server of their own they take
    # seconds, and this process has no threads that a fork could hurt.
    multiprocessing.set_start_method(settings["start_method"], force=True)
    torch.set_num_threads(1)
    torch.manual_seed(settings["seed"])
    try:
        custom_arg.parsers.update(settings["parsers"])
        _Worker(_loadDataset(strategy, payload), conn, settings).run()
    except (_Stop, KeyboardInterrupt, BrokenPipeError):
        pass
    except BaseException:    # even SystemExit of a dataset must reach the parent
        try:
            conn.send(("error", traceback.format_exc()))
        except OSError:
            pass
    finally:
        conn.close()


_live: "weakref.WeakSet[AsynchronousDataAccessor]" = weakref.WeakSet()


def _terminateAll() -> None:
    for accessor in list(_live):
        accessor.terminate()


atexit.register(_terminateAll)

_METHODS = {SharingStrategy.SharedMemory: "spawn", SharingStrategy.FileSystem: "spawn",
            SharingStrategy.Fork: "fork", SharingStrategy.ForkServer: "forkserver"}


def checkArguments(buffer_size: int = 3, miss_sleep_time_in_ms: float = 0.1,
                   sharing_strategy: SharingStrategy = SharingStrategy.ForkServer) -> None:
    """Of an AsynchronousDataAccessor."""
    check(isinstance(buffer_size, int) and buffer_size > 0,
          f"buffer_size must be positive, got {buffer_size!r}")
    check(miss_sleep_time_in_ms >= 0, f"miss_sleep_time_in_ms is negative: {miss_sleep_time_in_ms!r}")
    check(isinstance(sharing_strategy, SharingStrategy),
          f"Expected a poptorch.SharingStrategy but got {sharing_strategy!r}")


class AsynchronousDataAccessor:
    """Iterates a dataset or loader in another process.

    A tensor it yields is a view on shared memory, valid until the next item is requested: clone it to keep
    it. An item is a tensor, a flat list or tuple of tensors (arrives as a list), a dict of tensors, or of a
    type with a registered parser; its shapes do not change.

    :param buffer_size: how many items fit in the ring.
    :param miss_sleep_time_in_ms: accepted; waiting needs no polling here.
    :param load_indefinitely: at an epoch's end, start loading the next one.
    :param early_preload: fill the ring before the first iteration begins; otherwise only one item is loaded.
    :param sharing_strategy: how the dataset gets to the process. Fork takes any dataset, the others those
        that can be pickled.
    :param rebatched_size: put items together along dim 0 until they have this many rows.
    """

    def __init__(self, dataset: Any, buffer_size: int = 3, miss_sleep_time_in_ms: float = 0.1,
                 load_indefinitely: bool = True, early_preload: bool = False,
                 sharing_strategy: SharingStrategy = SharingStrategy.ForkServer,
                 rebatched_size: Optional[int] = None, *, _keep_remainder: bool = False) -> None:
        self._process: Any = None
        self._owner = os.getpid()
        checkArguments(buffer_size, miss_sleep_time_in_ms, sharing_strategy)
        check(rebatched_size is None or (isinstance(rebatched_size, int) and rebatched_size > 1),
              f"rebatched_size must be greater than 1, got {rebatched_size!r}")
        self._checkLoader(dataset, rebatched_size)
        self._dataset = dataset
        self._rebatched_size = rebatched_size
        self._buffer_size = buffer_size
        self._epoch = 0
        self._begun = False      # iter() was called for this epoch
        self._started = False    # something was requested
        self._ended = False      # the end was reached
        self._process_code: Optional[int] = None
        self._held: Optional[int] = None
        self._start(sharing_strategy, {
            "buffer_size": buffer_size, "load_indefinitely": load_indefinitely,
            "early_preload": early_preload, "rebatched_size": rebatched_size,
            "keep_remainder": _keep_remainder,
            "parsers": dict(custom_arg.parsers),
            "start_method": multiprocessing.get_start_method(allow_none=True),
            "seed": int(torch.empty((), dtype=torch.int64).random_().item())})

    @staticmethod
    def _checkLoader(dataset: Any, rebatched_size: Optional[int]) -> None:
        from .data import DataLoader
        if not isinstance(dataset, DataLoader):
            return
        if dataset._accessor is not None:
            raise createPoptorchError("The DataLoader is asynchronous already: its mode is not Sync")
        combined = dataset.combinedBatchSize
        check(not dataset._keep_remainder or rebatched_size is not None or combined is None or combined <= 1,
              "An asynchronous loader with drop_last=False needs a rebatched_size: its last batch may be "
              "short")

    def _start(self, strategy: SharingStrategy, settings: Dict[str, Any]) -> None:
        context = multiprocessing.get_context(_METHODS[strategy])
        if strategy == SharingStrategy.ForkServer:
            context.set_forkserver_preload(["__main__", "torch"])
        self._conn, theirs = context.Pipe()
        path = None
        try:
            payload, path = self._payload(strategy)
            self._process = context.Process(target=_work, args=(strategy, payload, theirs, settings))
            self._process.start()
            _live.add(self)
            theirs.close()
            self._ring = self._waitUntilReady()
            sample = self._ring.layout.sample
            self._sample = pickle.loads(sample) if sample else None
        finally:
            theirs.close()
            if path is not None:
                os.unlink(path)

    def _payload(self, strategy: SharingStrategy) -> Tuple[Any, Optional[str]]:
        """What to give to the process, and a file to delete once it has started."""
        if strategy in (SharingStrategy.Fork, SharingStrategy.SharedMemory):
            return self._dataset, None
        try:
            data = pickle.dumps(self._dataset)
        except Exception as e:
            raise createPoptorchError(f"The dataset cannot be pickled for the loader's process ({e}); "
                                      "SharingStrategy.Fork does without") from e
        if strategy == SharingStrategy.ForkServer:
            return data, None
        fd, path = tempfile.mkstemp(prefix="poptorch-")
        with os.fdopen(fd, "wb") as f:
            f.write(data)
        return path, path

    def _waitUntilReady(self) -> Ring:
        try:
            _, layout, path = self._receive()
            return openRing(path, layout, self._buffer_size)
        except (AssertionError, EOFError, Error) as e:
            self.terminate()
            raise createPoptorchError(f"{_NOT_STARTED}\n{e}") from e

    def _receive(self) -> Tuple:
        """The worker's next message; AssertionError if it fails or dies first."""
        ready = wait([self._conn, self._process.sentinel])
        message: Tuple = ("error", "")
        if self._conn in ready or self._conn.poll(0):
            try:
                message = self._conn.recv()
            except (EOFError, OSError):
                pass
        if message[0] == "error":
            self.terminate()
            died = message[1] or f"The process ended with code {self._process_code}"
            raise AssertionError(f"{_FAILED}: {died}")
        return message

    def _tell(self, *message: Any) -> None:
        """A worker that is gone is noticed when its answer is waited for."""
        try:
            self._conn.send(message)
        except OSError:
            pass

    def __len__(self) -> int:
        if self._rebatched_size is None:
            return len(self._dataset)
        rows = len(self._dataset) * (getattr(self._dataset, "batch_size", 1) or 1)
        return rows // self._rebatched_size

    def __iter__(self) -> Iterator[Any]:
        self._checkAlive()
        if self._begun and not self._started:
            return self    # the epoch is there, untouched
        if self._started and not self._ended:
            self._epoch += 2    # the worker may be one ahead already: what it loaded has that number
            self._tell("reset", self._epoch, self._held)
        else:
            self._epoch += int(self._ended)
            self._tell("start", self._epoch)
        self._started = False
        self._ended = False
        self._begun = True
        return self

    def __next__(self) -> Any:
        self._checkAlive()
        if self._ended:
            raise StopIteration
        if not self._begun:
            iter(self)
        self._started = True
        if self._buffer_size == 1:    # there is no other slot to write
            self._release()
        while True:
            message = self._receive()
            if message[1] == self._epoch:
                break    # what precedes is from before a reset
        if message[0] == "end":
            self._ended = True
            raise StopIteration
        self._release()
        _, _, self._held, rows = message
        tensors = self._ring.tensors(self._held)
        tensors = [t[:rows] for t in tensors] if rows else list(tensors)
        return rebuild(self._ring.layout, tensors, self._sample)

    def _release(self) -> None:
        """Give the slot of the last item back."""
        held, self._held = self._held, None
        if held is not None:
            self._tell("free", held)

    def _checkAlive(self) -> None:
        check(self._process is not None, f"{_FAILED}: it was terminated")

    def terminate(self) -> None:
        """Stop the process: ask, interrupt after STOP_SECONDS, then kill. Harmless when repeated."""
        process, self._process = self._process, None
        if process is None or os.getpid() != self._owner:
            return
        _live.discard(self)
        if process.pid is not None:
            self._tell("stop")
            process.join(STOP_SECONDS)
            if process.is_alive():
                logger.warning("The data loader's process does not stop; interrupting it")
                os.kill(process.pid, signal.SIGINT)
                process.join(INTERRUPT_SECONDS)
            if process.is_alive():
                process.kill()
                process.join()
            self._process_code = process.exitcode
        self._conn.close()

    def __del__(self) -> None:
        if getattr(self, "_process", None) is not None:
            self.terminate()


__all__ = ["AsynchronousDataAccessor"]
