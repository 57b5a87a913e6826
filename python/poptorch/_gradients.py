"""Gradients that forward() itself asks for, with torch.autograd.grad(), backward() or x.grad.

PyTorch then calls the backward operations of what it has seen. They are written down as the ordinary operations
they consist of: as PyTorch itself decomposes them, or as below where it does not. As in PyTorch, nothing
differentiates them again.
"""

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch
import torch.nn.functional as F


def _grown(grad: torch.Tensor, weight: torch.Tensor, stride: Sequence[int], padding: Sequence[int],
           dilation: Sequence[int], groups: int, size: Sequence[int]) -> torch.Tensor:
    """The gradient of a convolution's input of this size: a transposed convolution, with zeros where the
    windows did not reach."""
    n = len(size)
    out = torch.ops.aten.convolution(grad, weight, None, stride, [0] * n, dilation, True, [0] * n, groups)
    edges: List[int] = []
    for i in reversed(range(n)):
        edges += [-padding[i], padding[i] + size[i] - out.shape[2 + i]]
    return F.pad(out, edges)


def _weights(grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, stride: Sequence[int],
             padding: Sequence[int], dilation: Sequence[int], groups: int) -> torch.Tensor:
    """The gradient of a convolution's weights: the input convolved with the gradient, samples as channels."""
    n = len(stride)
    parts = []
    for xs, gs in zip(x.chunk(groups, 1), grad.chunk(groups, 1)):
        part = torch.ops.aten.convolution(xs.transpose(0, 1), gs.transpose(0, 1), None, dilation, padding, stride,
                                          False, [0] * n, 1)
        for i in range(n):
            part = part.narrow(2 + i, 0, weight.shape[2 + i])
        parts.append(part.transpose(0, 1))
    return torch.cat(parts)


