"""What poptorch has beyond torch: each op on the device and on the CPU, and what it refuses."""

import itertools
import math

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import poptorch
from poptorch_helpers import Lambda, inference, nothing_cached, options, refused, training  # noqa: F401


class Printed(nn.Module):
    def __init__(self, *args, **kwargs):
        super().__init__()
        self.w = nn.Parameter(torch.tensor([1.0, 2.0]))
        self.args, self.kwargs = args, kwargs

    def forward(self, x):
        y = poptorch.ipu_print_tensor(self.w * x, *self.args, **self.kwargs)
        return poptorch.identity_loss((y * 3).sum(), "sum")


# --- ipu_print_tensor -----------------------------------------------------------------------------

def test_print_of_values(capfd):
    model = inference(lambda x: poptorch.ipu_print_tensor(x * 2, "twice") + 1, options().deviceIterations(2))
    assert torch.equal(model(torch.tensor([[1.0, 2.5], [3, 4]])), torch.tensor([[3.0, 6.0], [7, 9]]))
    assert capfd.readouterr().err == "twice: ((2, 5))\ntwice: ((6, 8))\n"    # each time it executes
    model(torch.zeros(2, 2))
    assert capfd.readouterr().err == "twice: ((0, 0))\ntwice: ((0, 0))\n"


@pytest.mark.parametrize("args, kwargs, lines", [
    (("t",), {}, ["t: (5, 14)", "t_gradient: (3, 3)"]), ((), {}, ["(5, 14)", "Gradient___mul:0: (3, 3)"]),
    (("t", False), {}, ["t: (5, 14)"]), (("t",), {"print_gradient": False, "separator": " "}, ["t: (5 14)"])])
def test_print_of_gradients(capfd, args, kwargs, lines):
    net = Printed(*args, **kwargs)
    _, model = training(net, optimizer=torch.optim.SGD(net.parameters(), lr=0.0))
    assert model(torch.tensor([5.0, 7.0])).item() == 57
    assert capfd.readouterr().err.splitlines() == lines


def test_print_in_accumulation(capfd):
    opts = options().deviceIterations(2)
    opts.Training.gradientAccumulation(2)
    net = Printed("t")
    training(net, opts, torch.optim.SGD(net.parameters(), lr=0.0))[1](torch.ones(8))
    assert capfd.readouterr().err.splitlines() == ["t: (1, 2)", "t_gradient: (3, 3)"] * 4


def test_print_leaves_training_as_it_is():
    found = []
    for printing in (True, False):
        net = Printed("t")
        if not printing:
            net.forward = lambda x: poptorch.identity_loss((net.w * x * 3).sum(), "sum")
        training(net)[1](torch.tensor([5.0, 7.0]))
        found.append(net.w.detach().clone())
    assert torch.equal(*found)


def test_print_that_is_not_used(capfd):
    def forward(x):
        poptorch.ipu_print_tensor(x, "gone")
        return x + 1
    inference(forward)(torch.ones(2))
    assert "gone" not in capfd.readouterr().err


@pytest.mark.parametrize("kwargs, text", [
    ({"digits": 2, "float_format": "fixed"}, "(1.00, 0.33)"), ({"float_format": "scientific", "digits": 1},
                                                              "(1.0e+00, 3.3e-01)"),
    ({"open_bracket": "[", "close_bracket": "]", "separator": ";"}, "[1;0.3333]")])
def test_print_formats(capfd, kwargs, text):
    inference(lambda x: poptorch.ipu_print_tensor(x, "t", **kwargs) + 1)(torch.tensor([1.0, 1 / 3]))
    assert capfd.readouterr().err == f"t: {text}\n"


def test_print_summary(capfd):
    inference(lambda x: poptorch.ipu_print_tensor(x, "t", summarise_threshold=5, edge_items=2) + 1)(torch.arange(9))
    inference(lambda x: poptorch.ipu_print_tensor(x, "t", summarise_threshold=0) + 1)(torch.arange(9))
    assert capfd.readouterr().err == "t: (0, 1, ..., 7, 8)\nt: (0, 1, 2, 3, 4, 5, 6, 7, 8)\n"


def test_print_misuse():
    x = torch.ones(1)
    assert poptorch.ipu_print_tensor(x) is x    # on the CPU
    with pytest.raises(KeyError):
        poptorch.ipu_print_tensor(x, float_format="odd")
    with pytest.raises(poptorch.Error):
        poptorch.ipu_print_tensor(3)


