"""Gradients that forward() takes itself, differentiated again: every op of test_poptorch_ops.py to second and third
order, in double precision, against PyTorch.

A training step differentiates the loss. So a loss on n - 1 gradients of autograd, taken in forward(), has the op's
n-th derivative in its own. PyTorch keeps some results as constants (the deviation of a norm, the lengths of
weight_norm) and is wrong from the next order on: where it differs from us, differences of its losses decide.
"""

import importlib.util
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from poptorch_helpers import nothing_cached, options    # noqa: F401

import poptorch

#: Their first derivative looks at values, is made of a singular value decomposition, or is not there.
REFUSED = {"masked_value", "scatter_prod", "index_reduce", "det", "grid_sample3", "grid_border3", "grid_nearest3",
           "grid_moved3"}
TABLES = ["POINTWISE", "SHAPES", "REDUCTIONS", "LAYERS"]


@pytest.fixture
def ops():
    """The tables, of doubles."""
    spec = importlib.util.spec_from_file_location("doubled", Path(__file__).with_name("test_poptorch_ops.py"))
    module = importlib.util.module_from_spec(spec)
    torch.set_default_dtype(torch.float64)
    try:
        spec.loader.exec_module(module)
        yield module
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.fixture(autouse=True)
def reference(monkeypatch):
    """No compiler: the graph is what is tested. The tables have tensors of their own, which are constants here."""
    monkeypatch.setenv("TESSERA_CC", "/nowhere/cc")
    monkeypatch.setattr(poptorch._trace.Tracer, "_checkMade", lambda self, t: None)


def weighed(y):
    return (y * torch.linspace(0.5, 1.5, y.numel(), dtype=y.dtype).view(y.shape)).sum()


class Penalty(torch.nn.Module):
    """A loss of the gradient of function, or of its gradient's gradient."""

    def __init__(self, function, shape, order):
        super().__init__()
        self.function, self.order = function, order
        self.w = torch.nn.Parameter(torch.zeros(shape))

    def forward(self, x, *rest):
        z = x + self.w
        y = self.function(z, *rest)
        g = weighed(y * y) + weighed(z**4) / 64
        for _ in range(self.order - 1):
            g, = torch.autograd.grad(g, z, create_graph=True)
            g = weighed(g * g)
        return poptorch.identity_loss(g, "none")


def fresh(function, inputs, order):
    torch.manual_seed(0)
    return Penalty(function, inputs[0].shape, order)


def eager(function, inputs, order):
    """PyTorch's gradient, or None where it has none of this order."""
    net = fresh(function, inputs, order)
    try:
        net(*inputs).backward()
    except (RuntimeError, NotImplementedError):    # "derivative not implemented", and bugs of its own
        return None
    return net.w.grad if bool(net.w.grad.isfinite().all()) else None


def differences(function, inputs, order, step=1e-6):
    """The gradient by PyTorch's losses on both sides of every element."""
    sides = []
    for k in range(inputs[0].numel()):
        for sign in (1, -1):
            net = fresh(function, inputs, order)
            net.w.data.view(-1)[k] = sign * step
            sides.append(float(net(*inputs)))
    sides = torch.tensor(sides).view(-1, 2)
    return ((sides[:, 0] - sides[:, 1]) / (2 * step)).view(inputs[0].shape)


def ours(function, inputs, order):
    net = fresh(function, inputs, order)
    poptorch.trainingModel(net, options(), torch.optim.SGD(net.parameters(), lr=1.0))(*inputs)
    return -net.w.detach()


def apart(found, expected):
    return float((found - expected).abs().max() / (expected.abs().max() + 1e-9))


def compared(name, function, inputs, order):
    """What is wrong with it, "" for nothing, None where PyTorch cannot tell."""
    expected = eager(function, inputs, order)
    if expected is None:
        return None
    try:
        found = ours(function, inputs, order)
    except (poptorch.Error, RuntimeError) as e:
        refused = name in REFUSED or "derivative for" in str(e)
        return "" if refused else f"{name}: {e}"
    if apart(found, expected) < 1e-6 or apart(found, differences(function, inputs, order)) < 1e-4:
        return ""
    return f"{name}: {apart(found, expected)} of the largest element"


