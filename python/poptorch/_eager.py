"""Notices that a model's weights are computed with on the host, where the program may think of the device.

Methods of the module that are not forward(), called through an executor, are not compiled. Those that look at weights,
count or save them are fine; one that multiplies something with them is worth a word.
"""

from typing import Any, Dict, Optional, Tuple

import torch
from torch.overrides import TorchFunctionMode

from . import _compile, _trace
from ._memory import storage, tensorsIn
from .errors import Error

#: Calls that give a weight values, rather than computing with it.
_FILLS = ("copy_", "set_", "__set__", "data", "detach", "__get__", "type", "to", "requires_grad_")


def _place(t: torch.Tensor) -> Optional[int]:
    """Where its elements lie, which its views share; None for one without memory."""
    try:
        return storage(t)
    except Error:
        return None


class Watch(TorchFunctionMode):
    """While it is open, the first function of a weight and of a tensor that is none is told to the executor."""

    def __init__(self, executor: Any, what: str) -> None:
        super().__init__()
        self._executor, self._what = executor, what
        self._weights = {_place(t) for _, t in _compile.namedStates(executor._user_model)} - {None}
        self._done = False

    def __torch_function__(self, func: Any, types: Any, args: Tuple = (), kwargs: Optional[Dict] = None) -> Any:
        kwargs = kwargs or {}
        if not self._done and _trace.tracer() is None and getattr(func, "__name__", "") not in _FILLS:
            ours = [_place(t) in self._weights for t in tensorsIn((args, list(kwargs.values())))]
            if any(ours) and not all(ours):
                self._done = True
                self._executor.tellOnce(self._what)
        return func(*args, **kwargs)
