"""poptorch.trainingModel and inferenceModel: numbers against PyTorch, shapes of results, weights, errors."""

import copy
import gc
import io
import pickle
import threading
import time
import weakref

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

import poptorch
from poptorch_helpers import MODES, Small, log, nothing_cached, options, refused, step  # noqa: F401


class Classifier(nn.Module):
    """The net of the first tutorial."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 5, 3)
        self.pool = nn.MaxPool2d(2, 2)
        self.conv2 = nn.Conv2d(5, 12, 5)
        self.norm = nn.GroupNorm(3, 12)
        self.fc1 = nn.Linear(972, 100)
        self.relu = nn.ReLU()
        self.fc2 = nn.Linear(100, 10)
        self.log_softmax = nn.LogSoftmax(dim=1)
        self.loss = nn.NLLLoss()

    def forward(self, x, labels=None):
        x = self.pool(self.relu(self.conv1(x)))
        x = self.norm(self.relu(self.conv2(x)))
        x = torch.flatten(x, start_dim=1)
        x = self.relu(self.fc1(x))
        x = self.log_softmax(self.fc2(x))
        if self.training:
            return x, self.loss(x, labels)
        return x


class Block(nn.Module):
    def __init__(self, channels, filters, kernel, pool):
        super().__init__()
        self.conv = nn.Conv2d(channels, filters, kernel)
        self.pool = nn.MaxPool2d(pool)
        self.relu = nn.ReLU()

    def forward(self, x):
        return self.relu(self.pool(self.conv(x)))


class Network(nn.Module):
    """The net of the MNIST example; `dropout` 0 makes it comparable."""

    def __init__(self, dropout):
        super().__init__()
        self.layer1 = Block(1, 32, 3, 2)
        self.layer2 = Block(32, 64, 3, 2)
        self.layer3 = nn.Linear(1600, 128)
        self.layer3_act = nn.ReLU()
        self.layer3_dropout = nn.Dropout(dropout)
        self.layer4 = nn.Linear(128, 10)

    def forward(self, x):
        x = self.layer2(self.layer1(x)).view(-1, 1600)
        return self.layer4(self.layer3_dropout(self.layer3_act(self.layer3(x))))


class WithLoss(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model
        self.loss = nn.CrossEntropyLoss()

    def forward(self, args, loss_inputs=None):
        output = self.model(args)
        return output, self.loss(output, loss_inputs)


class Norms(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.bn = nn.BatchNorm2d(4)
        self.fc = nn.Linear(4, 10)

    def forward(self, x, t=None):
        y = self.fc(F.relu(self.bn(self.conv(x))).mean((2, 3)))
        return y if t is None else (y, F.cross_entropy(y, t))


def batches(n, rows, seed=1):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(n):
        yield (torch.randn(rows, 1, 28, 28, generator=generator),
               torch.randint(0, 10, (rows,), generator=generator))


def parity(net, optimizer, rows, steps=30, tolerance=1e-4, opts=None, micro=1):
    """The same losses and weights as PyTorch, step by step."""
    reference = copy.deepcopy(net)
    theirs = optimizer(reference.parameters())
    model = poptorch.trainingModel(net, opts or options(), optimizer(net.parameters()))
    for x, t in batches(steps, rows):
        loss = model(x, t)[1]
        theirs.zero_grad()
        for part, labels in zip(x.chunk(micro), t.chunk(micro)):
            expected = reference(part, labels)[1]
            (expected / micro).backward()
        theirs.step()
        assert abs(loss.flatten()[-1].item() - expected.item()) < tolerance
    for (name, ours), wanted in zip(net.named_parameters(), reference.parameters()):
        torch.testing.assert_close(ours.detach(), wanted.detach(), rtol=1e-3, atol=1e-4, msg=name)
    return model, reference


def test_classifier_trains_like_pytorch():
    torch.manual_seed(42)
    parity(Classifier().train(), lambda p: torch.optim.SGD(p, lr=0.001, momentum=0.9), 16)


def test_mnist_network_trains_like_pytorch():
    torch.manual_seed(0)
    parity(WithLoss(Network(0.0)), lambda p: torch.optim.SGD(p, lr=0.03), 8)


def test_batch_norm_trains_like_pytorch():
    torch.manual_seed(0)
    net = Norms()
    model, reference = parity(net, lambda p: torch.optim.SGD(p, lr=0.05), 8, steps=10)
    torch.testing.assert_close(net.bn.running_mean, reference.bn.running_mean)
    torch.testing.assert_close(net.bn.running_var, reference.bn.running_var)
    assert net.bn.num_batches_tracked.item() == 0    # a constant of the model
    x = next(batches(1, 8))[0]
    net.eval()
    torch.testing.assert_close(poptorch.inferenceModel(net, options())(x), reference.eval()(x).detach(),
                               rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("optimizer", [
    lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.8, nesterov=True, weight_decay=0.01),
    lambda p: torch.optim.Adam(p, lr=0.002), lambda p: torch.optim.AdamW(p, lr=0.002),
    lambda p: torch.optim.RMSprop(p, lr=0.001, momentum=0.5)], ids=["SGD", "Adam", "AdamW", "RMSprop"])
def test_torch_optimizers(optimizer):
    torch.manual_seed(0)
    net = Small()
    reference = copy.deepcopy(net)
    theirs = optimizer(reference.parameters())
    model = poptorch.trainingModel(net, options(), optimizer(net.parameters()))
    for _ in range(10):
        x, t = torch.randn(4, 3), torch.randn(4, 2)
        model(x, t)
        theirs.zero_grad()
        reference(x, t)[1].backward()
        theirs.step()
    torch.testing.assert_close(net.fc.weight.detach(), reference.fc.weight.detach(), rtol=1e-4, atol=1e-5)


def test_accumulation_is_one_update():
    torch.manual_seed(0)
    opts = options()
    opts.Training.gradientAccumulation(4)
    parity(Norms(), lambda p: torch.optim.SGD(p, lr=0.05), 16, steps=5, opts=opts, micro=4)


def test_replicas_are_one_update():
    torch.manual_seed(0)
    parity(WithLoss(nn.Sequential(nn.Flatten(), nn.Linear(784, 10))), lambda p: torch.optim.SGD(p, lr=0.01), 16,
           steps=3, opts=options().replicationFactor(4), micro=4)


# --- shapes and values of results -----------------------------------------------------------------

@pytest.mark.parametrize("d, a, r, mode, n, slots", [
    (1, 1, 1, MODES.Final, None, 1), (5, 1, 1, MODES.All, None, 5), (5, 1, 1, MODES.Final, None, 1),
    (2, 3, 1, MODES.All, None, 6), (2, 3, 1, MODES.Sum, None, 1), (4, 3, 1, MODES.EveryN, 2, 6),
    (2, 3, 4, MODES.All, None, 24), (5, 1, 2, MODES.Final, None, 2), (2, 2, 2, MODES.Sum, None, 2),
    (4, 2, 2, MODES.EveryN, 2, 8)])
def test_training_output_modes(d, a, r, mode, n, slots):
    opts = options().deviceIterations(d).replicationFactor(r).outputMode(mode, n)
    opts.Training.gradientAccumulation(a)
    net = Small()
    for p in net.parameters():
        p.requires_grad_(False)    # the net stays as it is, so that its results are known
    net.extra = nn.Parameter(torch.zeros(1))

    class Fixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, x, t):
            y, loss = self.net(x, t)
            return y, poptorch.identity_loss(loss + 0 * self.net.extra, reduction="sum")

    micro = 2
    x, t = torch.randn(d * a * r * micro, 3), torch.randn(d * a * r * micro, 2)
    y, loss = poptorch.trainingModel(Fixed(), opts, torch.optim.SGD([net.extra], lr=0.1))(x, t)
    assert y.shape == (slots * micro, 2)
    assert loss.shape == ((slots,) if slots > 1 else ())
    every = net.fc(x).detach().view(d, a, r, micro, 2)
    wanted = {MODES.All: every, MODES.Final: every[-1, -1], MODES.Sum: every.sum((0, 1)),
              MODES.EveryN: every[(n or 1) - 1::n or 1]}[mode]
    torch.testing.assert_close(y, wanted.reshape(-1, 2), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("d, r, mode, n, slots", [
    (1, 1, None, None, 1), (5, 1, None, None, 5), (10, 1, MODES.EveryN, 5, 2), (3, 2, None, None, 6),
    (4, 2, MODES.EveryN, 2, 4), (4, 2, MODES.Final, None, 2), (4, 2, MODES.Sum, None, 2), (4, 1, MODES.Sum, None, 1)])
def test_inference_output_modes(d, r, mode, n, slots):
    opts = options().deviceIterations(d).replicationFactor(r)
    if mode is not None:
        opts.outputMode(mode, n)
    net = Small()
    x = torch.randn(d * r * 2, 3)
    y = poptorch.inferenceModel(net, opts)(x)
    every = net.fc(x).detach().view(d, r, 2, 2)
    wanted = {None: every, MODES.Final: every[-1], MODES.Sum: every.sum(0),
              MODES.EveryN: every[(n or 1) - 1::n or 1]}[mode]
    assert y.shape == (slots * 2, 2)
    torch.testing.assert_close(y, wanted.reshape(-1, 2), rtol=1e-4, atol=1e-5)


def test_structures():
    class Nested(nn.Module):
        def forward(self, x, pair, scale=2.0, *, extra=None):
            a, b = pair
            out = {"sum": x + a * scale, "list": [b, (x, 3)], "same": x}
            return (out, extra["k"].long()) if extra is not None else out

    model = poptorch.inferenceModel(Nested(), options())
    x, a, b, k = torch.ones(2, 2), torch.ones(2, 2) * 3, torch.zeros(2), torch.tensor([5.0])
    for _ in range(2):
        out, extra = model(x, (a, b), extra={"k": k})
        assert torch.equal(out["sum"], x + 6) and torch.equal(out["list"][0], b)
        assert out["list"][1][1] == 3 and torch.equal(out["list"][1][0], x) and out["same"] is out["list"][1][0]
        assert extra.dtype == torch.int32 and extra.item() == 5
    with pytest.raises(poptorch.Error, match="Type mismatch for pair"):
        model(x, [a, b], extra={"k": k})
    with pytest.raises(poptorch.Error, match="Keys mismatch for extra"):
        model(x, (a, b), extra={"z": k})
    with pytest.raises(poptorch.Error, match="Number of positional arguments mismatch"):
        model(x, (a, b))


def test_input_checks():
    model = poptorch.inferenceModel(Small(), options())
    model(torch.ones(4, 3))
    with pytest.raises(poptorch.Error, match=r"Shape mismatch for x: expected \(4, 3\) but got \(5, 3\)"):
        model(torch.ones(5, 3))
    with pytest.raises(poptorch.Error, match="Data type mismatch for x"):
        model(torch.ones(4, 3, dtype=torch.float64))
    with pytest.raises(AssertionError, match="Too many arguments"):
        model(torch.ones(4, 3), None, None)
    with pytest.raises(AssertionError, match="no parameter called z"):
        model(torch.ones(4, 3), z=1)
    with pytest.raises(poptorch.Error, match="Mandatory parameter x missing"):
        model()
    with pytest.raises(AssertionError, match="Invalid batch dimension"):
        poptorch.inferenceModel(Small(), options().deviceIterations(3))(torch.ones(4, 3))
    x = torch.arange(12.0).view(3, 4).t()
    torch.testing.assert_close(model(x), model.model(x).detach())    # not contiguous


def test_output_is_final():
    y = poptorch.inferenceModel(Small(), options())(torch.ones(4, 3))
    assert not y.requires_grad
    with pytest.raises(poptorch.Error, match=r"backward\(\) cannot be called explicitly"):
        y.backward()


# --- weights --------------------------------------------------------------------------------------

def test_weights_come_back_when_read():
    net = Small()
    model = poptorch.trainingModel(net, options(), torch.optim.SGD(net.parameters(), lr=0.5))
    before = net.fc.weight.detach().clone()
    step(model)
    assert model._stale
    assert not torch.equal(net.fc.weight, before)    # a torch function
    assert not model._stale
    for read in (lambda: net.fc.weight.data, lambda: net.state_dict(), lambda: list(net.parameters()),
                 lambda: net(torch.ones(4, 3)), lambda: net.fc.weight.shape, lambda: copy.deepcopy(net)):
        step(model)
        assert model._stale
        read()
        assert not model._stale
    step(model)
    assert model.copyWeightsToHostIfNeeded() and not model.copyWeightsToHostIfNeeded()
    step(model)
    model.fc.in_features
    assert model._stale    # reading something else copies nothing


def test_wrapped_module_saves_as_itself():
    net = Small()
    model = poptorch.trainingModel(net, options())
    step(model)
    assert type(net).__name__ == "PoptorchSmall"
    assert all(type(t) in (torch.Tensor, nn.Parameter) for t in net.state_dict().values())
    buffer = io.BytesIO()
    torch.save(net, buffer)
    buffer.seek(0)
    loaded = torch.load(buffer, weights_only=False)
    assert type(loaded) is Small and type(loaded.fc.weight) is nn.Parameter
    assert torch.equal(loaded.fc.weight, net.fc.weight)
    assert type(copy.deepcopy(net)) is Small
    pickle.loads(pickle.dumps(net.fc.weight))
    net.destroy()
    assert type(net) is Small and type(net.fc.weight) is nn.Parameter and not model.isCompiled()


def test_inference_follows_training():
    net = Small()
    wrapped = WithLoss(net)
    wrapped.loss = nn.MSELoss()
    model = poptorch.trainingModel(wrapped, options(), torch.optim.SGD(net.parameters(), lr=0.5))
    outer, inner = poptorch.inferenceModel(wrapped.model, options()), poptorch.inferenceModel(net, options())
    x = torch.randn(4, 3)
    for _ in range(3):
        step(model)
        found = inner(x)
        torch.testing.assert_close(found, net(x).detach())
        torch.testing.assert_close(outer(x), found)


def test_host_edits_need_an_upload():
    net = Small()
    model = poptorch.inferenceModel(net, options())
    x = torch.randn(4, 3)
    before = model(x)
    with torch.no_grad():
        net.fc.weight.mul_(2)
    assert torch.equal(model(x), before)
    model.copyWeightsToDevice()
    torch.testing.assert_close(model(x), net(x).detach())
    state = {k: v * 0 + 1 for k, v in net.state_dict().items()}
    model.load_state_dict(state)
    torch.testing.assert_close(model(x), x.sum(1, keepdim=True).expand(4, 2) + 1)


def test_weights_of_another_type_are_refused():
    net = Small()
    model = poptorch.inferenceModel(net, options())
    model(torch.ones(4, 3))
    net.half()
    with pytest.raises(poptorch.Error, match="fc.weight"):
        model.copyWeightsToDevice()


def test_detach_and_attach_keep_everything():
    torch.manual_seed(0)
    net = Small()
    model = poptorch.trainingModel(net, options(), torch.optim.Adam(net.parameters(), lr=0.1))
    twin = copy.deepcopy(Small())
    twin.load_state_dict(net.state_dict())
    other = poptorch.trainingModel(twin, options(), torch.optim.Adam(twin.parameters(), lr=0.1))
    data = [(torch.randn(4, 3), torch.randn(4, 2)) for _ in range(4)]
    for i, (x, t) in enumerate(data):
        model(x, t)
        other(x, t)
        if i == 1:
            model.detachFromDevice()
            assert not model.isAttachedToDevice() and model.isCompiled()
            with pytest.raises(poptorch.Error, match="Device is not attached"):
                model.detachFromDevice()
        if i == 2:
            with pytest.raises(poptorch.Error, match="Device is already attached"):
                model.attachToDevice()
    assert torch.equal(net.fc.weight, twin.fc.weight)


def test_set_optimizer():
    net = Small()
    model = poptorch.trainingModel(net, options(), torch.optim.SGD(net.parameters(), lr=0.5))
    step(model)
    before = net.fc.weight.detach().clone()
    model.setOptimizer(torch.optim.SGD(net.parameters(), lr=0.0))
    step(model)
    assert torch.equal(net.fc.weight, before)
    with pytest.raises(poptorch.Error):
        model.setOptimizer(torch.optim.Adam(net.parameters()))


def test_parameter_groups():
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    wrapped = WithLoss(net)
    wrapped.loss = nn.MSELoss()
    groups = [{"params": net[0].parameters(), "lr": 0.0}, {"params": net[1].parameters()}]
    optimizer = poptorch.optim.SGD(groups, lr=0.5)
    model = poptorch.trainingModel(wrapped, options(), optimizer)
    before = copy.deepcopy(net.state_dict())
    step(model)
    assert torch.equal(net[0].weight, before["0.weight"]) and not torch.equal(net[1].weight, before["1.weight"])
    net[0].weight    # fetched
    optimizer.param_groups[0]["lr"] = 0.5
    model.setOptimizer(optimizer)
    step(model)
    assert not torch.equal(net[0].weight, before["0.weight"])
    stranger = nn.Linear(1, 1)
    with pytest.raises(KeyError):
        step(poptorch.trainingModel(Small(), options(), torch.optim.SGD(stranger.parameters(), lr=1.0)))


def test_optimizer_state():
    torch.manual_seed(0)
    net = Small()
    optimizer = poptorch.optim.Adam(net.parameters(), lr=0.1)
    model = poptorch.trainingModel(net, options(), optimizer)
    assert optimizer.state_dict()["ipu_state"] is None
    data = [(torch.randn(4, 3), torch.randn(4, 2)) for _ in range(4)]
    for x, t in data[:2]:
        model(x, t)
    state, weights = copy.deepcopy(optimizer.state_dict()), copy.deepcopy(net.state_dict())
    assert state["ipu_state"]["Step___fc.weight"].item() == 2
    assert state["ipu_state"]["Accl1___fc.weight"].abs().sum() > 0
    rates = {k: v.item() for k, v in state["ipu_param"].items() if k.startswith("learningRate")}
    assert rates == {f"learningRate___specific___fc.{k}": pytest.approx(0.1) for k in ("weight", "bias")} | {
        "learningRate___default": pytest.approx(0.1)}
    expected = [model(x, t)[1].item() for x, t in data[2:]]
    twin = Small()
    twin.load_state_dict(weights)
    again = poptorch.optim.Adam(twin.parameters(), lr=0.1)
    again.load_state_dict(state)
    other = poptorch.trainingModel(twin, options(), again)
    assert [other(x, t)[1].item() for x, t in data[2:]] == expected


def test_half_precision():
    torch.manual_seed(0)
    net = Norms()
    x, t = torch.randn(4, 1, 8, 8), torch.tensor([0, 1, 2, 3])
    expected = [float(net(x, t)[1])]
    net = copy.deepcopy(net).half()
    model = poptorch.trainingModel(net, options(), torch.optim.SGD(net.parameters(), lr=0.05))
    out, loss = model(x.half(), t)
    assert out.dtype == torch.float16 and loss.item() == pytest.approx(expected[0], abs=0.02)
    for _ in range(20):
        last = model(x.half(), t)[1].item()
    assert last < loss.item() and net.fc.weight.dtype == torch.float16


# --- losses ---------------------------------------------------------------------------------------

def train_once(forward):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.tensor([1.0, 2.0]))

        def forward(self, x):
            return forward(self.w, x)

    net = Net()
    out = poptorch.trainingModel(net, options(), torch.optim.SGD(net.parameters(), lr=1.0))(torch.tensor([3.0, 5.0]))
    return out, torch.tensor([1.0, 2.0]) - net.w.detach()


def test_checkpoint():
    from torch.utils.checkpoint import checkpoint    # a name that nothing can replace

    for call in (checkpoint, torch.utils.checkpoint.checkpoint):
        _, found = train_once(lambda w, x: poptorch.identity_loss(call(torch.mul, w, x), "sum"))
        torch.testing.assert_close(found, torch.tensor([3.0, 5.0]))
    assert checkpoint is torch.utils.checkpoint.checkpoint
    w = torch.ones(2, requires_grad=True)    # PyTorch has its own again
    checkpoint(torch.mul, w, torch.tensor([3.0, 5.0])).sum().backward()
    assert w.grad.tolist() == [3, 5]


def doubled(w):
    return w * 2


@pytest.mark.parametrize("forward", [doubled, lambda w: w, lambda w: w.view_as(w), lambda w: w.mul_(2)],
                         ids=["result", "argument", "view", "in place"])
def test_custom_functions_say_what_gradients_are(forward):
    class Reverse(torch.autograd.Function):
        @staticmethod
        def forward(ctx, w):
            return forward(w)

        @staticmethod
        def backward(ctx, g):
            return -g

    w = torch.tensor([1.0, 2.0], requires_grad=True)
    loss = (Reverse.apply(w * 1) * torch.tensor([3.0, 5.0])).sum()
    expected, = torch.autograd.grad(loss, w)
    out, found = train_once(lambda w, x: poptorch.identity_loss(Reverse.apply(w * 1) * x, "sum"))
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(out, loss.detach())


def test_hooks_of_gradients_are_not_called(log):
    def hooked(add):
        def never(*args):
            raise AssertionError("a hook was called")
        net = Small()
        add(net, never)
        x, t = torch.randn(4, 3), torch.randn(4, 2)
        expected = Small()
        expected.load_state_dict(net.state_dict())
        expected(x, t)[1].backward()
        before = net.fc.weight.detach().clone()
        poptorch.trainingModel(net, options(), torch.optim.SGD(net.parameters(), lr=1.0))(x, t)
        torch.testing.assert_close(before - net.fc.weight.detach(), expected.fc.weight.grad)
        return "hooks on gradients, which are not called" in log()

    assert hooked(lambda net, hook: net.fc.register_full_backward_hook(hook))
    assert hooked(lambda net, hook: net.fc.weight.register_hook(hook))
    assert hooked(lambda net, hook: net.fc.register_forward_hook(lambda m, i, o: o.register_hook(hook) and None))
    assert not hooked(lambda net, hook: None)


def test_parameter_that_needs_no_gradient_for_a_while():
    """Both players of a game in one model: the second loss must not train the first's weights."""
    def forward(w, x):
        first = (w * x).sum()
        w.requires_grad_(False)
        second = (w * 10).sum() + (w * w).sum()
        w.requires_grad_(True)
        return poptorch.identity_loss(first + second, "sum")
    _, found = train_once(forward)
    torch.testing.assert_close(found, torch.tensor([3.0, 5.0]))