@pytest.mark.parametrize("order", [2, 3])
@pytest.mark.parametrize("table", TABLES)
def test_derivatives(table, order, ops):
    inputs = (ops.IMAGE,) if table == "LAYERS" else (ops.X, ops.Y)
    table = dict(getattr(ops, table))
    if "matrix_exp" in table:    # of numbers whose exponential is one, to third order too
        table["matrix_exp"] = lambda x, y: torch.matrix_exp(x[:3, :3] / 4)
    wrong = [compared(name, function, inputs, order) for name, function in table.items()]
    assert not any(wrong), "\n".join(filter(None, wrong))
    assert wrong.count("") > 0.8 * len(wrong)


LOSSES = {
    "ce_smooth": lambda x, t, w: F.cross_entropy(x, t, label_smoothing=0.1),
    "ce_smooth_sum": lambda x, t, w: F.cross_entropy(x, t, label_smoothing=0.2, reduction="sum"),
    "ce_smooth_none": lambda x, t, w: F.cross_entropy(x, t, label_smoothing=0.2, reduction="none").square().sum(),
    "ce_smooth_weight": lambda x, t, w: F.cross_entropy(x, t, w, label_smoothing=0.2),
    "ce_smooth_ignore": lambda x, t, w: F.cross_entropy(x, t, w, ignore_index=2, label_smoothing=0.2),
    "ce_smooth_ignore2": lambda x, t, w: F.cross_entropy(x, t, ignore_index=2, label_smoothing=0.2),
}


@pytest.mark.parametrize("name", LOSSES)
def test_smoothed_labels(name):
    """One op on the device, and the ops that autograd sees: both as PyTorch's."""
    torch.manual_seed(0)
    x, t, w = torch.randn(4, 5), torch.tensor([0, 2, 4, 1]), torch.rand(5) + 0.5

    def forward(x, t, w):
        x.requires_grad_()
        loss = LOSSES[name](x, t, w)
        return loss, torch.autograd.grad(loss, x)[0]
    found = poptorch.inferenceModel(forward, options())(x, t, w)
    for a, b in zip(found, forward(x, t, w)):
        torch.testing.assert_close(a, b.detach())


@pytest.mark.parametrize("drop", [
    lambda x: F.dropout(x, 0.3), lambda x: F.dropout(x.clone(), 0.3, inplace=True), lambda x: F.dropout2d(x, 0.4),
    lambda x: F.rrelu(x, training=True), lambda x: F.rrelu(x.clone(), training=True, inplace=True),
    lambda x: F.rrelu(x)],
    ids=["dropout", "dropout_", "dropout2d", "rrelu", "rrelu_", "rrelu_eval"])
def test_gradients_of_random_layers(drop):
    """What multiplied the input multiplies the gradient, in every run."""
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.ones(1))

        def forward(self, x):
            z = x * self.w
            y = drop(z)
            g, = torch.autograd.grad(y.sum(), z, create_graph=True)
            return y, g, poptorch.identity_loss((y * g).sum(), "none")
    torch.manual_seed(0)
    net = Net()
    model = poptorch.trainingModel(net, options(), torch.optim.SGD(net.parameters(), lr=1.0))
    x = torch.randn(4, 6, 5, 5)
    for _ in range(2):
        w = float(net.w)
        y, g, _ = model(x)
        torch.testing.assert_close(y, x * w * g)
        torch.testing.assert_close(w - net.w.detach(), (x * g * g).sum().view(1), rtol=1e-4, atol=1e-4)
        net.w.data.fill_(1.0)
        model.copyWeightsToDevice()


def test_a_write_that_autograd_does_not_see():
    """x.data and x.detach() share x's memory: its value changes, its gradient does not."""
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.full((3,), 0.5))

        def forward(self, x):
            y = x * self.w
            y.data.mul_(3)
            z = x + self.w
            z.detach().fill_(2.0)
            return y, z, poptorch.identity_loss((y * z).sum(), "none")
    net, same = Net(), Net()
    x = torch.tensor([1.0, 2.0, 3.0])
    found = poptorch.trainingModel(net, options(), torch.optim.SGD(net.parameters(), lr=1.0))(x)
    expected = same(x)
    expected[2].backward()
    for a, b in zip(found, expected):
        assert torch.equal(a, b.detach())
    torch.testing.assert_close(0.5 - net.w.detach(), same.w.grad)
