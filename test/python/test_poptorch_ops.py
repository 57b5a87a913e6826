"""ATen ops through poptorch, against PyTorch: values in one compiled module, gradients in another."""

import re
import subprocess
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import poptorch
from poptorch import _core, _trace

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def nothing_cached(monkeypatch):
    """No test finds what another run compiled. And the cases are functions with tensors of their own, which a
    model may not have: here they are constants."""
    monkeypatch.setenv("TESSERA_CACHE_DIR", "")
    monkeypatch.setattr(poptorch._trace.Tracer, "_checkMade", lambda self, t: None)


torch.manual_seed(3)
X = torch.randn(4, 6)
Y = torch.rand(4, 6) + 0.5
IMAGE = torch.randn(2, 4, 8, 8)
INDEX = torch.tensor([2, 0, 3, 1])
PLACES = torch.arange(48) * 37 % 200
ROWS2 = torch.tensor([[0, 0, 1, 3, 3, 3], [5, 4, 3, 2, 1, 0], [2, 2, 2, 2, 2, 2], [0, 1, 0, 1, 0, 1]])
LABELS = torch.tensor([[2, 0, -1, 1, 1, 1], [3, -1, 0, 0, 0, 0], [5, 4, 3, 2, 1, 0], [0, -1, 1, 1, 1, 1]])
BAGS = torch.tensor([[0, 2, 1], [3, 3, 0]])


def _in_place(x):
    z = x * 2
    z[:, 1] = 7.0
    z[1:3, 2:4] += 1
    z.t()[0].mul_(3)
    z[:, ::2] = -1
    return z


def _views(x):
    z = x.clone()
    v = z.view(2, 12)
    w = v[0]
    v.mul_(2)
    w.add_(1)
    return z + v.reshape(4, 6) + z.view(-1)[3]


def _fill_constant(x):
    out = torch.zeros(4, 6)
    out[:, 0] = x[:, 0]
    out[2] = x[1]
    return out


def _masked(x):
    z = x.clone()
    z[z > 0] = 0.5
    return z


def _chunks(x):
    a, b = x.chunk(2, 1)
    a.mul_(2)
    return torch.cat([b, a], 1)


def _set_rows(x, y):
    z = x * 1
    z[[0, 3]] = y[:2]
    z[INDEX[:2], INDEX[:2]] = 5.0
    z[:, [1, 4]] += 2
    return z


def _masked_value(x, y):
    z = x * 1
    z[x > 0] = x.mean()
    return z


def _masked_rows(x, y):
    z = x * 1
    z[y[:, 0] > 1] = y[1]
    return z


def _diagonal(x):
    z = x * 1
    z.diagonal().mul_(3)
    z.fill_diagonal_(0.5)
    return z


def _in_place_more(x, y):
    z = x * 1
    z.index_add_(0, INDEX[:2], y[:2]).index_fill_(1, INDEX[:1], 3).scatter_add_(1, INDEX.view(4, 1), y)
    z.masked_fill_(y > 1.2, 4).clamp_(-1, 3)
    z.tril_().scatter_(1, INDEX.view(4, 1), 2.0)
    z[0].copy_(y[1]).neg_()
    z.unsqueeze(0).add_(1)
    return z.index_put_((INDEX[:1],), y[:1]).index_copy_(0, INDEX[1:2], y[2:3])


def _ctc(x, lengths=(4, 3), **options):
    logits = torch.stack([x, x.flip(1)], 1).log_softmax(2)
    targets = torch.tensor([[1, 1, 3], [4, 5, 0]])
    options.setdefault("blank", 0)
    if options["blank"]:
        targets = torch.tensor([[1, 0, 3], [4, 5, 0]])
    return F.ctc_loss(logits, targets, torch.tensor(lengths), torch.tensor([2, 2]), **options)


def _square(x):
    """Two matrices: one keeps its rows in their places, one does not."""
    return torch.stack([x[:3] @ x[:3].T + 2 * torch.eye(3), x[:3, 1:4].flip(0)])


def _rebuilt(a, b, c):
    """Of factors, with other values between: what does not depend on the vectors' signs."""
    if c is None:    # values, vectors
        return (b * a.sin().unsqueeze(-2)) @ b.mT
    return (a * b.sin().unsqueeze(-2)) @ c


def _definite(x):
    return x[:3] @ x[:3].T + torch.eye(3)


def positive(x):
    return x.abs() + 0.5


POINTWISE = {
    "neg": lambda x, y: -x,
    "abs": lambda x, y: x.abs(),
    "exp": lambda x, y: x.exp(),
    "log": lambda x, y: positive(x).log(),
    "sqrt": lambda x, y: positive(x).sqrt(),
    "rsqrt": lambda x, y: positive(x).rsqrt(),
    "sin": lambda x, y: x.sin(),
    "cos": lambda x, y: x.cos(),
    "tan": lambda x, y: (x * 0.3).tan(),
    "sinh": lambda x, y: x.sinh(),
    "cosh": lambda x, y: x.cosh(),
    "tanh": lambda x, y: x.tanh(),
    "asin": lambda x, y: (x * 0.2).asin(),
    "acos": lambda x, y: (x * 0.2).acos(),
    "atan": lambda x, y: x.atan(),
    "asinh": lambda x, y: x.asinh(),
    "acosh": lambda x, y: (positive(x) + 1).acosh(),
    "atanh": lambda x, y: (x * 0.2).atanh(),
    "erf": lambda x, y: x.erf(),
    "erfinv": lambda x, y: (x * 0.3).erfinv() + torch.special.erfinv(x.tanh()),
    "lgamma": lambda x, y: x.lgamma() + torch.special.gammaln(x * 9),
    "digamma": lambda x, y: x.digamma() + torch.special.psi(y * 9),
    "polygamma": lambda x, y: torch.polygamma(1, positive(x)) + positive(x).polygamma(4) + torch.polygamma(0, y),
    "mvlgamma": lambda x, y: torch.mvlgamma(x.abs() + 1.2, 3) + torch.special.multigammaln(x.abs() + 0.6, 2),
    "zeta": lambda x, y: torch.special.zeta(3, positive(x)),
    "entropy": lambda x, y: torch.special.entr(x.relu() + 0.1),
    "gaussian_nll": lambda x, y: F.gaussian_nll_loss(x, y, x.abs(), full=True, reduction="none"),
    "gaussian_nll1": lambda x, y: F.gaussian_nll_loss(x, y, positive(x[:, 0])) + F.gaussian_nll_loss(
        y, x, positive(x[:, :1]), reduction="sum"),
    "fake_quantized": lambda x, y: torch.fake_quantize_per_tensor_affine(x, 0.1, 3, -5, 9),
    "fake_quantized_rows": lambda x, y: torch.fake_quantize_per_channel_affine(
        x, Y[:, 0] * 0.1, torch.arange(4).int(), 0, -8, 7),
    "beta": lambda x, y: torch.distributions.Beta(positive(x), y, validate_args=False).log_prob(torch.tensor(0.3)),
    "ndtr": lambda x, y: torch.special.ndtr(x * 5),
    "log_ndtr": lambda x, y: torch.special.log_ndtr(x * 9) + torch.special.log_ndtr(x),
    "erfc": lambda x, y: x.erfc(),
    "sigmoid": lambda x, y: x.sigmoid(),
    "square": lambda x, y: x.square(),
    "pow3": lambda x, y: x**3,
    "pow_t": lambda x, y: y**x,
    "rpow": lambda x, y: 2**x,
    "expm1": lambda x, y: x.expm1(),
    "log1p": lambda x, y: positive(x).log1p(),
    "log2": lambda x, y: positive(x).log2(),
    "log10": lambda x, y: positive(x).log10(),
    "reciprocal": lambda x, y: 1 / positive(x),
    "add": lambda x, y: x + y,
    "add_alpha": lambda x, y: torch.add(x, y, alpha=3),
    "sub": lambda x, y: x - y,
    "rsub": lambda x, y: 3 - x,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "fmod": lambda x, y: torch.fmod(x, 0.7),
    "remainder": lambda x, y: x % 0.7,
    "maximum": lambda x, y: torch.maximum(x, y),
    "minimum": lambda x, y: torch.minimum(x, y),
    "atan2": lambda x, y: torch.atan2(x, y),
    "clamp": lambda x, y: x.clamp(-0.5, 0.6),
    "clamp_min": lambda x, y: x.clamp(min=0.1),
    "where": lambda x, y: torch.where(x > 0, x, y),
    "masked_fill": lambda x, y: x.masked_fill(y > 1, -2.0),
    "addcmul": lambda x, y: torch.addcmul(x, x, y, value=2),
    "addcdiv": lambda x, y: torch.addcdiv(x, x, y, value=2),
    "lerp": lambda x, y: torch.lerp(x, y, 0.3),
    "xlogy": lambda x, y: torch.xlogy(x, y),
    "relu": lambda x, y: F.relu(x),
    "relu6": lambda x, y: F.relu6(x * 5),
    "leaky": lambda x, y: F.leaky_relu(x, 0.2),
    "elu": lambda x, y: F.elu(x, 0.7),
    "celu": lambda x, y: F.celu(x, 0.7),
    "selu": lambda x, y: F.selu(x),
    "gelu": lambda x, y: F.gelu(x),
    "silu": lambda x, y: F.silu(x),
    "mish": lambda x, y: F.mish(x),
    "hardtanh": lambda x, y: F.hardtanh(x),
    "hardsigmoid": lambda x, y: F.hardsigmoid(x),
    "hardswish": lambda x, y: F.hardswish(x),
    "softplus": lambda x, y: F.softplus(x, 2),
    "softsign": lambda x, y: F.softsign(x),
    "logsigmoid": lambda x, y: F.logsigmoid(x),
    "glu": lambda x, y: F.glu(x),
    "hardshrink": lambda x, y: F.hardshrink(x),
    "softshrink": lambda x, y: F.softshrink(x),
    "threshold": lambda x, y: F.threshold(x, 0.1, 20),
    "softmax": lambda x, y: F.softmax(x, 1),
    "log_softmax": lambda x, y: F.log_softmax(x, 0),
    "frac": lambda x, y: x.frac(),
    "prelu": lambda x, y: F.prelu(x, torch.tensor([0.3])),
    "deg2rad": lambda x, y: torch.deg2rad(x) + torch.rad2deg(y),
    "exp2": lambda x, y: x.exp2(),
    "sinc": lambda x, y: torch.sinc(x),
    "logit": lambda x, y: torch.logit(x.sigmoid()) + torch.logit(y * 0.5, 1e-2),
    "positive": lambda x, y: torch.positive(x),
    "float_power": lambda x, y: torch.float_power(positive(x), 1.5),
    "pow_half": lambda x, y: positive(x)**0.5 + positive(x)**-1.5,
    "div_trunc": lambda x, y: x + torch.div(x * 5, y, rounding_mode="trunc"),
    "remainder_t": lambda x, y: torch.remainder(x, y),
    "fmod_t": lambda x, y: torch.fmod(x * 3, y),
    "fmax": lambda x, y: torch.fmax(x, y) + torch.fmin(x, 2 * y),
    "hypot": lambda x, y: torch.hypot(x, y),
    "logaddexp": lambda x, y: torch.logaddexp(x, y) + torch.logaddexp2(x, y),
    "copysign": lambda x, y: torch.copysign(y, x) + torch.copysign(x, -1.0),
    "xlog1py": lambda x, y: torch.special.xlog1py(x, y),
    "nan_to_num": lambda x, y: torch.nan_to_num(x, 1.0, 2.0, 3.0),
    "clamp_t": lambda x, y: torch.clamp(x, -y, y) + x.clamp(max=0.2) + torch.clip(x, 0, 1),
    "clamp_max": lambda x, y: torch.clamp_max(x, 0.3) + torch.clamp_min(x, y),
    "where_scalar": lambda x, y: torch.where(x > 0, x, torch.tensor(0.5)),
    "where_three": lambda x, y: torch.where(x > 0, 1.0, -1.0) * x,
    "masked_fill_t": lambda x, y: x.masked_fill(y > 1, torch.tensor(3.0)),
    "lerp_t": lambda x, y: torch.lerp(x, y, y * 0.5),
    "addcmul1": lambda x, y: torch.addcmul(x, y, y) + torch.addcdiv(x, y, y),
    "ldexp": lambda x, y: torch.ldexp(x, torch.tensor(2)) + torch.ldexp(x, y),
    "rrelu": lambda x, y: F.rrelu(x),
    "hardtanh2": lambda x, y: F.hardtanh(x, -0.3, 0.7),
    "tanhshrink": lambda x, y: F.tanhshrink(x),
    "softmin": lambda x, y: F.softmin(x, 1),
    "prelu_channels": lambda x, y: F.prelu(x, torch.linspace(0.1, 0.9, 6)),
    "gelu_tanh": lambda x, y: F.gelu(x, approximate="tanh") if hasattr(F, "gelu") else x,
    "square_": lambda x, y: (x * 1).square_().add_(1).sqrt_(),
    "out": lambda x, y: torch.add(x, y, out=torch.empty(4, 6)) if not torch.is_grad_enabled() else x + y,
    "complexless": lambda x, y: torch.real(x) + x.conj(),
}

