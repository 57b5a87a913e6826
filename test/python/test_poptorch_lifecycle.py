"""The life of an executor: construction, wrapping, compiling, attaching, times, anchors, files."""

import copy
import datetime
import faulthandler
import os
import pickle
import sys

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import poptorch
from poptorch_helpers import (MODES, Counting, Lambda, Small, inference, log, nothing_cached, options,  # noqa: F401
                              step, training)

NOT_COMPILED = "Model has not been compiled or has been destroyed"


NAMES = """trainingModel inferenceModel PoplarExecutor load registerPreCompileHook registerPostCompileHook Options
TensorLocationSettings Attribute ConfigFileError DataLoader AsynchronousDataAccessor ICustomArgParser
registerCustomArgParser Block BeginBlock BlockFunction removeBlocks Stage Phase PipelinedExecution ShardedExecution
ParallelPhasedExecution SerialPhasedExecution AutoStage Liveness identity_loss ipu_print_tensor nop for_loop cond CPU
custom_op MultiConv NameScope serializedMatMul set_available_memory set_overlap_for_input set_overlap_for_output
recomputationCheckpoint dynamic_slice dynamic_update ctc_beam_search_decoder fps nearest isRunningOnIpu
ipuHardwareIsAvailable ipuHardwareVersion setLogLevel module_repr print OutputMode ConnectionType ReductionType
MeanReductionStrategy SyncPattern DataLoaderMode SharingStrategy HalfFloatCastingBehavior MultiConvPlanType CommGroupType
VariableRetrievalMode MatMulSerializationMode OverlapMode AnchorMode Error RecoverableError UnrecoverableError
createPoptorchError optim profiling options enums autocast autocasting __version__"""


@pytest.mark.parametrize("name", NAMES.split())
def test_public_names(name):
    assert hasattr(poptorch, name)


def test_the_import():
    assert os.environ["RDMAV_FORK_SAFE"] and faulthandler.is_enabled()
    assert sys.excepthook.__module__ == "poptorch._logging"
    assert poptorch.options.ConfigFileError is poptorch.ConfigFileError
    assert not hasattr(poptorch, "addBlock")


# --- construction ---------------------------------------------------------------------------------

def test_constructors():
    net = Small()
    calls = []
    net.register_forward_pre_hook(lambda *a: calls.append(1))
    opts = options()
    model = poptorch.inferenceModel(net, opts)
    assert not calls and not model.isCompiled() and not model.isAttachedToDevice()
    assert poptorch.inferenceModel(model).model is net    # an executor stands for its module
    assert model.options is not opts and model.options.output_mode == MODES.All and opts.defaultOutputMode()
    with pytest.raises(AttributeError, match="Can't modify frozen Options"):
        opts.deviceIterations(2)
    with pytest.raises(AttributeError, match="Can't modify frozen Options"):
        model.options.deviceIterations(2)
    trainer = poptorch.trainingModel(net, opts)    # frozen options will do
    assert trainer.options.output_mode == MODES.Final
    for wrong in ({}, 3, "opts"):
        with pytest.raises(poptorch.Error, match=type(wrong).__name__):
            poptorch.inferenceModel(Small(), wrong)


def test_a_function_is_a_model():
    def forward(x, y=2):
        return x * y
    assert poptorch.inferenceModel(forward, options())(torch.ones(2)).tolist() == [2, 2]


def test_the_default_optimizer_is_sgd():
    net = Small()
    reference = copy.deepcopy(net)
    x, t = torch.randn(4, 3), torch.randn(4, 2)
    poptorch.trainingModel(net, options())(x, t)
    reference(x, t)[1].backward()
    torch.optim.SGD(reference.parameters(), lr=0.01).step()
    torch.testing.assert_close(net.fc.weight.detach(), reference.fc.weight.detach())


def test_accumulation_is_for_training():
    opts = options()
    opts.Training.gradientAccumulation(2)
    with pytest.raises(poptorch.Error, match="gradientAccumulation to 1.*deviceIterations"):
        poptorch.inferenceModel(Small(), opts)


# --- wrapping -------------------------------------------------------------------------------------

def test_wrapping_for_training():
    net, model = training()
    assert type(net).__name__ == "PoptorchSmall" and isinstance(net, Small)
    assert type(net.fc.weight).__name__ == "PoptorchParameter" and isinstance(net.fc.weight, nn.Parameter)
    step(model)
    net.destroy()
    assert type(net) is Small
    step(poptorch.trainingModel(net, options()))


