"""ATen ops that are made of others, in Python: what they become is in the trace as if forward() had called it.

Algorithms over matrices go column by column, written out: a matrix's size is known. What they would raise for a
singular matrix is infinities and NaN here.
"""

import functools
import math
from typing import Any, Callable, Dict, Tuple

import torch
import torch.nn.functional as F

from ._gradients import placed
from ._record import needsValue
from .errors import createPoptorchError

_ROWS = 64    # of a matrix that is written out

_T = torch.Tensor


def _indices(a: _T) -> Tuple[int, _T, _T]:
    """A square matrix's size, and the indices of its rows and columns."""
    n = a.shape[-1]
    if n != a.shape[-2]:
        raise createPoptorchError(f"Factors of a matrix of {a.shape[-2]} rows and {n} columns are not supported")
    if n > _ROWS:
        raise createPoptorchError(f"Factors and inverses of matrices of {n} rows are not supported: {_ROWS} at most")
    return n, torch.arange(n).view(n, 1), torch.arange(n).view(1, n)


def _info(a: _T) -> _T:
    return torch.zeros(a.shape[:-2], dtype=torch.int32)


def _lu(a: _T, pivot: bool = True, check_errors: bool = False) -> Tuple[_T, _T, _T]:
    """Both factors in one matrix; in step k row k changed places with row pivots[k], counted from 1."""
    n, i, j = _indices(a)
    pivots = []
    for k in range(n):
        p = torch.where(i[:, 0] >= k, a[..., k].abs(), -1.0).argmax(-1) if pivot else torch.full(a.shape[:-2], k)
        a = _swapped(a, k, p)
        down = torch.where(i > k, a[..., k:k + 1] / a[..., k:k + 1, k:k + 1], 0.0)
        a = torch.where((i > k) & (j == k), down, a - down * torch.where(j > k, a[..., k:k + 1, :], 0.0))
        pivots.append((p + 1).int())
    return a, torch.stack(pivots, -1), _info(a)


def _swapped(a: _T, k: int, p: _T) -> _T:
    rows = torch.arange(a.shape[-2])
    p = p.unsqueeze(-1)
    rows = torch.where(rows == k, p, torch.where(rows == p, k, rows)).unsqueeze(-1)
    return a.gather(-2, rows.expand(a.shape))


def _substituted(a: _T, b: _T, upper: bool, left: bool = True, unit: bool = False) -> _T:
    """a^-1 b, a triangular; or b a^-1."""
    if not left:
        return _substituted(a.mT, b.mT, not upper, True, unit).mT
    n, i, _ = _indices(a)
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a, b = a.expand(*batch, *a.shape[-2:]), b.expand(*batch, *b.shape[-2:])
    for k in reversed(range(n)) if upper else range(n):
        row = b[..., k:k + 1, :] if unit else b[..., k:k + 1, :] / a[..., k:k + 1, k:k + 1]
        rest = torch.where(i < k if upper else i > k, a[..., k:k + 1], 0.0)
        b = torch.where(i == k, row, b - rest * row)
    return b


def _luSolve(lu: _T, pivots: _T, b: _T, left: bool = True, adjoint: bool = False) -> _T:
    if not left:
        return _luSolve(lu, pivots, b.mT, True, not adjoint).mT
    n = lu.shape[-1]
    b = b.expand(*torch.broadcast_shapes(lu.shape[:-2], b.shape[:-2]), *b.shape[-2:])
    rows = [(pivots[..., k].long() - 1).expand(b.shape[:-2]) for k in range(n)]
    if adjoint:
        b = _substituted(lu.mT, _substituted(lu.mT, b, False), True, unit=True)
        for k in reversed(range(n)):
            b = _swapped(b, k, rows[k])
        return b
    for k in range(n):
        b = _swapped(b, k, rows[k])
    return _substituted(lu, _substituted(lu, b, False, unit=True), True)


def _factors(a: _T) -> Tuple[_T, _T, bool]:
    """As PyTorch's gradients expect them to be: of the transposed matrix when it lies row after row."""
    turned = a.is_contiguous()
    return (*_lu(a.mT if turned else a)[:2], turned)


@functools.lru_cache(None)
def _solveTurns() -> bool:
    """Whether this release's solve() does so too, which its gradient relies on: 2.15 does not."""
    return not torch._linalg_solve_ex(torch.eye(2).cumsum(1), torch.eye(2))[1][0, 1]    # type: ignore[attr-defined]


def _solve(a: _T, b: _T, left: bool = True, check_errors: bool = False) -> Tuple[_T, _T, _T, _T]:
    lu, pivots, turned = _factors(a) if _solveTurns() else (*_lu(a)[:2], False)
    vector = b.dim() == 1 or (a.dim() - 1 == b.dim() and b.shape == a.shape[:-1])
    x = _luSolve(lu, pivots, b.unsqueeze(-1) if vector else b, left or vector, turned)
    return x.squeeze(-1) if vector else x, lu, pivots, _info(a)


