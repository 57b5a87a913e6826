"""Layers that depend on training or evaluating, and random numbers."""

import copy

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import poptorch
from poptorch_helpers import inference, nothing_cached, options, training  # noqa: F401

X = torch.ones(1000)

#: All kinds of dropout, of 1000 numbers in 100 features.
DROPOUTS = {
    "Dropout": nn.Dropout(0.5), "Dropout1d": lambda x: nn.Dropout1d(0.5)(x.view(10, 10, 10)),
    "Dropout2d": lambda x: nn.Dropout2d(0.5)(x.view(10, 10, 10, 1)),
    "Dropout3d": lambda x: nn.Dropout3d(0.5)(x.view(10, 10, 10, 1, 1)),
    "F.dropout": lambda x: F.dropout(input=x, p=0.5, training=True), "torch": lambda x: torch.dropout(x, 0.5, True),
    "in place": lambda x: F.dropout(x * 1, 0.5, True, inplace=True),
    "dropout_": lambda x: torch.dropout_(x * 1, 0.5, True),
    "feature": lambda x: torch.feature_dropout(x.view(10, 10, 10), 0.5, True),
    "AlphaDropout": nn.AlphaDropout(0.5), "alpha": lambda x: torch.alpha_dropout(x, 0.5, True),
    "keyword": lambda x: F.alpha_dropout(input=x, p=0.5, training=True),
    "FeatureAlphaDropout": lambda x: nn.FeatureAlphaDropout(0.5)(x.view(10, 10, 10)),
}


class Dropping(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(1))
        self.layers = nn.ModuleList([f for f in DROPOUTS.values() if isinstance(f, nn.Module)])
        for layer in self.layers:
            layer.train()

    def forward(self, x):
        out = {name: f(x * self.w).flatten() for name, f in DROPOUTS.items()}
        return out, poptorch.identity_loss(sum(y.sum() for y in out.values()), "sum")


def test_dropout_is_for_training():
    out, _ = training(Dropping(), options().randomSeed(1))[1](X)
    for name, y in out.items():
        changed = (y != 1).float().mean().item()    # the others are scaled
        assert changed == 1 and len(set(y.tolist())) == 2, name
        low = (y == y.min()).float().mean().item()
        assert 0.35 < low < 0.65, name
    out, _ = inference(Dropping())(X)    # in train mode, as the MNIST example leaves it
    for name, y in out.items():
        assert torch.equal(y, X), name


def test_dropout_follows_its_flag():
    net = Dropping()
    net.layers.eval()    # those that are modules
    out, _ = training(net)[1](X)
    assert torch.equal(out["Dropout"], X) and torch.equal(out["AlphaDropout"], X)
    assert not torch.equal(out["F.dropout"], X)


@pytest.mark.parametrize("layer, shape", [
    (nn.LSTM(3, 4, 2, dropout=0.9), (5, 2, 3)), (nn.GRU(3, 4, 2, dropout=0.9), (5, 2, 3)),
    (nn.RNN(3, 4, 2, dropout=0.9), (5, 2, 3)), (nn.TransformerEncoderLayer(4, 2, 8, 0.9), (5, 2, 4))],
    ids=["LSTM", "GRU", "RNN", "encoder"])
def test_dropout_inside_of_layers(layer, shape):
    x = torch.randn(shape)
    out, expected = inference(layer.train())(x), layer.eval()(x)
    out, expected = (v[0] if isinstance(v, tuple) else v for v in (out, expected))
    torch.testing.assert_close(out, expected.detach(), rtol=1e-4, atol=1e-5)


class Norms(nn.Module):
    """Train and eval mode of the norms."""

    def __init__(self):
        super().__init__()
        self.train_, self.eval_ = nn.BatchNorm1d(3, momentum=0.3), nn.BatchNorm1d(3)
        self.same = nn.ModuleList([nn.LayerNorm(4), nn.GroupNorm(3, 3), nn.InstanceNorm1d(3),
                                   nn.InstanceNorm1d(3, affine=True),
                                   nn.BatchNorm1d(3, affine=False), nn.BatchNorm1d(3, track_running_stats=False),
                                   nn.LayerNorm(4, elementwise_affine=False), nn.GroupNorm(1, 3, affine=False)])
        self.fc = nn.Linear(4, 4)
        for n in (self.train_, self.eval_):
            n.running_mean.normal_()
            n.running_var.uniform_(1, 2)
        self.eval_.eval()

    def forward(self, x, t=None):
        y = self.fc(self.eval_(x))    # no gradient has to pass the norm
        y = [self.train_(y), *(n(y) for n in self.same)]
        return y if t is None else (y, F.mse_loss(sum(y), t))