SHAPES = {
    "permute": lambda x, y: x.view(2, 2, 6).permute(2, 0, 1),
    "expand": lambda x, y: x[:, :1].expand(4, 3) * 2,
    "slice": lambda x, y: x[1:3, ::2],
    "select": lambda x, y: x[-1],
    "split": lambda x, y: x.split(4, 1)[1],
    "split_sizes": lambda x, y: x.split([1, 3], 0)[1],
    "unbind": lambda x, y: x.unbind(1)[2],
    "unfold": lambda x, y: x.unfold(1, 3, 2),
    "flip": lambda x, y: x.flip(1),
    "roll": lambda x, y: x.roll(2, 1),
    "repeat": lambda x, y: x.repeat(2, 1, 3),
    "cat": lambda x, y: torch.cat([x, y], 1),
    "stack": lambda x, y: torch.stack([x, y], 1),
    "pad": lambda x, y: F.pad(x, (1, 2, 0, 1), value=3.0),
    "pad_negative": lambda x, y: F.pad(x, (-1, 2)),
    "reflect": lambda x, y: F.pad(x[None], (2, 1), mode="reflect"),
    "replicate": lambda x, y: F.pad(x[None], (2, 1), mode="replicate"),
    "triu": lambda x, y: x.triu(1),
    "tril": lambda x, y: x.tril(-1),
    "gather": lambda x, y: x.gather(0, INDEX.view(4, 1).expand(4, 6)),
    "index_select": lambda x, y: x.index_select(0, INDEX),
    "index": lambda x, y: x[:, INDEX],
    "index_two": lambda x, y: x[INDEX, -INDEX],
    "scatter_add": lambda x, y: x.scatter_add(0, INDEX.view(4, 1), y[:, :1]),
    "take_along": lambda x, y: torch.take_along_dim(x, INDEX.view(4, 1), 1),
    "in_place": lambda x, y: _in_place(x),
    "views": lambda x, y: _views(x),
    "fill_constant": lambda x, y: _fill_constant(x),
    "masked": lambda x, y: _masked(x),
    "meshgrid": lambda x, y: torch.meshgrid(x[0], y[0], indexing="ij")[0],
    "squeeze": lambda x, y: x[None].squeeze(0) + y.unsqueeze(0),
    "copies": lambda x, y: torch.view_copy(x, (6, 4)) + torch.permute_copy(y, (1, 0)) + torch.t_copy(x),
    "copied_parts": lambda x, y: torch.expand_copy(torch.unsqueeze_copy(torch.select_copy(x, 0, 1), 0), (3, 6))
    + torch.transpose_copy(torch.narrow_copy(y, 1, 2, 3), 0, 1)[:, :1],
    "einsum": lambda x, y: torch.einsum("ij,kj->ik", x, y),
    "movedim": lambda x, y: x[None].movedim(0, 2),
    "movedims": lambda x, y: x.view(2, 2, 6).swapaxes(0, 2).moveaxis(1, 0).swapdims(0, 1),
    "narrow": lambda x, y: x.narrow(1, 2, 3),
    "tensor_split": lambda x, y: torch.cat(x.tensor_split(4, 1)[::-1], 1),
    "tensor_split_at": lambda x, y: x.tensor_split((1, 4), 1)[1],
    "hsplit": lambda x, y: torch.hsplit(x, 2)[1] + torch.vsplit(x, 2)[0][0, 0],
    "chunk": lambda x, y: x.chunk(3, 1)[2] + torch.unsafe_chunk(x, 3, 1)[0],
    "unflatten": lambda x, y: x.unflatten(1, (2, 3)),
    "flatten": lambda x, y: x.view(2, 2, 6).flatten(1) + x.view(2, 12).ravel()[0],
    "expand_as": lambda x, y: x[:1].expand_as(y) + torch.broadcast_to(x[0], (4, 6)),
    "broadcast": lambda x, y: torch.broadcast_tensors(x[0], y)[0] * y,
    "numpy_T": lambda x, y: x.T + x.mT,
    "diagonal": lambda x, y: x.diagonal() + x.diagonal(1)[:4] + torch.diag(x, -1)[0],
    "diagonal_copy": lambda x, y: torch.diagonal_copy(x, 2),
    "diag_embed": lambda x, y: torch.diag_embed(x) + torch.diag(x[0]),
    "diag_put": lambda x, y: _diagonal(x),
    "trace": lambda x, y: x.trace(),
    "rot90": lambda x, y: torch.rot90(x) + 0,
    "fliplr": lambda x, y: x.fliplr() + x.flipud() + x.flip((0, 1)),
    "roll_flat": lambda x, y: x.roll(5) + x.roll((1, -2), (0, 1)),
    "tile": lambda x, y: x.tile(2) + x.repeat(1, 2),
    "repeat_many": lambda x, y: x.repeat(1, 70),
    "repeat_interleave": lambda x, y: x.repeat_interleave(3, 1) + x.repeat_interleave(3, dim=1),
    "repeat_flat": lambda x, y: x.repeat_interleave(2),
    "repeat_counts": lambda x, y: x.repeat_interleave(torch.tensor([1, 0, 2, 1]), 0),
    "hstack": lambda x, y: torch.hstack([x, y]) + torch.column_stack([x, y]),
    "vstack": lambda x, y: torch.vstack([x, y[0]]),
    "dstack": lambda x, y: torch.dstack([x, y]),
    "block_diag": lambda x, y: torch.block_diag(x, y),
    "pad_1d": lambda x, y: F.pad(x[None], (2, 1, 1, 0), value=-1) + 0,
    "pad_circular": lambda x, y: F.pad(x[None], (2, 1), mode="circular"),
    "reflect2": lambda x, y: F.pad(x.view(1, 1, 4, 6), (2, 1, 1, 3), mode="reflect"),
    "replicate3": lambda x, y: F.pad(x.view(1, 1, 2, 2, 6), (2, 1, 1, 3, 1, 1), mode="replicate"),
    "tri_batch": lambda x, y: torch.tril(x.view(2, 2, 6)) + torch.triu(y.view(2, 2, 6), -1),
    "gather1": lambda x, y: x.gather(1, INDEX.view(4, 1)),
    "take": lambda x, y: x.take(INDEX) + torch.take_along_dim(x, INDEX),
    "put": lambda x, y: (x * 1).put_(INDEX, y[0, :4]) + x.put(INDEX - 24, y[:2, :2], accumulate=True),
    "index_gap": lambda x, y: x.view(2, 2, 6)[INDEX[:2] % 2, :, INDEX[:2]],
    "index_none": lambda x, y: x[INDEX[:2], None, 1:],
    "index_list": lambda x, y: x[[0, 2]] + x[:, [1] * 6][:2],
    "index_add": lambda x, y: x.index_add(0, INDEX % 2, y, alpha=2),
    "index_copy": lambda x, y: x.index_copy(0, INDEX[:2], y[:2]),
    "index_fill": lambda x, y: x.index_fill(1, INDEX[:2], 2.5),
    "index_put": lambda x, y: x.index_put((INDEX[:2],), y[:2]),
    "index_put_add": lambda x, y: x.index_put((INDEX % 2, INDEX), y[0, :4], accumulate=True),
    "index_set": lambda x, y: _set_rows(x, y),
    "masked_value": lambda x, y: _masked_value(x, y),
    "masked_rows": lambda x, y: _masked_rows(x, y),
    "masked_tensor": lambda x, y: torch.where(x > 0, y, x),
    "scatter_value": lambda x, y: x.scatter(1, INDEX.view(4, 1), 0.5),
    "scatter_src": lambda x, y: x.scatter(1, INDEX.view(4, 1), y),
    "scatter_long": lambda x, y: torch.zeros(200).scatter(0, PLACES, torch.cat([x, y * 2]).flatten()),
    "topk_of_many": lambda x, y: torch.cat([x, y, x * 3, y * 5]).flatten().topk(3, largest=False)[0],
    "scatter_reduce_add": lambda x, y: x.scatter(1, INDEX.view(4, 1), y, reduce="add"),
    "scatter_reduce_mul": lambda x, y: y.scatter(1, INDEX.view(4, 1), 3.0, reduce="multiply") * x,
    "scatter_sum": lambda x, y: x.scatter_reduce(1, ROWS2, y, "sum"),
    "scatter_mean": lambda x, y: x.scatter_reduce(1, ROWS2, y, "mean"),
    "scatter_amax": lambda x, y: x.scatter_reduce(1, ROWS2, y * 0.1, "amax"),
    "scatter_amin": lambda x, y: x.scatter_reduce(1, ROWS2, y, "amin", include_self=False),
    "scatter_prod": lambda x, y: x.scatter_reduce(1, ROWS2, y, "prod"),
    "select_scatter": lambda x, y: torch.select_scatter(x, y[0], 0, 2),
    "slice_scatter": lambda x, y: torch.slice_scatter(x, y[:2], 0, 1, 3, 1),
    "diagonal_scatter": lambda x, y: torch.diagonal_scatter(x, y[:, 0]),
    "cartesian": lambda x, y: torch.cartesian_prod(x[0], y[0]),
    "combinations": lambda x, y: torch.combinations(x[0], 2),
    "einsum3": lambda x, y: torch.einsum("bij,bjk,bk->bi", x.view(2, 2, 6), y.view(2, 6, 2), x.view(2, 2, 6)[:, 0, :2]),
    "einsum_diag": lambda x, y: torch.einsum("ii->i", x[:, :4]),
    "sort": lambda x, y: x.sort(1)[0] * torch.arange(6),
    "sort_down": lambda x, y: x.sort(0, descending=True)[0],
    "sort_stable": lambda x, y: torch.sort(x, dim=1, stable=True)[0],
    "msort": lambda x, y: torch.msort(x),
    "topk": lambda x, y: x.topk(3, 1)[0],
    "topk_low": lambda x, y: x.topk(2, 0, largest=False)[0],
    "kthvalue": lambda x, y: x.kthvalue(2, 1)[0],
    "median": lambda x, y: x.median(),
    "median_dim": lambda x, y: x.median(1)[0] + x.nanmedian(1)[0],
    "quantile": lambda x, y: torch.quantile(x, 0.3, 1),
    "set_where": lambda x, y: _in_place_more(x, y),
}