# --- CPU ------------------------------------------------------------------------------------------

def test_cpu_calls_the_host():
    seen = []

    def host(x, y, scale=1):
        seen.append((x.clone(), poptorch.isRunningOnIpu()))
        return torch.sort(x, descending=True)[0] * scale, y + 1

    def forward(x, y):
        a, b = poptorch.CPU(host, "sort")(x * 2, y, scale=10)
        return a + 1, b
    model = inference(forward)
    x, y = torch.tensor([3.0, 1, 2]), torch.tensor([7, 8])
    for _ in range(2):
        a, b = model(x, y)
        assert a.tolist() == [61, 41, 21] and b.tolist() == [8, 9] and b.dtype == torch.int32
        x = x.flip(0)
    assert len(seen) == 3 and not seen[0][0].any()    # zeros, once, to learn the shapes
    assert seen[1][0].tolist() == [6, 2, 4] and not any(running for _, running in seen)
    assert [t.tolist() for t in Lambda(forward)(x, y)] == [[61, 41, 21], [8, 9]]


def test_cpu_of_a_module():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 4), nn.Linear(4, 2)
            self.host = poptorch.CPU(self.b, "b")

        def forward(self, x):
            return self.host(F.relu(self.a(x))) + 1

    net = Net()
    assert not net.b.weight.requires_grad and net.a.weight.requires_grad
    x = torch.randn(8, 3)
    expected = net(x).detach()
    model = poptorch.inferenceModel(net, options().deviceIterations(4))
    torch.testing.assert_close(model(x), expected)    # once for each micro-batch
    assert isinstance(model(x), torch.Tensor)    # a single result stays single
    with torch.no_grad():
        net.b.bias.add_(1)
    torch.testing.assert_close(model(x), expected + 1)    # it never left the host


def test_cpu_that_fails():
    calls = []

    def host(x):
        calls.append(x)
        if x.sum() > 10:
            raise IndexError("no such row")
        return x
    model = inference(lambda x: poptorch.CPU(host, "host")(x) + 1)
    model(torch.ones(2))
    with pytest.raises(IndexError, match="no such row"):
        model(torch.ones(2) * 9)
    assert model(torch.ones(2)).tolist() == [2, 2] and len(calls) == 4
    refused(lambda x: poptorch.CPU(lambda t: 3, "none")(x), "takes and returns tensors")


def test_cpu_has_no_gradient():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(2))

        def forward(self, x):
            return poptorch.identity_loss(poptorch.CPU(torch.sin, "sin")(self.w * x).sum(), "sum")
    with pytest.raises(poptorch.Error, match="host_call has no gradient"):
        training(Net())[1](torch.ones(2))


# --- slices ---------------------------------------------------------------------------------------

X = torch.arange(24.0).view(6, 4)


@pytest.mark.parametrize("dim, start, size, step, expected", [
    (0, 2, 3, 1, X[2:5]), (0, 0, 3, 1, X[:3]), (1, 1, 2, 1, X[:, 1:3]), (0, 1, 3, 2, X[1:4:2]),
    (0, 5, 3, 1, X[[5, 0, 1]]), (-1, 3, 2, 1, X[:, [3, 0]])])
def test_dynamic_slice(dim, start, size, step, expected):
    def forward(x, i):
        return poptorch.dynamic_slice(x, dim, i, size, step)
    assert torch.equal(inference(forward)(X, torch.tensor([start])), expected)
    assert torch.equal(forward(X, torch.tensor(start)), expected)


def test_dynamic_slice_follows_its_start():
    model = inference(lambda x, i: poptorch.dynamic_slice(x, 0, i, 2, 1))
    for i in range(5):
        assert torch.equal(model(X, torch.tensor(i, dtype=torch.int32)), X[i:i + 2])


@pytest.mark.parametrize("dim, start, expected", [(0, 1, [1, 2]), (0, 5, [5, 0]), (1, 2, [2, 3])])
def test_dynamic_update(dim, start, expected):
    src = -torch.ones(2, 4) if dim == 0 else -torch.ones(6, 2)
    wanted = X.clone()
    wanted.index_fill_(dim, torch.tensor(expected), -1)

    def forward(x, s, i):
        return poptorch.dynamic_update(x, s, dim, i, 2)
    assert torch.equal(inference(forward)(X, src, torch.tensor([start])), wanted)
    assert torch.equal(forward(X, src, torch.tensor([start])), wanted)


