"""When weights travel between the module and the device."""

import copy
import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn as nn

import poptorch
from poptorch_helpers import (Counting, Small, inference, log, nothing_cached, options, step,  # noqa: F401
                              training)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)
        self.b.weight = self.a.weight
        self.unused = nn.Linear(5, 5)
        self.register_buffer("count", torch.tensor([7]))

    def forward(self, x, t=None):
        y = self.b(self.a(x)) * self.count
        return y if t is None else poptorch.identity_loss((y - t).square().sum(), "sum")


# --- what fetches ---------------------------------------------------------------------------------

READS = {
    "parameters": lambda net, model: list(net.parameters()), "named": lambda net, model: dict(net.named_parameters()),
    "buffers": lambda net, model: list(net.buffers()), "state_dict": lambda net, model: net.state_dict(),
    "forward": lambda net, model: net(torch.ones(1, 3)), "to": lambda net, model: net.to(torch.float32),
    "data": lambda net, model: net.fc.weight.data, "shape": lambda net, model: net.fc.weight.shape,
    "equal": lambda net, model: torch.equal(net.fc.weight, net.fc.weight),
    "load": lambda net, model: net.load_state_dict({}, strict=False),
    "executor": lambda net, model: model.state_dict(), "host": lambda net, model: model.copyWeightsToHost(),
    "if_needed": lambda net, model: net.copyWeightsToHostIfNeeded(),
    "detach": lambda net, model: model.detachFromDevice(), "destroy": lambda net, model: model.destroy(),
}


@pytest.fixture(scope="module")
def trained():
    """A compiled trainer that the reads share; those that end it make their own."""
    return training()


@pytest.mark.parametrize("name", READS)
def test_reads_fetch(trained, name):
    net, model = training() if name in ("detach", "destroy") else trained
    step(model)
    assert model._stale
    READS[name](net, model)
    assert not model._stale


@pytest.mark.parametrize("use", [lambda net, model: step(model), lambda net, model: net.fc.in_features,
                                 lambda net, model: net.training, lambda net, model: model.options])
def test_other_uses_do_not(trained, use):
    net, model = trained
    step(model)
    use(net, model)
    assert model._stale


def test_versions_and_flags():
    net, model = training()
    step(model)
    assert model.copyWeightsToHostIfNeeded() is True and model.copyWeightsToHostIfNeeded() is False
    assert net.copyWeightsToHostIfNeeded() is False
    model.copyWeightsToHost()    # always
    step(model)
    assert net.copyWeightsToHostIfNeeded() is True


def test_a_save_fetches(tmp_path):
    net, model = training()
    before = net.fc.weight.detach().clone()
    step(model)
    model.save(str(tmp_path / "m"))
    assert not model._stale and not torch.equal(net.fc.weight, before)


def test_saved_state_dicts_are_plain():
    net = Tied()
    _, model = training(net, optimizer=torch.optim.SGD(net.parameters(), lr=1e-3))
    model(torch.randn(2, 3), torch.randn(2, 3))
    state = net.state_dict()
    assert all(type(t) in (torch.Tensor, nn.Parameter) for t in state.values())
    assert state["a.weight"].data_ptr() == state["b.weight"].data_ptr()    # tied entries stay tied
    Tied().load_state_dict(state)


# --- what uploads ---------------------------------------------------------------------------------

def test_uploads_overwrite_the_device():
    net, model = training()
    before = copy.deepcopy(net.state_dict())
    step(model)
    model.copyWeightsToDevice()    # nothing was fetched: the host still has the old ones
    assert not model._stale
    assert torch.equal(net.fc.weight, before["fc.weight"])
    model.copyWeightsToHost()
    assert torch.equal(net.fc.weight, before["fc.weight"])


