"""What a trace is: what libraries hear about it, what it costs, which values Python may ask for."""

import os
import random
import subprocess
import sys
import traceback

import numpy
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


class Repeated(nn.Module):
    def forward(self, x, n):
        for _ in range(int(n)):
            x = x * 2
        return x


# --- no numbers ---

BIG = """
import resource, sys, torch, poptorch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Conv2d(3 if i == 0 else 16, 16, 3, padding=1) for i in range(12)])
        self.norm = torch.nn.BatchNorm2d(16)

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(self.norm(layer(x)))
        return torch.nn.functional.mse_loss(x, torch.zeros(()).expand(x.shape))

from poptorch import _compile
def stop(*args):
    now = resource.getrusage(resource.RUSAGE_SELF)
    print(now.ru_maxrss - before.ru_maxrss >> 10, now.ru_utime - before.ru_utime)
    sys.exit()
_compile.compileProgram = stop
model = poptorch.trainingModel(Net(), poptorch.Options().showCompilationProgressBar(False))
x = torch.empty(1, 3, 640, 1024)
torch.nn.functional.conv2d(torch.ones(1, 1, 8, 8), torch.ones(1, 1, 3, 3))
before = resource.getrusage(resource.RUSAGE_SELF)
model(x)
"""


def test_a_trace_has_no_activations(build_dir):
    """12 layers of 40 MiB, and what PyTorch keeps of them: they would be more than a gigabyte."""
    out = subprocess.run([sys.executable, "-c", BIG], capture_output=True, text=True, check=True,
                         env={**os.environ, "PYTHONPATH": str(build_dir / "python")})
    mebibytes, seconds = out.stdout.split()
    assert int(mebibytes) < 150 and float(seconds) < 5


def test_a_trace_writes_to_nothing():
    """Neither weights, buffers nor arguments."""
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.bn = nn.BatchNorm1d(3)
            self.register_buffer("seen", torch.zeros(3))

        def forward(self, x):
            self.seen.add_(x.sum(0))
            torch.mul(self.seen, 2, out=self.seen)
            x *= 2
            y = self.bn(x)
            return y, F.mse_loss(y, torch.zeros(4, 3))
    net, x = Net(), torch.ones(4, 3)
    model = poptorch.trainingModel(net, options())
    before = {name: t.clone() for name, t in net.state_dict().items()}
    model.compile(x)
    assert x.equal(torch.ones(4, 3))
    for name, t in net.state_dict().items():
        assert t.equal(before[name]), name


# --- values that forward() reads ---

def once(function, *args):
    """The same as PyTorch's."""
    model = inference(function)
    torch.testing.assert_close(model(*args), function(*args), check_dtype=False)    # int64 comes back as int32
    return model


def test_whole_numbers_among_the_inputs_have_the_values_of_the_first_batch():
    def forward(x, labels):
        if labels.max() >= 5:
            raise ValueError("no such class")
        for _ in range(int(labels[0])):
            x = x * 2
        return x + labels.sum().item()
    x = torch.randn(3)
    model = once(forward, x, torch.tensor([2, 0, 4]))
    torch.testing.assert_close(model(x + 1, torch.tensor([2, 3, 1])), (x + 1) * 4 + 6)
    with pytest.raises(poptorch.Error, match=r"test_poptorch_tracing.py:\d+\) and was compiled for 2; in this batch it is 1"):
        model(x, torch.tensor([1, 3, 2]))
    with pytest.raises(poptorch.Error, match="compiled for False; in this batch it is True"):
        model(x, torch.tensor([2, -1, 5]))
    with pytest.raises(ValueError, match="no such class"):
        inference(forward)(x, torch.tensor([2, 5, 0]))


def test_what_floats_decide_is_refused():
    with pytest.raises(poptorch.Error, match=r"bool\(\) of a tensor is not known while the model is traced \(.*tracing.py:\d+\)"):
        inference(lambda x: x if x.sum() > 0 else -x)(torch.ones(3))
    with pytest.raises(poptorch.Error, match="not known while"):    # nor is a whole number that is made of them
        inference(lambda x: x * int(x.argmax()))(torch.ones(3))


def test_what_was_written_is_not_known():
    def forward(x, n):
        n[0] = x.argmax()
        return x * int(n[0])
    with pytest.raises(poptorch.Error, match="not known while"):
        inference(forward)(torch.ones(3), torch.tensor([1, 2]))