@pytest.mark.parametrize("compiled", [True, False])
def test_wrapping_again_replaces_the_executor(compiled, log):
    """As when a notebook's cell is run again: what was trained stays."""
    net, first = training()
    before = net.fc.weight.detach().clone()
    if compiled:
        step(first)
    _, second = training(net)
    assert "that executor is destroyed" in log()
    assert torch.equal(net.fc.weight, before) != compiled
    now = net.fc.weight.detach().clone()
    step(second)
    assert not torch.equal(net.fc.weight, now)
    with pytest.raises(poptorch.Error, match="wrapped in .* again: use what that call returned"):
        step(first)
    net.destroy()
    assert type(net) is Small


def test_a_wrapper_that_is_gone_does_not_count():
    net, model = training()
    del model
    step(poptorch.trainingModel(net, options()))
    assert type(net).__name__ == "PoptorchSmall"


def test_wrapping_for_inference_changes_no_class():
    net = Counting()
    step_ = poptorch.inferenceModel(net, options())
    step_(torch.ones(1))
    assert type(net) is Counting and type(net.n) is torch.Tensor


def test_a_buffer_must_be_a_plain_tensor():
    class Odd(torch.Tensor):
        pass
    net = Small()
    net.register_buffer("odd", torch.ones(2).as_subclass(Odd))
    with pytest.raises(poptorch.Error, match="Odd"):
        poptorch.trainingModel(net, options())


def test_flags_until_compilation():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.child = Lambda(lambda x: x)

        def forward(self, x):
            return x + (1 if self.training else 0) + (10 if self.child.training else 0)
    net = Net().train()
    model = poptorch.inferenceModel(net, options())
    net.eval()    # of the original the top level's flag would still be set
    assert model(torch.zeros(1)).item() == 0
    net.train()
    assert model(torch.zeros(1)).item() == 0    # compiled
    model = poptorch.inferenceModel(net, options())
    assert model.eval() is model and not net.training
    assert model(torch.zeros(1)).item() == 0


def test_changes_before_compilation():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.scale = nn.Linear(2, 2), 1

        def forward(self, x):
            return self.fc(x) * self.scale
    net = Net()
    model = poptorch.inferenceModel(net, options())
    net.fc = nn.Linear(2, 3)    # lands in the shared dictionary
    net.scale = 100             # does not
    x = torch.randn(4, 2)
    torch.testing.assert_close(model(x), net.fc(x).detach())


def test_forwarding():
    net, model = training()
    assert model.model is net and model.fc is net.fc and model.training is net.training
    assert [n for n, _ in model.named_parameters()] == ["fc.weight", "fc.bias"]
    assert list(model.state_dict()) == ["fc.weight", "fc.bias"]
    with pytest.raises(AttributeError):
        model.missing
    poptorch.BeginBlock(net.fc, "b", ipu_id=0)
    assert "(fc): BeginBlock(user_id=b, ipu_id=0) Linear" in repr(model)
    assert model.to(torch.float32) is model and model.half() is model and net.fc.weight.dtype == torch.float16
    assert model.float() is model and net.fc.weight.dtype == torch.float32


def test_copies_of_a_wrapped_module():
    net, model = training()
    step(model)
    linked = copy.copy(net)
    assert type(linked) is type(net) and linked.fc is net.fc
    follows = poptorch.inferenceModel(linked, options())
    x = torch.randn(4, 3)
    for _ in range(2):
        step(model)
        torch.testing.assert_close(follows(x), net(x).detach())
    assert type(pickle.loads(pickle.dumps(net))) is Small


# --- compiling ------------------------------------------------------------------------------------

def test_compile(log):
    calls = []
    model = inference(lambda x: calls.append(poptorch.isRunningOnIpu()) or x + 1)
    assert model.compile(torch.ones(2)) is None and model.isCompiled() and model.isAttachedToDevice()
    log()
    model.compile(torch.ones(5))
    assert "[warning] Call to compile() ignored" in log()
    assert model(torch.ones(2)).tolist() == [2, 2] and calls == [True]


