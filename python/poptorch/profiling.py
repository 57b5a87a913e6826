"""Trace points of the host: what the program was doing when.

PVTI_OPTIONS='{"enable":"true","directory":"traces"}' in the environment of the process switches them on. They are
then in traces/host-<process>.json when the program ends, for chrome://tracing or Perfetto: executors and loaders
record their own, on the channels poptorch.trainingModel, poptorch.inferenceModel, poptorch.DataLoader and dataset,
and programs add theirs with Channel. Otherwise they cost nothing and do nothing. What other processes do, such as
a loader's workers, is not in it.
"""

import atexit
import contextlib
import copyreg
import functools
import json
import os
import threading
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional

from ._logging import logger

_MOST = 1000000


class _Recorder:
    """Keeps what was done in this process."""

    def __init__(self, folder: str) -> None:
        self._path = Path(folder) / f"host-{os.getpid()}.json"
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
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_text(json.dumps({"traceEvents": self._events}))
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


def enabled() -> bool:
    """Are trace points kept?"""
    return _recorder is not None


class Channel:
    """A named group of trace points."""

    def __init__(self, name: str) -> None:
        self.name = name

    @contextlib.contextmanager
    def tracepoint(self, name: str) -> Iterator[None]:
        """A region with a name."""
        if _recorder is None:
            yield
            return
        begun = time.perf_counter()
        try:
            yield
        finally:
            _recorder.add(self.name, name, begun)

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


__all__ = ["Channel"]