def test_gradient_of_a_dynamic_slice():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.zeros(6))

        def forward(self, i):
            return poptorch.identity_loss(poptorch.dynamic_slice(self.w, 0, i, 3, 1).sum(), "sum")
    net = Net()
    training(net, optimizer=torch.optim.SGD(net.parameters(), lr=1.0))[1](torch.tensor([2]))
    assert net.w.tolist() == [0, 0, -1, -1, -1, 0]


@pytest.mark.parametrize("args", [(3, 0, 0, 2, 1), (X, 0.5, 0, 2, 1), (X, 0, 0, 4, 1), (X, 0, "a", 2, 1),
                                  (X, 0, torch.tensor([1, 2]), 2, 1), (X, 0, 0, 2, None)])
def test_dynamic_slice_misuse(args):
    with pytest.raises(poptorch.Error):
        poptorch.dynamic_slice(*args)


def test_dynamic_update_misuse():
    with pytest.raises(poptorch.Error):
        poptorch.dynamic_update(X, torch.ones(3, 4), 0, torch.tensor([0]), 2)


@pytest.mark.parametrize("read, expected", [
    (lambda x, i: x[i:i + 2], X[3:5]), (lambda x, i: x[i - 1:i + 1], X[2:4]), (lambda x, i: x[1:, i:(i + 3) - 1], None),
    (lambda x, i: x[2, i - 2:i], X[2, 1:3]), (lambda x, i: x[None, i:i + 3:2], X[None, 3:6:2])])
def test_slices_with_tensor_bounds(read, expected):
    expected = X[1:, [3, 0]] if expected is None else expected    # goes round at the end
    assert torch.equal(inference(read)(X, torch.tensor(3)), expected)


@pytest.mark.parametrize("read", [lambda x, i: x[i:], lambda x, i: x[:i], lambda x, i: x[i:i * 2],
                                  lambda x, i: x[i:i + 4], lambda x, i: x[..., i:i + 2]])
def test_slices_of_unknown_size(read):
    refused(read, "", X, torch.tensor(3))


# --- MultiConv, matmul, names ---------------------------------------------------------------------

def test_multi_conv():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Conv2d(1, 2, 3), nn.Conv2d(1, 2, 3)

        def forward(self, x):
            multi = poptorch.MultiConv().availableMemoryProportions((0.1, 0.2)).partialsTypes(torch.float)
            with multi.planType(poptorch.MultiConvPlanType.Parallel).perConvReservedTiles(100).cycleBackOff(0.3):
                y, z = self.a(x), self.b(x)
            return y * z
    net, x = Net(), torch.randn(2, 1, 6, 6)
    torch.testing.assert_close(inference(net)(x), net(x).detach(), rtol=1e-4, atol=1e-5)


def test_multi_conv_misuse():
    w = nn.Conv1d(1, 1, 1)

    class Net(nn.Module):
        def __init__(self, forward):
            super().__init__()
            self.w, self.function = w, forward

        def forward(self, x):
            return self.function(self.w, x)

    def empty(w, x):
        with poptorch.MultiConv():
            return x + 1

    def chained(w, x):
        with poptorch.MultiConv():
            return w(torch.relu(w(x)))

    def nested(w, x):
        with poptorch.MultiConv(), poptorch.MultiConv():
            return w(x)
    for forward, match in ((empty, "no convolution"), (chained, "depend on each other"), (nested, "inside another")):
        refused(Net(forward), match, torch.ones(1, 1, 4))
    multi = poptorch.MultiConv()
    for call, error in ((lambda: multi.partialsTypes(torch.int8), ValueError),
                        (lambda: multi.enableConvDithering(3), ValueError),
                        (lambda: multi.planType(3), AssertionError), (lambda: multi.cycleBackOff(1), AssertionError),
                        (lambda: multi.perConvReservedTiles(0.5), AssertionError),
                        (lambda: multi.availableMemoryProportions("a"), AssertionError)):
        with pytest.raises(error):
            call()


@pytest.mark.parametrize("mode", list(poptorch.MatMulSerializationMode))
def test_serialized_matmul(mode):
    a, b = torch.randn(4, 6), torch.randn(6, 2)

    def forward(x, y):
        return poptorch.serializedMatMul(x, y, mode, 2)
    torch.testing.assert_close(inference(forward)(a, b), a @ b)
    torch.testing.assert_close(forward(a, b), a @ b)