def _convolution(grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, bias_sizes: Any, stride: Sequence[int],
                 padding: Sequence[int], dilation: Sequence[int], transposed: bool, output_padding: Sequence[int],
                 groups: int, mask: Sequence[bool]) -> Tuple[Optional[torch.Tensor], ...]:
    n = x.dim() - 2
    stride, padding, dilation = (list(v) * (n // len(v)) for v in (stride, padding, dilation))
    dx = dw = None
    if mask[0] and transposed:
        dx = torch.ops.aten.convolution(grad, weight, None, stride, padding, dilation, False, [0] * n, groups)
    elif mask[0]:
        dx = _grown(grad, weight, stride, padding, dilation, groups, x.shape[2:])
    if mask[1]:    # of a transposed one, input and result change places
        a, b = (x, grad) if transposed else (grad, x)
        dw = _weights(a, b, weight, stride, padding, dilation, groups)
    return dx, dw, grad.sum([0, *range(2, grad.dim())]) if mask[2] else None


def _maxPool(grad: torch.Tensor, x: torch.Tensor, kernel: Sequence[int], stride: Any, padding: Any, dilation: Any,
             ceil_mode: bool, indices: torch.Tensor, n: int = 2) -> torch.Tensor:
    at = x.dim() - n
    return torch.zeros_like(x).flatten(at).scatter_add(at, indices.flatten(at), grad.flatten(at)).view(x.shape)


def _maxPool3d(*args: Any) -> torch.Tensor:
    return _maxPool(*args, n=3)


def _avgPool(grad: torch.Tensor, x: torch.Tensor, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int],
             ceil_mode: bool, include_pad: bool, divisor: Optional[int]) -> torch.Tensor:
    """A window's gradient goes to its elements in equal parts. How many those are, PyTorch knows."""
    n = len(grad.shape) - (x.dim() - len(kernel)) if len(kernel) > 1 else x.dim() - 2
    kernel = list(kernel) * (n // len(kernel))
    stride = list(stride) * (n // len(stride)) if stride else kernel
    padding = list(padding) * (n // len(padding))
    pool = {2: F.avg_pool2d, 3: F.avg_pool3d}[n]
    share = pool(torch.ones(1, 1, *x.shape[-n:]), kernel, stride, padding, ceil_mode, include_pad, divisor)
    inside = pool(torch.ones(1, 1, *x.shape[-n:]), kernel, stride, padding, ceil_mode, True, 1)
    parts = grad.reshape(-1, 1, *grad.shape[-n:]) * (share / inside)
    return _grown(parts, torch.ones(1, 1, *kernel, dtype=grad.dtype), stride, padding, [1] * n, 1,
                  x.shape[-n:]).view(x.shape)


def _adaptiveAvgPool(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    n = 2
    if any(size % cells for size, cells in zip(x.shape[-n:], grad.shape[-n:])):
        raise NotImplementedError("the gradient of adaptive_avg_pool2d whose windows have different sizes")
    kernel = [size // cells for size, cells in zip(x.shape[-n:], grad.shape[-n:])]
    return _avgPool(grad, x, kernel, kernel, [0] * n, False, True, None)


def _smoothL1(grad: torch.Tensor, x: torch.Tensor, target: torch.Tensor, reduction: int, beta: float) -> torch.Tensor:
    z = x - target
    slope = (z / beta).clamp(-1, 1) if beta > 0 else z.sign()
    return slope * grad / (z.numel() if reduction == 1 else 1)


def _nll(grad: torch.Tensor, x: torch.Tensor, target: torch.Tensor, weight: Optional[torch.Tensor], reduction: int,
         ignore: int, total: Any) -> torch.Tensor:
    """The engine does not tell the sum of the weights (total)."""
    dim = 0 if x.dim() == 1 else 1
    counts = target != ignore
    label = torch.where(counts, target, target * 0).unsqueeze(dim)
    each = torch.ones_like(target, dtype=x.dtype) if weight is None else weight[label.squeeze(dim)]
    each = torch.where(counts, each, each * 0)
    grad = grad * each / each.sum() if reduction == 1 else grad * each
    return torch.zeros_like(x).scatter(dim, label, -grad.unsqueeze(dim))


_OURS: Dict[str, Callable] = {
    "aten::nll_loss_backward": _nll, "aten::nll_loss2d_backward": _nll,
    "aten::convolution_backward": _convolution, "aten::max_pool2d_with_indices_backward": _maxPool,
    "aten::max_pool3d_with_indices_backward": _maxPool3d, "aten::avg_pool2d_backward": _avgPool,
    "aten::avg_pool3d_backward": _avgPool, "aten::_adaptive_avg_pool2d_backward": _adaptiveAvgPool,
    "aten::smooth_l1_loss_backward": _smoothL1, "aten::conj_physical": lambda x: x,    # of real numbers
}


def decomposition(func: Any, supported: Callable[[str], bool]) -> Optional[Callable]:
    """What computes a backward operation, or one that PyTorch has taken apart before it calls us and does not
    inside of a decomposition; None for other ones."""
    name, overload = func._schema.name, func._schema.overload_name
    if supported(f"{name}.{overload or 'default'}"):
        return None
    if name in _OURS:
        return _OURS[name]
    if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"):
        return func.decompose
    if "_backward" not in name:
        return None
    from torch._decomp import decomposition_table    # costs time, and few models need it
    return decomposition_table.get(func)


def _statistics(lower: Callable, spec: Tuple, x: Any, dims: List[int], keep: bool, eps: float) -> List[Any]:
    mean = lower("aten::mean.dim", spec, (x, dims, keep, None))[0]
    variance = lower("aten::var.correction", spec, (x, dims, 0, keep))[0]
    moved = lower("aten::add.Scalar", spec, (variance, eps, 1))[0]
    return [None, mean, lower("aten::rsqrt.default", spec, (moved,))[0]]


def _ofLayer(lower: Callable, spec: Tuple, args: Tuple) -> List[Any]:
    x, shape, eps = args[0], args[1], args[-1]
    rank = len(x.shape)
    return _statistics(lower, spec, x, list(range(rank - len(shape), rank)), True, eps)


def _ofBatch(lower: Callable, spec: Tuple, args: Tuple) -> List[Any]:
    x, eps = args[0], args[-1]
    return _statistics(lower, spec, x, [i for i in range(len(x.shape)) if i != 1], False, eps)


def _ofGroups(lower: Callable, spec: Tuple, args: Tuple) -> List[Any]:
    x, _, _, n, _, _, groups, eps = args
    shape = (n, groups, torch.Size(x.shape).numel() // (n * groups))
    x = lower("aten::view.default", (spec[0], shape), (x, list(shape)))[0]
    return _statistics(lower, spec, x, [2], False, eps)


#: Mean and 1 / deviation, the second and third result of a norm, which only its gradient reads:
#: {op: function(lower, their spec, arguments)}
STATISTICS: Dict[str, Callable] = {
    "aten::native_layer_norm": _ofLayer, "aten::native_group_norm": _ofGroups, "aten::native_batch_norm": _ofBatch,
    "aten::_native_batch_norm_legit": _ofBatch, "aten::_native_batch_norm_legit.no_stats": _ofBatch,
}