REDUCTIONS = {
    "sum": lambda x, y: x.sum(),
    "sum_dim": lambda x, y: x.sum(1, keepdim=True),
    "mean": lambda x, y: x.mean(0),
    "amax": lambda x, y: x.amax(1),
    "max": lambda x, y: x.max(1)[0],
    "min_all": lambda x, y: x.min(),
    "prod": lambda x, y: positive(x).prod(1),
    "var": lambda x, y: x.var(1),
    "std": lambda x, y: x.std(),
    "var_mean": lambda x, y: sum(torch.var_mean(x, 1, unbiased=False)),
    "norm": lambda x, y: x.norm(dim=1),
    "norm1": lambda x, y: x.norm(p=1),
    "logsumexp": lambda x, y: x.logsumexp(1),
    "cumsum": lambda x, y: x.cumsum(1),
    "cumsum0": lambda x, y: x.cumsum(0),
    "normalize": lambda x, y: F.normalize(x),
    "dot": lambda x, y: x[0] @ y[0],
    "cosine": lambda x, y: F.cosine_similarity(x, y),
    "mv": lambda x, y: x @ y[0],
    "mm": lambda x, y: x @ y.t(),
    "bmm": lambda x, y: torch.bmm(x.view(2, 2, 6), y.view(2, 6, 2)),
    "addmm": lambda x, y: torch.addmm(x[:, :4], x, y.t(), beta=0.5),
    "baddbmm": lambda x, y: torch.baddbmm(x.view(2, 2, 6)[:, :, :2], x.view(2, 2, 6), y.view(2, 6, 2)),
    "layer_norm": lambda x, y: F.layer_norm(x, (6,)),
    "mse": lambda x, y: F.mse_loss(x, y),
    "l1": lambda x, y: F.l1_loss(x, y),
    "smooth_l1": lambda x, y: F.smooth_l1_loss(x, y, beta=0.5),
    "huber": lambda x, y: F.huber_loss(x, y, delta=0.5),
    "nll": lambda x, y: F.nll_loss(F.log_softmax(x, 1), INDEX),
    "ce": lambda x, y: F.cross_entropy(x, INDEX),
    "ce_sum": lambda x, y: F.cross_entropy(x, INDEX, reduction="sum"),
    "ce_ignore": lambda x, y: F.cross_entropy(x, INDEX, ignore_index=3),
    "ce_smooth": lambda x, y: F.cross_entropy(x, INDEX, label_smoothing=0.1),
    "bce": lambda x, y: F.binary_cross_entropy(x.sigmoid(), (y > 1).float()),
    "bce_logits": lambda x, y: F.binary_cross_entropy_with_logits(x, (y > 1).float(), pos_weight=Y[0]),
    "kl": lambda x, y: F.kl_div(F.log_softmax(x, 1), F.softmax(y, 1), reduction="batchmean"),
    "poisson": lambda x, y: F.poisson_nll_loss(x, y),
    "soft_margin": lambda x, y: F.soft_margin_loss(x, y.sign()),
    "margin": lambda x, y: F.margin_ranking_loss(x[0], y[0], torch.ones(6)),
    "triplet": lambda x, y: F.triplet_margin_loss(x, y, x * 0.5),
    "hinge": lambda x, y: F.hinge_embedding_loss(x, torch.tensor([1., -1, 1, -1, 1, -1])),
    "cosine_loss": lambda x, y: F.cosine_embedding_loss(x, y, torch.tensor([1., -1, 1, -1])),
    "sum_many": lambda x, y: x.view(2, 2, 6).sum((0, 2)),
    "sum_all_keep": lambda x, y: x.sum((0, 1), keepdim=True),
    "nansum": lambda x, y: x.nansum(1) + x.nanmean(1),
    "amin": lambda x, y: x.amin((0, 1)) + x.amin(),
    "aminmax": lambda x, y: sum(torch.aminmax(x, dim=1)),
    "max_all": lambda x, y: x.max() - x.min(),
    "min_dim": lambda x, y: x.min(0, keepdim=True)[0],
    "prod_all": lambda x, y: positive(x).prod(),
    "var_correction": lambda x, y: torch.var(x, 1, unbiased=False) + x.var(1, keepdim=True)[:, 0],
    "std_dims": lambda x, y: torch.std(x.view(2, 2, 6), (0, 2), unbiased=False),
    "std_mean": lambda x, y: sum(torch.std_mean(x, 1)),
    "norm3": lambda x, y: x.norm(p=3, dim=1),
    "norm_inf": lambda x, y: x.norm(p=float("inf"), dim=1) + x.norm(p=float("-inf"), dim=1),
    "norm_fro": lambda x, y: torch.linalg.norm(x) + x.norm(p="fro", dim=(0, 1)),
    "norm_half": lambda x, y: torch.linalg.vector_norm(x, 0.5, dim=1) + torch.linalg.vector_norm(x, -2, dim=1),
    "matrix_norm": lambda x, y: torch.linalg.matrix_norm(x) + torch.linalg.matrix_norm(x, 1),
    "dist": lambda x, y: torch.dist(x, y) + torch.dist(x, y, 1),
    "renorm": lambda x, y: torch.renorm(x, 2, 0, 1.0),
    "logsumexp2": lambda x, y: x.logsumexp((0, 1)),
    "cumprod": lambda x, y: positive(x).cumprod(1),
    "cumprod0": lambda x, y: x.cumprod(0),
    "cummax": lambda x, y: x.cummax(1)[0] + x.cummin(1)[0],
    "logcumsumexp": lambda x, y: x.logcumsumexp(1),
    "diff": lambda x, y: x.diff() + x.diff(n=2)[:, :1],
    "trapezoid": lambda x, y: torch.trapezoid(x, dx=0.5),
    "addmv": lambda x, y: torch.addmv(x[:, 0], x, y[0], beta=0.5, alpha=2),
    "addr": lambda x, y: torch.addr(x[:, :4], x[:, 0], y[:, 0]) + torch.outer(x[:, 0], y[:, 1]),
    "addbmm": lambda x, y: torch.addbmm(x[:2, :2], x.view(2, 2, 6), y.view(2, 6, 2)),
    "matmul_many": lambda x, y: torch.matmul(x.view(2, 2, 6), y.t()) + torch.inner(x, y)[0],
    "tensordot": lambda x, y: torch.tensordot(x.view(2, 2, 6), y.view(2, 2, 6), ([1, 2], [1, 2])),
    "multi_dot": lambda x, y: torch.linalg.multi_dot([x, y.t(), x]),
    "matrix_power": lambda x, y: torch.matrix_power(x[:, :4], 3),
    "kron": lambda x, y: torch.kron(x[:2, :2], y[:2]),
    "inverse": lambda x, y: torch.linalg.inv(_square(x)),
    "det": lambda x, y: torch.det(_square(x)),
    "slogdet": lambda x, y: torch.stack(torch.slogdet(_square(x))) + torch.logdet(_definite(x)),
    "solve": lambda x, y: torch.linalg.solve(_square(x), y[:3]),
    "solve_vector": lambda x, y: torch.linalg.solve(_square(x), y[:2, :3]) + torch.linalg.solve(_definite(x), y[:3, 0]),
    "solve_right": lambda x, y: torch.linalg.solve(_square(x), y[:3].T, left=False),
    "lu_solve": lambda x, y: torch.linalg.lu_solve(*torch.linalg.lu_factor(_square(x)), y[:3], adjoint=True),
    "cholesky": lambda x, y: torch.linalg.cholesky(_definite(x)) + torch.linalg.cholesky(_definite(y), upper=True),
    "cholesky_solve": lambda x, y: torch.cholesky_solve(y[:3], torch.linalg.cholesky(_definite(x))),
    "triangular_right": lambda x, y: torch.linalg.solve_triangular(
        _square(x).triu(), y[:3].T, upper=True, left=False, unitriangular=True),
    "lu": lambda x, y: sum(torch.linalg.lu(_square(x))) + sum(torch.lu_unpack(*torch.linalg.lu_factor(_square(x)))),
    "cholesky_inverse": lambda x, y: torch.cholesky_inverse(torch.linalg.cholesky(_definite(x))),
    "qr": lambda x, y: torch.cat(torch.linalg.qr(x[:, :3])) + torch.cat(torch.linalg.qr(_square(x))).sum(0)[0],
    "eigh": lambda x, y: _rebuilt(*torch.linalg.eigh(_square(x) + _square(x).mT), None) + torch.linalg.eigvalsh(_definite(y)),
    "svd": lambda x, y: _rebuilt(*torch.linalg.svd(x[:, :3], full_matrices=False)) + torch.linalg.svdvals(_square(y))[0],
    "matrix_exp": lambda x, y: torch.matrix_exp(_square(x)) + torch.linalg.matrix_exp(x[:3, :3] - x[:3, :3].T),
    "cdist_many": lambda x, y: torch.cdist(x.repeat(7, 1), y),
    "vdot": lambda x, y: torch.vdot(x[0], y[0]),
    "multivariate": lambda x, y: torch.distributions.MultivariateNormal(x[0, :3], _definite(x)).log_prob(y[:, 1:4]),
    "cross": lambda x, y: torch.cross(x[:, :3], y[:, :3], dim=1) + torch.linalg.cross(x[:, 3:], y[:, :3]),
    "bilinear": lambda x, y: F.bilinear(x, y, torch.linspace(-1, 1, 72).view(2, 6, 6), torch.ones(2)),
    "pairwise": lambda x, y: F.pairwise_distance(x, y) + F.pairwise_distance(x, y, p=1),
    "cdist": lambda x, y: torch.cdist(x, y),
    "cdist1": lambda x, y: torch.cdist(x, y, p=1) + torch.cdist(x, y, p=3) + torch.cdist(x, y, p=float("inf")),
    "pdist": lambda x, y: F.pdist(x),
    "layer_norm_affine": lambda x, y: F.layer_norm(x, (6,), Y[0], Y[1]),
    "weight_norm": lambda x, y: torch._weight_norm(x, y[:, :1], 0),
    "mse_none": lambda x, y: F.mse_loss(x, y, reduction="none"),
    "multi_margin": lambda x, y: F.multi_margin_loss(x, INDEX) + F.multi_margin_loss(x, INDEX, p=2, weight=Y[0]),
    "multilabel_margin": lambda x, y: F.multilabel_margin_loss(x, LABELS),
    "multilabel_soft": lambda x, y: F.multilabel_soft_margin_loss(x, (y > 1).float()),
    "triplet_swap": lambda x, y: F.triplet_margin_loss(x, y, x * 0.5, swap=True, p=1),
    "triplet_distance": lambda x, y: F.triplet_margin_with_distance_loss(x, y, x * 0.5),
    "ce_weight": lambda x, y: F.cross_entropy(x, INDEX, weight=Y[0]),
    "ce_soft": lambda x, y: F.cross_entropy(x, F.softmax(y, 1)),
    "ce_2d": lambda x, y: F.cross_entropy(x.view(2, 2, 3, 2), torch.ones(2, 3, 2, dtype=torch.long)),
    "nll_none": lambda x, y: F.nll_loss(F.log_softmax(x, 1), INDEX, reduction="none", weight=Y[0]),
    "kl_log": lambda x, y: F.kl_div(F.log_softmax(x, 1), F.log_softmax(y, 1), reduction="sum", log_target=True),
    "poisson_full": lambda x, y: F.poisson_nll_loss(x, y * 3, full=True, log_input=True),
    "bce_weight": lambda x, y: F.binary_cross_entropy(x.sigmoid(), (y > 1).float(), weight=Y),
    "ctc": lambda x, y: _ctc(x),
    "ctc_blank": lambda x, y: _ctc(x, blank=2, reduction="sum"),
    "ctc_infinite": lambda x, y: _ctc(x, zero_infinity=True, reduction="none", lengths=(2, 4)),
    "embedding": lambda x, y: F.embedding(INDEX, x) + F.embedding(INDEX, x, padding_idx=2),
    "embedding_bag": lambda x, y: F.embedding_bag(BAGS, x),
    "embedding_bag_sum": lambda x, y: F.embedding_bag(INDEX, x, torch.tensor([0, 1, 1]), mode="sum"),
    "embedding_bag_weights": lambda x, y: F.embedding_bag(BAGS, x, mode="sum", per_sample_weights=Y[:2, :3]),
    "embedding_bag_max": lambda x, y: F.embedding_bag(BAGS, x, mode="max"),
    "index_reduce": lambda x, y: torch.index_reduce(x, 0, INDEX % 2, y, "prod"),
}

