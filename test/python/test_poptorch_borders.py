"""Gradients where a function has a corner, a tie, a pole or nothing to differentiate: at 0, at equal elements, at the borders
of an interval, at infinities. There autodiff's formulas divide 0 by 0 unless somebody thought of it, and PyTorch has a
convention for each. One model has all of them, so one compile walks the class; values and gradients are PyTorch's.
"""

import math
import os

import pytest
import torch
import torch.nn.functional as F
from poptorch_helpers import nothing_cached, options    # noqa: F401

import poptorch

INF = math.inf
ZEROS = [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
ROW = [[0.0, 0.0, 0.0], [3.0, -4.0, 0.0]]    # one row of nothing
SAME = [[2.0, 2.0, 2.0], [1.0, 3.0, 3.0]]    # ties
SIGNS = [-1.5, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 1.5, 2.0]
LOW = [[-INF, 0.5, -INF], [-INF, 1.0, 2.0]]
NONE = [[-INF, -INF, -INF], [0.5, 1.0, 2.0]]


def norms():
    """Every order of every norm, at nothing, at a row of nothing and at equal elements."""
    found = {}
    for p in (0, 0.5, 1, 1.5, 2, 3, INF, -INF):
        for name, at in (("zero", ZEROS), ("row", ROW), ("same", SAME)):
            found[f"vector_norm {p} {name}"] = (lambda x, p=p: torch.linalg.vector_norm(x, p, dim=1), at)
            found[f"norm {p} {name}"] = (lambda x, p=p: torch.norm(x, p, dim=1), at)
        found[f"vector_norm {p} all"] = (lambda x, p=p: torch.linalg.vector_norm(x, p), ZEROS)
        found[f"x.norm {p} all"] = (lambda x, p=p: x.norm(p), ZEROS)
        found[f"linalg.norm {p} vector"] = (lambda x, p=p: torch.linalg.norm(x[0], p), ZEROS)
    for p in ("fro", 1, -1, INF, -INF):
        for name, at in (("zero", ZEROS), ("row", ROW), ("same", SAME)):
            found[f"matrix_norm {p} {name}"] = (lambda x, p=p: torch.linalg.matrix_norm(x, p), at)
            found[f"linalg.norm {p} {name}"] = (lambda x, p=p: torch.linalg.norm(x, p), at)
    found["norm fro"] = (lambda x: torch.norm(x), ZEROS)
    found["norm of one element"] = (lambda x: torch.linalg.vector_norm(x[:, :1], 2, dim=1), ZEROS)
    found["norm without dims"] = (lambda x: torch.linalg.vector_norm(x[0, 0]), ZEROS)
    found["normalize"] = (lambda x: F.normalize(x, dim=1), ROW)
    found["normalize 1"] = (lambda x: F.normalize(x, p=1, dim=1), ROW)
    found["cosine_similarity"] = (lambda x: F.cosine_similarity(x, torch.ones_like(x)), ROW)
    found["cosine_similarity both"] = (lambda x: F.cosine_similarity(x, x * 2), ROW)
    found["renorm"] = (lambda x: torch.renorm(x, 2, 0, 1.0), ROW)
    return found


def distances():
    found = {}
    for p in (0.5, 1.0, 1.5, 2.0, 3.0, INF):
        found[f"cdist {p}"] = (lambda x, p=p: torch.cdist(x, x.detach(), p), SAME)
        found[f"cdist {p} itself"] = (lambda x, p=p: torch.cdist(x, x, p), SAME)
        found[f"pdist {p}"] = (lambda x, p=p: F.pdist(x, p), ZEROS)
        found[f"dist {p}"] = (lambda x, p=p: torch.dist(x, torch.zeros_like(x), p), ZEROS)
        found[f"pairwise_distance {p}"] = (lambda x, p=p: F.pairwise_distance(x, x.detach(), p, eps=0.0), SAME)
        found[f"pairwise_distance {p} eps"] = (lambda x, p=p: F.pairwise_distance(x, x.detach(), p), SAME)
    found["cdist mm"] = (lambda x: torch.cdist(x, x.detach(), compute_mode="use_mm_for_euclid_dist"), ROW)
    found["triplet_margin_loss"] = (lambda x: F.triplet_margin_loss(x, x.detach(), x + 1), SAME)
    return found


def spreads():
    found = {}
    for name, at in (("same", SAME), ("zero", ZEROS)):
        for unbiased in (True, False):
            found[f"std {name} {unbiased}"] = (lambda x, u=unbiased: torch.std(x, 1, unbiased=u), at)
            found[f"var {name} {unbiased}"] = (lambda x, u=unbiased: torch.var(x, 1, unbiased=u), at)
            found[f"std all {name} {unbiased}"] = (lambda x, u=unbiased: torch.std(x, unbiased=u), at)
        found[f"std_mean {name}"] = (lambda x: torch.cat(torch.std_mean(x, 1)), at)
        found[f"var_mean {name}"] = (lambda x: torch.cat(torch.var_mean(x, 1)), at)
        found[f"layer_norm {name}"] = (lambda x: F.layer_norm(x, (3,)), at)
        found[f"instance_norm {name}"] = (lambda x: F.instance_norm(x[None]), at)
        found[f"batch_norm {name}"] = (lambda x: F.batch_norm(x, None, None, training=True), at)
        found[f"group_norm {name}"] = (lambda x: F.group_norm(x, 1), at)
    found["std of one"] = (lambda x: torch.std(x[:, :1], 1, unbiased=False), SAME)
    return found


def corners():
    """Pointwise functions, at their corners and poles."""
    one = {
        "abs": torch.abs, "sign": lambda x: x.sign() + x, "sgn": lambda x: x.sgn() + x, "relu": F.relu, "relu6": lambda x: F.relu6(x * 4), "hardtanh": F.hardtanh,
        "hardsigmoid": lambda x: F.hardsigmoid(x * 2), "hardsigmoid 3": lambda x: F.hardsigmoid(x * 3), "hardswish": lambda x: F.hardswish(x * 3),
        "hardswish 2": lambda x: F.hardswish(x * 2), "leaky_relu": F.leaky_relu, "elu": F.elu, "selu": F.selu, "celu": F.celu, "softplus": F.softplus,
        "softplus border": lambda x: F.softplus(x, 1, 1.0), "hardshrink": F.hardshrink, "softshrink": F.softshrink, "threshold": lambda x: F.threshold(x, 0.5, 0.1),
        "threshold 0": lambda x: F.threshold(x, 0.0, 0.0), "prelu": lambda x: F.prelu(x, torch.full((1,), 0.25, dtype=x.dtype)), "logsigmoid": F.logsigmoid,
        "softsign": F.softsign, "tanhshrink": F.tanhshrink, "gelu": F.gelu, "silu": F.silu, "mish": F.mish, "rrelu": lambda x: F.rrelu(x, training=False),
        "clamp": lambda x: x.clamp(-1, 1), "clamp_min": lambda x: x.clamp(min=0.0), "clamp_max": lambda x: x.clamp(max=0.0), "clamp equal": lambda x: x.clamp(1, 1),
        "clamp crossed": lambda x: x.clamp(1, -1), "clamp tensors": lambda x: x.clamp(x.detach(), x.detach()),
        "clamp by itself": lambda x: torch.clamp(torch.zeros_like(x), x, x), "clamp min tensor": lambda x: torch.clamp_min(x, torch.zeros_like(x)),
        "clamp by min": lambda x: x.clamp(min=torch.zeros_like(x)), "clamp by max": lambda x: torch.clamp(torch.zeros_like(x), max=x), "clamp min of other": lambda x: torch.clamp_min(torch.zeros_like(x), x), "clamp max of other": lambda x: torch.clamp_max(torch.ones_like(x), x),
        "maximum": lambda x: torch.maximum(x, torch.ones_like(x)), "minimum": lambda x: torch.minimum(x, torch.ones_like(x)),
        "maximum 2": lambda x: torch.maximum(torch.ones_like(x), x), "fmax": lambda x: torch.fmax(x, torch.ones_like(x)),
        "fmin": lambda x: torch.fmin(torch.ones_like(x), x), "maximum itself": lambda x: torch.maximum(x, x), "fmax itself": lambda x: torch.fmax(x, x),
        "floor": lambda x: x.floor() + x, "round": lambda x: x.round() + x, "trunc": lambda x: x.trunc() + x, "frac": torch.frac,
        "remainder": lambda x: x.remainder(0.5), "fmod": lambda x: x.fmod(0.5), "remainder of": lambda x: torch.remainder(torch.full_like(x, 2.0), x.abs() + 0.5),
        "floor_divide": lambda x: x.div(0.5, rounding_mode="floor") + x, "sinc": torch.sinc, "copysign": lambda x: torch.copysign(x, x.detach()),
        "copysign 1": lambda x: torch.copysign(x, torch.ones_like(x)), "hypot": lambda x: torch.hypot(x, torch.zeros_like(x)), "atan2": lambda x: torch.atan2(x, x.detach()),
        "atan2 x": lambda x: torch.atan2(torch.zeros_like(x), x), "heaviside": lambda x: torch.heaviside(x, torch.ones_like(x)) + x, "logaddexp": lambda x: torch.logaddexp(x, x),
        "xlogy": lambda x: torch.special.xlogy(x, torch.full_like(x, 2.0)), "xlogy of 0": lambda x: torch.special.xlogy(torch.zeros_like(x), x.abs()),
        "xlogy both": lambda x: torch.special.xlogy(x.abs(), x.abs()), "xlog1py": lambda x: torch.special.xlog1py(x, torch.ones_like(x)),
        "nan_to_num": lambda x: (x / x).nan_to_num(0.5), "nan_to_num inf": lambda x: (1 / x).nan_to_num(posinf=1.0, neginf=-1.0), "deg2rad": torch.deg2rad,
        "cbrt": lambda x: x.sign() * x.abs().pow(1 / 3), "lerp": lambda x: torch.lerp(x, torch.ones_like(x), 0.5), "angle": lambda x: x.angle() + x,
        "smooth_l1": lambda x: F.smooth_l1_loss(x, torch.zeros_like(x), reduction="none"), "smooth_l1 0": lambda x: F.smooth_l1_loss(x, torch.zeros_like(x), reduction="none", beta=0.0),
        "huber": lambda x: F.huber_loss(x, torch.zeros_like(x), reduction="none"), "l1": lambda x: F.l1_loss(x, torch.ones_like(x), reduction="none"),
        "mse": lambda x: F.mse_loss(x, torch.ones_like(x), reduction="none"), "hinge": lambda x: F.hinge_embedding_loss(x, torch.ones_like(x), reduction="none"),
        "hinge -1": lambda x: F.hinge_embedding_loss(x, -torch.ones_like(x), reduction="none"), "soft_margin": lambda x: F.soft_margin_loss(x, torch.ones_like(x)),
        "margin_ranking": lambda x: F.margin_ranking_loss(x, torch.zeros_like(x), torch.ones_like(x), reduction="none"),
        "bce logits": lambda x: F.binary_cross_entropy_with_logits(x, torch.ones_like(x)), "kl_div": lambda x: F.kl_div(x, x.detach().abs(), reduction="sum"),
        "kl_div target": lambda x: F.kl_div(torch.zeros_like(x), x.abs(), reduction="sum"), "poisson_nll": lambda x: F.poisson_nll_loss(x, torch.ones_like(x)),
        "gaussian_nll": lambda x: F.gaussian_nll_loss(x, torch.zeros_like(x), x.detach().abs()), "gaussian_nll var": lambda x: F.gaussian_nll_loss(x.detach(), torch.zeros_like(x), x.abs()),
        "bce": lambda x: F.binary_cross_entropy(x.clamp(0, 1), torch.full_like(x, 0.5)), "bce of 1": lambda x: F.binary_cross_entropy(x.clamp(0, 1), torch.ones_like(x)),
        "logit eps": lambda x: torch.logit(x.clamp(0, 1), 1e-6), "glu": lambda x: F.glu(x[:8]), "fake_quantize": lambda x: torch.fake_quantize_per_tensor_affine(x, 0.5, 0, -2, 2),
        "where nan": lambda x: torch.where(x > 0, x.sqrt(), x), "where log": lambda x: torch.where(x > 0, x.log(), torch.zeros_like(x)),
        "where safe": lambda x: torch.where(x > 0, torch.where(x > 0, x, torch.ones_like(x)).log(), x), "where both": lambda x: torch.where(x == 0, x, x / x),
        "masked_fill": lambda x: x.log().masked_fill(x <= 0, 0.0), "masked_fill inf": lambda x: x.masked_fill(x <= 0, -INF).softmax(0),
        "mul by 0": lambda x: (1 / x) * 0, "select nan": lambda x: x.sqrt()[4:],
    }    # fmt: skip
    found = {name: (f, SIGNS) for name, f in one.items()}
    for power in (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, -1.0, -2.0):
        found[f"pow {power}"] = (lambda x, p=power: x.pow(p), SIGNS)
        found[f"pow tensor {power}"] = (lambda x, p=power: x.pow(torch.full_like(x, p)), SIGNS)
    found["pow by itself"] = (lambda x: x.pow(x), SIGNS)
    found["0 to the power"] = (lambda x: torch.pow(torch.zeros_like(x), x), SIGNS)
    found["2 to the power"] = (lambda x: 2.0**x, SIGNS)
    found["0. to the power"] = (lambda x: torch.pow(0.0, x), SIGNS)
    found["float_power"] = (lambda x: torch.float_power(x, 2), SIGNS)
    for name in ("sqrt", "rsqrt", "log", "log1p", "log2", "reciprocal", "acos", "asin", "acosh", "atanh", "exp", "expm1", "erfinv",
                 "lgamma", "digamma", "tanh", "sigmoid", "logit", "erf", "tan", "cosh"):
        found[name] = (lambda x, f=getattr(torch, name): f(x), SIGNS)
        found[f"{name} far"] = (lambda x, f=getattr(torch, name): f(x), [-INF, -800.0, -30.0, 30.0, 800.0, INF])
    for name in ("softplus", "logsigmoid", "gelu", "silu", "mish", "elu", "softsign", "hardswish", "relu", "tanhshrink", "selu"):
        found[f"{name} far"] = (lambda x, f=getattr(F, name): f(x), [-INF, -800.0, -30.0, 30.0, 800.0, INF])
    return found


def ties():
    found = {
        "max": torch.max, "min": torch.min, "amax": lambda x: x.amax(1), "amin": lambda x: x.amin(1), "amax all": lambda x: x.amax(),
        "amin dims": lambda x: x.amin((0, 1)), "aminmax": lambda x: torch.stack(torch.aminmax(x)), "aminmax dim": lambda x: torch.stack(torch.aminmax(x, dim=1)),
        "max dim": lambda x: x.max(1).values, "min dim": lambda x: x.min(1).values, "median": torch.median, "median dim": lambda x: x.median(1).values,
        "nanmedian": lambda x: x.nanmedian(), "nanmedian dim": lambda x: x.nanmedian(1).values, "sort": lambda x: x.sort(dim=1, stable=True).values,
        "sort down": lambda x: x.sort(dim=1, descending=True, stable=True).values, "msort": torch.msort, "cummax": lambda x: x.cummax(1).values,
        "cummin": lambda x: x.cummin(1).values, "max_pool1d": lambda x: F.max_pool1d(x[None], 2, 1), "max_pool2d": lambda x: F.max_pool2d(x[None, None], 2, 1),
        "adaptive_max_pool1d": lambda x: F.adaptive_max_pool1d(x[None], 2), "quantile": lambda x: x.quantile(0.5, dim=1), "quantile 0.3": lambda x: x.quantile(0.3),
        "logsumexp": lambda x: x.logsumexp(1), "softmax": lambda x: x.softmax(1), "cumprod": lambda x: x.cumprod(1), "prod": torch.prod, "prod dim": lambda x: x.prod(1),
        "scatter amax": lambda x: torch.zeros(2, dtype=x.dtype).scatter_reduce(0, torch.tensor([0, 0, 1]), x[1], "amax"),
        "scatter amin": lambda x: torch.zeros(2, dtype=x.dtype).scatter_reduce(0, torch.tensor([0, 0, 1]), x[0], "amin", include_self=False),
        "scatter mean": lambda x: torch.zeros(2, dtype=x.dtype).scatter_reduce(0, torch.tensor([0, 0, 1]), x[0], "mean"),
        "cross_entropy": lambda x: F.cross_entropy(x, torch.tensor([0, 1])), "multi_margin": lambda x: F.multi_margin_loss(x, torch.tensor([0, 1])),
        "multilabel_margin": lambda x: F.multilabel_margin_loss(x, torch.tensor([[0, -1, 1], [1, 2, -1]])), "trapezoid": lambda x: torch.trapezoid(x, x),
    }    # fmt: skip
    return {f"{name} {at}": (f, values) for name, f in found.items() for at, values in (("same", SAME), ("zero", ZEROS))}


def nothing():
    """Zeros in products, infinities in sums of exponentials, rows of which nothing is left."""
    products = {"one": [[2.0, 0.0, 3.0], [1.0, 4.0, 5.0]], "two": [[0.0, 2.0, 0.0], [0.0, 1.0, 2.0]], "all": ZEROS}
    found = {}
    for name, at in products.items():
        found[f"prod {name}"] = (torch.prod, at)
        found[f"prod dim {name}"] = (lambda x: x.prod(1), at)
        found[f"cumprod {name}"] = (lambda x: x.cumprod(1), at)
        found[f"scatter prod {name}"] = (lambda x: torch.ones(2, 3, dtype=x.dtype).scatter_reduce(0, torch.zeros(2, 3, dtype=torch.long), x, "prod"), at)
    for name, at in (("low", LOW), ("none", NONE)):
        found[f"logsumexp {name}"] = (lambda x: x.logsumexp(1), at)
        found[f"logsumexp all {name}"] = (lambda x: x.logsumexp((0, 1)), at)
        found[f"logcumsumexp {name}"] = (lambda x: x.logcumsumexp(1), at)
        found[f"softmax {name}"] = (lambda x: x.softmax(1), at)
        found[f"log_softmax {name}"] = (lambda x: x.log_softmax(1), at)
        found[f"exp {name}"] = (torch.exp, at)
        found[f"logaddexp {name}"] = (lambda x: torch.logaddexp(x, x.detach()), at)
        found[f"logaddexp2 {name}"] = (lambda x: torch.logaddexp2(x, x.detach()), at)
        found[f"amax {name}"] = (lambda x: x.amax(1), at)
        found[f"nansum {name}"] = (lambda x: (x - x).nansum(1), at)
        found[f"nanmean {name}"] = (lambda x: (x - x).nanmean(1), at)
    found["softmin"] = (lambda x: F.softmin(-x, 1), LOW)
    found["attention"] = (lambda x: F.scaled_dot_product_attention(x, x, x, torch.tensor([[True, True], [True, False]]))
                          if hasattr(F, "scaled_dot_product_attention") else x, SAME)
    return found


#: PyTorch has NaN there, or what rounding left of a pole, and the engine a number: the rest is compared.
NUMBERS = {"atan2", "atan2 x", "digamma", "digamma far", "hardswish far", "nanmean none",
           *(f"{f} {at}" for f in ("logcumsumexp", "logaddexp", "logaddexp2") for at in ("low", "none"))}

#: What PyTorch shares with an element that takes no part; equal elements of an unstable sort; and what 1.13 has otherwise: bounds
#: that are equal, and the slope of |x| at 0, which was -1 in smooth_l1_loss.
OTHER = {"scatter amin zero", "quantile 0.3 zero", *(["clamp by itself", "smooth_l1 0"] if torch.__version__ < "2" else [])}

CASES = {**norms(), **distances(), **spreads(), **corners(), **ties(), **nothing()}


class All(torch.nn.Module):
    """All functions, at their places and a weight of 0 away from there, whose update is the gradient. Each result is weighed by
    place, so that its gradients differ."""

    def __init__(self, cases):
        super().__init__()
        self.functions = [f for f, _ in cases]
        self.moved = torch.nn.ParameterList([torch.nn.Parameter(torch.zeros_like(torch.tensor(at, dtype=torch.float64))) for _, at in cases])

    def forward(self, *places):
        values = [f(x + w) for f, x, w in zip(self.functions, places, self.moved)]
        total = sum((y * torch.linspace(0.5, 1.5, y.numel(), dtype=y.dtype).view(y.shape)).sum() for y in values)
        return values, poptorch.identity_loss(total, "none")


def places(cases):
    return [torch.tensor(at, dtype=torch.float64) for _, at in cases]


def eager(cases):
    """(values, gradients) of PyTorch."""
    net = All(cases)
    values, loss = net(*places(cases))
    loss.backward()
    return [y.detach() for y in values], [torch.zeros_like(w) if w.grad is None else w.grad for w in net.moved]


def compiled(cases):
    net = All(cases)
    model = poptorch.trainingModel(net, options(), torch.optim.SGD(net.parameters(), lr=1.0))
    values, _ = model(*places(cases))
    return values, [-w.detach() for w in net.moved]


def same(a, b, finite):
    a = a.double()
    if finite:
        a = torch.where(b.abs() < 1e20, a, b)
    return torch.allclose(a, b, rtol=1e-5, atol=1e-6, equal_nan=True)


def wrong(names):
    """What differs from PyTorch, for people."""
    cases = [CASES[n] for n in names]
    found = []
    for name, a, da, b, db in zip(names, *compiled(cases), *eager(cases)):
        finite = name in NUMBERS
        if not same(a, b, finite):
            found.append(f"{name}: {a.tolist()} instead of {b.tolist()}")
        if not same(da, db, finite):
            found.append(f"{name}: gradient {da.tolist()} instead of {db.tolist()}")
    return found


def known():
    """Those of which PyTorch has a gradient in this release."""
    found = []
    for name, case in CASES.items():
        try:
            eager([case])
            found.append(name)
        except (RuntimeError, NotImplementedError):    # "derivative is not implemented"
            assert name.startswith(("aminmax", "heaviside")), name
    return [name for name in found if name not in OTHER]


def test_borders(monkeypatch):
    """All at once, by the reference executor: what is tested is the graph. A soak has the compiler's, too."""
    if not os.environ.get("TS_SOAK"):
        monkeypatch.setenv("TESSERA_CC", "/nowhere/cc")
    names = known()
    assert len(names) > 430
    assert not wrong(names)


@pytest.mark.parametrize("name", ["std same True", "max dim same", "hardtanh", "clamp_min", "xlogy", "acos", "cdist inf"])
def test_compiled(name):
    assert not wrong([name])


class Factors(torch.nn.Module):
    def forward(self, a):
        return (*torch.linalg.svd(a), *torch.linalg.svd(a, full_matrices=False), *torch.linalg.qr(a))


@pytest.mark.parametrize("a", [torch.zeros(3, 3), torch.ones(3, 3), torch.eye(3), torch.arange(1.0, 10).view(3, 3), torch.ones(2, 4),
                               torch.arange(12.0).view(6, 2), torch.stack([torch.zeros(2, 2), torch.ones(2, 2)])], ids=lambda a: str(tuple(a.shape)))
def test_singular_matrices(a, monkeypatch):
    """Singular vectors and the columns of q are orthonormal, also where they belong to nothing."""
    monkeypatch.setenv("TESSERA_CC", "/nowhere/cc")
    u, s, vh, u2, s2, vh2, q, r = poptorch.inferenceModel(Factors(), options())(a)
    n = s.shape[-1]
    for basis in (u, vh.mT, u2, vh2.mT, q):
        torch.testing.assert_close(basis.mT @ basis, torch.eye(basis.shape[-1]).expand(*a.shape[:-2], -1, -1))
    for values in (s, s2):
        torch.testing.assert_close(values, torch.linalg.svdvals(a), atol=1e-5, rtol=1e-5)
    for product in (u[..., :n] @ torch.diag_embed(s) @ vh[..., :n, :], u2 @ torch.diag_embed(s2) @ vh2, q @ r):
        torch.testing.assert_close(product, a, atol=1e-5, rtol=1e-5)
    assert u.shape[-1] == a.shape[-2] and vh.shape[-2] == a.shape[-1]
    torch.testing.assert_close(r, torch.linalg.qr(a)[1], atol=1e-5, rtol=1e-5)    # the signs are LAPACK's