def test_masks_have_the_size_of_the_first_batch():
    functions = [lambda x, m: x[m].flip(0).sum(0), lambda x, m: x[:, 1:][m != 0], lambda x, m: x.masked_select(m.unsqueeze(1)),
                 lambda x, m: m.nonzero() * 2, lambda x, m: x[m.nonzero(as_tuple=True)[0]] + 1]
    x = torch.randn(4, 3)
    first, second = torch.tensor([True, False, True, True]), torch.tensor([True, True, False, True])
    for forward in functions:
        model = once(forward, x, first)
        torch.testing.assert_close(model(x, second), forward(x, second).to(model(x, second).dtype))
        with pytest.raises(poptorch.Error, match="was compiled for (3|9); in this batch it is (4|12)"):
            model(x, torch.ones(4, dtype=torch.bool))


def test_masks_in_training():
    """The gradient goes to what was chosen."""
    net = nn.Linear(2, 2)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, x, mask, t):
            return F.cross_entropy(self.net(x)[mask], t[mask])
    x, mask, t = torch.randn(4, 2), torch.tensor([True, False, True, False]), torch.tensor([0, 1, 1, 0])
    loss = Net()(x, mask, t)
    expected = net.weight - 0.5 * torch.autograd.grad(loss, net.weight)[0]
    _, model = training(Net())
    torch.testing.assert_close(model(x, mask, t), loss.detach())
    torch.testing.assert_close(net.weight.detach(), expected.detach())


def test_numbers_are_taken_to_be_finite():
    def forward(x):
        y = x / x.sum()
        if not torch.isfinite(y).all() or y.isnan().any():
            y = torch.zeros_like(y)
        return y
    model = once(forward, torch.tensor([1.0, 3]))
    with pytest.raises(poptorch.Error, match="reads a value .* and was compiled for True; in this batch it is False"):
        model(torch.tensor([1.0, -1.0]))


def test_what_was_read_is_saved(tmp_path):
    """The file's program is for these values."""
    model = inference(Repeated())
    assert model(torch.ones(2), torch.tensor(3)).tolist() == [8, 8]
    model.save(str(tmp_path / "model"))
    again = poptorch.load(str(tmp_path / "model"))
    assert again(torch.ones(2), torch.tensor(3)).tolist() == [8, 8]
    with pytest.raises(poptorch.Error, match="compiled for 3; in this batch it is 1"):
        again(torch.ones(2), torch.tensor(1))


@pytest.mark.parametrize("accumulation", [1, 3])
def test_every_micro_batch_is_looked_at(accumulation):
    opts = options().deviceIterations(2)
    opts.Training.gradientAccumulation(accumulation)
    net = nn.Linear(1, 1)
    net.forward = lambda x, n: F.mse_loss(F.linear(x, net.weight) * int(n), x)
    _, model = training(net, opts)
    x, n = torch.ones(2 * accumulation, 1), torch.ones(2 * accumulation, dtype=torch.int32)
    model(x, n)
    n[0] = 2
    with pytest.raises(poptorch.Error, match=r"compiled for \[1\]; in this batch it is \[2\]"):
        model(x, n)


# --- random numbers ---

@pytest.mark.parametrize("p, function", [
    (0.0, lambda r, p: r < p), (1.0, lambda r, p: r < p), (-0.1, lambda r, p: r <= p), (1.0, lambda r, p: r >= p),
    (0, lambda r, p: r >= p), (2.0, lambda r, p: r > p), (0.0, lambda r, p: torch.tensor(p) > r)])
def test_a_probability_of_nothing_or_of_all_has_a_value(p, function):
    x = torch.ones(2)
    once(lambda x: x * 2 if function(torch.rand([]), p) else x, x)


def test_other_probabilities_are_refused_with_the_cure():
    with pytest.raises(poptorch.Error, match="it is a random number.*layerdrop.*to 0"):
        inference(lambda x: x * 2 if torch.rand([]) < 0.1 else x)(torch.ones(2))


_RNG, _OWN, _OLD = numpy.random.default_rng(0), random.Random(0), numpy.random.RandomState(0)