WITHOUT_GRADIENT = {
    "narrow_copy": lambda x, y: torch.narrow_copy(x, 1, 2, 3),
    "sign": lambda x, y: x.sign(),
    "floor": lambda x, y: (x * 3).floor(),
    "ceil": lambda x, y: (x * 3).ceil(),
    "round": lambda x, y: (x * 3).round(),
    "trunc": lambda x, y: (x * 3).trunc(),
    "floor_div": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "compare": lambda x, y: (x > 0).float() + (x == y) + (x <= 1) * 2.0,
    "logic": lambda x, y: (x > 0) & ~(y > 1) | (x < -1),
    "xor": lambda x, y: torch.logical_xor(x > 0, y > 1),
    "isnan": lambda x, y: (x / 0 * 0).isnan(),
    "chunks": lambda x, y: _chunks(x.clone()),
    "argmax": lambda x, y: x.argmax(1),
    "argmin": lambda x, y: x.argmin(),
    "max_index": lambda x, y: x.max(1)[1],
    "any": lambda x, y: (x > 1).any(1),
    "all": lambda x, y: (x > -9).all(),
    "one_hot": lambda x, y: F.one_hot(x.argmax(1), 6),
    "to_int": lambda x, y: (x * 10).int(),
    "to_bool": lambda x, y: x.bool(),
    "int_add": lambda x, y: (x * 9).int() + 3,
    "int_div": lambda x, y: (x * 9).int() / 2,
    "int_floor": lambda x, y: (x * 9).int() // 2,
    "int_scalar": lambda x, y: (x * 9).long() * 1.5,
    "scatter": lambda x, y: x.scatter(1, x.argmax(1, keepdim=True), 9.0),
    "scatter_src": lambda x, y: x.scatter(1, x.argmax(1, keepdim=True), y),
    "eq_int": lambda x, y: (x * 3).int() == 1,
    "signbit": lambda x, y: torch.signbit(x),
    "heaviside": lambda x, y: torch.heaviside((x * 2).round(), y),
    "sgn": lambda x, y: torch.sgn(x),
    "angle": lambda x, y: torch.angle(x * (y > 1)),
    "round_decimals": lambda x, y: torch.round(x, decimals=1),
    "isfinite": lambda x, y: torch.isfinite(x / 0) | torch.isinf(x / 0) | torch.isposinf(x / 0) & torch.isneginf(x),
    "isinf": lambda x, y: torch.isinf(1 / (x * 0)),
    "isclose": lambda x, y: torch.isclose(x, x + 1e-7) & ~torch.isclose(x, y),
    "isin": lambda x, y: torch.isin((x * 3).int(), torch.tensor([0, 2], dtype=torch.int32)),
    "nan_numbers": lambda x, y: torch.nan_to_num(x / (x > 0)),
    "nan_numbers0": lambda x, y: torch.nan_to_num((x - x) / 0, 4.0),
    "nansum": lambda x, y: torch.where(x > 0, x, float("nan")).nansum(),
    "bits": lambda x, y: ((x * 9).int() & 6) | ((y * 9).int() ^ 3),
    "bits_not": lambda x, y: ~(x * 9).int() + torch.bitwise_not((y * 9).to(torch.uint8)),
    "bits_wide": lambda x, y: (x * 9).long() ^ -1 & (y * 9).long() | 1,
    "bits_bytes": lambda x, y: (x * 9).to(torch.int8) | 3,
    "shifts": lambda x, y: ((x * 9).int() << 3) + ((x * 99).int() >> (y * 2).int()),
    "shift_ops": lambda x, y: torch.bitwise_left_shift((x * 9).long(), 2) + torch.bitwise_right_shift((x * 9).long(), 1),
    "int_mod": lambda x, y: (x * 9).int() % 4 + torch.fmod((x * 9).int(), 4),
    "int_trunc": lambda x, y: torch.div((x * 9).int(), 2, rounding_mode="trunc"),
    "int_pow": lambda x, y: (x * 3).int()**2 + (x * 3).long().pow(3),
    "int_abs": lambda x, y: (x * 9).int().abs().neg().sign(),
    "int_sum": lambda x, y: (x * 9).int().sum(1) + (x > 0).sum(1),
    "int_max": lambda x, y: (x * 9).int().max(1)[0] + (x * 9).int().amin(),
    "int_prod": lambda x, y: (x * 3).int().prod(1),
    "int_cumsum": lambda x, y: (x * 9).int().cumsum(1) + (x > 0).cumsum(0),
    "int_cumprod": lambda x, y: (x * 3).int().cumprod(1),
    "int_clamp": lambda x, y: (x * 9).int().clamp(-2, 3) + (x * 9).int().clamp(min=0),
    "int_where": lambda x, y: torch.where(x > 0, (x * 9).int(), 0),
    "int_sort": lambda x, y: (x * 9).int().sort(1, descending=True)[0],
    "int_topk": lambda x, y: (x * 9).long().topk(2)[0],
    "int_matmul": lambda x, y: (x * 9).int() @ (y * 9).int().t(),
    "gcd": lambda x, y: torch.floor_divide(x, 0.3) + torch.true_divide(x, 2),
    "cummax_index": lambda x, y: x.cummax(1)[1] - x.cummin(0)[1],
    "sort_index": lambda x, y: x.sort(1)[1] + x.sort(0, descending=True)[1],
    "argsort": lambda x, y: x.argsort(1) * 10 + x.argsort(0, descending=True),
    "argsort_stable": lambda x, y: (x * 2).round().argsort(dim=1, stable=True),
    "sort_ties": lambda x, y: torch.sort((x * 2).round(), stable=True, descending=True)[1],
    "sort_nan": lambda x, y: torch.where(x > 0.5, float("nan"), x).sort(1)[0],
    "sort_nan_down": lambda x, y: torch.where(x > 0.5, float("nan"), x).sort(1, descending=True)[0],
    "sort_long": lambda x, y: torch.cat([x.flatten(), y.flatten(), x.flatten() * 3]).sort()[1],
    "topk_index": lambda x, y: x.topk(3)[1] + x.topk(3, largest=False)[1],
    "kth_index": lambda x, y: x.kthvalue(3)[1] + x.median(1)[1],
    "count_nonzero": lambda x, y: torch.count_nonzero(x > 0) + torch.count_nonzero(x > 1, 1),
    "bincount": lambda x, y: torch.bincount((y * 3).int().flatten(), minlength=8),
    "bucketize": lambda x, y: torch.bucketize(x, torch.tensor([-1., 0, 1])) + torch.bucketize(
        x, torch.tensor([-1., 0, 1]), right=True),
    "searchsorted": lambda x, y: torch.searchsorted(y.sort(1)[0], x),
    "histogram": lambda x, y: torch.histc(x, 5, -1, 1) + torch.histc(y, 5),
    "equal_like": lambda x, y: torch.eq(x, x) & torch.ne(x, 0) & torch.greater(y, x) & torch.less_equal(x, y),
    "any_all": lambda x, y: x.any() & (x > 0).all(0, keepdim=True) & (x > 0).any(),
    "argmax_flat": lambda x, y: x.argmax() + x.argmin(0, keepdim=True),
    "max_of_two": lambda x, y: torch.max(x, y) + torch.min(x, y),
    "new": lambda x, y: x.new_ones(2, 3) + torch.zeros_like(x)[:2, :3] + x.new_full((2, 3), 4) + x[:2, :3],
    "arange_mask": lambda x, y: torch.arange(6) < (y[:, :1] * 4),
    "half": lambda x, y: (x.half() + y.half()).float().round(),
    "tril_indices": lambda x, y: x[tuple(torch.tril_indices(4, 4))],
    "copy_to": lambda x, y: torch.empty(4, 6).copy_(x).fill_diagonal_(3.0),
}