def test_needs_a_compiled_model():
    model = inference(Small())
    for use in (model.copyWeightsToHost, model.copyWeightsToDevice, model.detachFromDevice, model.attachToDevice,
                model.cycleCount, model.compilationTime, model.copyNamedBuffersToDevice, lambda: model.rng_state,
                lambda: setattr(model, "rng_state", [1, 2]), lambda: model.save("nowhere")):
        with pytest.raises(poptorch.Error, match=NOT_COMPILED):
            use()
    with pytest.raises(AssertionError):
        model.getTensorNames()
    assert model.getPerfCounters() == {k: [[]] for k in ("input", "input_complete", "output", "output_complete")}
    assert model.destroy() is None
    model(torch.ones(4, 3))
    model.destroy()
    assert not model.isCompiled() and not model.isAttachedToDevice()
    with pytest.raises(poptorch.Error, match=NOT_COMPILED):
        model.copyWeightsToHost()


def test_destroy_before_compilation_leaves_the_wrapper():
    net, model = training()
    model.destroy()
    assert type(net).__name__ == "PoptorchSmall"
    step(model)    # and it still runs


def test_a_destroyed_model_compiles_again():
    model = inference(Small())
    assert model(torch.ones(4, 3)).shape == (4, 2)
    model.destroy()
    assert model(torch.ones(7, 3)).shape == (7, 2)    # for other shapes


def test_hooks():
    calls = []
    handles = [poptorch.registerPreCompileHook(lambda: calls.append("pre1")),
               poptorch.registerPreCompileHook(lambda: calls.append("pre2")),
               poptorch.registerPostCompileHook(lambda: calls.append("post"))]

    def fails(x):
        calls.append("forward")
        raise ValueError("mine")
    try:
        inference(lambda x: calls.append("forward") or x)(torch.ones(1))
        with pytest.raises(ValueError, match="mine"):
            inference(fails)(torch.ones(1))
    finally:
        for h in handles:
            h.remove()
    inference(lambda x: x)(torch.ones(1))
    assert calls == ["pre1", "pre2", "forward", "post"] * 2
    for register in (poptorch.registerPreCompileHook, poptorch.registerPostCompileHook):
        with pytest.raises(RuntimeError):
            register(3)


def test_a_failed_trace_leaves_no_trace():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.bn = nn.BatchNorm1d(3)
            self.fail = True

        def forward(self, x):
            y = self.bn(x)
            self.bn.weight = None if self.fail else self.bn.weight
            if self.fail:
                raise ValueError("mine")
            return poptorch.identity_loss(y.sum(), "sum")
    net = Net()
    before = copy.deepcopy(net.state_dict())
    _, model = training(net)
    with pytest.raises(ValueError, match="mine"):
        model(torch.randn(4, 3))
    assert type(net.bn.weight).__name__ == "PoptorchParameter" and not poptorch.isRunningOnIpu()
    for k, v in net.state_dict().items():
        assert torch.equal(v, before[k])
    assert not model.isCompiled()


def test_connection_types():
    for kind in (poptorch.ConnectionType.Always, poptorch.ConnectionType.OnDemand):
        model = inference(lambda x: x + 1, options().connectionType(kind))
        assert model(torch.ones(1)).item() == 2
    model = inference(lambda x: x + 1, options().connectionType(poptorch.ConnectionType.Never))
    model.compile(torch.ones(1))
    assert model.isCompiled() and not model.isAttachedToDevice()
    with pytest.raises(AssertionError):
        model(torch.ones(1))
    with pytest.raises(AssertionError):
        model.attachToDevice()
    with pytest.raises(poptorch.Error, match="Device is not attached"):
        model.detachFromDevice()


def test_detached_models_attach_when_called():
    model = inference(Counting())
    assert [model(torch.zeros(1)).item() for _ in range(2)] == [1, 2]
    model.detachFromDevice()
    assert model.isCompiled() and not model.isAttachedToDevice()
    assert model(torch.zeros(1)).item() == 1 and model.isAttachedToDevice()    # the host's buffer was uploaded
    model.detachFromDevice()
    model.attachToDevice()
    with pytest.raises(poptorch.Error, match="Device is already attached"):
        model.attachToDevice()


