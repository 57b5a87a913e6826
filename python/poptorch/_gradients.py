"""Gradients that forward() itself asks for, with torch.autograd.grad(), backward() or x.grad.

PyTorch then calls the backward operations of what it has seen. Many are words of the library, which differentiates the
word they belong to; others PyTorch itself decomposes into ordinary operations. All can be differentiated again: by
PyTorch with create_graph=True, and by the engine when the loss depends on them.
"""

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch
import torch.nn.functional as F



#: Arguments that the library does not read: it finds what PyTorch saved from the forward pass again.
UNREAD: Dict[str, int] = {
    "aten::nll_loss_backward": 6, "aten::nll_loss2d_backward": 6, "aten::log_sigmoid_backward": 2,
    "aten::max_pool2d_with_indices_backward": 7, "aten::max_pool3d_with_indices_backward": 7,
    "aten::adaptive_max_pool2d_backward": 2, "aten::adaptive_max_pool3d_backward": 2,
    "aten::_cdist_backward": 4, "aten::_pdist_backward": 3,
}


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


_OURS: Dict[str, Callable] = {"aten::_ctc_loss_backward": _ctc}


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
