"""popart._internal.ir: it can be imported, and each of its names says that graphs are built with poptorch."""

from typing import Any

from .._errors import unavailable


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    raise AttributeError(str(unavailable(f"_internal.ir.{name}")))