def test_norms_follow_their_flags():
    torch.manual_seed(0)
    net = Norms()
    reference, frozen = copy.deepcopy(net), net.eval_.running_mean.clone()
    x, t = torch.randn(6, 3, 4), torch.randn(6, 3, 4)
    model = inference(net)
    for ours, theirs in zip(model(x), reference(x)):
        torch.testing.assert_close(ours, theirs.detach(), rtol=1e-4, atol=1e-5)
    before = net.train_.running_mean.clone()
    model.copyWeightsToHost()    # the device had changed them
    assert not torch.equal(net.train_.running_mean, before)
    _, model = training(net)
    for _ in range(2):
        _, loss = model(x, t)
        _, expected = reference(x, t)
        torch.testing.assert_close(loss, expected.detach(), rtol=1e-4, atol=1e-5)
        reference.zero_grad()
        expected.backward()
        with torch.no_grad():
            for p in reference.parameters():
                p.sub_(0.5 * p.grad if p.grad is not None else 0)
    for name in ("running_mean", "running_var"):    # plain reads fetch them; the variance is the unbiased one
        torch.testing.assert_close(getattr(net.train_, name), getattr(reference.train_, name), rtol=1e-3, atol=1e-4)
    assert torch.equal(net.eval_.running_mean, frozen)


class Asking(nn.Module):
    def __init__(self):
        super().__init__()
        self.child = nn.Sequential(nn.Identity())
        self.w = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return self.training, self.child.training, poptorch.identity_loss(x * self.w, "sum")


def test_user_code_asks_for_the_flag():
    for make in (lambda net: training(net)[1], inference):
        net = Asking().train()
        model = make(net)
        net.eval()    # the inner module's flags count until it is compiled
        assert model(torch.ones(1))[:2] == (False, False)


# --- random numbers -------------------------------------------------------------------------------

RANDOM = {"rand": lambda x: torch.rand(x.shape, device=x.device), "randn": torch.randn_like,
          "normal": lambda x: torch.normal(x, x + 1), "uniform": lambda x: torch.empty_like(x).uniform_(),
          "exponential": lambda x: torch.empty_like(x).exponential_(),
          "bernoulli": lambda x: torch.bernoulli(x * 0 + 0.5),
          "dropout": lambda x: F.dropout(x + 1),
          "Normal": lambda x: torch.distributions.Normal(x, x + 1).sample(),
          "random": lambda x: torch.empty_like(x).random_(99),
          "Uniform": lambda x: torch.distributions.Uniform(x, x + 1).rsample(),
          "Bernoulli": lambda x: torch.distributions.Bernoulli(x + 0.5).sample(),
          "Exponential": lambda x: torch.distributions.Exponential(x + 1).sample(),
          "randint": lambda x: torch.randint(9, x.shape, device=x.device).float(),
          "randperm": lambda x: torch.randperm(32, device=x.device).float(),
          "again": lambda x: torch.rand(x.shape, device=x.device)}


class Drawing(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(1))

    def forward(self, x):
        out = torch.stack([f(x) for f in RANDOM.values()], 1)
        return out, poptorch.identity_loss(out.sum() * self.w, "sum")


def draw(seed=None, d=2, a=2, r=2, calls=1):
    """Numbers by [call, d, a, r, row, op]"""
    opts = options().deviceIterations(d).replicationFactor(r).outputMode(poptorch.OutputMode.All)
    opts.Training.gradientAccumulation(a)
    if seed is not None:
        opts.randomSeed(seed)
    _, model = training(Drawing(), opts)
    return torch.stack([model(torch.zeros(d * a * r * 32))[0] for _ in range(calls)]).view(calls, d, a, r, 32, -1)


def test_streams_differ():
    numbers = draw(seed=3, calls=2)
    columns = numbers.permute(5, 0, 1, 2, 3, 4).reshape(len(RANDOM), -1, 32)
    for name, streams in zip(RANDOM, columns):    # of each op: calls, iterations, micro-batches and replicas
        assert len({tuple(s.tolist()) for s in streams}) == 16, name
    assert not torch.equal(columns[0], columns[-1])    # two ops of a kind
    assert torch.equal(draw(seed=3), numbers[:1]) and not torch.equal(draw(seed=4), numbers[:1])


def test_seeds():
    options().randomSeed(7)
    assert torch.initial_seed() == 7    # torch's own too
    first = torch.rand(3)
    torch.manual_seed(7)
    assert torch.equal(torch.rand(3), first)
    a, b = draw(d=1, a=1, r=1), draw(d=1, a=1, r=1)
    assert torch.equal(a, b)    # without a seed it is torch's, which PyTorch chooses at random unless it is told
    torch.seed()
    assert not torch.equal(draw(d=1, a=1, r=1), a)
