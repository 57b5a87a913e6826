"""What programs ask of PopTorch's insides: whether a trace is going on, and the wrapping of modules and tensors."""

from typing import Any

import torch

from . import _trace, _wrap


def isDispatchTracing() -> bool:
    """True while a model's forward is being traced."""
    return _trace.tracer() is not None


def isRunningOnIpu() -> bool:
    """poptorch.isRunningOnIpu()."""
    return isDispatchTracing()


def _restoreWrapperIfNecessary(obj: Any) -> Any:
    """Watch a tensor again that has its link to an executor and lost its class, as a copy of it may."""
    link = _wrap.linkOf(obj)
    if link is not None and isinstance(obj, torch.Tensor):
        _wrap.rewatch(obj)
    return obj


def unwrapIfWrapped(obj: Any) -> Any:
    """A tensor or module that nobody watches, of its own class."""
    if isinstance(obj, torch.nn.Module):
        _wrap.unwrap(obj)
        return obj
    return _wrap.plain(obj) if _wrap.linkOf(obj) is not None else obj