class Pair:
    def __init__(self, loss, y):
        self.loss, self.y = loss, y


def test_objects_with_tensors_are_no_results():
    class Net(Small):
        def forward(self, x):
            return {"pair": Pair(*reversed(super().forward(x, x[:, :2])))}

    with pytest.raises(poptorch.Error, match="an object of type Pair that holds tensors.*registerCustomArgParser"):
        poptorch.inferenceModel(Net(), options())(torch.randn(4, 3))


def test_dropout():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.drop = nn.Dropout(0.25)
            self.w = nn.Parameter(torch.zeros(1))

        def forward(self, x):
            y = self.drop(x)
            return y, poptorch.identity_loss((y * self.w).sum(), "sum")

    net = Net()
    x = torch.ones(100, 100)
    model = poptorch.trainingModel(net, options().randomSeed(3), torch.optim.SGD(net.parameters(), lr=0.0))
    a, b = model(x)[0], model(x)[0]
    assert not torch.equal(a, b)
    assert sorted(set(a.flatten().tolist())) == [0, pytest.approx(4 / 3)]
    assert 0.72 < (a != 0).float().mean() < 0.78
    state = model.rng_state
    assert state == [3, 2]
    c = model(x)[0]
    model.rng_state = state
    assert torch.equal(model(x)[0], c)
    assert torch.equal(poptorch.inferenceModel(net, options())(x)[0], x)    # never in inference