@pytest.mark.parametrize("args", [(1, X, poptorch.MatMulSerializationMode.ReducingDim), (X, X.t(), "reducing_dim"),
                                  (X, X.t(), poptorch.MatMulSerializationMode.ReducingDim, 0.5),
                                  (X, X.t(), poptorch.MatMulSerializationMode.ReducingDim, 3),
                                  (X, X.t(), poptorch.MatMulSerializationMode.ReducingDim, 2, 1)])
def test_serialized_matmul_misuse(args):
    with pytest.raises(AssertionError):
        poptorch.serializedMatMul(*args)


def test_identities():
    mode = poptorch.OverlapMode.NoOverlap

    def forward(x):
        x = poptorch.set_available_memory(poptorch.nop(x), 0.2)
        x, y = poptorch.recomputationCheckpoint(x, x * 2)
        y = poptorch.recomputationCheckpoint(y)
        a, (b,) = poptorch.set_overlap_for_input((x, [y]), mode)
        with poptorch.Attribute(__schedule_priority={"p": 1}):
            return poptorch.set_overlap_for_output({"sum": a + b}, mode)["sum"]
    assert inference(forward)(torch.ones(2)).tolist() == forward(torch.ones(2)).tolist() == [3, 3]
    for call, error in ((lambda: poptorch.nop(1), poptorch.Error), (lambda: poptorch.NameScope(1), AssertionError),
                        (lambda: poptorch.set_available_memory(1, 0.5), poptorch.Error),
                        (lambda: poptorch.recomputationCheckpoint(X, 1), ValueError)):
        with pytest.raises(error):
            call()


def overlapping(forward, mode=poptorch.OutputMode.All, tiles=32, strategy=None):
    """The result of a function that is given the two functions, with the second mode of overlapping."""
    opts = options().outputMode(mode).setExecutionStrategy(strategy or poptorch.ShardedExecution())
    if tiles:
        opts.TensorLocations.numIOTiles(tiles)
    how = poptorch.OverlapMode.OverlapDeviceIterationLoop
    return inference(lambda *xs: forward(lambda t: poptorch.set_overlap_for_input(t, how),
                                         lambda t: poptorch.set_overlap_for_output(t, how), *xs), opts)(X, X)


def test_overlapping_is_an_identity():
    def forward(i, o, x, y):
        (x, more), z = i((x, {"y": y})), y + 1
        s = x + more["y"]
        return o([s, z]), s    # s itself can be returned too

    for mode in (poptorch.OutputMode.All, poptorch.OutputMode.Sum):
        (a, b), c = overlapping(forward, mode=mode)
        assert torch.equal(a, X + X) and torch.equal(b, X + 1) and torch.equal(c, a)
    assert torch.equal(overlapping(lambda i, o, x, y: i(x) + y, mode=poptorch.OutputMode.Final), X + X)
    assert torch.equal(overlapping(lambda i, o, x, y: o(i(x)), strategy=poptorch.PipelinedExecution()), X)


def two_devices(i, o, x, y):
    with poptorch.Block("a", ipu_id=0):
        x = i(x) + 1
    with poptorch.Block("b", ipu_id=1):
        return x * y


@pytest.mark.parametrize("forward, match, settings", [
    (lambda i, o, x, y: i(x), "set_overlap_for_input needs.*numIOTiles", {"tiles": 0}),
    (lambda i, o, x, y: o(x + y), "set_overlap_for_output needs.*numIOTiles", {"tiles": 0}),
    (lambda i, o, x, y: o(x + y), "OutputMode.All or OutputMode.Sum; the model has Final",
     {"mode": poptorch.OutputMode.Final}),
    (lambda i, o, x, y: i(x + y), "not an input of the model", {}),
    (lambda i, o, x, y: (x * 2, i(x)), "must be the first operation on an input", {}),
    (lambda i, o, x, y: (o(x + y),) * 2, "returned 2 times", {}),
    (lambda i, o, x, y: (o(x + y), x)[1], "returned 0 times", {}),
    (lambda i, o, x, y: (lambda z: (z, z * 2))(o(x + y)), "used for nothing else", {}),
    (two_devices, "not supported with poptorch.PipelinedExecution",
     {"strategy": poptorch.PipelinedExecution("a", "b")})])