LAYERS = {
    "conv": lambda i: F.conv2d(i, W1, padding=1, stride=2),
    "conv_groups": lambda i: F.conv2d(i, W1[:, :2], B1, groups=2),
    "conv1d": lambda i: F.conv1d(i[:, :, 0], W1[:, :, 0]),
    "conv3d": lambda i: F.conv3d(i[:, :, None], W1[:, :, None]),
    "conv_transpose": lambda i: F.conv_transpose2d(i, W1.transpose(0, 1), stride=2, output_padding=1),
    "max_pool": lambda i: F.max_pool2d(i, 3, 2, 1),
    "max_pool1d": lambda i: F.max_pool1d(i[:, :, 0], 2),
    "avg_pool": lambda i: F.avg_pool2d(i, 3, 2, 1),
    "avg_pool_pad": lambda i: F.avg_pool2d(i, 3, 2, 1, count_include_pad=False),
    "avg_pool1d": lambda i: F.avg_pool1d(i[:, :, 0], 2),
    "adaptive": lambda i: F.adaptive_avg_pool2d(i, (2, 4)),
    "adaptive1": lambda i: F.adaptive_avg_pool2d(i, 1),
    "adaptive_max": lambda i: F.adaptive_max_pool2d(i, 2),
    "nearest": lambda i: F.interpolate(i, scale_factor=2),
    "bilinear": lambda i: F.interpolate(i, scale_factor=2, mode="bilinear"),
    "bilinear_corners": lambda i: F.interpolate(i, size=(5, 11), mode="bilinear", align_corners=True),
    "group_norm": lambda i: F.group_norm(i, 2, B1[:4], B1[:4]),
    "instance_norm": lambda i: F.instance_norm(i),
    "batch_norm_eval": lambda i: F.batch_norm(i, B1[:4], B1[:4].abs() + 1),
    "pixel_shuffle": lambda i: F.pixel_shuffle(i, 2),
    "pixel_unshuffle": lambda i: F.pixel_unshuffle(i, 2),
    "batch_norm_batch": lambda i: F.batch_norm(i, None, None, training=True),
    "conv_same": lambda i: F.conv2d(i, W1, padding="same", dilation=2),
    "conv_unbatched": lambda i: F.conv2d(i[0], W1),
    "conv_transpose1d": lambda i: F.conv_transpose1d(i[:, :, 0], W1[:4, :, 0], dilation=2),
    "unfold_layer": lambda i: F.unfold(i, 3, padding=1, stride=2, dilation=2),
    "fold_layer": lambda i: F.fold(i.view(2, 16, 16), (8, 8), 2, stride=2),
    "fold_overlap": lambda i: F.fold(F.unfold(i, (3, 2), padding=1), (8, 8), (3, 2), padding=1),
    "max_pool_dilated": lambda i: F.max_pool2d(i, 2, 1, 1, dilation=2),
    "max_pool_dilated1d": lambda i: F.max_pool1d(i[:, :, 0], 3, 2, 1, dilation=2, ceil_mode=True),
    "max_pool3d": lambda i: F.max_pool3d(i[:, None], 2),
    "max_pool_values": lambda i: F.max_pool2d(i, 3, 2, 1, return_indices=True)[0],
    "unpool": lambda i: F.max_unpool2d(*F.max_pool2d(i, 2, return_indices=True), 2),
    "lp_pool": lambda i: F.lp_pool2d(i.abs() + 0.1, 2, 2),
    "fractional": lambda i: F.avg_pool2d(i, 2, divisor_override=3),
    "avg_pool_ceil": lambda i: F.avg_pool2d(i, 3, 2, ceil_mode=True),
    "avg_pool3d": lambda i: F.avg_pool3d(i, 2),
    "adaptive1d": lambda i: F.adaptive_avg_pool1d(i[:, :, 0], 3),
    "adaptive3d": lambda i: F.adaptive_avg_pool3d(i[:, None], 2),
    "adaptive_max_uneven": lambda i: F.adaptive_max_pool2d(i, (3, 5)),
    "adaptive_max1d": lambda i: F.adaptive_max_pool1d(i[:, :, 0], 3),
    "adaptive_max3d": lambda i: F.adaptive_max_pool3d(i[:, None], 2),
    "nearest1d": lambda i: F.interpolate(i[:, :, 0], size=5),
    "nearest_exact": lambda i: F.interpolate(i, size=(5, 11), mode="nearest-exact"),
    "nearest_factor": lambda i: F.interpolate(i[..., :5, :7], scale_factor=1.5),
    "bilinear_factor": lambda i: F.interpolate(i[..., :5, :7], scale_factor=1.5, mode="bilinear"),
    "trilinear_factor": lambda i: F.interpolate(i[:, None, :, :5, :7], scale_factor=0.7, mode="trilinear"),
    "linear": lambda i: F.interpolate(i[:, :, 0], scale_factor=2, mode="linear"),
    "trilinear": lambda i: F.interpolate(i[:, None], scale_factor=2, mode="trilinear"),
    "bicubic": lambda i: F.interpolate(i, scale_factor=2, mode="bicubic"),
    "bilinear_smooth": lambda i: F.interpolate(i, size=(3, 5), mode="bilinear", antialias=True),
    "bilinear_smooth_up": lambda i: F.interpolate(i, size=(11, 7), mode="bilinear", antialias=True),
    "bilinear_smooth_corners": lambda i: F.interpolate(i, size=(3, 11), mode="bilinear", antialias=True,
                                                       align_corners=True),
    "bilinear_smooth_factor": lambda i: F.interpolate(i, scale_factor=0.7, mode="bilinear", antialias=True),
    "bicubic_smooth": lambda i: F.interpolate(i, size=(3, 5), mode="bicubic", antialias=True),
    "bicubic_smooth_up": lambda i: F.interpolate(i, scale_factor=(1.7, 0.4), mode="bicubic", antialias=True),
    "bicubic_smooth_corners": lambda i: F.interpolate(i, size=(1, 5), mode="bicubic", antialias=True,
                                                      align_corners=True),
    "bicubic_corners": lambda i: F.interpolate(i, size=(5, 11), mode="bicubic", align_corners=True),
    "area": lambda i: F.interpolate(i, size=(3, 5), mode="area"),
    "local_response": lambda i: F.local_response_norm(i, 3),
    "instance_norm_affine": lambda i: F.instance_norm(i, weight=B1[:4], bias=B1[:4]),
    "layer_norm2": lambda i: F.layer_norm(i, (8, 8)),
    "channel_shuffle": lambda i: F.channel_shuffle(i, 2) if hasattr(F, "channel_shuffle")
    else torch.channel_shuffle(i, 2),
    "grid_sample": lambda i: F.grid_sample(i, GRID, align_corners=False),
    "grid_border": lambda i: F.grid_sample(i, GRID, padding_mode="border", align_corners=True),
    "grid_nearest": lambda i: F.grid_sample(i, GRID, mode="nearest", align_corners=False),
    "affine_grid": lambda i: F.grid_sample(i, F.affine_grid(i[:, :1, :2, :3].reshape(2, 2, 3), (2, 4, 3, 3),
                                                            align_corners=False), align_corners=False),
    "affine_grid3": lambda i: F.affine_grid(i[:, 0, :3, :4], (2, 1, 2, 3, 2), align_corners=False) + F.affine_grid(
        i[:, 0, :3, :4], (2, 1, 2, 3, 2), align_corners=True),
    "grid_sample3": lambda i: F.grid_sample(i[:, None], GRID3, align_corners=False),
    "grid_border3": lambda i: F.grid_sample(i[:, None], GRID3, padding_mode="border", align_corners=True),
    "grid_nearest3": lambda i: F.grid_sample(i[:, None], GRID3, mode="nearest", padding_mode="reflection",
                                             align_corners=False),
    "grid_moved3": lambda i: F.grid_sample(i[:, None].detach(), GRID3 * i[0, 0, 0, 0], align_corners=False),
    "conv_tbc": lambda i: torch.conv_tbc(i[0], W1[:3, :, :, :2].reshape(3, 8, 3), B1[:3], 1),
    "reflect3": lambda i: F.pad(i[:, None], (1, 1, 2, 0, 1, 2), mode="reflect"),
    "embedding_image": lambda i: i.softmax(1).log().flatten(2).transpose(1, 2),
    "cosine_image": lambda i: F.cosine_similarity(i, i.flip(0)),
    "normalize_image": lambda i: F.normalize(i, p=1),
    "lstm": lambda i: LSTM(i[:, 0])[0],
    "gru": lambda i: GRU(i[:, 0])[0],
    "rnn": lambda i: RNN(i[:, 0])[0],
    "rnn_tanh": lambda i: TANH(i[:, 0])[0],
    "attention": lambda i: ATTENTION(i[:, 0], i[:, 1], i[:, 2])[0],
    "attention_sdp": lambda i: F.scaled_dot_product_attention(i, i, i)
    if hasattr(F, "scaled_dot_product_attention") else i,
}
W1 = torch.randn(6, 4, 3, 3)
B1 = torch.randn(6)
GRID = torch.rand(2, 5, 6, 2) * 2.4 - 1.2
GRID3 = torch.rand(2, 2, 3, 5, 3) * 2.4 - 1.2
LSTM = torch.nn.LSTM(8, 5, 2, batch_first=True, bidirectional=True).requires_grad_(False)
GRU = torch.nn.GRU(8, 5).requires_grad_(False)
RNN = torch.nn.RNN(8, 5, nonlinearity="relu").requires_grad_(False)
TANH = torch.nn.RNN(8, 5, bidirectional=True).requires_grad_(False)
ATTENTION = torch.nn.MultiheadAttention(8, 2).requires_grad_(False)