def test_random_state_survives_detaching():
    def forward(x):
        return torch.rand(x.shape, device=x.device) + 0 * x
    x = torch.zeros(8)
    model, twin = (inference(forward, options().randomSeed(5)) for _ in range(2))
    first = model(x)
    assert torch.equal(first, twin(x)) and model.rng_state[0] == 5
    model.detachFromDevice()
    state = model.rng_state
    assert all(isinstance(n, int) for n in state)
    assert torch.equal(model(x), twin(x))
    model.rng_state = state
    again = model(x)
    model.rng_state = state
    assert torch.equal(model(x), again)
    other = inference(forward, options().randomSeed(6))
    assert not torch.equal(other(x), first)


# --- synthetic data -------------------------------------------------------------------------------

def synthetic(mode=None, rate=0.5):
    """(how much a call changed the weights, its results, the executor); the data of the call cannot be trained on."""
    torch.manual_seed(0)
    opts = options().deviceIterations(2).outputMode(MODES.All)
    if mode is None:
        opts.enableSyntheticData(True)
    else:
        opts._Popart.set("syntheticDataMode", mode)
    net = Small()
    before = net.fc.weight.detach().clone()
    _, model = training(net, opts, torch.optim.SGD(net.parameters(), lr=rate))
    out = model(torch.full((8, 3), float("nan")), torch.zeros(8, 2))
    return net.fc.weight.detach() - before, out, model


def test_synthetic_data():
    change, (y, loss), model = synthetic()
    assert torch.isfinite(change).all() and change.abs().max() > 0    # the host's data was not read
    assert y.shape == (8, 2) and loss.shape == (2,) and not y.any() and not loss.any()    # and none came back
    assert model.getLatency() == model.getComputeLatency() == (0.0, 0.0, 0.0)
    assert torch.equal(synthetic(2)[0], change)    # mode 2 is what enableSyntheticData chooses
    assert not synthetic(1)[0].any()    # zeros: only the bias has a gradient
    uniform = synthetic(3)[0]
    assert uniform.any() and not torch.equal(uniform, change)
    with pytest.raises(poptorch.Error, match="Shape mismatch"):    # arguments are checked all the same
        model(torch.zeros(8, 4), torch.zeros(8, 2))
    with pytest.raises(poptorch.Error, match="syntheticDataMode is 0, 1, 2 or 3"):
        synthetic(4)
    assert torch.isnan(synthetic(0)[0]).all()


def test_synthetic_classes_are_in_range():
    def forward(x, t):
        x.add_(1)
        return F.embedding(t, x)
    x = torch.ones(4, 2)
    out = inference(forward, options().enableSyntheticData(True))(x, torch.full((1000,), 3))
    assert not out.any() and x.tolist() == [[1, 1]] * 4    # nor is an input written back


# --- times ----------------------------------------------------------------------------------------

def test_perf_counters():
    opts = options().deviceIterations(3)
    opts.Training.gradientAccumulation(2)
    _, model = training(opts=opts)
    for _ in range(2):
        step(model, 6 * 4)
    c = model.getPerfCounters()
    assert [len(c[k]) for k in ("input", "input_complete", "output", "output_complete")] == [2, 2, 2, 2]
    assert all(len(t) == 6 for t in c["input"] + c["input_complete"])    # D * A
    assert all(len(t) == 1 for t in c["output"] + c["output_complete"])    # Final
    taken = c["input_complete"][0]
    assert taken == sorted(taken) and len(set(taken)) == 6    # each its own
    assert c["input"][0][0] < taken[0] and taken[-1] < c["output"][0][0] < c["output_complete"][0][0]
    for least, most, mean in (model.getHostIpuLatency(), model.getComputeLatency(), model.getIpuHostLatency(),
                              model.getLatency()):
        assert 0 <= least <= mean <= most
    assert model.getLatency()[0] > model.getComputeLatency()[0] > 0
    before = model.getPerfCounters()
    model.detachFromDevice()
    assert model.getPerfCounters() == before


@pytest.mark.parametrize("mode, n, slots", [(MODES.All, None, 4), (MODES.EveryN, 2, 2), (MODES.Sum, None, 1)])
def test_perf_counters_of_modes(mode, n, slots):
    model = inference(lambda x, y: (x + y, x - y, {"a": x}), options().deviceIterations(4).outputMode(mode, n))
    model(torch.ones(4), torch.ones(4))
    c = model.getPerfCounters()
    assert [len(t) for t in c["input"]] == [4, 4] and [len(t) for t in c["output"]] == [slots] * 3
    assert len(set(c["output"][0])) == slots


def test_latency_without_outputs():
    model = inference(lambda x: None)
    model(torch.ones(1))
    assert model.getLatency() == model.getComputeLatency() == (0.0, 0.0, 0.0)


