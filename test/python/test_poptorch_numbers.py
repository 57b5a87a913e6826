"""Automatic loss scaling, and floating-point exceptions."""

import pytest
import torch
import torch.nn as nn

import poptorch
from poptorch_helpers import inference, nothing_cached, options  # noqa: F401

HALF = torch.float16
TINY = 2.0**-26    # of a gradient: half precision ends at 2**-24


# --- automatic loss scaling ------------------------------------------------------------------------

class Scaled(nn.Module):
    """The gradient of w is x, all in half precision until the loss."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(4, dtype=HALF))

    def forward(self, x, factor):
        y = (x * self.w).float().sum() * factor.sum()
        return y, poptorch.identity_loss(y, "sum")


def scaled(automatic=True, popart=(), kind=poptorch.optim.SGD, scale=1.0, accumulation=1, replicas=1,
           lr=2.0**-10, **kwargs):
    opts = options()
    opts.Training.setAutomaticLossScaling(automatic)
    opts.Training.gradientAccumulation(accumulation)
    opts.replicationFactor(replicas)
    for key, value in popart:
        opts._Popart.set(f"automaticLossScalingSettings.{key}", value)
    net = Scaled()
    optimizer = kind(net.parameters(), lr=lr, loss_scaling=scale, **kwargs)
    return net, poptorch.trainingModel(net, opts, optimizer), optimizer


def scaleOf(optimizer):
    return float(optimizer.state_dict()["ipu_param"]["lossScaling_FLOAT"])


def feed(model, factor, rows=1):
    return model(torch.ones(4 * rows, dtype=HALF), torch.full((rows,), factor))


def test_small_gradients_are_learnt_from():
    plain, model, _ = scaled(automatic=False, lr=2.0**20)
    for _ in range(8):
        feed(model, TINY)
    model.copyWeightsToHost()
    assert plain.w.tolist() == [1.0] * 4    # every gradient was rounded to 0
    net, model, optimizer = scaled(scale=64.0, lr=2.0**20)
    for _ in range(8):
        feed(model, TINY)
    model.copyWeightsToHost()
    assert net.w.tolist() == [1.0 - 8 * 2.0**-6] * 4 and scaleOf(optimizer) == 64.0 * 2**8


def test_large_gradients_halve_the_scale_and_are_left_out():
    net, model, optimizer = scaled(scale=1024.0, momentum=0.5)
    out, _ = feed(model, 256.0)    # 2**18
    assert float(out) == 1024.0    # the user's loss is not scaled
    model.copyWeightsToHost()
    assert net.w.tolist() == [1.0] * 4 and scaleOf(optimizer) == 512.0
    velocity = optimizer.state_dict()["ipu_state"]["Accl1___w"]
    assert velocity.tolist() == [0.0] * 4
    feed(model, 20.0)              # 10240 is above the edge, and a number: halved and learnt from
    model.copyWeightsToHost()
    assert torch.isfinite(net.w).all() and scaleOf(optimizer) == 256.0
    assert optimizer.state_dict()["ipu_state"]["Accl1___w"].tolist() == [20.0] * 4
    feed(model, TINY)
    assert scaleOf(optimizer) == 512.0


def test_settings_accumulation_and_replicas():
    """Two replicas of two micro-batches: the mean counts."""
    settings = (("binEdgeLocation", 2.0**5 / 65504), ("thresholdUpperCountProportion", 0.5), ("updatePeriod", 2),
                ("gradientTensorTrackingMethod", 0))
    _, model, optimizer = scaled(popart=settings, scale=8.0, accumulation=2, replicas=2, kind=poptorch.optim.Adam)
    found = []
    for factor in (5.0, 3.0, 3.0, 3.0):
        feed(model, factor, rows=4)
        found.append(scaleOf(optimizer))
    assert found == [8.0, 16.0, 16.0, 8.0]    # 40 of 32 once in two updates is half of the elements; 48 each time
    assert {"lossScalingUpdates", "lossScalingAbove"} <= optimizer.state_dict()["ipu_state"].keys()


def test_the_scale_lives_on():
    _, model, optimizer = scaled(scale=4.0)
    for _ in range(3):
        feed(model, TINY)
    assert scaleOf(optimizer) == 32.0
    model.detachFromDevice()
    model.attachToDevice()
    feed(model, TINY)
    for group in optimizer.param_groups:
        group["lr"] = 1.0
    model.setOptimizer(optimizer)    # as a scheduler does: the scale stays
    feed(model, TINY)
    state = optimizer.state_dict()
    assert float(state["ipu_param"]["lossScaling_FLOAT"]) == 128.0
    _, other, fresh = scaled(scale=4.0)
    fresh.load_state_dict(state)
    feed(other, TINY)
    assert scaleOf(fresh) == 256.0
    optimizer.loss_scaling = 2.0     # the user's word
    model.setOptimizer(optimizer)
    feed(model, TINY)
    assert scaleOf(optimizer) == 4.0


# --- floating-point exceptions ---------------------------------------------------------------------

def checked():
    opts = options()
    opts.Precision.enableFloatingPointExceptions(True)
    return opts


class Wrong(nn.Module):
    """Each row of x goes to an operation of its own."""

    def forward(self, x):
        a = torch.log(x[0])                          # LOG
        b = 1.0 / x[1]                               # DIV
        big = torch.where(x[2] > 50, torch.tensor(float("inf")), x[2])
        c = big - 2 * big                            # SUB
        huge = torch.where(x[3] > 50, torch.tensor(float("inf")), x[3])
        d = (x[3] - 100) * huge                      # MUL
        e = torch.xlogy(x[4], x[4])                  # fine at 0
        scores = torch.where(x[5] > 1.5, torch.tensor(float("-inf")), x[5])
        return a + b, c.relu(), d, e, torch.softmax(scores, 0)


@pytest.fixture(scope="module")
def wrong():
    return inference(Wrong(), checked())


@pytest.mark.parametrize("row, value, op, made", [
    (0, -1.0, "LOG", "log made a NaN"), (0, 0.0, "LOG", "log made an infinity"), (1, 0.0, "DIV", "made an infinity"),
    (2, 100.0, "SUB", "sub made a NaN"), (3, 100.0, "MUL", "mul made a NaN")])
def test_exceptions_name_the_line(wrong, row, value, op, made):
    x = torch.ones(6, 3)
    x[4, 0] = 0.0
    x[5, 2] = 2.0
    wrong(x)
    x[row, 1] = value
    with pytest.raises(poptorch.Error) as found:
        wrong(x)
    with open(__file__) as f:
        line = next(i for i, text in enumerate(f, 1) if text.rstrip().endswith(f"# {op}"))
    assert made in str(found.value) and f"test_poptorch_numbers.py:{line}" in str(found.value)
    x[row, 1] = 1.0
    wrong(x)


class Pipelined(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.fc1 = poptorch.BeginBlock(nn.Linear(4, 8), "one", ipu_id=0)
        self.fc2 = poptorch.BeginBlock(nn.Linear(8, 4), "two", ipu_id=1)
        self.loss = nn.CrossEntropyLoss()

    def forward(self, x, t):
        y = self.fc2(torch.relu(self.fc1(x)))
        return y, self.loss(y, t)


def trained(exceptions, spoil=None):
    opts = options()
    opts.Precision.enableFloatingPointExceptions(exceptions)
    opts.Training.gradientAccumulation(3)
    opts.replicationFactor(2)
    net = Pipelined()
    model = poptorch.trainingModel(net, opts, poptorch.optim.Adam(net.parameters(), lr=0.1))
    x = torch.linspace(-1, 1, 48).reshape(12, 4)
    if spoil is not None:
        x[spoil] = 1e38
    losses = [model(x, torch.arange(12) % 4)[1] for _ in range(2)]
    model.copyWeightsToHost()
    return net, losses


def test_exceptions_of_a_pipeline_with_replicas():
    (net, losses), (plain, without) = trained(True), trained(False)
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), plain.parameters()))
    assert all(torch.equal(a, b) for a, b in zip(losses, without))
    with pytest.raises(poptorch.Error, match=r"(?s)block (one|two).*in micro-batch \d of replica [01]"):
        trained(True, spoil=5)