class Many(torch.nn.Module):
    """Every function of a table, in one forward."""

    def __init__(self, table):
        super().__init__()
        self.table = table

    def forward(self, *args):
        return {name: f(*args) for name, f in self.table.items()}


def close(ours, theirs, tolerance=2e-5):
    theirs = theirs.detach()
    assert ours.shape == theirs.shape
    expected = {torch.int64: torch.int32, torch.float64: torch.float32}.get(theirs.dtype, theirs.dtype)
    assert ours.dtype == expected
    torch.testing.assert_close(ours.double(), theirs.double(), rtol=tolerance, atol=tolerance,
                               equal_nan=True)


def run(table, *inputs):
    opts = poptorch.Options().showCompilationProgressBar(False)
    model = poptorch.inferenceModel(Many(table), opts)
    model.compile(*(torch.rand_like(t) for t in inputs))    # other numbers: none may be compiled in
    return model(*inputs)


@pytest.mark.parametrize("table", [POINTWISE, SHAPES, REDUCTIONS, WITHOUT_GRADIENT],
                         ids=["pointwise", "shapes", "reductions", "no_gradient"])
def test_values(table):
    torch.manual_seed(0)
    ours = run(table, X, Y)
    torch.manual_seed(0)
    wrong = []
    for name, f in table.items():
        try:
            close(ours[name], f(X, Y))
        except AssertionError as e:
            wrong.append(f"{name}: {e}")
    assert not wrong, "\n".join(wrong)


def test_layers():
    ours = run(LAYERS, IMAGE)
    for name, f in LAYERS.items():
        try:
            close(ours[name], f(IMAGE), 1e-4)
        except AssertionError as e:
            raise AssertionError(f"{name}: {e}") from None


class Step(torch.nn.Module):
    """One weight a function, so that an SGD step shows every gradient by itself."""

    def __init__(self, table, shape):
        super().__init__()
        self.table = table
        self.weights = torch.nn.ParameterDict({n: torch.nn.Parameter(torch.zeros(shape)) for n in table})

    def forward(self, x, *rest):
        total = 0
        for name, f in self.table.items():
            y = f(x + self.weights[name], *rest)
            total = total + (y * torch.linspace(0.5, 1.5, y.numel()).view(y.shape)).sum()
        return poptorch.identity_loss(total, reduction="none")


#: PyTorch 1.13 cannot differentiate these.
NO_DERIVATIVE = ("aminmax", "scatter_reduce_add", "channel_shuffle", "narrow_copy")


@pytest.mark.parametrize("table, inputs", [
    ({**POINTWISE, **SHAPES}, (X, Y)), (REDUCTIONS, (X, Y)), (LAYERS, (IMAGE,))],
    ids=["pointwise", "reductions", "layers"])
def test_gradients(table, inputs):
    torch.manual_seed(0)
    table = {name: f for name, f in table.items() if name not in NO_DERIVATIVE}
    net = Step(table, inputs[0].shape)
    opts = poptorch.Options().showCompilationProgressBar(False)
    model = poptorch.trainingModel(net, opts, torch.optim.SGD(net.parameters(), lr=1.0))
    model.compile(*(torch.rand_like(t) for t in inputs))
    model(*inputs)
    reference = Step(table, inputs[0].shape)
    torch.manual_seed(0)
    reference(*inputs).backward()
    wrong = []
    for name in table:
        try:
            expected = reference.weights[name].grad    # None: the function does not look at x
            close(-net.weights[name].detach(), inputs[0] * 0 if expected is None else expected, 1e-3)
        except AssertionError as e:
            wrong.append(f"{name}: {e}")
    assert not wrong, "\n".join(wrong)


# Every op of the engine, and a call of PyTorch that reaches it.