def test_load_state_dict_of_the_executor_uploads():
    net, model = training(optimizer=None)
    step(model)
    state = {k: torch.ones_like(v) for k, v in net.state_dict().items()}
    result = model.load_state_dict(state)
    assert result.missing_keys == [] and result.unexpected_keys == []
    model.copyWeightsToHost()
    assert torch.equal(net.fc.weight, state["fc.weight"])
    with pytest.raises(RuntimeError):
        model.load_state_dict({"fc.weight": state["fc.weight"]})
    assert model.load_state_dict({"fc.weight": state["fc.weight"]}, strict=False).missing_keys == ["fc.bias"]
    net.load_state_dict({k: v * 5 for k, v in state.items()})    # the module alone: no upload
    model.copyWeightsToHost()
    assert torch.equal(net.fc.weight, state["fc.weight"])


def test_a_new_attachment_uploads():
    net = Small()
    model = inference(net)
    x = torch.randn(4, 3)
    model(x)
    with torch.no_grad():
        net.fc.weight.mul_(2)
    model.detachFromDevice()
    torch.testing.assert_close(model(x), net(x).detach())


def test_inference_fetches_nothing_by_itself():
    net = Counting()
    model = inference(net)
    for _ in range(3):
        model(torch.zeros(1))
    assert net.n.item() == 0
    model.copyWeightsToHost()
    assert net.n.item() == 3


def test_named_buffers():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("a", torch.ones(2))
            self.register_buffer("b", torch.ones(2))

        def forward(self, x):
            return x * self.a + self.b
    net = Net()
    model = inference(net, options().updatableNamedBuffers(["a"]))
    x = torch.ones(2)
    model(x)
    net.a.fill_(10)
    net.b.fill_(100)
    model.copyNamedBuffersToDevice()
    assert model(x).tolist() == [11, 11]    # a alone
    model = inference(net)
    model(x)
    with pytest.raises(poptorch.Error, match="updatableNamedBuffers"):
        model.copyNamedBuffersToDevice()
    with pytest.raises(poptorch.Error, match="missing"):
        inference(net, options().updatableNamedBuffers(["missing"]))(x)


# --- who follows whom -----------------------------------------------------------------------------

def test_inference_follows_a_trainer_of_any_part():
    net = Small()

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, x, t):
            return self.net(x, t)[1]
    _, model = training(Outer())
    inner = inference(net)
    x = torch.randn(4, 3)
    for _ in range(3):
        model(torch.randn(4, 3), torch.randn(4, 2))
        torch.testing.assert_close(inner(x), net(x).detach())
    model.detachFromDevice()
    torch.testing.assert_close(inner(x), net(x).detach())


def test_weights_outlive_their_executor():
    net, model = training()
    before = net.fc.weight.detach().clone()
    step(model)
    del model
    assert not torch.equal(net.fc.weight, before)


def leave_by_count(model, net):
    del model


def leave_by_collector(model, net):
    net.own = [model]    # a cycle: weak references are cut before the executor hears of it
    model.mine = net.own


def leave_by_destroying(model, net):
    model.destroy()


def leave_by_detaching(model, net):
    model.detachFromDevice()


LEAVING = [leave_by_count, leave_by_collector, leave_by_destroying, leave_by_detaching]


@pytest.mark.parametrize("leave", LEAVING)
def test_the_optimizer_keeps_what_a_leaving_executor_has(leave):
    """Its state is on the host, and a new executor goes on where the old one was."""
    torch.manual_seed(0)
    data = [(torch.randn(4, 3), torch.randn(4, 2)) for _ in range(4)]

    def run(parted):
        torch.manual_seed(1)
        net = Small()
        optimizer = poptorch.optim.Adam(net.parameters(), lr=0.1)
        models = [poptorch.trainingModel(net, options(), optimizer)]
        losses = [models[0](*d)[1].item() for d in data[:2]]
        if parted:
            model = models.pop()
            leave(model, net)
            del model
            net.__dict__.pop("own", None)
            gc.collect()
            assert optimizer.ipu_state["Step___fc.weight"].item() == 2
            assert optimizer.state_dict()["ipu_state"]["Accl1___fc.weight"].abs().sum() > 0
            models.append(poptorch.trainingModel(net, options(), optimizer))
        losses += [models[0](*d)[1].item() for d in data[2:]]
        return losses, optimizer.state_dict()["ipu_state"]
    (wanted, state), (got, parted) = run(False), run(True)
    assert got == wanted and all(torch.equal(state[k], parted[k]) for k in state)


