"""Trace points of the host: what the program was doing when.

PVTI_OPTIONS='{"enable":"true","directory":"traces"}' in the environment of the process switches them on. They are
then in traces/host-<process>.json when the program ends, for chrome://tracing or Perfetto: executors and loaders
record their own, on the channels poptorch.trainingModel, poptorch.inferenceModel, poptorch.DataLoader and dataset,
and programs add theirs with Channel. Otherwise they cost nothing and do nothing. What other processes do, such as
a loader's workers, is not in it. The first runs of each model are timed beside it: traces/training/profile.db and
trace.json, as Options.enableProfiling has them, and the trace points of that time are in them too.

openReport() reads a profile.
"""

import atexit
import collections
import contextlib
import copyreg
import functools
import json
import os
import sqlite3
import threading
import time
import weakref
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Union

from ._logging import logger
from .errors import createPoptorchError

_MOST = 1000000


class _Recorder:
    """Keeps what was done in this process."""

    def __init__(self, folder: str) -> None:
        self.path = Path(folder) / f"host-{os.getpid()}.json"
        self._process = os.getpid()
        self._events: List[Dict[str, Any]] = []
        atexit.register(self.write)

    def add(self, channel: str, name: str, begun: float) -> None:
        """Something that ends now."""
        if len(self._events) < _MOST:
            self._events.append({"name": name, "cat": channel, "ph": "X", "pid": self._process,
                                 "tid": threading.get_native_id(), "ts": 1e6 * begun,
                                 "dur": 1e6 * (time.perf_counter() - begun)})

    def write(self) -> None:
        """At the end; not in a process that was forked off this one."""
        if os.getpid() != self._process:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text(json.dumps({"traceEvents": self._events}))
        except OSError as e:
            logger.error("The trace that PVTI_OPTIONS asks for cannot be written: %s", e)


def _recorderAskedFor() -> Optional[_Recorder]:
    text = os.environ.get("PVTI_OPTIONS", "")
    try:
        options = json.loads(text or "{}")
        on = str(options.get("enable", "false")).lower() == "true"
        return _Recorder(str(options.get("directory", "."))) if on else None
    except (ValueError, AttributeError):
        logger.warning('PVTI_OPTIONS is JSON such as {"enable":"true","directory":"traces"}, not %s', text)
        return None


_recorder = _recorderAskedFor()


_followed: Optional["weakref.ref[Any]"] = None    # the engine whose profile is being made
_thread = 0    # that made it


def _follow(engine: Any) -> None:
    """Trace points of this thread go to the engine's profile too, until its runs are timed."""
    global _followed, _thread
    _followed, _thread = weakref.ref(engine), threading.get_ident()


def enabled() -> bool:
    """Are trace points kept?"""
    return _recorder is not None


def _folder() -> str:
    """Where, when they are."""
    return str(_recorder.path.parent) if _recorder is not None else "."


def _add(channel: str, name: str, begun: float) -> None:
    if _recorder is not None:
        _recorder.add(channel, name, begun)
    engine = _followed() if _followed is not None and threading.get_ident() == _thread else None
    if engine is not None:
        loader = channel in ("poptorch.DataLoader", "dataset")
        engine.note("loader" if loader else "python", name if loader else f"{channel}: {name}", begun, time.perf_counter())


