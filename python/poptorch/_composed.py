"""ATen ops that are made of others, in Python: what they become is in the trace as if forward() had called it.

Most are words of the library; here is what is left.
"""

import functools
from typing import Any, Callable, Dict, List, Tuple

import torch

from . import _vision
from ._record import needsValue
from .errors import createPoptorchError

_T = torch.Tensor


@functools.lru_cache(None)
def _solveTurns() -> bool:
    """Whether this release's solve() factors the transpose of a matrix that lies row after row: 2.15 does not."""
    return not torch._linalg_solve_ex(torch.eye(2).cumsum(1), torch.eye(2))[1][0, 1]    # type: ignore[attr-defined]


def _slope(function: Callable[[_T], _T], at: float) -> float:
    x = torch.tensor(at, requires_grad=True)
    function(x).backward()
    return float(x.grad)    # type: ignore[arg-type]


@functools.lru_cache(None)
def borders() -> Dict[str, bool]:
    """What PyTorch's gradients are at borders and of equal elements differs between its releases: this one says. Asked before
    a trace, where nothing is computed."""
    with torch.inference_mode(False), torch.enable_grad():
        return {"clamp": _slope(lambda x: x.clamp(0.0, 1.0), 0.0) == 0, "hardswish": _slope(torch.nn.functional.hardswish, -3.0) == 0,
                "fmax": _slope(lambda x: torch.fmax(x, torch.tensor(0.0)), 0.0) == 0.5}


#: Words with an argument more than PyTorch's: whether PyTorch's gradient expects the factors of the transpose, is 0 at the border
#: of an interval, or is shared by equal elements.
MORE: Dict[str, Callable[[_T], bool]] = {
    **{f"aten::{name}": lambda x: borders()["clamp"] for name in ("clamp", "clamp_min", "clamp_max")},
    "aten::hardswish": lambda x: borders()["hardswish"],
    "aten::fmax": lambda x: borders()["fmax"], "aten::fmin": lambda x: borders()["fmax"],
    "aten::_linalg_solve_ex": lambda a: _solveTurns() and a.is_contiguous(),
    "aten::_linalg_det": lambda a: a.is_contiguous(),
    "aten::_linalg_slogdet": lambda a: a.is_contiguous(),
}


def _packed(x: _T, lengths: _T, batch_first: bool) -> Tuple[_T, _T]:
    """Step by step the rows that have not ended, of lengths that are known: and how many those are."""
    from . import _trace    # which imports this
    if _trace.tracer().isTraced(lengths):    # type: ignore[union-attr]
        raise needsValue("A length of a packed sequence")
    x = x.transpose(0, 1) if batch_first else x
    known = lengths.tolist()
    sizes = [sum(n > t for n in known) for t in range(max(known))]
    return torch.cat([x[t, :n] for t, n in enumerate(sizes)]), torch.tensor(sizes)


def _groupedProduct(x: _T, weight: _T, offs: Any = None, bias: Any = None, out_dtype: Any = None) -> _T:
    """Rows that are sorted by their group, each times the matrix of its group: all matrices, and of each row the product with
    its own. offs is where groups end; rows behind the last group are 0."""
    if offs is None or x.dim() != 2 or weight.dim() != 3 or bias is not None:
        raise createPoptorchError("_grouped_mm is supported for a matrix of rows, a matrix for each group and offs, not for "
                                  f"shapes {tuple(x.shape)} and {tuple(weight.shape)}")
    rows = torch.arange(x.shape[0], device=x.device)
    group = (rows.unsqueeze(1) >= offs).sum(1)
    all_products = torch.matmul(x, weight)
    at = group.clamp(max=weight.shape[0] - 1).view(1, -1, 1).expand(1, x.shape[0], weight.shape[2])
    mine = torch.where((group < weight.shape[0]).unsqueeze(1), all_products.gather(0, at)[0], 0.0)
    return mine if out_dtype is None else mine.to(out_dtype)


def _pinv(a: _T, atol: Any = None, rtol: Any = None, hermitian: bool = False) -> _T:
    """By singular values, of which small ones count as 0. The gradient is that of the inverse itself: singular values that are equal
    have none. d is 0, and has the gradient of a."""
    still, d = a.detach(), a - a.detach()
    if hermitian:    # the lower triangle says all
        still = still.tril() + still.tril(-1).mT
    u, s, vh = torch.linalg.svd(still, full_matrices=False)
    exact = atol is not None and (isinstance(atol, _T) or atol > 0)
    least = (0.0 if exact else max(a.shape[-2:]) * torch.finfo(a.dtype).eps) if rtol is None else rtol
    least = (least.unsqueeze(-1) if isinstance(least, _T) else least) * s[..., :1]
    if atol is not None:
        least = torch.maximum(least, (atol if isinstance(atol, _T) else torch.tensor(atol)).to(s.dtype).unsqueeze(-1))
    kept = s > least
    p = (vh.mT * torch.where(kept, 1 / torch.where(kept, s, 1.0), 0.0).unsqueeze(-2)) @ u.mT
    beside = d.mT - d.mT @ a.detach() @ p    # d' (1 - a p)
    below = d.mT - p @ a.detach() @ d.mT
    return p - p @ d @ p + p @ p.mT @ beside + below @ p.mT @ p


def _eigenOnHost(x: _T) -> List[_T]:
    values, vectors = torch.linalg.eig(x)
    return [torch.view_as_real(values).contiguous(), torch.view_as_real(vectors).contiguous()]


def _eigenGradient(x: _T, values: _T, vectors: _T, dvalues: _T, dvectors: _T) -> List[_T]:
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        made = _eigenOnHost(x)
    return list(torch.autograd.grad(made, x, [dvalues, dvectors]))


def _eig(x: _T) -> Tuple[_T, _T]:
    """Eigenvalues of a matrix that need not be symmetric, which may be complex: the host finds them, in the middle of a run, as
    PyTorch does."""
    from . import _trace    # which imports this
    t: Any = _trace.tracer()
    results = [torch.zeros(*x.shape[:-1], 2, dtype=x.dtype), torch.zeros(*x.shape, 2, dtype=x.dtype)]
    values, vectors = t.callHost(_eigenOnHost, [x], results, _eigenGradient)
    return torch.view_as_complex(values), torch.view_as_complex(vectors)


#: Ops of libraries that have a gradient of their own, in Python or C++: they are taken before autograd sees them.
FUNCTIONS: Dict[str, Callable] = {"transformers::grouped_mm_fallback": _groupedProduct, "torchvision::roi_align": _vision.roiAlign}

COMPOSED: Dict[str, Callable] = {
    "aten::_linalg_check_errors": lambda info, name, is_matrix: None,
    "torchvision::nms": _vision.nms,
    "aten::linalg_pinv.atol_rtol_tensor": _pinv, "aten::linalg_pinv.atol_rtol_float": _pinv,
    "aten::linalg_eig": _eig, "aten::linalg_eigvals": lambda x: _eig(x)[0],
    "aten::_neg_view": torch.neg,    # the imaginary part of a conjugate
    "aten::_grouped_mm": _groupedProduct, "aten::_pack_padded_sequence": _packed,
}
