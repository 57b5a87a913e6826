"""poptorch.poptorch_core: the names that programs import from PopTorch's extension module.

The same objects as in poptorch itself: `except poptorch.poptorch_core.Error` catches what `except poptorch.Error`
does. The extension module of this package is poptorch._core.
"""

import enum
from typing import NoReturn

from . import ops
from .enums import *  # noqa: F401,F403
from .errors import Error, RecoverableError, UnrecoverableError, createNativeError  # noqa: F401
from .options import validate as _validateOptions  # noqa: F401


class TestErrorType(enum.IntEnum):
    """What _throwTestError() raises."""

    __test__ = False    # not a test, whatever it is called

    Poptorch = 0
    Popart = 1
    PopartInternal = 2
    PoplibsUnknown = 3
    PoplarUnrecoverable = 4
    PoplarUnknown = 5
    PoplarRecoverableFullReset = 6
    PoplarLinkError = 7


_KINDS = {
    TestErrorType.Poptorch: "poptorch_cpp_error", TestErrorType.Popart: "popart_exception",
    TestErrorType.PopartInternal: "popart_internal_exception", TestErrorType.PoplibsUnknown: "poplibs_exception",
    TestErrorType.PoplarUnrecoverable: "poplar_unrecoverable_runtime_error",
    TestErrorType.PoplarUnknown: "poplar_unknown_runtime_error",
    TestErrorType.PoplarRecoverableFullReset: "poplar_recoverable_runtime_error",
    TestErrorType.PoplarLinkError: "poplar_link_error",
}


def _throwTestError(kind: TestErrorType) -> NoReturn:
    """Raise an error of that kind, for programs that try out what they do about it."""
    kind = TestErrorType(kind)
    if kind == TestErrorType.PoplarRecoverableFullReset:
        raise createNativeError(_KINDS[kind], "This is a test", recovery_action="FULL_RESET")
    cls = UnrecoverableError if kind == TestErrorType.PoplarUnrecoverable else Error
    raise createNativeError(_KINDS[kind], "This is a test", cls=cls)


def isCompilingWithDispatcher() -> bool:
    """True while a model's forward is being traced."""
    return ops.isRunningOnIpu()