def test_a_destroyed_model_that_runs_again_is_connected_again():
    net = Small()
    optimizer = poptorch.optim.Adam(net.parameters(), lr=0.1)
    model = poptorch.trainingModel(net, options(), optimizer)
    step(model)
    model.destroy()
    step(model)
    assert optimizer.state_dict()["ipu_state"]["Step___fc.weight"].item() == 2


def test_executors_that_live_until_the_interpreter_ends():
    """Whoever goes first, modules, optimizer or executor: nothing is said and nothing crashes."""
    script = """
import torch, poptorch
from poptorch_helpers import Small, options, step
def make():
    net = Small()
    model = poptorch.trainingModel(net, options(), poptorch.optim.Adam(net.parameters(), lr=0.1))
    step(model)
    return net, model
net, model = make()
cycle = list(make())
cycle[0].own = cycle
torch.kept = make()
poptorch.kept = make()
"""
    paths = [str(Path(poptorch.__file__).parents[1]), str(Path(__file__).parent)]
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)})
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_tied_unused_and_integer_states():
    net = Tied()
    unused = copy.deepcopy(net.unused.state_dict())
    _, model = training(net, optimizer=torch.optim.SGD(net.parameters(), lr=1e-3))
    for _ in range(2):
        model(torch.randn(2, 3), torch.randn(2, 3))
    assert "unused.weight" not in model.getTensorNames() and "b.weight" not in model.getTensorNames()
    assert net.a.weight is net.b.weight and net.count.item() == 7
    assert all(torch.equal(v, unused[k]) for k, v in net.unused.state_dict().items())


class Whole(nn.Module):
    """Buffers and a parameter of whole numbers."""

    def __init__(self):
        super().__init__()
        self.register_buffer("n", torch.tensor([3]))
        self.register_buffer("mask", torch.tensor([True, False]))
        self.w = nn.Parameter(torch.tensor([2, 5]), requires_grad=False)

    def forward(self, x):
        self.n.add_(1)
        return torch.where(self.mask, x * self.n, x * self.w)


def test_whole_numbers_are_constants(log):
    net = Whole()
    model = inference(net)
    for _ in range(2):
        assert model(torch.ones(2)).tolist() == [4, 5]    # each run begins with 3
    assert "forward() writes to n, which holds whole numbers" in log()
    model.copyWeightsToHost()
    assert net.n.item() == 3 and not {"n", "mask", "w"} & set(model.getTensorNames())
    with torch.no_grad():
        net.n.fill_(10)
        net.w.fill_(7)
    model.copyWeightsToDevice()
    assert model(torch.ones(2)).tolist() == [4, 5]
    model = inference(net, options().updatableNamedBuffers(["n"]))    # asked for, so it is none
    assert [model(torch.ones(2)).tolist() for _ in range(2)] == [[11, 7], [12, 7]] and not log().count("writes to")
    net.n.fill_(20)
    model.copyNamedBuffersToDevice()
    assert model(torch.ones(2)).tolist() == [21, 7]


def test_batch_norm_does_not_count(log):
    net = nn.BatchNorm1d(2)
    model = inference(net)
    model(torch.randn(4, 2))
    model.copyWeightsToHost()
    assert net.num_batches_tracked.item() == 0 and net.running_mean.abs().sum() > 0 and "writes to" not in log()


@pytest.mark.parametrize("rebind", [lambda m: setattr(m, "n", m.n + 1), lambda m: delattr(m, "n")])
def test_rebound_buffers(rebind):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("n", torch.zeros(1))

        def forward(self, x):
            rebind(self)
            return x
    with pytest.raises(poptorch.Error, match=r"n is reassigned within the model.*self\.n\.copy_"):
        inference(Net())(torch.ones(1))
