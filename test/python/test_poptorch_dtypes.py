"""Types: promotion, weights that follow their input, what the device has in place of 64 bits."""

import copy

import numpy as np
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import poptorch
from poptorch_helpers import inference, log, nothing_cached, options, training  # noqa: F401

H, S = torch.float16, torch.float32


class Each(nn.Module):
    """All modules of a table, on the same input: one compilation."""

    def __init__(self, modules):
        super().__init__()
        self.each = nn.ModuleDict(modules)

    def forward(self, x):
        return {name: m(x) for name, m in self.each.items()}


class Recurrent(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x.flatten(2))[0]


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.MultiheadAttention(4, 2)

    def forward(self, x):
        x = x.flatten(2).transpose(1, 2)[..., :4]
        return self.layer(x, x, x)[0]


class Bilinear(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Bilinear(4, 4, 3)

    def forward(self, x):
        return self.layer(x, x)


def layers():
    return {"conv": nn.Conv2d(4, 3, 3), "grouped": nn.Conv2d(4, 4, 3, groups=2, bias=False),
            "transposed": nn.ConvTranspose2d(4, 3, 3), "conv1d": nn.Sequential(nn.Flatten(2), nn.Conv1d(4, 3, 3)),
            "batch": nn.BatchNorm2d(4), "batch_eval": nn.BatchNorm2d(4).eval(), "group": nn.GroupNorm(2, 4),
            "layer": nn.LayerNorm(4), "instance": nn.InstanceNorm2d(4, affine=True), "linear": nn.Linear(4, 3),
            "linear2d": nn.Sequential(nn.Flatten(0, 2), nn.Linear(4, 3)), "prelu": nn.PReLU(4),
            "lstm": Recurrent(nn.LSTM(16, 3)), "gru": Recurrent(nn.GRU(16, 3)), "attention": Attention(),
            "bilinear": Bilinear()}


@pytest.mark.parametrize("weights, through", [(S, H), (H, S)])
def test_weights_are_cast_to_the_input(weights, through):
    torch.manual_seed(0)
    net = Each(layers()).to(weights)
    x = torch.randn(2, 4, 4, 4).to(through)
    out = inference(net)(x)
    for name, expected in copy.deepcopy(net).float()(x.float()).items():
        assert out[name].dtype == through, name
        torch.testing.assert_close(out[name].float(), expected, rtol=2e-2, atol=1e-2, msg=name)
    assert all(p.dtype == weights for p in net.parameters())


def test_running_statistics_keep_their_type():
    for statistics, through in ((S, H), (H, S)):
        net = nn.BatchNorm1d(3).to(statistics)
        wanted = nn.BatchNorm1d(3)
        x = torch.randn(8, 3)
        model = inference(net)
        model(x.to(through))
        wanted(x)
        model.copyWeightsToHost()
        assert net.running_mean.dtype == statistics
        torch.testing.assert_close(net.running_mean.float(), wanted.running_mean, rtol=1e-2, atol=1e-3)
        torch.testing.assert_close(net.running_var.float(), wanted.running_var, rtol=1e-2, atol=1e-3)


def changed(a, b):
    a = a.clone()
    a += b
    return a


def copied(a, b):
    a = a.clone()
    a.copy_(b)
    return a


#: (function of half, float, int and bool tensors, the type of its result)
RULES = {
    "half and float": (lambda h, s, i, b: h + s, S), "int and half": (lambda h, s, i, b: i * h, H),
    "int and float": (lambda h, s, i, b: i - s, S), "bool and int": (lambda h, s, i, b: b + i, torch.int32),
    "half and a number": (lambda h, s, i, b: h * 2.5, H), "int and a number": (lambda h, s, i, b: i + 0.5, S),
    "compare": (lambda h, s, i, b: h > s, torch.bool), "where": (lambda h, s, i, b: torch.where(b, h, h * 2), H),
    "matmul": (lambda h, s, i, b: h @ s, H), "matmul of floats": (lambda h, s, i, b: s @ h, S),
    "bmm": (lambda h, s, i, b: torch.bmm(h[None], s[None]), H), "mv": (lambda h, s, i, b: torch.mv(h, s[0]), H),
    "dot": (lambda h, s, i, b: torch.dot(h[0], s[0]), H), "addmm": (lambda h, s, i, b: torch.addmm(s, h, s), H),
    "baddbmm": (lambda h, s, i, b: torch.baddbmm(h[None], s[None], h[None]), S),
    "einsum": (lambda h, s, i, b: torch.einsum("ij,jk->ik", h, s), H),
    "function": (lambda h, s, i, b: F.linear(input=h, weight=s, bias=s[0]), H),
    "in place": (lambda h, s, i, b: changed(h, s), H), "copy": (lambda h, s, i, b: copied(i, s), torch.int32),
    "sum of ints": (lambda h, s, i, b: i.sum(), torch.int32), "mean of half": (lambda h, s, i, b: h.mean(), H),
    "places": (lambda h, s, i, b: s.argmax(), torch.int32), "top": (lambda h, s, i, b: s.topk(1)[1], torch.int32),
    "sorted": (lambda h, s, i, b: s.sort()[1], torch.int32), "division": (lambda h, s, i, b: i / 2, S),
    "floor": (lambda h, s, i, b: (-i) // 2, torch.int32), "remainder": (lambda h, s, i, b: (-i) % 2, torch.int32),
    "truncated": (lambda h, s, i, b: torch.div(-i, 2, rounding_mode="trunc"), torch.int32),
    "fmod": (lambda h, s, i, b: torch.fmod(-i, 2), torch.int32),
    "gelu": (lambda h, s, i, b: F.gelu(s) - F.gelu(s, approximate="tanh"), S),    # both kinds, unlike the original
}


def test_types_of_results():
    h, s = torch.tensor([[1.0, 2], [3, 4]]).half(), torch.tensor([[0.5, 0.25], [2, 1]])
    i, b = torch.tensor([[1, 2], [3, 5]], dtype=torch.int32), torch.tensor([[True, False], [False, True]])
    out = inference(lambda *args: {name: rule(*args) for name, (rule, _) in RULES.items()})(h, s, i, b)
    for name, (rule, dtype) in RULES.items():
        assert out[name].dtype == dtype, name
        expected = rule(h.float(), s, i, b)
        torch.testing.assert_close(out[name].float(), expected.float(), rtol=1e-2, atol=1e-6, msg=name)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.bool])
