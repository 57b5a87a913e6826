"""What the tests of poptorch share: options, a small net, one step of training."""

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import poptorch

MODES = poptorch.OutputMode


@pytest.fixture(autouse=True)
def nothing_cached(monkeypatch):
    """No test finds what another run compiled. Import it to have it."""
    monkeypatch.setenv("TESSERA_CACHE_DIR", "")


@pytest.fixture
def log(capfd):
    """log() is what was logged since the last time."""
    return lambda: capfd.readouterr().err


def options():
    return poptorch.Options().showCompilationProgressBar(False)


class Normalising(nn.Module):
    """A BatchNorm, and a loss that trains something else."""

    def __init__(self):
        super().__init__()
        self.bn = nn.BatchNorm1d(3, affine=False)
        self.w = nn.Parameter(torch.ones(1))

    def forward(self, x):
        y = self.bn(x)
        return y, poptorch.identity_loss((y * self.w).sum(), "sum")


class Small(nn.Module):
    """A linear layer with a loss, for everything where the net does not matter."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)

    def forward(self, x, t=None):
        y = self.fc(x)
        return y if t is None else (y, F.mse_loss(y, t))


class Lambda(nn.Module):
    """A function as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args, **kwargs):
        return self.function(*args, **kwargs)


class Counting(nn.Module):
    """Counts the micro-batches in a buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("n", torch.zeros(1))

    def forward(self, x):
        self.n.add_(1)
        return x + self.n


def training(net=None, opts=None, optimizer=None):
    """(net, executor), with SGD at a rate that shows."""
    net = Small() if net is None else net
    optimizer = optimizer or torch.optim.SGD(net.parameters(), lr=0.5)
    return net, poptorch.trainingModel(net, opts or options(), optimizer)


def inference(function, opts=None):
    """An executor of a function or module."""
    net = function if isinstance(function, nn.Module) else Lambda(function)
    return poptorch.inferenceModel(net, opts or options())


def step(model, rows=4):
    """One call with random numbers for Small."""
    return model(torch.randn(rows, 3), torch.randn(rows, 2))


def refused(function, match, *args, error=poptorch.Error):
    """A function of a tensor that cannot be compiled."""
    with pytest.raises(error, match=match):
        inference(function)(*(args or (torch.ones(4),)))