# --- errors and the rest --------------------------------------------------------------------------

def test_all_unsupported_ops_at_once():
    def forward(x):
        y = torch.geqrf(x.view(2, 2))[1]    # both are named, with this file and line
        return y + torch.special.i0(x[:2])
    with pytest.raises(poptorch.Error) as e:
        class Net(nn.Module):
            def forward(self, x):
                return forward(x)
        poptorch.inferenceModel(Net(), options())(torch.ones(4))
    assert "geqrf" in str(e.value) and "i0" in str(e.value) and str(e.value).count("test_poptorch_model.py:") == 2


def test_results_that_are_missing():
    def weight_of(x):    # PyTorch's own backward reads it
        return torch.ops.aten.nll_loss_forward(x.view(2, 2), torch.tensor([0, 1]), None, 1, -100)[1]
    refused(weight_of, "nll_loss_forward.*not supported")
    refused(lambda x: weight_of(x) + 1, "nll_loss_forward.*not supported")

    def forward(w, x):
        with torch.no_grad():
            w.mul_(2)
        return F.mse_loss(w, x)
    with pytest.raises(poptorch.Error, match="writes to w, which is trained"):
        train_once(forward)


def test_random_numbers():
    class Net(nn.Module):
        def forward(self, x):
            a = torch.empty_like(x).uniform_(2, 3)
            b = torch.zeros(x.shape).normal_(5, 0.5)
            return a, b, torch.rand(x.shape), torch.bernoulli(x * 0 + 0.3), F.alpha_dropout(x, 0.5, True)

    model = poptorch.inferenceModel(Net(), options().randomSeed(1))
    x = torch.ones(100, 50)
    first, second = model(x), model(x)
    assert all(not torch.equal(a, b) for a, b in zip(first[:4], second[:4]))
    a, b, c, d, e = first
    assert 2 <= a.min() and a.max() < 3 and a.mean().item() == pytest.approx(2.5, abs=0.02)
    assert b.mean().item() == pytest.approx(5, abs=0.03) and b.std().item() == pytest.approx(0.5, abs=0.02)
    assert c.mean().item() == pytest.approx(0.5, abs=0.02) and d.mean().item() == pytest.approx(0.3, abs=0.02)
    assert torch.equal(e, x)