def test_cycles():
    model = inference(lambda x: x + 1, options().logCycleCount(True))
    model.compile(torch.ones(1))
    with pytest.raises(poptorch.Error, match="has run"):
        model.cycleCount()
    model(torch.ones(1))
    assert isinstance(model.cycleCount(), int) and model.cycleCount() > 0
    model = inference(lambda x: x + 1)
    model(torch.ones(1))
    with pytest.raises(poptorch.Error, match="logCycleCount"):
        model.cycleCount()


def test_compilation_time():
    model = inference(lambda x: x + 1, poptorch.Options())
    model(torch.ones(1))
    assert isinstance(model.compilationTime(), datetime.timedelta) and model.compilationTime().total_seconds() > 0
    model = inference(lambda x: x + 1)
    model(torch.ones(1))
    with pytest.raises(poptorch.Error, match="progress bar"):
        model.compilationTime()


# --- tensors by name ------------------------------------------------------------------------------

class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x, t):
        y = self.b(torch.relu(self.a(x)))
        return y, F.mse_loss(y, t)


def test_names():
    net = Deep()
    _, model = training(net, optimizer=poptorch.optim.Adam(net.parameters(), lr=0.1))
    step(model)
    names = model.getTensorNames()
    assert len(names) == len(set(names))
    for name in ("a.weight", "Gradient___a.weight", "UpdatedVar___b.bias", "Accl1___a.weight", "Accl2___b.bias",
                 "Step___a.weight", "input", "input/1", "loss", "a/addmm:0", "relu:0"):
        assert name in names, name


def anchored(anchors, opts=None, accumulation=1, seed=0):
    """(net, its copy before training, executor, x, t) after one call."""
    torch.manual_seed(seed)
    opts = opts or options()
    opts.Training.gradientAccumulation(accumulation)
    for short, args in anchors.items():
        opts.anchorTensor(short, *args)
    net = Deep()
    before = copy.deepcopy(net)
    _, model = training(net, opts)
    n = 4 * opts.device_iterations * accumulation * opts.replication_factor
    x, t = torch.randn(n, 3), torch.randn(n, 2)
    model(x, t)
    return net, before, model, x, t


def test_anchors():
    net, before, model, x, t = anchored({"g": ("Gradient___a.weight",), "h": ("relu:0",), "w": ("UpdatedVar___a.bias",),
                                         "v": ("a.bias",), "l": ("loss",), "in": ("input",)})
    before(x, t)[1].backward()
    torch.testing.assert_close(model.getAnchoredTensor("g"), before.a.weight.grad)
    torch.testing.assert_close(model.getAnchoredTensor("h"), torch.relu(before.a(x)).detach())
    torch.testing.assert_close(model.getAnchoredTensor("l"), before(x, t)[1].detach())
    assert torch.equal(model.getAnchoredTensor("w"), net.a.bias) and torch.equal(model.getAnchoredTensor("in"), x)
    assert torch.equal(model.getAnchoredTensor("v"), net.a.bias)
    x = torch.randn(4, 3)
    out = model(x, t)
    assert len(out) == 2 and torch.equal(model.getAnchoredTensor("in"), x)    # of the last call
    with pytest.raises(AssertionError, match="other"):
        model.getAnchoredTensor("other")


def test_anchors_have_their_own_modes():
    anchors = {"final": ("input",), "all": ("input", MODES.All), "sum": ("input", MODES.Sum),
               "every": ("input", MODES.EveryN, 2), "g": ("Gradient___b.bias", MODES.All)}
    _, before, model, x, t = anchored(anchors, options().deviceIterations(4), accumulation=2)
    parts = x.view(4, 2, 4, 3)
    assert torch.equal(model.getAnchoredTensor("final"), parts[-1, -1])
    assert torch.equal(model.getAnchoredTensor("all"), x)
    torch.testing.assert_close(model.getAnchoredTensor("sum"), parts.sum((0, 1)))
    assert torch.equal(model.getAnchoredTensor("every"), parts[1::2].reshape(-1, 3))
    before(x[:4], t[:4])[1].backward()
    gradients = model.getAnchoredTensor("g")
    assert gradients.shape == (16,)    # 8 micro-batches of 2
    torch.testing.assert_close(gradients[:2], before.b.bias.grad)


