"""The package's log: `[HH:MM:SS.mmm] [poptorch::python] [level] message` on stderr.

Colours are used only when both stdout and stderr are terminals, so that a log file stays plain text.
"""

import datetime
import logging
import os
import sys
import threading
import types
from typing import Dict, Optional, Type, Union

TRACE = 5
OFF = logging.CRITICAL + 10

#: The names that setLogLevel and POPTORCH_LOG_LEVEL know. TRACE_ALL and DEBUG_IR ask for more from
#: below Python; to this logger they are TRACE and DEBUG.
LEVELS: Dict[str, int] = {
    "TRACE_ALL": TRACE, "TRACE": TRACE, "DEBUG_IR": logging.DEBUG, "DEBUG": logging.DEBUG,
    "INFO": logging.INFO, "WARN": logging.WARNING, "ERR": logging.ERROR, "OFF": OFF,
}

#: The numbers that setLogLevel took in early releases.
LEGACY_LEVELS = {0: "TRACE", 1: "DEBUG", 2: "INFO", 3: "WARN", 4: "ERR", 6: "OFF"}

DEFAULT_LEVEL = "WARN"

_COLOURS = {"debug": "\033[36m", "warning": "\033[1;33m", "error": "\033[1;31m", "critical": "\033[1;31m"}
_NAMES = {TRACE: "trace"}

logger = logging.getLogger("poptorch::python")
_level = DEFAULT_LEVEL
_engine_level: Optional[str] = None    # as the package's


class _Formatter(logging.Formatter):
    """Makes one line of a record."""

    def __init__(self, colour: bool) -> None:
        super().__init__("[%(asctime)s.%(msecs)03d] [%(name)s] [%(level)s] %(message)s", "%H:%M:%S")
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        name = _NAMES.get(record.levelno, record.levelname.lower())
        start = _COLOURS.get(name, "") if self._colour else ""
        record.level = f"{start}{name}\033[0m" if start else name
        return super().format(record)


class _StderrHandler(logging.StreamHandler):
    """Writes to what sys.stderr is now, not to what it was at import."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self):    # type: ignore[override]
        return sys.stderr


def _isTerminal() -> bool:
    streams = (sys.stdout, sys.stderr)
    return all(s is not None and hasattr(s, "isatty") and s.isatty() for s in streams)


def setLogLevel(level: Union[str, int]) -> None:
    """Show messages of this level and above.

    `level` is one of TRACE_ALL, TRACE, DEBUG_IR, DEBUG, INFO, WARN, ERR, OFF, or a number of early
    releases: 0 TRACE, 1 DEBUG, 2 INFO, 3 WARN, 4 ERR, 6 OFF. Anything else is a ValueError.
    """
    global _level
    _level = _levelName(level)
    logger.setLevel(LEVELS[_level])


def setPopartLogLevel(level: Union[str, int]) -> None:
    """The level of what is said below Python, when it is to be another than that of setLogLevel."""
    global _engine_level
    _engine_level = _levelName(level)


def _levelName(level: Union[str, int]) -> str:
    name = LEGACY_LEVELS.get(level, "") if isinstance(level, int) else level
    if name not in LEVELS:
        raise ValueError(f"Invalid log level {level!r}, valid levels are: {', '.join(LEVELS)}")
    return name


def engineWarning(text: str) -> None:
    """A line in the form of the layers below: UTC time, module, process and thread, level."""
    if LEVELS[_engine_level or _level] <= logging.WARNING:
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        line = f"{now} popart:devicex {os.getpid()}.{threading.get_native_id()} W: {text}\n"
        where = os.environ.get("POPTORCH_LOG_DEST", "stderr")
        if where in ("stdout", "stderr"):
            getattr(sys, where).write(line)
            return
        try:
            with open(where, "a") as f:
                f.write(line)
        except OSError as e:
            sys.stderr.write(f"POPTORCH_LOG_DEST: {e}\n{line}")


def getLogLevel() -> str:
    """The level's name, for the layers below Python."""
    return _level


def logUncaught(kind: Type[BaseException], value: BaseException,
                trace: Optional[types.TracebackType]) -> None:
    """A sys.excepthook that puts uncaught exceptions in the log, except the user's Ctrl-C."""
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, value, trace)
        return
    logger.critical("%s: %s", kind.__name__, value, exc_info=(kind, value, trace))


def installExceptHook() -> None:
    """Make logUncaught the process's hook."""
    sys.excepthook = logUncaught


def _setUp() -> None:
    if not logger.handlers:
        handler = _StderrHandler()
        handler.setFormatter(_Formatter(_isTerminal()))
        logger.addHandler(handler)
    logger.propagate = False
    wanted = os.environ.get("POPTORCH_LOG_LEVEL", DEFAULT_LEVEL)
    setLogLevel(wanted if wanted in LEVELS else DEFAULT_LEVEL)
    if wanted not in LEVELS:
        logger.warning("POPTORCH_LOG_LEVEL=%s is not a level (%s); using %s", wanted, ", ".join(LEVELS),
                       DEFAULT_LEVEL)


_setUp()