def test_values_are_not_known():
    refused(lambda x: x * x.sum().item(), r"\.item\(\)")
    refused(lambda x: x if x.sum() > 0 else -x, "not known while the model is traced")
    refused(lambda x: torch.tensor(x.numpy()), r"\.numpy\(\)")
    refused(lambda x: x.cpu(), r"\.cpu\(\)")
    refused(lambda x: x[x > 0], "depends on its values|not supported")


def test_misuse():
    net = Small()
    model = poptorch.trainingModel(net, options())
    for use in (model.copyWeightsToHost, model.detachFromDevice, lambda: model.rng_state):
        with pytest.raises(poptorch.Error, match="has not been compiled or has been destroyed"):
            use()
    model.destroy()    # nothing happens
    with pytest.raises(poptorch.Error, match="dict"):
        poptorch.inferenceModel(net, {})
    with pytest.raises(poptorch.Error, match="gradientAccumulation to 1"):
        opts = options()
        opts.Training.gradientAccumulation(2)
        poptorch.inferenceModel(net, opts)
    with pytest.raises(AssertionError):
        poptorch.trainingModel(Small(), options(), torch.optim.LBFGS(net.parameters()))


def test_reassigned_buffer():
    class Net(nn.Module):
        def __init__(self, copy_):
            super().__init__()
            self.copy_ = copy_
            self.register_buffer("n", torch.zeros(1))

        def forward(self, x):
            if self.copy_:
                self.n.copy_(self.n + 1)
            else:
                self.n = self.n + 1
            return x + self.n

    with pytest.raises(poptorch.Error, match="n is reassigned within the model"):
        poptorch.inferenceModel(Net(False), options())(torch.ones(1))
    net = Net(True)
    model = poptorch.inferenceModel(net, options())
    assert [model(torch.zeros(1)).item() for _ in range(3)] == [1, 2, 3]
    assert net.n.item() == 0
    model.copyWeightsToHost()
    assert net.n.item() == 3


