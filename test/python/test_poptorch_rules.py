"""The update rules of the optimizers on the device, each against its formula, in float64, and their state."""

import math

import pytest
import torch
import torch.nn as nn

import poptorch
from poptorch_helpers import nothing_cached, options  # noqa: F401

LR, STEPS = 0.1, 4


class Net(nn.Module):
    """Two weights whose gradients depend on them and on the data."""

    def __init__(self):
        super().__init__()
        self.a, self.b = (nn.Parameter(torch.linspace(lo, 1, 5)) for lo in (-1, 0.5))

    def forward(self, x):
        return poptorch.identity_loss((self.a * self.b - x).square() + 0.1 * self.a, "sum")


def gradients(w, x):
    a, b = w
    return [2 * (a * b - x) * b + 0.1, 2 * (a * b - x) * a]


def sgd(w, g, s, t, mm=0.0, dm=0.0, wd=0.0, nesterov=False):
    g = g + wd * w
    v = s["v"] = mm * s.get("v", 0 * w) + (1 - dm) * g
    return w - LR * (g + mm * v if nesterov else v)


def adam(w, g, s, t, b1=0.9, b2=0.999, eps=1e-8, wd=0.0, decoupled=False, correct=True, trust=0.0):
    g = g if decoupled else g + wd * w
    m = s["m"] = b1 * s.get("m", 0 * w) + (1 - b1) * g
    v = s["v"] = b2 * s.get("v", 0 * w) + (1 - b2) * g * g
    if correct:
        m, v = m / (1 - b1**t), v / (1 - b2**t)
    x = m / (v.sqrt() + eps) + (wd * w if decoupled else 0)
    scale = min(w.norm().item(), trust) / x.norm().item() if trust else 1
    return w - LR * scale * x


def rmsprop(w, g, s, t, alpha=0.99, eps=1e-8, wd=0.0, mm=0.0, centered=False, tf=False):
    g = g + wd * w
    v = s["v"] = alpha * s.get("v", 0 * w + (1 if tf else 0)) + (1 - alpha) * g * g
    if centered:
        a = s["a"] = alpha * s.get("a", 0 * w) + (1 - alpha) * g
        v = v - a * a
    x = g / ((v + eps).sqrt() if tf else v.sqrt() + eps)
    b = s["b"] = mm * s.get("b", 0 * w) + (LR * x if tf else x)
    return w - (b if tf else LR * b)


O = poptorch.optim
#: (the optimizer's class, its arguments, the formula, its arguments)
RULES = {
    "SGD": (O.SGD, {"weight_decay": 0.1}, sgd, {"wd": 0.1}),
    "momentum": (O.SGD, {"momentum": 0.9, "weight_decay": 0.1}, sgd, {"mm": 0.9, "wd": 0.1}),
    "dampening": (O.SGD, {"momentum": 0.9, "dampening": 0.5}, sgd, {"mm": 0.9, "dm": 0.5}),    # from the first step on
    "nesterov": (O.SGD, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}, sgd,
                 {"mm": 0.9, "nesterov": True, "wd": 0.1}),
    "combined": (O.SGD, {"momentum": 0.9, "use_combined_accum": True, "velocity_scaling": 8.0}, sgd, {"mm": 0.9}),
    "Adam": (O.Adam, {"weight_decay": 0.1}, adam, {"wd": 0.1}),
    "betas": (O.Adam, {"betas": (0.5, 0.8), "eps": 1e-3}, adam, {"b1": 0.5, "b2": 0.8, "eps": 1e-3}),
    "AdamW": (O.AdamW, {}, adam, {"wd": 0.01, "decoupled": True}),
    "uncorrected": (O.AdamW, {"bias_correction": False, "weight_decay": 0.0}, adam,
                    {"decoupled": True, "correct": False}),
    "LAMB": (O.LAMB, {"max_weight_norm": 1.5}, adam, {"wd": 0.01, "decoupled": True, "trust": 1.5}),
    "LAMB uncorrected": (O.LAMB, {"bias_correction": False}, adam,
                         {"wd": 0.01, "decoupled": True, "trust": 65500.0, "correct": False}),
    "RMSprop": (O.RMSprop, {"weight_decay": 0.1}, rmsprop, {"wd": 0.1}),
    "centered": (O.RMSprop, {"centered": True, "momentum": 0.5, "alpha": 0.9}, rmsprop,
                 {"centered": True, "mm": 0.5, "alpha": 0.9}),
    "tf": (O.RMSprop, {"use_tf_variant": True, "momentum": 0.5, "eps": 1e-2}, rmsprop,
           {"tf": True, "mm": 0.5, "eps": 1e-2}),
    "tf centered": (O.RMSprop, {"use_tf_variant": True, "centered": True, "alpha": 0.9}, rmsprop,
                    {"tf": True, "centered": True, "alpha": 0.9}),
    "clipped": (O.SGD, {"max_grad_norm": 0.5}, sgd, {}),
}


def trained(kind, kwargs, scaling, accumulation):
    opts = options()
    opts.Training.gradientAccumulation(accumulation)
    net = Net()
    optimizer = kind(net.parameters(), lr=LR, loss_scaling=scaling, **kwargs)
    model = poptorch.trainingModel(net, opts, optimizer)
    data = torch.linspace(-1, 2, STEPS * accumulation * 5).view(STEPS, accumulation * 5)
    for x in data:
        model(x)
    return net, optimizer, data.double().view(STEPS, accumulation, 5), model


@pytest.mark.parametrize("name", RULES)
def test_update(name):
    kind, kwargs, rule, constants = RULES[name]
    net, _, data, _ = trained(kind, kwargs, 16.0, 2)
    w = [p.detach().double() for p in Net().parameters()]
    states = [{}, {}]
    for t, parts in enumerate(data, 1):
        each = [gradients(w, x) for x in parts]
        g = [sum(column) / len(each) for column in zip(*each)]
        norm = math.sqrt(sum((v * v).sum().item() for v in g))
        most = kwargs.get("max_grad_norm", math.inf)
        g = [v * min(1, most / norm) for v in g]    # max / max(norm, max), over all parameters
        w = [rule(*args, t, **constants) for args in zip(w, g, states)]
    for ours, wanted in zip(net.parameters(), w):
        torch.testing.assert_close(ours.detach().double(), wanted, rtol=1e-4, atol=1e-5)


def test_steps_are_updates():
    """The step counter counts updates, and a state dict has one for each parameter."""
    _, optimizer, _, model = trained(O.Adam, {}, 1.0, 3)
    state = optimizer.state_dict()["ipu_state"]
    assert {n for n in state if n.startswith("Step___")} == {"Step___a", "Step___b"}
    assert state["Step___a"].item() == state["Step___b"].item() == STEPS