class Channel:
    """A named group of trace points."""

    def __init__(self, name: str) -> None:
        self.name = name

    @contextlib.contextmanager
    def tracepoint(self, name: str) -> Iterator[None]:
        """A region with a name."""
        if _recorder is None and _followed is None:
            yield
            return
        begun = time.perf_counter()
        try:
            yield
        finally:
            _add(self.name, name, begun)

    def instrument(self, obj: Any, *methods: str) -> Any:
        """Make trace points of the methods of an object, which changes its class; returns the object."""
        for m in methods:
            getattr(obj, m)    # a name that is not there is an error, traced or not
        original = type(obj)
        if _recorder is None or getattr(original, "_traced_on", None) == self.name:
            return obj

        def copied(self: Any) -> Any:
            twin = original.__new__(type(self))
            twin.__dict__.update(self.__dict__)
            return twin

        def reduced(self: Any, protocol: Any) -> Any:    # what goes to another process or a file is not traced
            plain = original.__new__(original)
            plain.__dict__.update(self.__dict__)
            out = plain.__reduce_ex__(protocol)
            newobj = out[0] is copyreg.__newobj__    # which insists on the class of what is pickled
            return (copyreg._reconstructor, (original, object, None), *out[2:]) if newobj else out
        members = {m: self._around(getattr(original, m), m) for m in methods}
        obj.__class__ = type(original.__name__, (original,), {**members, "_traced_on": self.name, "__copy__": copied,
                                                              "__reduce_ex__": reduced})
        return obj

    def _around(self, method: Callable, name: str) -> Callable:
        @functools.wraps(method)
        def traced(*args: Any, **kwargs: Any) -> Any:
            with self.tracepoint(name):
                return method(*args, **kwargs)
        return traced

    def items(self, iterator: Any) -> Iterator[Any]:
        """What an iterator yields, with a trace point for each item."""
        end = object()
        while True:
            with self.tracepoint("__next__"):
                item = next(iterator, end)
            if item is end:
                return
            yield item


def traced(name: str) -> Callable:
    """A decorator for methods of executors, which have a `_channel`."""
    def around(method: Callable) -> Callable:
        @functools.wraps(method)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            with self._channel.tracepoint(name):
                return method(self, *args, **kwargs)
        return call if enabled() else method
    return around


class Report:
    """A profile: its tables as lists of rows with named columns, `run` as a dictionary, and SQL for all else.

        report = poptorch.profiling.openReport("profile/training")
        for k in report.query("SELECT name, sum(end - start) AS seconds FROM event JOIN kernel ON kernel = id GROUP BY id"):
            print(k.name, k.seconds)

    doc/profile.md has the tables."""

    VERSION = 1
    TABLES = ("device", "layer", "section", "kernel", "value", "life", "edge", "send", "event", "host", "counter", "tile",
              "cycles")

    def __init__(self, path: Union[str, "os.PathLike[str]"]) -> None:
        where = Path(path)
        self.path = where / "profile.db" if where.is_dir() else where
        if not self.path.is_file():
            raise createPoptorchError(f"There is no profile {self.path}: Options.enableProfiling() writes one")
        try:
            self._db = sqlite3.connect(f"{self.path.resolve().as_uri()}?mode=ro", uri=True)
            version, = self._db.execute("PRAGMA user_version").fetchone()
        except sqlite3.Error as e:
            raise createPoptorchError(f"{self.path} is no profile: {e}") from None
        if version != self.VERSION:
            raise createPoptorchError(f"{self.path} is no profile of version {self.VERSION}, but {version}")
        self.run: Dict[str, str] = dict(self._db.execute("SELECT key, value FROM run"))

    def query(self, sql: str, *values: Any) -> List[NamedTuple]:
        """The rows that SQL asks for."""
        found = self._db.execute(sql, values)
        names = [column[0] for column in found.description]
        row = collections.namedtuple("Row", names, rename=True)    # type: ignore[misc]
        return [row(*r) for r in found]

    def __getattr__(self, name: str) -> List[NamedTuple]:
        """A table by its name, in the plural: report.kernels."""
        table = name[:-1] if name.endswith("s") and name[:-1] in self.TABLES else name
        if table not in self.TABLES:
            raise AttributeError(f"a profile has no {name}; its tables are {', '.join(self.TABLES)}")
        return self.query(f"SELECT * FROM {table}")

    @property
    def fits(self) -> bool:
        """Has every device the memory that the plan needs?"""
        return self.run.get("fits") == "1"

    @property
    def refused(self) -> str:
        """Why it does not fit, or ""."""
        return self.run.get("refused", "")

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    def __enter__(self) -> "Report":
        return self

    def __exit__(self, *unused: Any) -> None:
        self.close()


def openReport(path: Union[str, "os.PathLike[str]"]) -> Report:
    """The profile in a folder or file, as enableProfiling() and `tessera profile` write it."""
    return Report(path)


__all__ = ["Channel", "Report", "openReport"]