def test_forward_runs_once_and_hooks():
    calls = []

    class Net(nn.Module):
        def forward(self, x):
            calls.append(poptorch.isRunningOnIpu())
            return poptorch.nop(x) + 1

    handles = [poptorch.registerPreCompileHook(lambda: calls.append("pre")),
               poptorch.registerPostCompileHook(lambda: calls.append("post"))]
    model = poptorch.inferenceModel(Net(), options())
    for _ in range(3):
        model(torch.ones(2))
    for h in handles:
        h.remove()
    assert calls == ["pre", True, "post"]
    assert not poptorch.isRunningOnIpu()


def test_blocks_and_scopes_are_accepted():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = poptorch.BeginBlock(nn.Linear(3, 3), "first", ipu_id=0)
            self.b = nn.Linear(3, 2)

        def forward(self, x, t):
            x = self.a(x)
            with poptorch.NameScope("second"):
                poptorch.Block.start("second", ipu_id=0)
                x = self.b(x)
            return x, F.mse_loss(x, t)

    assert step(poptorch.trainingModel(Net(), options()))[0].shape == (4, 2)


def test_inputs_written_in_place():
    class Net(nn.Module):
        def forward(self, x, y):
            x.mul_(2)
            return (x + y).sum()

    for opts, shape in ((options(), ()), (options().deviceIterations(3), (3,)),
                        (options().deviceIterations(3).outputMode(MODES.Final), ())):
        x = torch.arange(6.0)
        out = poptorch.inferenceModel(Net(), opts)(x, torch.ones(6))
        assert torch.equal(x, torch.arange(6.0) * 2)
        assert out.shape == shape and out.flatten()[-1].item() == (36 if opts.device_iterations == 1 else 20)