def _inverse(a: _T, check_errors: bool = False) -> Tuple[_T, _T]:
    return _solve(a, torch.eye(a.shape[-1], dtype=a.dtype).expand(a.shape))[0], _info(a)


def _turned(pivots: _T) -> _T:
    """-1 for an odd number of exchanged rows, else 1."""
    moved = pivots != torch.arange(1, pivots.shape[-1] + 1)
    return torch.where(moved, -1.0, 1.0).prod(-1)


def _det(a: _T) -> Tuple[_T, _T, _T]:
    lu, pivots, _ = _factors(a)
    return _turned(pivots).to(a.dtype) * lu.diagonal(dim1=-2, dim2=-1).prod(-1), lu, pivots


def _slogdet(a: _T) -> Tuple[_T, _T, _T, _T]:
    lu, pivots, _ = _factors(a)
    diagonal = lu.diagonal(dim1=-2, dim2=-1)
    return _turned(pivots).to(a.dtype) * diagonal.sign().prod(-1), diagonal.abs().log().sum(-1), lu, pivots


def _cholesky(a: _T, upper: bool = False, check_errors: bool = False) -> Tuple[_T, _T]:
    """The gradient is symmetric, as PyTorch's, for it reads both halves."""
    n, i, _ = _indices(a)
    rest, columns = (a + a.mT) / 2, []
    for k in range(n):
        top = rest[..., k:k + 1, k:k + 1].sqrt()
        column = torch.where(i > k, rest[..., k:k + 1] / top, torch.where(i == k, top, 0.0))
        rest = rest - column * column.mT
        columns.append(column)
    found = torch.cat(columns, -1)
    return found.mT if upper else found, _info(a)


def _choleskySolve(b: _T, factor: _T, upper: bool = False) -> _T:
    lower = factor.mT if upper else factor
    return _substituted(lower.mT, _substituted(lower, b, False), True)


def _parts(lu: _T, pivots: _T, unpack_data: bool = True, unpack_pivots: bool = True) -> Tuple[_T, _T, _T]:
    """A permutation and two triangular matrices, of square ones."""
    n, i, j = _indices(lu)
    order = torch.eye(n, dtype=lu.dtype).expand(lu.shape)
    for k in range(n):
        order = _swapped(order, k, pivots[..., k].long() - 1)
    return order.mT, torch.where(i > j, lu, 0.0) + torch.eye(n, dtype=lu.dtype), lu.triu()


def _qr(a: _T, mode: str = "reduced") -> Tuple[_T, _T]:
    """By Householder's reflections, the signs as LAPACK's."""
    m, n = a.shape[-2:]
    _, i, _ = _indices(a.new_empty(m, m))
    q = torch.eye(m, dtype=a.dtype).expand(*a.shape[:-2], m, m)
    for k in range(min(n, m - 1)):
        x = torch.where(i >= k, a[..., k:k + 1], 0.0)
        size = x.square().sum(-2, keepdim=True).sqrt()
        v = x + torch.where(i == k, torch.where(x < 0, -size, size), 0.0)
        v = v * v.square().sum(-2, keepdim=True).rsqrt()
        a, q = a - 2 * v * (v.mT @ a), q - 2 * (q @ v) * v.mT
    if mode == "r":
        return a.new_empty(0), a.triu()[..., :min(m, n), :]
    return (q, a.triu()) if mode == "complete" else (q[..., :min(m, n)], a.triu()[..., :min(m, n), :])


def _matrixExponential(a: _T) -> _T:
    """The series of a / 32, 18 terms, squared five times: enough up to norms of about 100."""
    one = torch.eye(a.shape[-1]).to(a.dtype)
    a, y = a / 32, one
    for k in range(18, 0, -1):
        y = one + a @ y / k
    for _ in range(5):
        y = y @ y
    return y


def _distances(x: _T, y: _T) -> _T:
    """By one product, as PyTorch has it from 26 points on."""
    squares = x.square().sum(-1, keepdim=True) + y.square().sum(-1).unsqueeze(-2) - 2 * x @ y.mT
    apart = squares > 0
    return torch.where(apart, torch.where(apart, squares, 1.0).sqrt(), 0.0)


def _draws(p: _T, count: int, replacement: bool = False, generator: Any = None) -> _T:
    """A race of exponentials: who has twice the rate comes first twice as often."""
    if replacement:
        p = p.unsqueeze(-2).expand(*p.shape[:-1], count, p.shape[-1])
    times = torch.empty(p.shape, dtype=p.dtype).exponential_().clamp(min=1e-10)
    speeds = p / times
    return speeds.argmax(-1) if replacement else speeds.topk(count)[1]


def _logNormal(x: _T, mean: float = 1.0, std: float = 2.0, generator: Any = None) -> _T:
    return x.copy_((torch.randn(x.shape) * std + mean).exp())


def _cauchy(x: _T, median: float = 0.0, sigma: float = 1.0, generator: Any = None) -> _T:
    return x.copy_(((torch.rand(x.shape) - 0.5) * math.pi).tan() * sigma + median)


