"""Helpers of PopTorch that programs import although they are private."""

import functools
from typing import Any, Callable, Iterable, List

import torch

from . import _args, _trace
from ._logging import logger


def flattenTensorStructure(tensors: Any) -> List[torch.Tensor]:
    """The tensors in nested tuples, lists, dicts and registered types, in order."""
    found: List[torch.Tensor] = []
    _args.flatten(tensors, found)
    return found


def reconstructTensorStructure(structure: Any, values: Iterable[torch.Tensor],
                               filter_fn: Callable[[torch.Tensor], bool] = lambda _: True) -> Any:
    """The structure with these tensors in place of those for which the filter holds."""
    found: List[torch.Tensor] = []
    tree = _args.flatten(structure, found)
    given = iter(values)
    return _args.rebuild(tree, [next(given) if filter_fn(t) else t for t in found])


def isOnIpu(x: torch.Tensor) -> bool:
    """Is the value of this tensor one that the device computes?"""
    tracer = _trace.tracer()
    return tracer is not None and isinstance(x, torch.Tensor) and tracer.isTraced(x)


def isOnCpu(x: torch.Tensor) -> bool:
    """Is it one that is known here?"""
    return not isOnIpu(x)


def deprecated(domain: str, since_version: str, reason: str) -> Callable:
    """A decorator: calls are logged as deprecated."""
    def decorate(function: Callable) -> Callable:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            logger.warning("%s.%s is deprecated since version %s and will be removed in future versions: %s", domain,
                           function.__name__, since_version, reason)
            return function(*args, **kwargs)
        return call
    return decorate
