"""ATen ops through poptorch, against PyTorch: values in one compiled module, gradients in another."""

import pytest
import torch
import torch.nn.functional as F

import poptorch


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


POINTWISE = {
    "neg": lambda x, y: -x,
    "abs": lambda x, y: x.abs(),
    "exp": lambda x, y: x.exp(),
    "log": lambda x, y: y.log(),
    "sqrt": lambda x, y: y.sqrt(),
    "rsqrt": lambda x, y: y.rsqrt(),
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
    "acosh": lambda x, y: (y + 1).acosh(),
    "atanh": lambda x, y: (x * 0.2).atanh(),
    "erf": lambda x, y: x.erf(),
    "erfc": lambda x, y: x.erfc(),
    "sigmoid": lambda x, y: x.sigmoid(),
    "square": lambda x, y: x.square(),
    "pow3": lambda x, y: x**3,
    "pow_t": lambda x, y: y**x,
    "rpow": lambda x, y: 2**x,
    "expm1": lambda x, y: x.expm1(),
    "log1p": lambda x, y: y.log1p(),
    "log2": lambda x, y: y.log2(),
    "log10": lambda x, y: y.log10(),
    "reciprocal": lambda x, y: 1 / y,
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
    "einsum": lambda x, y: torch.einsum("ij,kj->ik", x, y),
    "movedim": lambda x, y: x[None].movedim(0, 2),
}

REDUCTIONS = {
    "sum": lambda x, y: x.sum(),
    "sum_dim": lambda x, y: x.sum(1, keepdim=True),
    "mean": lambda x, y: x.mean(0),
    "amax": lambda x, y: x.amax(1),
    "max": lambda x, y: x.max(1)[0],
    "min_all": lambda x, y: x.min(),
    "prod": lambda x, y: y.prod(1),
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
}

WITHOUT_GRADIENT = {
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
}
W1 = torch.randn(6, 4, 3, 3)
B1 = torch.randn(6)


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
    torch.testing.assert_close(ours.double(), theirs.double(), rtol=tolerance, atol=tolerance)


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


@pytest.mark.parametrize("table, inputs", [
    ({**POINTWISE, **SHAPES}, (X, Y)), (REDUCTIONS, (X, Y)), (LAYERS, (IMAGE,))],
    ids=["pointwise", "reductions", "layers"])
def test_gradients(table, inputs):
    torch.manual_seed(0)
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