I32 = (X * 9).int()
REACHED_BY = {
    "neg": lambda x, i, m: -x, "abs": lambda x, i, m: x.abs(), "sign": lambda x, i, m: x.sign(),
    "square": lambda x, i, m: x**2, "reciprocal": lambda x, i, m: x.reciprocal(), "sqrt": lambda x, i, m: x.sqrt(),
    "rsqrt": lambda x, i, m: x.rsqrt(), "exp": lambda x, i, m: x.exp(), "expm1": lambda x, i, m: x.expm1(),
    "log": lambda x, i, m: x.log(), "log1p": lambda x, i, m: x.log1p(), "log2": lambda x, i, m: x.log2(),
    "log10": lambda x, i, m: x.log10(), "sin": lambda x, i, m: x.sin(), "cos": lambda x, i, m: x.cos(),
    "asin": lambda x, i, m: x.asin(), "acos": lambda x, i, m: x.acos(), "acosh": lambda x, i, m: x.acosh(),
    "tanh": lambda x, i, m: x.tanh(), "erf": lambda x, i, m: x.erf(), "erfc": lambda x, i, m: x.erfc(),
    "erfinv": lambda x, i, m: x.erfinv(), "lgamma": lambda x, i, m: x.lgamma(), "digamma": lambda x, i, m: x.digamma(),
    "zeta": lambda x, i, m: torch.polygamma(1, x), "sigmoid": lambda x, i, m: x.sigmoid(),
    "relu": lambda x, i, m: x.relu(), "floor": lambda x, i, m: x.floor(), "ceil": lambda x, i, m: x.ceil(),
    "round": lambda x, i, m: x.round(), "trunc": lambda x, i, m: x.trunc(), "isnan": lambda x, i, m: x.isnan(),
    "logical_not": lambda x, i, m: x.logical_not(), "bitwise_not": lambda x, i, m: ~i,
    "detach": lambda x, i, m: x.detach(), "nop": lambda x, i, m: poptorch.nop(x),
    "cast": lambda x, i, m: x.half(), "add": lambda x, i, m: x + x, "sub": lambda x, i, m: x - x,
    "mul": lambda x, i, m: x * x, "div": lambda x, i, m: x / x, "floor_divide": lambda x, i, m: x // 2,
    "remainder": lambda x, i, m: x % 2, "fmod": lambda x, i, m: x.fmod(2), "pow": lambda x, i, m: x**x,
    "atan2": lambda x, i, m: x.atan2(x), "maximum": lambda x, i, m: x.maximum(x),
    "minimum": lambda x, i, m: x.minimum(x), "eq": lambda x, i, m: x == x, "ne": lambda x, i, m: x != x,
    "lt": lambda x, i, m: x < x, "le": lambda x, i, m: x <= x, "gt": lambda x, i, m: x > x,
    "ge": lambda x, i, m: x >= x, "logical_and": lambda x, i, m: x.logical_and(x),
    "logical_or": lambda x, i, m: x.logical_or(x), "logical_xor": lambda x, i, m: x.logical_xor(x),
    "bitwise_and": lambda x, i, m: i & i, "bitwise_or": lambda x, i, m: i | i, "bitwise_xor": lambda x, i, m: i ^ i,
    "bitwise_left_shift": lambda x, i, m: i << 1, "bitwise_right_shift": lambda x, i, m: i >> 1,
    "where": lambda x, i, m: torch.where(x > 0, x, 1.0), "full": lambda x, i, m: x + torch.zeros(4, 6),
    "const": lambda x, i, m: x + torch.arange(6.0), "rand": lambda x, i, m: torch.rand_like(x),
    "randn": lambda x, i, m: torch.randn_like(x), "dropout": lambda x, i, m: F.dropout(x),
    "reshape": lambda x, i, m: x.view(-1), "permute": lambda x, i, m: x.t(), "expand": lambda x, i, m: x.expand(2, 4, 6),
    "slice": lambda x, i, m: x[1:], "pad": lambda x, i, m: F.pad(x, (1, 1)), "flip": lambda x, i, m: x.flip(0),
    "concat": lambda x, i, m: torch.cat([x, x]), "sum": lambda x, i, m: x.sum(), "amax": lambda x, i, m: x.amax(),
    "amin": lambda x, i, m: x.amin(), "prod": lambda x, i, m: x.prod(), "argmax": lambda x, i, m: x.argmax(1),
    "argmin": lambda x, i, m: x.argmin(1), "mean": lambda x, i, m: x.mean(), "logsumexp": lambda x, i, m: x.logsumexp(1),
    "softmax": lambda x, i, m: x.softmax(1), "log_softmax": lambda x, i, m: x.log_softmax(1),
    "matmul": lambda x, i, m: x @ x.t(),
    "conv_bias": lambda x, i, m: F.conv2d(m, W1), "conv_transpose": lambda x, i, m: F.conv_transpose2d(m, W1[:4]),
    "max_pool": lambda x, i, m: F.max_pool2d(m, 2), "avg_pool": lambda x, i, m: F.avg_pool2d(m, 2),
    "sum_pool": lambda x, i, m: F.avg_pool2d(m, 2, divisor_override=1),
    "adaptive_avg_pool": lambda x, i, m: F.adaptive_avg_pool2d(m, 3),
    "upsample_nearest": lambda x, i, m: F.interpolate(m, scale_factor=2),
    "upsample_bilinear": lambda x, i, m: F.interpolate(m, scale_factor=2, mode="bilinear"),
    "gather": lambda x, i, m: x.gather(1, ROWS2), "scatter_add": lambda x, i, m: x.scatter_add(1, ROWS2, x),
    "index_select": lambda x, i, m: x[INDEX], "index_add": lambda x, i, m: x.index_add(0, INDEX, x),
    "sort": lambda x, i, m: x.sort()[0], "one_hot": lambda x, i, m: F.one_hot(i % 3, 3),
    "embedding": lambda x, i, m: F.embedding(INDEX, x), "leaky_relu": lambda x, i, m: F.leaky_relu(x),
    "gelu": lambda x, i, m: F.gelu(x), "silu": lambda x, i, m: F.silu(x), "elu": lambda x, i, m: F.elu(x),
    "softplus": lambda x, i, m: F.softplus(x), "clamp": lambda x, i, m: x.clamp(0, 1),
    "batch_norm": lambda x, i, m: F.batch_norm(m, None, None, training=True),
    "group_norm": lambda x, i, m: F.group_norm(m, 2), "layer_norm": lambda x, i, m: F.layer_norm(x, (6,)),
    "nll_loss": lambda x, i, m: F.nll_loss(x, INDEX), "mse_loss": lambda x, i, m: F.mse_loss(x, x),
    "cross_entropy": lambda x, i, m: F.cross_entropy(x, INDEX, label_smoothing=0.1),
    "smooth_l1_loss": lambda x, i, m: F.smooth_l1_loss(x, x),
    "binary_cross_entropy": lambda x, i, m: F.binary_cross_entropy(x.sigmoid(), x.sigmoid()),
    "binary_cross_entropy_with_logits": lambda x, i, m: F.binary_cross_entropy_with_logits(x, x),
    "identity_loss": lambda x, i, m: poptorch.identity_loss(x, "mean"),
    "recur": lambda x, i, m: GRU(m[:, 0])[0],
    "scatter_amax": lambda x, i, m: x.scatter_reduce(1, INDEX.view(-1, 1), x, "amax"),
    "scatter_amin": lambda x, i, m: x.scatter_reduce(1, INDEX.view(-1, 1), x, "amin"),
    "scatter_prod": lambda x, i, m: x.scatter_reduce(1, INDEX.view(-1, 1), x, "prod"),
    "scan": lambda x, i, m: x.cumsum(1), "scan_places": lambda x, i, m: x.cummax(1)[0],
}

#: Ops that no call makes by itself, and why.
INTERNAL = {
    "step": "relu's slope", "conv": "conv_bias without a bias", "conv_input": "conv's gradient",
    "conv_weight": "conv's gradient", "max_pool_grad": "max_pool's gradient", "sum_pool_grad": "sum_pool's gradient",
    "windows": "fast convolutions", "untile": "fast convolutions", "mix": "fast convolutions", "argsort": "the places of sort",
    "recur_grad": "recur's gradient",
    "row_scatter": "large scatter_add", "run_amax": "large scatter_amax", "run_amin": "large scatter_amin",
    "run_starts": "large index_add", "run_add": "large index_add",
    "round_random": "Precision.enableStochasticRounding",
    "iota": "positions are constants while a model is traced", "kl_div": "PyTorch makes it of xlogy or exp and mul",
    "linear": "PyTorch hands over addmm or matmul", "l1_loss": "PyTorch makes it of abs and mean",
    "for_loop": "poptorch.for_loop writes its body out", "cond": "poptorch.cond makes it of where",
    "host_call": "poptorch.CPU and ipu_print_tensor make it",
    "attention": "PyTorch 1.13 makes it of matmul and softmax; 2.x has a row",
}


def test_every_op_of_the_engine_is_reached():
    text = (ROOT / "doc" / "ops.md").read_text()
    ops = set(re.findall(r"^\| `(\w+)` \|", text, re.M))
    assert len(ops) > 100
    assert not set(REACHED_BY) & set(INTERNAL)
    assert ops == set(REACHED_BY) | set(INTERNAL)
    unreached = []
    for op, call in REACHED_BY.items():
        tracer = _trace.Tracer("reach", True, poptorch.Options())
        inputs = [X.clone(), I32.clone(), IMAGE.clone()]
        for k, t in enumerate(inputs):
            tracer.addInput(f"i{k}", t)
        tracer.run(torch.nn.Module(), lambda: call(*inputs))
        assert not tracer.missing, (op, tracer.missing)
        if not re.search(rf"= {op}\(", tracer.graph.text()):
            unreached.append(op)
    assert not unreached


