"""Gradients that forward() itself asks for, with torch.autograd.grad(), backward() or x.grad.

PyTorch then calls the backward operations of what it has seen. They are written down as the ordinary operations
they consist of: as PyTorch itself decomposes them, or as below where it does not. Those can be differentiated again:
by PyTorch with create_graph=True, and by the engine when the loss depends on them.
"""

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch
import torch.nn.functional as F

from .errors import createPoptorchError


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


def _adaptiveAvgPool(grad: torch.Tensor, x: torch.Tensor, n: int = 2) -> torch.Tensor:
    sizes, cells = x.shape[-n:], grad.shape[-n:]
    if not any(size % to for size, to in zip(sizes, cells)):
        kernel = [size // to for size, to in zip(sizes, cells)]
        return _avgPool(grad, x, kernel, kernel, [0] * n, False, True, None)
    for d, size, to in zip(range(-n, 0), sizes, cells):    # windows of different sizes: dim by dim, by a matrix
        grad = (grad.transpose(d, -1) @ _shares(size, to, grad.dtype)).transpose(d, -1)
    return grad


def _shares(size: int, cells: int, dtype: torch.dtype) -> torch.Tensor:
    """[cells, size]: what each element counts for in each window of an adaptive mean."""
    windows = [(i * size // cells, -(-(i + 1) * size // cells)) for i in range(cells)]
    return torch.tensor([[float(a <= k < b) / (b - a) for k in range(size)] for a, b in windows], dtype=dtype)


def _adaptiveAvgPool3d(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return _adaptiveAvgPool(grad, x, 3)


def _adaptiveMaxPool(n: int) -> Callable:
    def backward(grad: torch.Tensor, x: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
        return _maxPool(grad, x, (), None, None, None, False, indices, n)
    return backward


def _padding(place: Callable[[int, int], int]) -> Callable:
    """Each element's gradient is the sum of those of its copies; place(i, size) says whose copy i is."""
    def backward(grad: torch.Tensor, x: torch.Tensor, padding: Sequence[int]) -> torch.Tensor:
        for i, low in enumerate(padding[::2]):    # from the last dim on
            d = x.dim() - 1 - i
            size, wide = x.shape[d], grad.shape[d]
            at = torch.tensor([place(k - low, size) for k in range(wide)])
            grad = torch.zeros_like(grad.narrow(d, 0, 1)).repeat_interleave(size, d).index_add(d, at, grad)
        return grad
    return backward


def _resizing(name: str) -> Callable:
    """A resized picture is the picture times a matrix, dim by dim: its gradient is that times the transposed ones. What
    PyTorch makes of an identity matrix is that matrix."""
    corners = () if "nearest" in name else (1,)    # is there an align_corners?

    def backward(grad: torch.Tensor, output_size: Any, input_size: Sequence[int], *more: Any) -> torch.Tensor:
        forward = getattr(torch.ops.aten, name).default
        n = grad.dim() - 2
        align, factors = more[:len(corners)], more[len(corners):]
        if len(factors) == 1 and not isinstance(factors[0], float):    # a list of all, or None
            factors = tuple(factors[0] or [None] * n)
        for d in range(n):
            rows, columns = input_size[2 + d], grad.shape[2 + d]
            size, out = [2] * n, [2] * n    # not 1: PyTorch 2.0 resizes a smoothed picture of one column wrongly
            size[d], out[d] = rows, columns
            only = [f if i == d else None for i, f in enumerate(factors)]
            one = torch.eye(rows, dtype=torch.float64).view(1, rows, *(rows if i == d else 1 for i in range(n)))
            matrix = forward(one.expand(1, rows, *size).contiguous(), out, *align, *only)
            matrix = matrix.movedim(2 + d, 2).reshape(rows, columns, -1)[..., 0].t().to(grad.dtype)
            grad = (grad.transpose(2 + d, -1) @ matrix).transpose(2 + d, -1)
        return grad
    return backward


_RESIZING = [f"{kind}{n}d" for kind in ("upsample_nearest", "_upsample_nearest_exact") for n in (1, 2, 3)] + \
    ["upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d",
     "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"]


def _reflected(i: int, size: int) -> int:
    return -i if i < 0 else i if i < size else 2 * (size - 1) - i


def _nearest(i: int, size: int) -> int:
    return min(max(i, 0), size - 1)


def _unfold(grad: torch.Tensor, sizes: Sequence[int], dim: int, size: int, step: int) -> torch.Tensor:
    dim %= len(sizes)
    at = torch.tensor([i * step + k for i in range(grad.shape[dim]) for k in range(size)])
    parts = grad.movedim(-1, dim + 1).flatten(dim, dim + 1)
    return torch.zeros(list(sizes), dtype=grad.dtype).index_add(dim, at, parts)


def _put(x: torch.Tensor, at: torch.Tensor, source: torch.Tensor, accumulate: bool = False) -> torch.Tensor:
    at = torch.where(at < 0, at + x.numel(), at).flatten()
    flat = x.flatten()
    put = flat.index_add if accumulate else flat.scatter
    return put(0, at, source.flatten()).view(x.shape)


def _putInPlace(x: torch.Tensor, *args: Any) -> torch.Tensor:
    return x.copy_(_put(x, *args))


def _slopes(difference: torch.Tensor, distance: torch.Tensor, p: float) -> torch.Tensor:
    """Of a p-norm, with respect to what it is the norm of; 0 where the distance is."""
    if p == 0:
        return difference * 0
    if p == 1:
        return difference.sign()
    if p == float("inf"):
        return difference.sign() * (difference.abs() == distance).to(difference.dtype)
    there = distance != 0
    safe = torch.where(there, distance, torch.ones_like(distance))
    return torch.where(there, difference.sign() * (difference.abs() / safe) ** (p - 1), difference * 0)


def _cdist(grad: torch.Tensor, x: torch.Tensor, y: torch.Tensor, p: float, distance: torch.Tensor) -> torch.Tensor:
    slopes = _slopes(x.unsqueeze(-2) - y.unsqueeze(-3), distance.unsqueeze(-1), p)
    return (grad.unsqueeze(-1) * slopes).sum(-2)


def _pdist(grad: torch.Tensor, x: torch.Tensor, p: float, distance: torch.Tensor) -> torch.Tensor:
    pairs = [(i, j) for i in range(len(x)) for j in range(i + 1, len(x))]
    a, b = (torch.tensor(side) for side in zip(*pairs))
    change = grad.unsqueeze(-1) * _slopes(x[a] - x[b], distance.unsqueeze(-1), p)
    return torch.zeros_like(x).index_add(0, a, change).index_add(0, b, -change)


def _multiMargin(grad: torch.Tensor, x: torch.Tensor, target: torch.Tensor, p: int, margin: float,
                 weight: Optional[torch.Tensor] = None, reduction: int = 1) -> torch.Tensor:
    """The mean over the classes of max(0, margin - x[target] + x[i])^p for all others i."""
    rows, labels = (x, target.view(-1, 1)) if x.dim() == 2 else (x.unsqueeze(0), target.view(1, 1))
    gap = margin - rows.gather(1, labels) + rows
    slope = (gap > 0).to(x.dtype) * (gap * 2 if p == 2 else 1)
    slope = slope.scatter(1, labels, torch.zeros_like(labels, dtype=x.dtype)) / rows.shape[1]
    if weight is not None:
        slope = slope * weight[labels]
    slope = slope.scatter(1, labels, -slope.sum(1, keepdim=True))
    grad = grad.reshape(-1, 1) / (len(rows) if reduction == 1 else 1)
    return (slope * grad).view(x.shape)


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


def _later(x: torch.Tensor, by: int, value: float) -> torch.Tensor:
    """x[:, s + by], and a value where there is none."""
    return F.pad(x[:, by:], (0, by), value=value) if by >= 0 else F.pad(x[:, :by], (-by, 0), value=value)


def _ctc(grad: torch.Tensor, x: torch.Tensor, targets: torch.Tensor, steps: Any, lengths: Any, loss: torch.Tensor,
         alpha: Any, blank: int = 0, zero_infinity: bool = False) -> torch.Tensor:
    """By the likelihoods of the labels so far (before) and from here on (after), as words_loss.c has them: "blank l1
    blank .. blank", and a large negative number for what is impossible."""
    count, n, classes = x.shape
    never = -1e30
    steps, lengths = (torch.as_tensor(v).long().view(n, 1) for v in (steps, lengths))
    targets = targets.long()
    if targets.dim() == 1:    # one after the other
        at = lengths.cumsum(0) - lengths + torch.arange(len(targets))
        targets = targets[at.clamp(max=len(targets) - 1)]
    labels = F.pad(torch.stack([torch.full_like(targets, blank), targets], 2).flatten(1), (0, 1), value=blank)
    skip = (labels != blank) & (labels != _later(labels, -2, -1))
    over = torch.arange(labels.shape[1]).view(1, -1) - 2 * lengths
    last = (over == 0) | (over == -1)
    said = x.gather(2, labels.expand(count, *labels.shape))

    def chain(order: Sequence[int], way: int, skips: torch.Tensor, starts: Callable) -> Dict[int, torch.Tensor]:
        found: Dict[int, torch.Tensor] = {}
        y = torch.full_like(said[0], never)
        for t in order:
            two = torch.where(skips, _later(y, 2 * way, never), never)
            y = said[t] + torch.stack([y, _later(y, way, never), two]).logsumexp(0)
            y = found[t] = torch.where(starts(t), said[t], y).clamp(min=never)
        return found
    first = (torch.arange(labels.shape[1]) < 2).view(1, -1)
    before = chain(range(count), -1, skip, lambda t: first & torch.tensor(t == 0))
    after = chain(range(count - 1, -1, -1), 1, _later(skip.int(), 2, 0) > 0, lambda t: last & (steps == t + 1))
    both = torch.stack([before[t] + after[t] for t in range(count)]) - said
    both = torch.where(both > never / 2, both + loss.view(n, 1), never).exp()
    dx = (x.exp() - torch.zeros_like(x).scatter_add(2, labels.expand(count, *labels.shape), both)) * grad.view(1, n, 1)
    lost = torch.isinf(loss).view(1, n, 1)
    dx = torch.where(lost, 0.0 if zero_infinity else float("nan"), dx)
    return torch.where(torch.arange(count).view(-1, 1, 1) < steps, dx, 0.0)


def _place(grid: torch.Tensor, size: int, padding: int, corners: bool) -> Tuple[torch.Tensor, torch.Tensor]:
    """Where in `size` columns or rows a coordinate from -1 to 1 is, and how far it moves with the coordinate."""
    low, span = (0.0, size - 1.0) if corners else (-0.5, float(size))
    at = (grid + 1) * (span / 2) + low
    slope = torch.full_like(at, span / 2)
    if padding == 2 and span > 0:    # reflected: there and back again
        at = torch.remainder(at - low, 2 * span)
        back = at > span
        at, slope = torch.where(back, 2 * span - at, at) + low, torch.where(back, -slope, slope)
    if padding != 0:
        slope = torch.where((at > 0) & (at < size - 1), slope, slope * 0)
        at = at.clamp(0, size - 1)
    return at, slope


def _gridSample(grad: torch.Tensor, x: torch.Tensor, grid: torch.Tensor, mode: int, padding: int, corners: bool,
                mask: Sequence[bool] = (True, True)) -> Tuple[Optional[torch.Tensor], Optional[torch.Tensor]]:
    """Of a sample's up to four pixels, each with a weight that is a product of one for its column and its row."""
    n, channels, height, width = x.shape
    (px, sx), (py, sy) = (_place(grid[..., i].reshape(n, 1, -1), size, padding, corners)
                          for i, size in enumerate((width, height)))
    grad, flat, dx = grad.flatten(2), x.flatten(2), torch.zeros_like(x.flatten(2))
    dpx = dpy = torch.zeros_like(px)
    left, top = (px.round(), py.round()) if mode == 1 else (px.floor(), py.floor())
    for i, j in [(0, 0)] if mode == 1 else [(0, 0), (0, 1), (1, 0), (1, 1)]:
        cx, cy = left + i, top + j
        wx, wy = (torch.ones_like(px), torch.ones_like(py)) if mode == 1 else (1 - (px - cx).abs(), 1 - (py - cy).abs())
        inside = ((cx >= 0) & (cx < width) & (cy >= 0) & (cy < height)).to(grad.dtype)
        at = (cy.clamp(0, height - 1).long() * width + cx.clamp(0, width - 1).long()).expand(n, channels, px.shape[2])
        dx = dx.scatter_add(2, at, grad * (wx * wy * inside))
        pull = (grad * flat.gather(2, at)).sum(1, keepdim=True) * inside
        if mode == 0:
            dpx, dpy = dpx + (2 * i - 1) * pull * wy, dpy + (2 * j - 1) * pull * wx
    moved = torch.cat([dpx * sx, dpy * sy], 1).transpose(1, 2).reshape(grid.shape)
    return dx.view(x.shape) if mask[0] else None, moved if mask[1] else None


def _shrunk(grad: torch.Tensor, x: torch.Tensor, least: float) -> torch.Tensor:
    return torch.where((x >= -least) & (x <= least), 0.0, grad)


def _embedding(grad: torch.Tensor, at: torch.Tensor, rows: int, padding: int, by_frequency: bool) -> torch.Tensor:
    if by_frequency:
        raise createPoptorchError("The gradient of an embedding with scale_grad_by_freq is not supported in forward()")
    grad = torch.where((at == padding).unsqueeze(-1), 0.0, grad).reshape(at.numel(), -1)
    return torch.zeros(rows, grad.shape[1], dtype=grad.dtype).index_add(0, at.flatten(), grad)


_OURS: Dict[str, Callable] = {
    "aten::hardshrink_backward": _shrunk, "aten::softshrink_backward": _shrunk,
    "aten::log_sigmoid_backward": lambda grad, x, buffer: grad * torch.sigmoid(-x),
    "aten::embedding_dense_backward": _embedding,
    "aten::nll_loss_backward": _nll, "aten::nll_loss2d_backward": _nll,
    "aten::convolution_backward": _convolution, "aten::max_pool2d_with_indices_backward": _maxPool,
    "aten::max_pool3d_with_indices_backward": _maxPool3d, "aten::avg_pool2d_backward": _avgPool,
    "aten::avg_pool3d_backward": _avgPool, "aten::_adaptive_avg_pool2d_backward": _adaptiveAvgPool,
    "aten::_adaptive_avg_pool3d_backward": _adaptiveAvgPool3d,
    "aten::adaptive_max_pool2d_backward": _adaptiveMaxPool(2),
    "aten::adaptive_max_pool3d_backward": _adaptiveMaxPool(3),
    "aten::reflection_pad1d_backward": _padding(_reflected), "aten::reflection_pad2d_backward": _padding(_reflected),
    "aten::reflection_pad3d_backward": _padding(_reflected), "aten::replication_pad1d_backward": _padding(_nearest),
    "aten::replication_pad2d_backward": _padding(_nearest), "aten::replication_pad3d_backward": _padding(_nearest),
    "aten::grid_sampler_2d_backward": _gridSample, "aten::unfold_backward": _unfold,
    "aten::put": _put, "aten::put_": _putInPlace,    # of take()
    "aten::_cdist_backward": _cdist, "aten::_pdist_backward": _pdist, "aten::multi_margin_loss_backward": _multiMargin,
    "aten::_ctc_loss_backward": _ctc,
    **{f"aten::{name}_backward": _resizing(name) for name in _RESIZING}, "aten::smooth_l1_loss_backward": _smoothL1,
    "aten::conj_physical": lambda x: x,    # of real numbers
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