DRAWS = {
    "random": (random.random, "random"), "uniform": (lambda: random.uniform(0, 1), "random"),
    "gauss": (lambda: random.gauss(0, 1), "random"), "randint": (lambda: random.randint(0, 1 << 30), "random"),
    "choice": (lambda: random.choice(range(1 << 30)), "random"), "own": (lambda: _OWN.random(), "_OWN"),
    "numpy": (lambda: numpy.random.rand(), "numpy.random"), "normal": (lambda: numpy.random.normal(), "numpy.random"),
    "permutation": (lambda: int(numpy.random.permutation(99)[0]), "numpy.random"), "generator": (lambda: _RNG.random(), "_RNG"),
    "old": (lambda: _OLD.rand(), "_OLD"), "unseeded": (lambda: numpy.random.default_rng().random(), "a generator without a seed"),
    "system": (lambda: random.SystemRandom().random(), "a generator without a seed"),
}


@pytest.mark.parametrize("name", DRAWS)
def test_numbers_that_the_host_draws_are_told_of(name, log):
    draw, generator = DRAWS[name]

    class Net(nn.Module):
        def forward(self, x):
            _OWN, _RNG, _OLD    # in sight
            return x * draw()
    model = poptorch.inferenceModel(Net(), options())
    assert model(torch.ones(1)).equal(model(torch.ones(1)))
    said = log()
    assert f"has drawn random numbers on the host, with {generator}:" in said and said.count("on the host") == 1


@pytest.mark.parametrize("make", [lambda: numpy.random.default_rng(3), lambda: random.Random(3)])
def test_of_a_generator_that_a_layer_has_as_well(make, log):
    class Drops(nn.Module):
        def __init__(self):
            super().__init__()
            self.rng = make()

        def forward(self, x):
            return x if self.rng.random() < 0.5 else x * 2
    poptorch.inferenceModel(nn.Sequential(Drops(), Drops()), options())(torch.ones(1))
    assert "with Drops.rng, Drops.rng:" in log()


@pytest.mark.parametrize("draw", [lambda: torch.poisson(torch.full((2,), 9.0)), lambda: torch._standard_gamma(torch.ones(2)),
                                  lambda: torch.binomial(torch.full((2,), 9.0), torch.full((2,), 0.5))])
def test_of_distributions_that_no_device_draws(draw, log):
    model = inference(lambda x: x * draw())
    assert model(torch.ones(2)).equal(model(torch.ones(2)))
    assert "of constants draws random numbers on the host" in log()


@pytest.mark.parametrize("draw", [
    lambda: torch.rand(1), lambda: torch.randn(1), lambda: torch.empty(1).uniform_(), lambda: torch.empty(1).normal_(),
    lambda: torch.rand(1, generator=torch.Generator()), lambda: torch.bernoulli(torch.full((40,), 0.5)),
    lambda: torch.distributions.Normal(0.0, 1.0).sample((1,)), lambda: numpy.random.default_rng(3).random() * torch.rand(1)])
def test_what_the_device_draws_is_new_in_every_run(draw, log):
    model = inference(lambda x: x * draw())
    assert not model(torch.ones(1)).equal(model(torch.ones(1)))
    assert "on the host" not in log()


# --- errors ---

def test_tracebacks_are_short():
    class Deep(nn.Module):
        def forward(self, x):
            return x.item()
    net = nn.Sequential(nn.Sequential(nn.Sequential(Deep())))
    with pytest.raises(poptorch.Error, match=r"test_poptorch_tracing.py:\d+") as e:
        poptorch.inferenceModel(net, options())(torch.ones(1))
    frames = traceback.extract_tb(e.value.__traceback__)
    assert len(frames) < 8 and frames[-1].name == "forward" and frames[-1].filename == __file__
    with pytest.raises(ZeroDivisionError) as e:
        inference(lambda x: x / (1 // 0))(torch.ones(1))
    assert traceback.extract_tb(e.value.__traceback__)[-1].line.startswith("inference(lambda x: x / (1 // 0))")


# --- of libraries ---

def test_products_of_groups_of_rows():
    """What a mixture of experts is made of."""
    from poptorch._composed import _groupedProduct
    x, w, ends = torch.randn(7, 4), torch.randn(3, 4, 5), torch.tensor([2, 2, 6], dtype=torch.int32)
    expected = torch.cat([x[:2] @ w[0], x[2:6] @ w[2], torch.zeros(1, 5)])
    torch.testing.assert_close(inference(_groupedProduct)(x, w, ends), expected)