def test_overlapping_misuse(forward, match, settings):
    with pytest.raises(poptorch.Error, match=match):
        overlapping(forward, **settings)


def test_overlapping_needs_a_mode():
    for function in (poptorch.set_overlap_for_input, poptorch.set_overlap_for_output):
        with pytest.raises(AssertionError, match="OverlapMode"):
            function(X, "no_overlap")
        for mode in poptorch.OverlapMode:
            assert function(X, mode) is X    # on the CPU
        assert torch.equal(inference(lambda x: function(x, poptorch.OverlapMode.NoOverlap))(X), X)    # needs nothing


def test_names_of_operations():
    def forward(x):
        with poptorch.NameScope("outer"), poptorch.NameScope("inner"):
            y = x * 2
        return y + 1
    model = inference(forward)
    model(torch.ones(1))
    assert {"outer/inner/mul:0", "add:0"} <= set(model.getTensorNames())


@pytest.mark.parametrize("call", [
    lambda x: poptorch.for_loop(2, lambda t: [t], x), lambda x: poptorch.for_loop(2, lambda t: [t], [1]),
    lambda x: poptorch.cond(True, lambda t: t, [x], lambda t: t, [x]),
    lambda x: poptorch.cond(x > 0, lambda t: t, x, lambda t: t, [x])])
def test_control_misuse(call):
    refused(call, "", torch.ones(1), error=ValueError)


def test_queries(capsys):
    assert poptorch.ipuHardwareIsAvailable(64) and not poptorch.ipuHardwareIsAvailable(65)    # a process's most
    assert poptorch.ipuHardwareIsAvailable() and isinstance(poptorch.ipuHardwareVersion(), int)
    assert not poptorch.isRunningOnIpu()
    for level in ("TRACE", "DEBUG", "INFO", "WARN", "ERR", "OFF", "TRACE_ALL", "DEBUG_IR", 0, 1, 2, 3, 4, 6):
        poptorch.setLogLevel(level)
    poptorch.setLogLevel("WARN")
    for level in ("LOUD", 5, None):
        with pytest.raises(ValueError, match="TRACE"):
            poptorch.setLogLevel(level)


# --- autocast -------------------------------------------------------------------------------------

class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.fc = nn.Conv2d(1, 2, 3), nn.Linear(2, 3)

    def forward(self, x):
        with poptorch.autocast():
            y = self.conv(x)
            z = self.fc(y.mean((2, 3)))
        with poptorch.autocast(enabled=False):
            w = torch.matmul(x[:, 0], x[:, 0])
        return y, z, w, x + 1


def test_autocast_regions():
    x = torch.randn(2, 1, 5, 5)
    net = Mixed()
    out = inference(net)(x)
    assert [t.dtype for t in out] == [torch.float16, torch.float16, torch.float32, torch.float32]
    for ours, theirs in zip(out, net(x)):
        torch.testing.assert_close(ours.float(), theirs.detach(), rtol=1e-2, atol=1e-2)
    opts = options()
    opts.Precision.autocastEnabled(False)
    assert all(t.dtype == torch.float32 for t in inference(net, opts)(x))
    opts = options()
    opts.Precision.autocastPolicy(poptorch.autocasting.Policy(fp16=["linear"]))
    assert [t.dtype for t in inference(net, opts)(x)][:2] == [torch.float32, torch.float16]


def test_autocast_of_a_module_and_promotion():
    net = nn.Sequential(nn.Linear(3, 3).autocast(), nn.Linear(3, 2))
    x = torch.randn(4, 3)
    assert inference(net[0])(x).dtype == torch.float16

    @poptorch.autocast()
    def both(a, b):
        return torch.cat([a, b]), torch.mm(a.view(1, 2), b.float().view(2, 1))
    y, z = inference(both)(torch.ones(2), torch.ones(2).half())
    assert y.dtype == torch.float32 and z.dtype == torch.float16


def test_autocast_trains():
    torch.manual_seed(0)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(3, 2).autocast()

        def forward(self, x, t):
            return F.mse_loss(self.fc(x).float(), t)
    net, model = training(Net(), optimizer=None)
    x, t = torch.randn(8, 3), torch.randn(8, 2)
    losses = [model(x, t).item() for _ in range(10)]
    assert losses[-1] < losses[0] and net.fc.weight.dtype == torch.float32    # a master copy


# --- points -------------------------------------------------------------------------------------

