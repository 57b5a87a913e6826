"""torch's own optimizers, given to trainingModel: their steps, groups, schedules and state are those of the host."""

import copy
import inspect
from unittest import mock

import pytest

torch = pytest.importorskip("torch")

import torch.nn as nn    # noqa: E402
import torch.nn.functional as F    # noqa: E402

import poptorch    # noqa: E402
from poptorch_helpers import nothing_cached, options    # noqa: E402, F401

NEW = int(torch.__version__.split(".")[0]) >= 2
STEPS = 10


class Net(nn.Module):
    """Matrices only when `square`, for Muon."""

    def __init__(self, square=False):
        super().__init__()
        self.a = nn.Linear(5, 7, bias=not square)
        self.b = nn.Linear(7, 3, bias=not square)
        if not square:
            self.scale = nn.Parameter(torch.tensor(0.75))

    def forward(self, x, t=None):
        y = self.b(torch.tanh(self.a(x))) * getattr(self, "scale", 1.0)
        return y if t is None else (y, F.mse_loss(y, t))


def data(step):
    g = torch.Generator().manual_seed(step)
    return torch.randn(8, 5, generator=g), torch.randn(8, 3, generator=g)


CASES = [
    ("SGD", dict(lr=0.05, momentum=0.9, weight_decay=0.1, maximize=True)),
    ("Adam", dict(lr=0.05, amsgrad=True, weight_decay=0.1)),
    ("Adam", dict(lr=0.05, maximize=True)),
    ("Adam", dict(lr=0.05, weight_decay=0.5, decoupled_weight_decay=True)),
    ("AdamW", dict(lr=0.05, amsgrad=True)),
    ("RMSprop", dict(lr=0.01, momentum=0.5, centered=True, eps=1e-3)),
    ("Adagrad", dict(lr=0.05)),
    ("Adagrad", dict(lr=0.05, lr_decay=0.1, initial_accumulator_value=0.1, weight_decay=0.1, maximize=True)),
    ("Adadelta", dict()),
    ("Adadelta", dict(lr=0.5, rho=0.8, eps=1e-3, weight_decay=0.1, maximize=True)),
    ("Adamax", dict(lr=0.05)),
    ("Adamax", dict(lr=0.05, betas=(0.8, 0.9), weight_decay=0.1, maximize=True)),
    ("NAdam", dict(lr=0.05)),
    ("NAdam", dict(lr=0.05, betas=(0.8, 0.95), momentum_decay=0.1, weight_decay=0.1)),
    ("NAdam", dict(lr=0.05, weight_decay=0.1, decoupled_weight_decay=True, maximize=True)),
    ("RAdam", dict(lr=0.05)),
    ("RAdam", dict(lr=0.05, betas=(0.8, 0.9), weight_decay=0.1)),
    ("RAdam", dict(lr=0.05, weight_decay=0.1, decoupled_weight_decay=True, maximize=True)),
    ("Rprop", dict(lr=0.01)),
    ("Rprop", dict(lr=0.01, etas=(0.25, 1.5), step_sizes=(1e-3, 0.1), maximize=True)),
    ("ASGD", dict(lr=0.05)),
    ("ASGD", dict(lr=0.05, lambd=0.1, alpha=0.5, t0=3, weight_decay=0.1, maximize=True)),
    ("Adafactor", dict(lr=0.05)),
    ("Adafactor", dict(lr=0.5, eps=(1e-3, 1e-2), beta2_decay=-0.5, d=1.5, weight_decay=0.1, maximize=True)),
    ("Muon", dict(lr=0.05)),
    ("Muon", dict(lr=0.05, nesterov=False, weight_decay=0.0, adjust_lr_fn="match_rms_adamw", ns_steps=3)),
]


def known(kind, kwargs):
    """Has this torch got it? And is it right: before 2.0 NAdam counted the momentum of a step twice."""
    found = getattr(torch.optim, kind, None)
    return found and kwargs.keys() <= inspect.signature(found.__init__).parameters.keys() and (kind != "NAdam" or NEW)


CASES = [case for case in CASES if known(*case)]
IDS = [f"{kind}-{'-'.join(kwargs)}" for kind, kwargs in CASES]
ONE_EACH = {kind: (kind, kwargs) for kind, kwargs in reversed(CASES)}


def make(kind, kwargs, net):
    """With a group whose learning rate is another."""
    first, *rest = net.parameters()
    return getattr(torch.optim, kind)([{"params": [first], "lr": kwargs.get("lr", 1.0) / 2}, {"params": rest}], **kwargs)


def pair(kind, kwargs):
    torch.manual_seed(1)
    ours = Net(square=kind == "Muon")
    theirs = copy.deepcopy(ours)
    optimizer = make(kind, kwargs, ours)
    return poptorch.trainingModel(ours, options(), optimizer), ours, optimizer, theirs, make(kind, kwargs, theirs)


