"""The package's exceptions.

Argument checks raise AssertionError, and programs match on that class, so they go through check()
rather than the assert statement: `python -O` must not remove them.
"""

from typing import Any, Sequence, Type

#: A longer message goes to a file; see createNativeError.
MAX_LINES = 80
LOG_FILE = "poptorch_error.log"

#: What RecoverableError.recovery_action can be.
RECOVERY_ACTIONS = ("IPU_RESET", "LINK_RESET", "PARTITION_RESET", "FULL_RESET")


class Error(Exception):
    """Any error that the library raises on purpose.

    `type` is the kind of error (`poptorch_py_error` for those raised in Python), `message` the bare
    text, `location` the source file and line, or "".
    """

    type: str = "poptorch_py_error"
    message: str = ""
    location: str = ""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.message = str(args[0]) if args else ""


class RecoverableError(Error):
    """The device needs the reset named by `recovery_action`."""

    recovery_action: str = ""


class UnrecoverableError(Error):
    """A fault of the hardware: the machine must be serviced."""


class ConfigFileError(Exception):
    """A line of an options file that is not a setter call; see Options.loadFromFile."""


def createPoptorchError(msg: str) -> Error:
    """An Error to raise from Python code."""
    error = Error(f"'poptorch_py_error': {msg}")
    error.message = msg
    return error


def createNativeError(kind: str, message: str, location: str = "", stack: Sequence[str] = (),
                      recovery_action: str = "", cls: Type[Error] = Error) -> Error:
    """An Error for something that failed below Python.

    A message of more than MAX_LINES lines is written to LOG_FILE in the working directory and replaced
    by the name of that file. `stack` lists what was being done, innermost first.
    """
    text = f"In {location}: " if location else ""
    text += f"'{kind}': {_shorten(message)}"
    if recovery_action:
        cls = RecoverableError
        text += f"\nRecovery action required: {recovery_action}"
    if stack:
        text += "\nError raised in:" + "".join(f"\n  [{i}] {s}" for i, s in enumerate(stack))
    error = cls(text)
    error.type, error.message, error.location = kind, message, location
    if isinstance(error, RecoverableError):
        error.recovery_action = recovery_action
    return error


def _shorten(message: str) -> str:
    lines = message.count("\n") + 1
    if lines <= MAX_LINES:
        return message
    try:
        with open(LOG_FILE, "w", encoding="utf-8") as f:
            f.write(message + "\n")
    except OSError:
        return message    # a long message beats none
    return f"{message.splitlines()[0]} ({lines} lines, see {LOG_FILE})"


def check(ok: Any, message: str) -> None:
    """Raise AssertionError(message) unless `ok`."""
    if not ok:
        raise AssertionError(message)


__all__ = ["ConfigFileError", "Error", "RecoverableError", "UnrecoverableError", "createPoptorchError"]