def on_both(function, *args):
    """What the device makes of it, which is what the CPU does."""
    found, expected = inference(function)(*args), function(*args)
    assert torch.equal(found, expected.int())
    return found.tolist()


def test_fps():
    line = torch.tensor([[0.0], [1], [2], [9], [5], [50], [40], [30]])
    assert on_both(lambda x: poptorch.fps(x, [0, 5, 8], 0.6), line) == [0, 3, 4, 5, 7]
    assert on_both(lambda x: poptorch.fps(x * 2, [2, 4]), line) == [2]
    model = inference(lambda x: poptorch.fps(x, [0, 8], 0.1, random_start=True))
    assert len({model(line).item() for _ in range(40)}) > 1
    for args in ((line, [0]), (line, (0, 8)), (line, [0, 4.0]), ([[0.0]], [0, 1]), (line, [0, 9]), (line, [0, 8], 1.5)):
        with pytest.raises(poptorch.Error, match="fps"):
            poptorch.fps(*args)


def test_fps_in_training():
    """Points are chosen, and what becomes of them is trained."""
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(2, 1)

        def forward(self, x):
            y = self.fc(x)
            return poptorch.identity_loss(y[poptorch.fps(x, [0, 6], 0.5)].sum(), "sum")

    x = torch.randn(6, 2)
    net, model = training(Net(), optimizer=None)
    before = net.fc.weight.detach().clone()
    model(x)
    torch.testing.assert_close(before - net.fc.weight.detach(), 0.5 * x[poptorch.fps(x, [0, 6], 0.5)].sum(0)[None])


def test_nearest():
    torch.manual_seed(0)
    x, y = torch.randn(40, 3), torch.randn(7, 3)
    assert on_both(poptorch.nearest, x, y) == torch.cdist(x, y).argmin(1).tolist()
    assert on_both(poptorch.nearest, x[:, 0], y[:, 0]) == (x[:, :1] - y[:, 0]).abs().argmin(1).tolist()
    of_x, of_y = [0] * 10 + [1] * 30, [0] * 3 + [1] * 4
    expected = torch.cat([torch.cdist(x[:10], y[:3]).argmin(1), torch.cdist(x[10:], y[3:]).argmin(1) + 3]).tolist()
    assert on_both(lambda x, y: poptorch.nearest(x, y, of_x, of_y), x, y) == expected
    assert on_both(poptorch.nearest, x, y, torch.tensor(of_x), torch.tensor(of_y)) == expected
    for args in ((x, [0.0]), (x, y, of_x), (x, y, of_x, of_x)):
        with pytest.raises(poptorch.Error, match="nearest"):
            poptorch.nearest(*args)


# --- ctc_beam_search_decoder ----------------------------------------------------------------------

def labellings(logs, blank):
    """{labels: probability} of all paths through logs [T, classes]."""
    found = {}
    for path in itertools.product(range(logs.shape[1]), repeat=logs.shape[0]):
        labels = tuple(c for c, before in zip(path, (None,) + path) if c != before and c != blank)
        found[labels] = found.get(labels, 0.0) + math.exp(sum(logs[t, c] for t, c in enumerate(path)))
    return found


@pytest.mark.parametrize("blank", [0, 2])
def test_ctc_beam_search_decoder(blank):
    torch.manual_seed(0)
    logs, lengths = torch.log_softmax(torch.randn(4, 2, 3) * 2, -1), torch.tensor([4, 3])
    decode = inference(lambda x, n: poptorch.ctc_beam_search_decoder(x, n, blank, beam_width=64, top_paths=3))
    probabilities, counts, labels = decode(logs, lengths)
    assert labels.shape == (2, 3, 4) and labels.dtype == counts.dtype == torch.int32
    for b in range(2):
        best = sorted(labellings(logs[:lengths[b], b], blank).items(), key=lambda item: -item[1])[:3]
        for i, (path, probability) in enumerate(best):
            assert probabilities[b, i].item() == pytest.approx(probability, rel=1e-5)
            assert labels[b, i].tolist() == list(path) + [blank] * (4 - len(path)) and counts[b, i] == len(path)
    for args in ((logs[0], lengths), (logs, lengths[:1]), (logs, 4), (logs, lengths, 3), (logs, lengths, 0, 2, 3)):
        with pytest.raises(poptorch.Error, match="ctc_beam_search_decoder"):
            poptorch.ctc_beam_search_decoder(*args)