def _geometric(x: _T, p: float, generator: Any = None) -> _T:
    """Draws up to the first success."""
    return x.copy_((torch.empty(x.shape).exponential_(-math.log1p(-p)).ceil()).clamp(min=1))


def _quantized(x: _T, scale: Any, zero: Any, low: int, high: int) -> Tuple[_T, _T]:
    """The gradient is x's own where the number is inside of the range."""
    steps = (x / scale).round() + zero
    inside = (steps >= low) & (steps <= high)
    y = (steps.clamp(low, high) - zero) * scale
    return y.detach() + torch.where(inside, x - x.detach(), 0.0), inside


def _quantizedChannels(x: _T, scale: _T, zero: _T, axis: int, low: int, high: int) -> Tuple[_T, _T]:
    shape = [-1 if d == axis else 1 for d in range(x.dim())]
    return _quantized(x, scale.view(shape), zero.view(shape).to(x.dtype), low, high)


def _histogram(x: _T, bins: int = 100, low: Any = 0, high: Any = 0) -> _T:
    x = x.flatten()
    if low == high:
        low, high = x.min(), x.max()
        same = low == high
        low, high = torch.where(same, low - 1, low), torch.where(same, high + 1, high)
    at = ((x - low) * (bins / (high - low))).floor().clamp(0, bins - 1).long()
    counts = ((x >= low) & (x <= high)).to(x.dtype)
    return torch.zeros(bins, dtype=x.dtype).index_add(0, at, counts)


def _sampled3d(x: _T, grid: _T, mode: int, padding: int, corners: bool) -> _T:
    """Up to eight elements each, with a weight that is a product of one for each dim."""
    n, channels, *sizes = x.shape
    at = [placed(grid[..., 2 - d].reshape(n, 1, -1), sizes[d], padding, corners) for d in range(3)]
    first = [a.round() if mode == 1 else a.floor() for a in at]
    flat, out = x.flatten(2), None
    for corner in range(1 if mode == 1 else 8):
        weight, place = torch.ones_like(at[0]), torch.zeros_like(at[0], dtype=torch.int64)
        for d, size in enumerate(sizes):
            c = first[d] + (corner >> d & 1)
            near = 1.0 if mode == 1 else 1 - (at[d] - c).abs()
            weight = weight * torch.where((c >= 0) & (c < size), near, 0.0)
            place = place * size + c.clamp(0, size - 1).long()    # whole: half precision has no place 2049
        part = flat.gather(2, place.expand(n, channels, place.shape[2])) * weight
        out = part if out is None else out + part
    return out.view(n, channels, *grid.shape[1:4])    # type: ignore[union-attr]


def _timeFirst(x: _T, weight: _T, bias: _T, pad: int = 0) -> _T:
    return F.conv1d(x.permute(1, 2, 0), weight.permute(2, 1, 0), bias, padding=pad).permute(2, 0, 1)


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


#: Ops of libraries that have a gradient in Python, which would ask for values: they are taken before autograd sees them.
FUNCTIONS: Dict[str, Callable] = {"transformers::grouped_mm_fallback": _groupedProduct}

COMPOSED: Dict[str, Callable] = {
    "aten::linalg_lu_factor_ex": _lu, "aten::linalg_lu_solve": _luSolve, "aten::_linalg_solve_ex": _solve,
    "aten::linalg_inv_ex": _inverse, "aten::_linalg_det": _det, "aten::_linalg_slogdet": _slogdet,
    "aten::linalg_cholesky_ex": _cholesky, "aten::cholesky": lambda a, upper=False: _cholesky(a, upper)[0],
    "aten::cholesky_solve": _choleskySolve, "aten::linalg_lu": lambda a, pivot=True: _parts(*_lu(a, pivot)[:2]),
    "aten::cholesky_inverse": lambda a, upper=False: _choleskySolve(torch.eye(a.shape[-1], dtype=a.dtype), a, upper),
    "aten::lu_unpack": _parts, "aten::linalg_qr": _qr, "aten::linalg_matrix_exp": _matrixExponential,
    "aten::_euclidean_dist": _distances,
    "aten::linalg_solve_triangular": lambda a, b, upper, left=True, unitriangular=False: _substituted(
        a, b, upper, left, unitriangular),
    "aten::_linalg_check_errors": lambda info, name, is_matrix: None,
    "aten::histc": _histogram, "aten::_grouped_mm": _groupedProduct,
    "aten::narrow_copy": lambda x, dim, start, length: x.narrow(dim, start, length).clone(),
    "aten::multinomial": _draws, "aten::log_normal_": _logNormal, "aten::cauchy_": _cauchy,
    "aten::geometric_": _geometric, "aten::fake_quantize_per_tensor_affine_cachemask": _quantized,
    "aten::fake_quantize_per_channel_affine_cachemask": _quantizedChannels,
    "aten::_pack_padded_sequence": _packed, "aten::grid_sampler_3d": _sampled3d, "aten::conv_tbc": _timeFirst,
}