def test_the_page_of_ops_is_current():
    done = subprocess.run([ROOT / "tools" / "torch-ops-doc.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


HALF = ("sub mul exp clamp_t logaddexp hypot nan_to_num rrelu sort topk median cumprod logcumsumexp cummax index_put "
        "index_add scatter_src scatter_amax scatter_mean diagonal norm3 cdist1 renorm addr cross multi_margin "
        "embedding_bag lgamma digamma entropy fake_quantized").split()


def test_half_precision():
    """Against PyTorch in single precision, on the rounded numbers."""
    tables = {**POINTWISE, **SHAPES, **REDUCTIONS}
    table = {name: tables[name] for name in HALF}
    x, y = X.half(), Y.half()
    ours = run({n: (lambda x, y, f=f: f(x, y).half()) for n, f in table.items()}, x, y)
    wrong = []
    for name, f in table.items():
        try:
            close(ours[name].float(), f(x.float(), y.float()), 1e-2)
        except AssertionError as e:
            wrong.append(f"{name}: {e}")
    assert not wrong, "\n".join(wrong)


GAMMAS = {
    "lgamma": torch.lgamma, "digamma": torch.digamma, "erfinv": torch.erfinv, "erfc": torch.erfc,
    "zeta": lambda x: torch.special.zeta(3, x),
}


def test_gammas_everywhere():
    """To half of the last place of PyTorch in double: poles and roots below 0, subnormals, infinities and NaN."""
    torch.manual_seed(0)
    x = torch.cat([torch.randint(-2**31, 2**31 - 1, (8000,)).int().view(torch.float32), torch.rand(9000) * 200 - 100,
                   torch.rand(9000) * 8 - 4, torch.rand(2000) * 2 - 1, torch.arange(-9.0, 9.0),
                   torch.tensor([0.0, -0.0, float("inf"), -float("inf"), float("nan"), 0.99999994, -0.99999994])])
    x = torch.where(x < -100, x % -100, x)    # PyTorch's zeta would add up all terms of it
    ours = run(GAMMAS, x)
    for name, f in GAMMAS.items():
        wanted = f(x.double()) if name != "zeta" else torch.where(x.isinf() & (x > 0), 0.0, f(x.double()))
        near = wanted.float()
        assert torch.equal(ours[name].isnan(), near.isnan()), name
        odd = ~near.isfinite()
        assert torch.equal(ours[name][odd].nan_to_num(), near[odd].nan_to_num()), name
        place = torch.nextafter(near.abs(), torch.tensor(float("inf"))) - near.abs()
        wrong = ~odd & ((ours[name].double() - wanted).abs() > 0.51 * place.double())
        assert not wrong.any(), (name, x[wrong][:9], ours[name][wrong][:9], wanted[wrong][:9])


class Random(torch.nn.Module):
    def forward(self, x):
        return {
            "exponential": x.clone().exponential_(2.0), "randint": torch.randint(-3, 5, (2000,)),
            "high": torch.randint(7, (2000,)), "like": torch.randint_like(x, 2, 4),
            "random": x.clone().random_(1, 4), "permutation": torch.randperm(500),
            "rrelu": F.rrelu(-x.abs() - 1, 0.1, 0.3, training=True),
            "draws": torch.multinomial(torch.tensor([0.1, 0.0, 0.6, 0.3]) * x.abs().sum(), 2000, replacement=True),
            "drawn": torch.multinomial(torch.arange(50.0), 49), "log_normal": x.clone().log_normal_(1, 0.5),
            "cauchy": x.clone().cauchy_(2, 0.5), "geometric": torch.empty(2000).geometric_(0.25),
        }


def test_random_numbers():
    model = poptorch.inferenceModel(Random(), poptorch.Options().showCompilationProgressBar(False))
    x = torch.randn(2000)
    first, second = model(x), model(x)
    assert all(not torch.equal(first[name], second[name]) for name in first)
    assert abs(first["exponential"].mean() - 0.5) < 0.06 and bool((first["exponential"] >= 0).all())
    assert set(first["randint"].tolist()) == set(range(-3, 5)) and set(first["high"].tolist()) == set(range(7))
    assert set(first["like"].tolist()) == {2, 3} and set(first["random"].tolist()) == {1, 2, 3}
    assert sorted(first["permutation"].tolist()) == list(range(500))
    counts = torch.bincount(first["draws"].long(), minlength=4) / 2000
    assert counts[1] == 0 and torch.allclose(counts, torch.tensor([0.1, 0.0, 0.6, 0.3]), atol=0.06)
    assert sorted(first["drawn"].tolist()) == list(range(1, 50))
    assert abs(first["log_normal"].log().mean() - 1) < 0.06 and abs(first["log_normal"].log().std() - 0.5) < 0.05
    assert abs(first["cauchy"].median() - 2) < 0.1 and abs(first["cauchy"].sub(2).abs().median() - 0.5) < 0.1
    assert first["geometric"].min() == 1 and abs(first["geometric"].mean() - 4) < 0.4
    slope = first["rrelu"] / (-x.abs() - 1)
    assert 0.1 <= slope.min() < 0.13 and 0.27 < slope.max() <= 0.3


class Unsupported(torch.nn.Module):
    def forward(self, x):
        a = torch.geqrf(x)[0]
        b = torch.ormqr(x, x[0], x)
        c = torch.unique(x)
        return a.sum() + b.sum() + c.sum() + torch.linalg.householder_product(x, x[0]).sum()


def test_what_is_missing_is_reported_at_once():
    model = poptorch.inferenceModel(Unsupported(), poptorch.Options().showCompilationProgressBar(False))
    with pytest.raises(poptorch.Error) as e:
        model(torch.eye(4) + torch.rand(4, 4) * 0.1)
    text, line = str(e.value), Unsupported.forward.__code__.co_firstlineno
    for k, words in enumerate(["aten::geqrf", "aten::ormqr", "aten::_unique2.default: a result whose size depends on values"]):
        assert re.search(rf"{words}.*test_poptorch_ops.py:{line + 1 + k}\)", text), text
    assert "aten::linalg_householder_product" in text


def test_large_matrices_are_refused():
    model = poptorch.inferenceModel(Many({"det": torch.det}), poptorch.Options().showCompilationProgressBar(False))
    with pytest.raises(poptorch.Error, match="a matrix of 65 rows .64 at most. is not supported"):
        model(torch.eye(65))


class Places(torch.nn.Module):
    def forward(self, x):
        pools = {"plain": F.max_pool2d(x, 3, 2, 1, return_indices=True),
                 "dilated": F.max_pool2d(x, 2, 1, 1, dilation=2, return_indices=True),
                 "line": F.max_pool1d(x[:, :, 0], 3, return_indices=True),
                 "cube": F.max_pool3d(x[:, None], 2, return_indices=True),
                 "adaptive": F.adaptive_max_pool2d(x, (3, 5), return_indices=True)}
        mask = torch.arange(8) % 3 == 0
        return pools, x[..., mask], x.masked_select(mask.expand(2, 4, 8, 8))


def test_places_of_maxima_and_constant_masks():
    net = Places()
    model = poptorch.inferenceModel(net, poptorch.Options().showCompilationProgressBar(False))
    model.compile(torch.rand_like(IMAGE))
    ours, theirs = model(IMAGE), net(IMAGE)
    for name, (values, places) in theirs[0].items():
        close(ours[0][name][0], values)
        assert torch.equal(ours[0][name][1].long(), places), name
    close(ours[1], theirs[1])
    close(ours[2], theirs[2])


def test_scattered_values_of_one_place():
    """The last one wins."""
    at = torch.tensor([1, 1, 0])

    def write(x):
        z = torch.zeros(3)
        z[at] = x
        return z, torch.zeros(3).scatter(0, at, x), torch.zeros(3).index_copy(0, at, x)
    for y in run({"write": write}, torch.tensor([1.0, 2.0, 3.0]))["write"]:
        assert y.tolist() == [3.0, 2.0, 0.0]


def test_scattered_values_of_a_long_index():
    """The last one wins when the index is sorted, too."""
    torch.manual_seed(0)
    at, columns, values = torch.randint(0, 90, (150,)), torch.randint(0, 200, (150, 3)), torch.randn(150, 3)
    at[:5] = 199

    def write(x):
        z = torch.zeros(200, 3)
        z[at] = x
        every = torch.zeros(200, 3).scatter(0, at.view(-1, 1).expand(150, 3), x)
        return z, every, torch.zeros(200, 3).index_copy(0, at, x), torch.ones(200, 3).scatter(0, columns, x)
    rows, own = torch.zeros(200, 3), torch.ones(200, 3)
    for j in range(150):
        rows[at[j]] = values[j]
        for k in range(3):
            own[columns[j, k], k] = values[j, k]
    *same, different = run({"write": write}, values)["write"]
    assert all(torch.equal(y, rows) for y in same) and torch.equal(different, own)


#: The ATen ops that PopTorch documents.
DOCUMENTED = (
    "Int __and__ __or__ __xor__ _cdist_forward _convolution _embedding_bag _log_softmax _prelu_kernel "
    "_reshape_alias _softmax _unsafe_view _weight_norm abs acos acosh adaptive_avg_pool1d adaptive_avg_pool2d "
    "adaptive_avg_pool3d add addcdiv addcmul addmm addmv all amax amin any arange argmax argmin argsort "
    "as_strided asin asinh atan atan2 atanh avg_pool1d avg_pool2d avg_pool3d baddbmm batch_norm bernoulli "
    "bilinear binary_cross_entropy binary_cross_entropy_with_logits bincount bitwise_and bitwise_not bitwise_or "
    "bitwise_xor bmm broadcast_to bucketize cartesian_prod cat cdist ceil celu chunk clamp clamp_max clamp_min "
    "clone col2im constant_pad_nd contiguous conv2d convolution convolution_overrideable copy_ cos cosh "
    "cosine_embedding_loss cosine_similarity count_nonzero cross cross_entropy_loss ctc_loss cumprod cumsum "
    "detach div dot dropout einsum elu embedding embedding_bag eq erf erfc exp expand expand_as expm1 "
    "exponential_ feature_dropout flatten flip floor floor_divide fmod frac frobenius_norm full full_like gather "
    "ge gelu glu group_norm gru gt hardshrink hardsigmoid hardswish hardtanh hinge_embedding_loss im2col index "
    "index_fill index_put index_reduce index_select instance_norm is_complex isnan kl_div l1_loss layer_norm le "
    "leaky_relu linalg_cross linalg_vector_norm linear log log10 log1p log2 log_sigmoid log_softmax logical_and "
    "logical_not logical_or logsumexp lstm lt margin_ranking_loss masked_fill matmul max max_pool1d max_pool2d "
    "max_pool3d max_pool2d_with_indices max_pool3d_with_indices maximum mean median meshgrid min minimum mish "
    "mkldnn_convolution mm mse_loss mul multilabel_soft_margin_loss mv nansum narrow native_batch_norm "
    "native_group_norm native_layer_norm ne neg new_full new_ones new_zeros nll_loss2d nll_loss_forward "
    "nll_loss_nd norm normal normal_ numpy_T one_hot ones ones_like pairwise_distance permute pixel_shuffle "
    "poisson_nll_loss pow prelu prod rand randint randn random_ randperm reciprocal reflection_pad1d "
    "reflection_pad2d relu remainder repeat replication_pad1d replication_pad2d replication_pad3d reshape "
    "rnn_relu rnn_tanh roll round rrelu rrelu_with_noise rsqrt rsub scatter scatter_add scatter_reduce select "
    "select_scatter selu sigmoid sign silu sin sinh size slice smooth_l1_loss soft_margin_loss softmax softplus "
    "softshrink sort split split_with_sizes sqrt square squeeze stack std std_mean sub sum t take_along_dim tan "
    "tanh tensordot threshold to topk transpose triplet_margin_loss triu true_divide trunc type_as unbind unfold "
    "uniform_ unsafe_chunk unsqueeze upsample_bicubic2d upsample_bilinear2d upsample_linear1d upsample_nearest1d "
    "upsample_nearest2d upsample_nearest3d upsample_trilinear3d var var_mean view where zeros zeros_like").split()

#: Those that are neither rows nor made of others, and why none is needed.
NO_ROW = {
    "Int": "TorchScript's", "arange": "a constant", "full": "a constant", "ones": "a constant", "zeros": "a constant",
    "as_strided": "the tracer's own views", "convolution_overrideable": "below convolution",
    "mkldnn_convolution": "below convolution", "multilabel_soft_margin_loss": "a Python function",
}


def _madeOfOthers(name):
    packet = getattr(torch.ops.aten, name, None)
    for overload in packet.overloads() if packet is not None else ():
        full = f"aten::{name}" + ("" if overload == "default" else f".{overload}")
        try:
            if torch._C._dispatch_has_kernel_for_dispatch_key(full, "CompositeImplicitAutograd"):
                return True
        except RuntimeError:    # TorchScript's
            continue
    return False


def test_every_documented_op_is_there():
    rows = {op.split("::")[1].split(".")[0] for op in _core.ops()}
    missing = [n for n in DOCUMENTED
               if n not in rows and n.rstrip("_") not in rows and n not in NO_ROW
               and f"aten::{n}" not in _trace._SHAPE_ONLY and not _madeOfOthers(n)]
    assert len(DOCUMENTED) > 250 and not missing