def test_print(capfd):
    class Net(nn.Module):
        def forward(self, x):
            return poptorch.ipu_print_tensor(x * 2, "twice") + 1

    model = poptorch.inferenceModel(Net(), options().deviceIterations(2))
    assert torch.equal(model(torch.tensor([[1.0, 2.5], [3, 4]])), torch.tensor([[3.0, 6.0], [7, 9]]))
    assert capfd.readouterr().err == "twice: ((2, 5))\ntwice: ((6, 8))\n"
    with pytest.raises(KeyError):
        poptorch.ipu_print_tensor(torch.ones(1), float_format="odd")


def test_loops_and_branches():
    class Net(nn.Module):
        def forward(self, x, flag):
            a, b = poptorch.for_loop(4, lambda a, b: [a + b, b * 2], [x, x])
            return a, poptorch.cond(flag > 0, lambda t: t + 1, [a], lambda t: t - 1, [b])[0]

    model = poptorch.inferenceModel(Net(), options())
    x = torch.tensor([1.0, 2.0])
    for flag in (torch.tensor([1]), torch.tensor([0])):
        for ours, theirs in zip(model(x, flag), Net()(x, flag)):
            assert torch.equal(ours, theirs)


def test_executor_surface():
    net = Small()
    model = poptorch.trainingModel(net, options())
    assert model.model is net and not model.isCompiled() and model.fc is net.fc
    assert "fc" in repr(model) and len(list(model.parameters())) == 2
    assert model.eval() is model and not net.training and model.train() is model
    model.compile(torch.ones(4, 3), torch.ones(4, 2))
    assert model.isCompiled()
    step(model)
    counters = model.getPerfCounters()
    assert sorted(counters) == ["input", "input_complete", "output", "output_complete"]
    assert len(counters["input"]) == 2 and model.getLatency()[0] >= model.getComputeLatency()[0] > 0
    assert "fc.weight" in model.getTensorNames()
    assert poptorch.__version__ and poptorch.ipuHardwareIsAvailable()