def step(net, optimizer, i):
    optimizer.zero_grad()
    net(*data(i))[1].backward()
    with mock.patch.object(torch, "bfloat16", torch.float32):    # torch's Muon rounds to it on the way
        optimizer.step()


def close(a, b, what):
    if not torch.allclose(a.float(), b.float(), rtol=2e-4, atol=1e-5):
        pytest.fail(f"{what}: {a} is not {b}")


@pytest.fixture
def loops(monkeypatch):
    """Plain loops instead of generated code: an update is like any other arithmetic there."""
    monkeypatch.setenv("TESSERA_CC", "no-such-compiler")


@pytest.mark.parametrize("kind, kwargs", CASES, ids=IDS)
def test_steps_schedules_and_state(kind, kwargs, loops):
    model, ours, optimizer, theirs, reference = pair(kind, kwargs)
    for i in range(STEPS):
        if i == 4:    # a scheduler's doing
            for o in (optimizer, reference):
                for group in o.param_groups:
                    group["lr"] *= 0.5
            model.setOptimizer(optimizer)
        model(*data(i))
        step(theirs, reference, i)
    found, want = optimizer.state_dict(), reference.state_dict()
    for (name, a), b in zip(ours.state_dict().items(), theirs.state_dict().values()):
        close(a, b, name)
    assert found["state"].keys() == want["state"].keys()
    for i, slots in want["state"].items():
        assert found["state"][i].keys() >= {k for k, v in slots.items() if v is not None}
        for key, value in slots.items():
            if value is not None and (key, kind) != ("step", "RMSprop"):    # not counted on the device
                close(torch.as_tensor(found["state"][i][key]), torch.as_tensor(value), f"{i} {key}")
    model.destroy()
    assert "state_dict" not in vars(optimizer)


@pytest.mark.parametrize("kind", ONE_EACH)
def test_a_state_of_the_host_goes_on_here_and_there_again(kind, loops):
    """Steps of the host, of the device from its state, of a third from the device's: as all of the host."""
    kind, kwargs = ONE_EACH[kind]
    model, ours, optimizer, theirs, reference = pair(kind, kwargs)
    for i in range(3):
        step(theirs, reference, i)
    ours.load_state_dict(theirs.state_dict())
    optimizer.load_state_dict(copy.deepcopy(reference.state_dict()))
    for i in range(3, 5):
        model(*data(i))
        step(theirs, reference, i)
    optimizer.load_state_dict(copy.deepcopy(reference.state_dict()))    # while it runs
    for i in range(5, 7):
        model(*data(i))
        step(theirs, reference, i)
    kept = copy.deepcopy(optimizer.state_dict())
    third = copy.deepcopy(theirs)
    third.load_state_dict(ours.state_dict())
    eager = make(kind, kwargs, third)
    eager.load_state_dict(kept)
    for i in range(7, 9):
        step(third, eager, i)
        step(theirs, reference, i)
    for a, b in zip(third.parameters(), theirs.parameters()):
        close(a, b, kind)
    model.destroy()


@pytest.mark.parametrize("kind", ONE_EACH)
def test_the_same_bits_on_any_number_of_threads(kind, monkeypatch, tmp_path):
    kind, kwargs = ONE_EACH[kind]
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path))
    results = []
    for threads in (1, 2, 3):
        monkeypatch.setenv("OMP_NUM_THREADS", str(threads))
        model, ours, *_ = pair(kind, kwargs)
        for i in range(3):
            model(*data(i))
        results.append([p.detach().numpy().tobytes() for p in ours.parameters()])
        model.destroy()
    assert results[0] == results[1] == results[2]
    *_, theirs, reference = pair(kind, kwargs)
    for i in range(3):
        step(theirs, reference, i)
    for a, b in zip(ours.parameters(), theirs.parameters()):
        close(a, b, kind)


def test_muon_of_a_vector():
    if not hasattr(torch.optim, "Muon"):
        pytest.skip("this torch has no Muon")
    net = Net()
    model = poptorch.trainingModel(net, options(), torch.optim.Muon([net.a.weight, net.b.weight]))
    with pytest.raises(poptorch.Error, match="Muon updates matrices only, and '.*' has [01] dims"):
        model(*data(0))


def test_what_is_compiled_in_cannot_change():
    model, ours, optimizer, *_ = pair("Adagrad", dict(lr=0.05, lr_decay=0.1))
    model(*data(0))
    optimizer.param_groups[0]["lr_decay"] = 0.5
    with pytest.raises(poptorch.Error, match="lr_decay"):
        model.setOptimizer(optimizer)
