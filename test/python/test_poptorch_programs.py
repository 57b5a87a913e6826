"""What published programs do that is a little off the manual's path: it works as with PopTorch."""

import copy
import pickle

import pytest
import torch
import torch.nn as nn

import popdist.poptorch
import poptorch
from poptorch_helpers import Small, inference, nothing_cached, options, refused, step, training    # noqa: F401

HOST = torch.arange(4.0)


def test_blocks_with_numbers_for_names():
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    poptorch.BeginBlock(net[0], user_id=0, ipu_id=0)
    poptorch.BeginBlock(net[1], user_id=1, ipu_id=1)
    opts = options().deviceIterations(2).setExecutionStrategy(poptorch.PipelinedExecution(
        poptorch.Stage("0"), poptorch.Stage("1")))
    x = torch.randn(4, 3)
    model = inference(net, opts)
    torch.testing.assert_close(model(x), net(x).detach())
    assert model._program.ipus == 2 and "BeginBlock(user_id=1, ipu_id=1)" in repr(model)


def test_checkpoints_of_tuples():
    def net(x):
        (a, b), [c] = poptorch.recomputationCheckpoint((x.tanh(), x.exp()), [x])
        d, e = poptorch.recomputationCheckpoint((a + b, c))
        return d + e
    x = torch.randn(3)
    torch.testing.assert_close(inference(net)(x), x.tanh() + x.exp() + x)
    with pytest.raises(ValueError, match="got int"):
        poptorch.recomputationCheckpoint((x, 1))


class Shifted(nn.Module):
    def forward(self, x, by=torch.full((2,), 3.0)):
        by += 1
        return x + by


def test_a_tensor_as_default_argument():
    assert inference(Shifted(), options().deviceIterations(2))(torch.ones(4)).tolist() == [5] * 4
    model = inference(Shifted())
    assert [model(torch.ones(2)).tolist() for _ in range(2)] == [[5, 5]] * 2    # the default itself is as it was
    assert inference(Shifted())(torch.ones(2), torch.zeros(2)).tolist() == [2, 2]


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
def test_training_in_a_mode_without_gradients(mode):
    net, other = Small(), Small()
    other.load_state_dict(net.state_dict())
    x, t = torch.randn(4, 3), torch.randn(4, 2)
    _, plain = training(net)
    _, model = training(other)
    plain(x, t)
    with mode():
        model(x, t)
    torch.testing.assert_close(other.fc.weight, net.fc.weight, rtol=0, atol=0)
    assert not other.fc.weight.is_inference()


def test_tensors_of_inference_mode_as_arguments():
    with torch.inference_mode():
        x, t = torch.randn(4, 3), torch.randn(4, 2)
    net, model = training()
    before = net.fc.weight.detach().clone()
    model(x, t)
    assert not torch.equal(net.fc.weight, before)


def test_forward_in_inference_mode():
    class Net(nn.Module):
        @torch.inference_mode()
        def forward(self, x):
            y = x.tanh()
            y[0] = 1
            return y.view(2, 2)
    x = torch.randn(4)
    assert torch.equal(inference(Net())(x)[0, :1], torch.ones(1))
    with torch.inference_mode():
        torch.testing.assert_close(inference(Net())(x).flatten()[1:], x[1:].tanh())


@pytest.mark.parametrize("make", [options, popdist.poptorch.Options])
def test_copies_of_options_can_be_changed(make):
    opts = make().deviceIterations(2).setExecutionStrategy(poptorch.ShardedExecution())
    opts.Training.gradientAccumulation(3)
    inference(lambda x: x + 1, options())
    opts._freeze()
    other = copy.deepcopy(opts)
    other.deviceIterations(4).Training.gradientAccumulation(5)
    other._Popart.set("outlineThreshold", 1.0)
    assert (opts.device_iterations, opts.Training.gradient_accumulation) == (2, 3) and type(other) is type(opts)
    assert "outlineThreshold" not in opts._Popart.options
    with pytest.raises(AttributeError, match="frozen"):
        opts.deviceIterations(1)
    with pytest.raises(AttributeError, match="frozen"):
        pickle.loads(pickle.dumps(opts)).deviceIterations(1)


def test_precision_of_a_copy_is_its_own():
    """Groups that write to _Popart write to that of the copy."""
    opts = options()
    other = copy.deepcopy(opts)
    other.Precision.enableStochasticRounding(True)
    assert "enableStochasticRounding" in other._Popart.options and "enableStochasticRounding" not in opts._Popart.options


def test_the_state_of_an_optimizer_that_was_only_compiled():
    net = Small()
    optimizer = poptorch.optim.AdamW(net.parameters(), lr=0.1)
    assert optimizer.state_dict()["ipu_state"] is None
    _, model = training(net, optimizer=optimizer)
    model.compile(torch.randn(4, 3), torch.randn(4, 2))
    state = optimizer.state_dict()
    assert state["ipu_state"]["Accl1___fc.weight"].shape == (2, 3) and not state["ipu_state"]["Accl1___fc.weight"].any()
    assert "learningRate___specific___fc.weight" in state["ipu_param"]
    optimizer.load_state_dict(state)
    step(model)
    assert optimizer.state_dict()["ipu_state"]["Accl1___fc.weight"].any()