def test_save_and_load(tmp_path):
    torch.manual_seed(0)
    net = Small()
    model = poptorch.trainingModel(net, options(), torch.optim.Adam(net.parameters(), lr=0.1))
    data = [(torch.randn(4, 3), torch.randn(4, 2)) for _ in range(4)]
    model(*data[0])
    path = str(tmp_path / "deep" / "net.poptorch")
    model.save(path)
    other = poptorch.load(path)
    assert other.isCompiled()
    for x, t in data:
        assert torch.equal(model(x, t)[1], other(x, t)[1])
    with pytest.raises(poptorch.Error, match="cut short|not a file"):
        (tmp_path / "bad").write_bytes(b"nothing")
        poptorch.load(str(tmp_path / "bad"))
    inference = poptorch.inferenceModel(net, options())
    inference.compileAndExport(path, data[0][0], export_model=False)
    with pytest.raises(AssertionError, match="export_model=False"):
        poptorch.load(path)
    again = poptorch.inferenceModel(net, options())
    again.loadExecutable(path)
    torch.testing.assert_close(again(data[1][0]), inference(data[1][0]))
    with pytest.raises(poptorch.Error, match="another model"):
        poptorch.inferenceModel(nn.Sequential(nn.Linear(3, 5)), options()).loadExecutable(path)


