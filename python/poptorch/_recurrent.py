"""Recurrent layers as one op of the graph, whatever their number of steps.

torch.lstm and its like are ATen calls for every step. Here the whole call is written down as one word, whose compiled form is a
loop; so a trace and a compile take the same time for 8 and for 8000 steps. Autograd, when forward() itself asks it for
gradients, sees one function, whose backward pass is that of the call as PyTorch writes it out.

What stays written out: packed sequences, projected states, regions with autocast.
"""

from typing import TYPE_CHECKING, Any, Callable, List, Optional, Sequence, Tuple

import torch

from . import autocasting
from ._native import DTYPES

if TYPE_CHECKING:
    from ._trace import Tracer

_HAS_BIASES = 3    # the place of the first bool, unless the sequence is packed


class Loop(torch.autograd.Function):
    """The call, for autograd."""

    @staticmethod
    def forward(ctx: Any, tracer: "Tracer", written: Callable, shapes: List[Tuple[int, ...]], *tensors: torch.Tensor) -> Any:    # type: ignore[override]  # pylint: disable=arguments-differ
        ctx.written, ctx.tensors = written, tensors
        with tracer.paused():
            return tuple(tensors[0].new_empty(s) for s in shapes)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:    # type: ignore[override]  # pylint: disable=arguments-differ
        again = torch.is_grad_enabled()
        with torch.enable_grad():    # views: gradients go back to here, though one argument may be made of another
            tensors = [t.view_as(t) for t in ctx.tensors]
            results = ctx.written(tensors)
        wanted = [t for t, w in zip(tensors, ctx.needs_input_grad[3:]) if w]
        found = iter(torch.autograd.grad(results, wanted, gradients, create_graph=again, allow_unused=True))
        return (None, None, None, *(next(found) if w else None for w in ctx.needs_input_grad[3:]))


def call(tracer: "Tracer", func: Callable, args: Tuple, kwargs: Any) -> Optional[Tuple[torch.Tensor, ...]]:
    """func(*args) as one op; None: it stays written out."""
    if kwargs or tracer.writesOut or not _isPlain(args):
        return None
    x, states, params, more = args[0], args[1], args[2], args[_HAS_BIASES:]
    lstm = isinstance(states, (list, tuple))
    hx = list(states) if lstm else [states]
    if lstm and hx[0].shape != hx[1].shape:
        return None
    tensors = (x, *hx, *params)

    def rebuilt(t: Sequence[torch.Tensor]) -> Any:
        with tracer.writtenOut():
            return func(t[0], tuple(t[1:1 + len(hx)]) if lstm else t[1], list(t[1 + len(hx):]), *more)
    shapes = [(*x.shape[:2], (1 + more[4]) * hx[0].shape[-1]), *(tuple(t.shape) for t in hx)]
    results = Loop.apply(tracer, rebuilt, shapes, *tensors)
    tracer.make(f"aten::{func.__name__}.input", args, results)
    return results


def _isPlain(args: Tuple) -> bool:
    if len(args) != 9 or not isinstance(args[_HAS_BIASES], bool) or autocasting.isEnabled():
        return False
    x = args[0]
    return x.dim() == 3 and bool(x.numel()) and x.dtype in DTYPES and x.is_floating_point()