class Stateful(Deep):
    """Random, and with a buffer that every micro-batch changes."""

    def __init__(self):
        super().__init__()
        self.register_buffer("n", torch.zeros(1))

    def forward(self, x, t):
        self.n.add_(1)
        y = self.b(F.dropout(torch.relu(self.a(x)), 0.5))
        return y, F.mse_loss(y, t)


def stateful(anchors):
    torch.manual_seed(0)
    opts = options().deviceIterations(4).randomSeed(1).outputMode(MODES.All).logCycleCount(True)
    opts.Training.gradientAccumulation(2)
    for short, args in anchors.items():
        opts.anchorTensor(short, *args)
    net = Stateful()
    before = net.a.bias.detach().clone()
    _, model = training(net, opts, poptorch.optim.SGD(net.parameters(), lr=0.1, momentum=0.5))
    out = model(torch.arange(48.0).view(16, 3) / 48, torch.ones(16, 2))
    return net, before, model, out


@pytest.fixture(scope="module")
def followed():
    """A model whose states are anchored in every mode, after a call."""
    names = {"g": "Gradient___a.bias", "u": "UpdatedVar___a.bias", "w": "a.bias", "m": "Accl1___a.bias", "n": "n",
             "s": "Accum___a.bias", "lr": "learningRate___default"}
    anchors = {short + kind: (name, *how) for short, name in names.items() for kind, how in (
        ("", (MODES.All,)), ("_final", (MODES.Final,)), ("_sum", (MODES.Sum,)), ("_every", (MODES.EveryN, 2)))}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TESSERA_CACHE_DIR", "")
        return stateful(anchors)


def test_anchors_of_states_over_time(followed):
    net, before, model, _ = followed
    all_of = {name: model.getAnchoredTensor(name).view(4, 2, -1) for name in ("g", "u", "w", "m", "n", "s")}
    weight, velocity = before, torch.zeros(4)
    for d in range(4):
        g = all_of["g"][d]
        for a, (w, v) in enumerate(((weight, velocity), (weight - 0.1 * (0.5 * velocity + g.mean(0)),
                                                         0.5 * velocity + g.mean(0)))):
            torch.testing.assert_close(all_of["u"][d, a], w)    # an update comes with the last of its micro-batches
            torch.testing.assert_close(all_of["m"][d, a], v)
            torch.testing.assert_close(all_of["s"][d, a], g[:a + 1].sum(0))
            assert all_of["n"][d, a].item() == 2 * d + a + 1    # a buffer changes with each
        weight, velocity = all_of["u"][d, 1], all_of["m"][d, 1]
    assert torch.equal(all_of["w"], all_of["u"]) and torch.equal(all_of["u"][-1, -1], net.a.bias.detach())


def test_anchors_of_states_in_all_modes(followed):
    model = followed[2]
    for name in ("g", "u", "w", "m", "n", "s"):
        every = model.getAnchoredTensor(name).view(4, 2, -1)
        assert torch.equal(model.getAnchoredTensor(f"{name}_final"), every[-1, -1])
        assert torch.equal(model.getAnchoredTensor(f"{name}_every").view(2, 2, -1), every[1::2])
        torch.testing.assert_close(model.getAnchoredTensor(f"{name}_sum"), every.sum((0, 1)))
    assert model.getAnchoredTensor("lr").tolist() == pytest.approx([0.1] * 8)    # a number: one for each
    assert model.getAnchoredTensor("lr_final").item() == pytest.approx(0.1)


def test_anchors_of_states_change_nothing(followed):
    net, _, model, out = followed
    plain, _, other, expected = stateful({})
    assert all(torch.equal(a, b) for a, b in zip(out, expected)) and torch.equal(net.a.bias, plain.a.bias)
    assert model.rng_state == other.rng_state and len(model.getPerfCounters()["input"][0]) == 8
    assert model.cycleCount() > 0 and len(model.getPerfCounters()["output"][0]) == 8
    before = model.getPerfCounters()
    model.detachFromDevice()
    assert model.getPerfCounters() == before


def test_anchors_of_states_of_replicas():
    net, before, model, x, t = anchored({"w": ("a.bias", MODES.All), "f": ("UpdatedVar___a.bias",)},
                                        options().replicationFactor(2).deviceIterations(2))
    w = model.getAnchoredTensor("w").view(2, 2, 4)
    assert torch.equal(w[1, 0], net.a.bias) and torch.equal(w[:, 0], w[:, 1]) and not torch.equal(w[0], w[1])
    assert torch.equal(model.getAnchoredTensor("f"), w[1].flatten())    # one for each replica