class Counter(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.calls.append(func._schema.name)
        return func(*args, **(kwargs or {}))


def test_calls_compute_nothing_in_pytorch():
    net = Classifier()
    model = poptorch.trainingModel(net, options())
    x, t = next(batches(1, 16))
    model(x, t)
    with Counter() as counter:
        for _ in range(3):
            model(x, t)
    assert set(counter.calls) <= {"aten::empty"}
    net.eval()
    inference = poptorch.inferenceModel(net, options())
    inference(x)
    with Counter() as counter:
        inference(x)
    assert set(counter.calls) <= {"aten::empty"}


def test_a_trace_keeps_no_tensors():
    found = []

    class Net(nn.Module):
        def forward(self, x):
            y = x * 2
            found.append(weakref.ref(y))
            return y[0] + 1

    gc.disable()
    try:
        model = poptorch.inferenceModel(Net(), options())
        model(torch.ones(4))
        assert found[0]() is None
    finally:
        gc.enable()


def test_call_overhead():
    net = Small()
    model = poptorch.trainingModel(net, options())
    x, t = torch.randn(16, 3), torch.randint(0, 1, (16, 2)).float()
    best = 1.0
    model(x, t)
    for _ in range(2000):
        model(x, t)
        best = min(best, model.getLatency()[0] - model.getComputeLatency()[0])
    assert best < 50e-6, f"{best * 1e6:.0f} microseconds"


def test_other_threads_run():
    """A call lets go of the interpreter's lock while the engine works."""
    net = WithLoss(Network(0.0))
    model = poptorch.trainingModel(net, options().deviceIterations(20))
    x, t = next(batches(1, 400))
    model(x, t)

    def ticks_inside():
        ticks, stop = [], threading.Event()

        def tick():
            while not stop.is_set():
                ticks.append(time.perf_counter())
                time.sleep(0.001)

        thread = threading.Thread(target=tick)
        thread.start()
        started = time.perf_counter()
        model(x, t)
        ended = time.perf_counter()
        stop.set()
        thread.join()
        return sum(started < at < ended for at in ticks) if ended - started >= 0.005 else 3

    # On a busy machine the thread may have no core just then.
    assert any(ticks_inside() >= 3 for _ in range(20))


def test_the_small_modules(capsys):
    import poptorch.testing
    with poptorch.profiling.Channel("c").tracepoint("here"):
        net = poptorch.profiling.Channel("c").instrument(Small(), "forward")
    x = torch.ones(2)
    assert poptorch.testing.allclose([x, (x,)], [x.clone(), (x.clone(),)])
    assert not poptorch.testing.allclose([x, (x,)], [x, x]) and not poptorch.testing.allclose(x, x + 1)
    poptorch.BeginBlock(net.fc, "b", ipu_id=0)
    poptorch.print(net)
    assert "BeginBlock(user_id=b, ipu_id=0) Linear" in capsys.readouterr().out