def test_accumulators_of_half_precision_hold_a_running_mean():
    strategy = "meanAccumulationAndReplicationReductionStrategy"
    opts = options()
    opts.Training.gradientAccumulation(4)
    net = Small()
    half = poptorch.optim.SGD(net.parameters(), lr=0.1, accum_type=torch.float16)
    _, model = training(net, opts, half)
    assert getattr(model.options.Training, strategy) == poptorch.MeanReductionStrategy.Running
    assert getattr(opts.Training, strategy) == poptorch.MeanReductionStrategy.Post
    x, t = torch.randn(8, 3), torch.full((8, 2), 3e4)    # the sum of these gradients is beyond half precision
    model(x, t)
    assert torch.isfinite(net.fc.weight).all()
    combined = poptorch.optim.SGD(net.parameters(), lr=0.1, accum_type=torch.float16, use_combined_accum=True)
    assert getattr(training(Small(), opts, combined)[1].options.Training, strategy) == poptorch.MeanReductionStrategy.Post


def test_the_state_of_running_means_in_a_pipeline():
    """Each stage counts its micro-batches, which is no business of the optimizer's."""
    class Net(Small):
        def forward(self, x, t):
            with poptorch.Block("first", ipu_id=0):
                y = self.fc(x)
            with poptorch.Block("second", ipu_id=1):
                return nn.functional.mse_loss(y.tanh(), t)
    opts, net = options(), Net()
    opts.Training.gradientAccumulation(4)
    optimizer = poptorch.optim.Adam(net.parameters(), lr=0.1, accum_type=torch.float16)
    _, model = training(net, opts, optimizer)
    for _ in range(2):
        step(model)
        state = optimizer.state_dict()
        assert sorted(state["ipu_state"]) == sorted(
            f"{kind}___fc.{name}" for kind in ("Accum", "Accl1", "Accl2", "Step") for name in ("weight", "bias"))
        optimizer.load_state_dict(state)


def test_names_inside_of_the_executor():
    net, model = training()
    assert model._executable is None and model._executable_inputs is None and not model._is_attached
    step(model)
    assert model._executable is not None and model._is_attached and model._dirty_host_weights
    assert model._dict_optimizer["kind"] == "SGD"
    model.detachFromDevice()
    assert not model._is_attached


MOVES = {
    "to a device": lambda x: HOST.to(x.device), "to a tensor": lambda x: HOST.to(x), "type_as": lambda x: HOST.type_as(x),
    "to a device by name": lambda x: HOST.to("ipu"), "keyword": lambda x: HOST.to(device=x.device, dtype=x.dtype),
    "as_tensor": lambda x: torch.as_tensor(HOST, device=x.device), "made there": lambda x: torch.arange(4.0, device=x.device),
    "tensor": lambda x: torch.tensor([0.0, 1.0, 2.0, 3.0], device="ipu"), "new_tensor": lambda x: HOST.new_tensor(HOST),
    "from numpy": lambda x: torch.from_numpy(HOST.numpy()).to(x.device), "computed": lambda x: (HOST * 2).to(x.device) / 2,
    "new_zeros": lambda x: HOST.new_zeros(4) + torch.arange(4.0), "new_full": lambda x: HOST.new_full((4,), 1).cumsum(0) - 1,
    "full_like": lambda x: torch.full_like(HOST, 1).cumsum(0) - 1, "zeros_like": lambda x: torch.zeros_like(HOST) + x.new_tensor(
        [0.0, 1, 2, 3]),
}


@pytest.mark.parametrize("how", MOVES)
def test_a_constant_goes_to_the_device(how):
    assert inference(lambda x: x + MOVES[how](x))(torch.ones(4)).tolist() == [1, 2, 3, 4]


def test_what_is_written_to_a_moved_constant_stays_there():
    def net(x):
        there = HOST.to(x.device)
        there += x
        return there
    assert inference(net)(torch.ones(4)).tolist() == [1, 2, 3, 4] and HOST.tolist() == [0, 1, 2, 3]


def test_what_was_not_moved_is_refused():
    refused(lambda x: x + HOST, "Expected an IPU tensor")
    refused(lambda x: x + HOST.to(torch.float64).float(), "Expected an IPU tensor")


def test_the_small_model_runs_what_the_large_one_does(monkeypatch):
    monkeypatch.setenv("POPTORCH_SMALL_IPU_MODEL", "1")
    net = nn.Sequential(nn.Linear(500, 2000), nn.Linear(2000, 500))    # 8 MB
    x = torch.randn(2, 500)
    torch.testing.assert_close(inference(net)(x), net(x).detach(), rtol=1e-4, atol=1e-4)
