"""What a trace is: what libraries hear about it, what it costs, which values Python may ask for."""

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import poptorch
from poptorch_helpers import inference, log, nothing_cached, options, training  # noqa: F401


def answers():
    """What libraries ask."""
    compiler = getattr(torch, "compiler", None)
    return [torch.jit.is_tracing(), *(getattr(compiler, n)() for n in ("is_compiling", "is_exporting") if hasattr(compiler, n))]


class Masked(nn.Module):
    """Attention that needs no mask when nothing is masked: it looks, unless somebody traces it."""

    def forward(self, x, mask):
        self.heard.extend(answers())
        if torch.jit.is_tracing() or not bool((x * mask).all()):
            x = x.masked_fill(mask == 0, -1e9)
        return x.softmax(-1)


def test_libraries_hear_that_they_are_traced():
    x, mask = torch.randn(2, 4), torch.tensor([[1.0, 1, 0, 1], [1, 1, 1, 1]])
    net = Masked()
    net.heard = []
    out = inference(net)(x, mask)
    assert all(net.heard) and not any(answers())
    torch.testing.assert_close(out, x.masked_fill(mask == 0, -1e9).softmax(-1))


def test_they_hear_nothing_after_an_error():
    def broken(x):
        raise ValueError("no")
    with pytest.raises(ValueError):
        inference(broken)(torch.ones(2))
    assert not any(answers())


def test_functional_call_in_a_trace():
    """Torch refuses it below its own tracer."""
    functional_call = torch.func.functional_call if hasattr(torch, "func") else torch.nn.utils.stateless.functional_call
    net = nn.Linear(3, 2)

    class Called(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, x):
            return functional_call(self.net, {"weight": self.net.weight * 2, "bias": self.net.bias}, (x,))
    x = torch.randn(4, 3)
    torch.testing.assert_close(inference(Called())(x), F.linear(x, net.weight * 2, net.bias).detach())