def test_small_types_are_stored_and_compared(dtype):
    x = torch.tensor([[1, 0], [0, 1]]).to(dtype)
    table = [lambda x: x, lambda x: x == x.t(), lambda x: x != x.t(), lambda x: torch.cat([x, x]), lambda x: ~x,
             lambda x: x.reshape(4), lambda x: x.float() * 2, lambda x: x.int() + 1, lambda x: x & x.t(),
             lambda x: torch.where(x > 0, x, x.t())]
    for ours, function in zip(inference(lambda x: [f(x) for f in table])(x), table):
        assert torch.equal(ours, function(x)) and ours.dtype == function(x).dtype


def test_what_has_64_bits_comes_back_with_32():
    x = torch.tensor([2**40 + 5, -1])
    assert inference(lambda x: x)(x).tolist() == [5, -1]    # cut off, and nobody says so
    out = inference(lambda i, d, b: (i + 1, d * 2, b + 1, d.sum(dtype=torch.float64), i.argmax(), b.dtype))(
        torch.arange(2), torch.ones(2, dtype=torch.float64), torch.ones(2, dtype=torch.bfloat16))
    assert [t.dtype for t in out[:5]] == [torch.int32, S, S, S, torch.int32]
    assert out[2].tolist() == [2, 2]


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.fc = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 3)

    def forward(self, x, t):
        y = self.fc(F.relu(self.norm(self.conv(x))).mean((2, 3)))
        return y, F.cross_entropy(y.float(), t)


def test_half_inputs_train():
    """The weights are float32 and so is their update: a step too small for half counts."""
    torch.manual_seed(0)
    net, rate = Mixed(), 1e-4
    reference = copy.deepcopy(net)
    _, model = training(net, optimizer=torch.optim.SGD(net.parameters(), lr=rate))
    x, t = torch.randn(4, 1, 6, 6), torch.tensor([0, 1, 2, 0])
    y, loss = model(x.half(), t)
    expected = reference(x.half().float(), t)[1]
    expected.backward()
    assert y.dtype == H and loss.dtype == S and abs(loss.item() - expected.item()) < 1e-2
    for ours, wanted in zip(net.parameters(), reference.parameters()):
        step = rate * wanted.grad
        assert ours.dtype == S
        torch.testing.assert_close(ours.detach(), wanted.detach() - step, rtol=0,
                                   atol=0.05 * step.abs().max().item() + 1e-7)