def test_anchors_that_are_not_there():
    with pytest.raises(poptorch.Error, match="no tensor Accl9___x"):
        anchored({"a": ("Accl9___x",)})
    with pytest.raises(poptorch.Error, match="no tensor Gradient___missing"):
        anchored({"a": ("Gradient___missing",)})
    with pytest.raises(poptorch.Error, match="no tensor Accum___a.bias"):    # without accumulation there is none
        anchored({"a": ("Accum___a.bias",)})
    opts = options()
    opts.anchorTensor("a", "input")
    model = inference(lambda x: x + 1, opts)
    model.compile(torch.ones(2))
    with pytest.raises(AssertionError, match="before the model has run"):
        model.getAnchoredTensor("a")


# --- files ----------------------------------------------------------------------------------------

def test_save_to_a_folder(tmp_path, log):
    model = inference(Small())
    model.compile(torch.ones(4, 3))
    log()
    model.save(str(tmp_path))
    assert "[warning]" in log() and (tmp_path / "model.poptorch").exists()
    model.save(str(tmp_path / "deep" / "er" / "name.any"))
    assert (tmp_path / "deep" / "er" / "name.any").exists()
    assert sorted(os.listdir(tmp_path)) == ["deep", "model.poptorch"]    # nothing is left over


def test_load_edits_options(tmp_path):
    path = str(tmp_path / "m")
    opts = options().connectionType(poptorch.ConnectionType.Never)
    inference(Small(), opts).compileAndExport(path, torch.ones(4, 3))
    seen = []
    model = poptorch.load(path, lambda o: seen.append(o.connection_type))
    assert seen == [poptorch.ConnectionType.Always] and model.isAttachedToDevice()    # this machine will do
    assert model(torch.ones(4, 3)).shape == (4, 2)
    model = poptorch.load(path, lambda o: o.connectionType(poptorch.ConnectionType.OnDemand))
    assert model.options.connection_type == poptorch.ConnectionType.OnDemand


def test_loaded_models_go_on(tmp_path):
    """Weights, optimizer state and random numbers are those of the saved one."""
    class Net(Small):
        def forward(self, x, t):
            y = self.fc(F.dropout(x, 0.5, self.training))
            return y, F.mse_loss(y, t)
    globals()["Net"] = Net    # for pickle
    Net.__qualname__ = "Net"
    net = Net()
    optimizer = poptorch.optim.Adam(net.parameters(), lr=0.1)
    _, model = training(net, options().randomSeed(4), optimizer)
    data = [(torch.randn(4, 3), torch.randn(4, 2)) for _ in range(4)]
    model(*data[0])
    path = str(tmp_path / "m")
    model.save(path)
    other = poptorch.load(path)
    for x, t in data[1:]:
        assert torch.equal(model(x, t)[1], other(x, t)[1])
    assert torch.equal(net.fc.weight, other.model.fc.weight)


def test_bad_files(tmp_path):
    path = tmp_path / "m"
    inference(Small()).compileAndExport(str(path), torch.ones(4, 3))
    data = path.read_bytes()
    for bad in (b"", b"poptorch", data[:100], data[:-10], b"x" + data[1:]):
        path.write_bytes(bad)
        with pytest.raises(poptorch.Error):
            poptorch.load(str(path))
        with pytest.raises(poptorch.Error):
            inference(Small()).loadExecutable(str(path))
    with pytest.raises(poptorch.Error, match="missing"):
        poptorch.load(str(tmp_path / "missing"))
    path.write_bytes(data.replace(poptorch.__version__.encode(), b"9" * len(poptorch.__version__)))
    with pytest.raises((AssertionError, poptorch.Error)):
        poptorch.load(str(path))


def test_load_executable_of_the_other_kind(tmp_path):
    path = str(tmp_path / "m")
    inference(Small()).compileAndExport(path, torch.ones(4, 3))
    with pytest.raises(poptorch.Error, match="inference"):
        training()[1].loadExecutable(path)
    model = inference(Small())
    model(torch.ones(4, 3))
    with pytest.raises(poptorch.Error, match="compiled already"):
        model.loadExecutable(path)
