"""Operands of different types, which PyTorch refuses on a CPU and the device casts.

A convolution, a norm and a matrix product work in the type of what goes through them, their input: weights are
cast where they are used and keep their own type, so half inputs can go through a model with a float32 copy of
its weights. Pointwise operations promote as PyTorch does.
"""

import contextlib
from typing import Any, Callable, Dict, Iterator, Optional, Tuple

import torch
import torch.nn.functional as F

#: {op: (the argument whose type counts, those that are cast to it)}
_OPERANDS: Dict[str, Tuple[int, Tuple[int, ...]]] = {
    "convolution": (0, (1, 2)), "_convolution": (0, (1, 2)), "convolution_overrideable": (0, (1, 2)),
    "mm": (0, (1,)), "bmm": (0, (1,)), "mv": (0, (1,)), "dot": (0, (1,)), "_trilinear": (0, (1, 2)),
    "addmm": (1, (0, 2)), "addmv": (1, (0, 2)), "baddbmm": (1, (0, 2)),
    "native_batch_norm": (0, (1, 2)), "_native_batch_norm_legit": (0, (1, 2)),
    "_native_batch_norm_legit_no_training": (0, (1, 2)), "native_group_norm": (0, (1, 2)),
    "native_layer_norm": (0, (2, 3)), "prelu": (0, (1,)), "_prelu_kernel": (0, (1,)),
}
_STATISTICS = ("native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_no_training")
_LAYERS = frozenset((F.linear, F.bilinear, F.prelu, torch.prelu, F.conv1d, F.conv2d, F.conv3d, F.conv_transpose1d,
                     F.conv_transpose2d, F.conv_transpose3d))


def _cast(t: Any, dtype: torch.dtype) -> Any:
    differs = isinstance(t, torch.Tensor) and t.is_floating_point() and t.dtype != dtype
    return torch.ops.aten._to_copy(t, dtype=dtype) if differs else t


def unified(name: str, args: Tuple) -> Tuple:
    """The arguments of an ATen call with the operands of one type."""
    leads, follow = _OPERANDS.get(name.partition("::")[2], (0, ()))
    if not follow or not args[leads].is_floating_point():
        return args
    return tuple(_cast(v, args[leads].dtype) if i in follow else v for i, v in enumerate(args))


def forPyTorch(name: str, args: Tuple) -> Tuple:
    """What PyTorch is given to find out types and shapes: it has no norm whose statistics are of another type."""
    if name.partition("::")[2] not in _STATISTICS:
        return args
    return tuple(_cast(v, args[0].dtype) for v in args)


def weightsCast(func: Any, args: Tuple, kwargs: Dict[str, Any]) -> Tuple[Tuple, Dict[str, Any]]:
    """The arguments of a layer that looks at the types of its weights before it becomes ATen calls, or that adds
    its bias in an operation of its own."""
    input = args[0] if args else kwargs.get("input")
    if func not in _LAYERS or not input.is_floating_point():
        return args, kwargs
    named = {k: _cast(v, input.dtype) if k in ("weight", "bias") else v for k, v in kwargs.items()}
    return tuple(_cast(v, input.dtype) for v in args), named


@contextlib.contextmanager
def castWeights(isTraced: Callable[[Any], bool]) -> Iterator[None]:
    """Also for the linear layers inside of other functions of torch.nn.functional, which no function mode sees;
    and for recurrent layers, which look at the types themselves in PyTorch 2."""
    original, check = F.linear, torch.nn.RNNBase.check_input

    def linear(input: torch.Tensor, weight: torch.Tensor, bias: Optional[torch.Tensor] = None) -> torch.Tensor:
        args: Tuple = (input, weight, bias)
        return original(*(weightsCast(original, args, {})[0] if isTraced(input) else args))

    def checkInput(self: Any, input: torch.Tensor, *more: Any) -> None:
        shape = (*[1] * (input.dim() - 1), input.size(-1))    # all that it looks at
        check(self, torch.empty(shape, dtype=self._flat_weights[0].dtype, device="meta"), *more)
    F.linear, torch.nn.RNNBase.check_input = linear, checkInput    # type: ignore[method-assign]
    try:
        yield
    finally:
        F.linear, torch.nn.RNNBase.check_input = original, check    # type: ignore[method-assign]