def test_64_bits_come_back_as_32():
    """Whatever the structure, and the low bits of whole numbers; an input that is written to keeps its type."""
    def forward(i, d, s, w):
        w.add_(1)
        return {"i": i * 2, "d": (d + 1, [s * 3]), "sum": i.sum(), "w": w}
    i, d, w = torch.tensor([2**33 + 5, -7]), torch.tensor([1.1], dtype=torch.float64), torch.tensor([1, 2])
    out = inference(forward)(i, d, torch.tensor([3], dtype=torch.int16), w)
    assert [out["i"].tolist(), out["sum"].item(), w.tolist(), out["w"].tolist()] == [[10, -14], -2, [2, 3], [2, 3]]
    assert out["i"].dtype == out["sum"].dtype == out["w"].dtype == torch.int32 and w.dtype == torch.int64
    assert out["d"][0].dtype == S and out["d"][0].item() == torch.tensor(2.1).item()
    assert out["d"][1][0].dtype == torch.int16 and out["d"][1][0].item() == 9


# --- stochastic rounding --------------------------------------------------------------------------

class Weights(nn.Module):
    """The gradient of every weight is 1."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(512, dtype=H))

    def forward(self, x):
        return poptorch.identity_loss((self.w * x).float().sum(), "sum")


def rounding(enabled, seed=3):
    opts = options().randomSeed(seed)
    opts.Precision.enableStochasticRounding(enabled)
    return opts


def test_updates_below_half_a_step_are_kept():
    """An eighth of what changes a weight: lost when rounded to nearest, right on average at random."""
    steps, rate, found = 32, 2.0 ** -14, []
    for enabled, seed in ((False, 3), (True, 3), (True, 3), (True, 4)):
        opts = rounding(enabled, seed).deviceIterations(steps)
        net = Weights()
        model = training(net, opts, torch.optim.SGD(net.parameters(), lr=rate))[1]
        model(torch.ones(steps, 512, dtype=H))
        found.append(net.w.detach().clone())
    lost, kept, again, other = found
    assert torch.equal(lost, torch.ones(512, dtype=H))
    error = (steps * 7 / 64 / 512) ** 0.5 * 2.0 ** -11
    for w in (kept, other):
        assert w.dtype == H and abs(w.double().mean().item() - (1 - steps * rate)) < 5 * error
    assert torch.equal(kept, again) and not torch.equal(kept, other)


def test_half_results_are_neighbours():
    torch.manual_seed(1)
    x, w = (torch.randint(-64, 65, size).half() / 64 for size in ((64, 16), (16, 8)))
    exact = x.double() @ w.double()    # in float32 too
    nearest = inference(torch.matmul, rounding(False))(x, w)
    model = inference(torch.matmul, rounding(True))
    first, second = model(x, w), model(x, w)
    assert torch.equal(nearest, exact.half())
    up = np.nextafter(nearest.numpy(), np.where(exact > nearest, np.inf, -np.inf).astype(np.float16))
    inside = exact != nearest.double()
    for y in (first, second):
        assert y.dtype == H and torch.equal(y[~inside], nearest[~inside])
        assert ((y == nearest) | (y == torch.from_numpy(up))).all()
        error = (y.double() - exact) / (torch.from_numpy(up).double() - nearest.double()).abs()
        assert abs(error[inside].mean()) < 5 * 0.5 / inside.sum() ** 0.5
    assert not torch.equal(first, second)    # each call draws again


def test_rounding_leaves_float32_alone():
    x, t, found = torch.randn(4, 1, 6, 6), torch.tensor([0, 1, 2, 0]), []
    for enabled in (False, True):
        torch.manual_seed(0)
        net, model = training(Mixed(), rounding(enabled))
        found.append([*model(x, t), *(p.detach().clone() for p in net.parameters())])
    assert all(torch.equal(a, b) for a, b in zip(*found))


def test_partials_are_float32(log):
    """Sums of halves are float32, whatever setPartialsType says; a word at level info."""
    x, w = torch.full((2, 4096), 2.0 ** -4, dtype=H), torch.full((4096, 2), 1.0, dtype=H)
    x[:, 0] = 2048    # in half, nothing would be added to it
    opts = options()
    opts.Precision.setPartialsType(torch.half)
    poptorch.setLogLevel("INFO")
    try:
        assert torch.equal(inference(torch.matmul, opts)(x, w), (x.float() @ w.float()).half())
    finally:
        poptorch.setLogLevel("WARN")
    text = log()
    assert "[info] The session option partialsTypeMatMuls has no effect" in text and "warning" not in text
