"""popart as PopTorch programs use it: enumerations for Options._Popart.set(), descriptions of tensors, the version.

    opts._Popart.set("accumulateOuterFragmentSettings.schedule",
                     int(popart.AccumulateOuterFragmentSchedule.OverlapMemoryOptimized))

Models are not built here: builders, sessions and devices are names that say so when they are called.
"""

from typing import Any, NoReturn

from poptorch import __version__

from .enums import *  # noqa: F401,F403
from .tensors import *  # noqa: F401,F403
from ._errors import popart_exception, popart_internal_exception, unavailable as _unavailable


def versionString() -> str:
    """The version of this package."""
    return __version__


def versionNumber() -> tuple:
    """The version as three numbers."""
    return tuple(int(n) for n in __version__.split("+")[0].split(".")[:3])


class _Refusal(type):
    """Makes classes whose constructors say what to use in their place. Programs may name them, and derive from them."""

    def __call__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        raise _unavailable(cls.__name__)


def _refusal(name: str) -> type:
    return _Refusal(name, (), {"__module__": __name__, "__doc__": f"popart.{name}: not supported, see poptorch."})


_REFUSED = ("Builder", "DataFlow", "DeviceInfo", "DeviceManager", "InferenceSession", "OptimizerValue", "Patterns", "PyStepIO",
            "PyStepIOCallback", "PyWeightsIO", "SessionOptions", "StepIOCallback", "TrainingSession",
            "Adam", "Adaptive", "ConstSGD", "SGD")

for _name in _REFUSED:
    globals()[_name] = _refusal(_name)


def __getattr__(name: str) -> NoReturn:
    if name.startswith("__"):
        raise AttributeError(f"module 'popart' has no attribute {name!r}")
    raise AttributeError(f"popart.{name} is not supported: of popart there are the enumerations, TensorInfo, TensorLocation "
                         "and the version; models are made with poptorch")
