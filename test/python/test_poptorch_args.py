"""Arguments and results: what is accepted, converted, compared with the first call, and returned."""

import collections

import pytest
import torch
import torch.nn as nn

import poptorch
from poptorch_helpers import (MODES, inference, log, nothing_cached, options, refused, training)  # noqa: F401

Pair = collections.namedtuple("Pair", "a b")
X, Y = torch.tensor([1.0, 2.0]), torch.tensor([10.0, 20.0])


class Net(nn.Module):
    def forward(self, x, y=2, *rest, flag=True, **more):
        out = x * y
        for r in rest:
            out = out + r
        for v in more.values():
            out = out - v
        return out if flag else -out


@pytest.mark.parametrize("args, kwargs", [
    ((X,), {}), ((X, 3), {}), ((X,), {"y": Y}), ((X, Y, X, X), {}), ((X, Y), {"flag": False}), ((X,), {"z": Y}),
    ((), {"x": X, "y": 3}), ((X, Y, X), {"flag": False, "p": X, "q": Y})])
def test_binding(args, kwargs):
    model = inference(Net())
    for _ in range(2):
        assert torch.equal(model(*args, **kwargs), Net()(*args, **kwargs))


def test_misuse_of_the_signature():
    model = poptorch.inferenceModel(lambda x, y=1: x * y, options())
    for args, kwargs, error, match in (((X, 1, 2), {}, AssertionError, "Too many arguments"),
                                       ((X,), {"z": 1}, AssertionError, "no parameter called z"),
                                       ((X,), {"x": X}, AssertionError, "multiple values"),
                                       ((), {"y": 1}, poptorch.Error, "Mandatory parameter x missing")):
        with pytest.raises(error, match=match):
            model(*args, **kwargs)


STRUCTURES = {
    "tuple": ((X, Y), lambda v: v[0] + v[1]), "list": ([X, [Y]], lambda v: v[0] + v[1][0]),
    "dict": ({"a": X, "b": Y}, lambda v: v["a"] + v["b"]), "named": (Pair(X, Y), lambda v: v.a + v.b),
    "ordered": (collections.OrderedDict(a=X, b=Y), lambda v: v["a"] + v["b"]),
    "mixed": ({"a": (X, 3), "b": [Y, None, "text"]}, lambda v: v["a"][0] * v["a"][1] + v["b"][0]),
}


def equal(a, b):
    if isinstance(a, torch.Tensor) or type(a) is not type(b):
        return type(a) is type(b) and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[k], b[k]) for k in a)
    return len(a) == len(b) and all(map(equal, a, b)) if isinstance(a, (list, tuple)) else a == b


@pytest.mark.parametrize("name", STRUCTURES)
def test_structures_go_in_and_out(name):
    value, function = STRUCTURES[name]
    model = inference(lambda v: (function(v), v))
    for _ in range(2):
        out, same = model(value)
        assert torch.equal(out, function(value))
        assert equal(same, value)


def test_the_same_tensor_twice():
    out = inference(lambda x: (x, [x, x + 1], x))(X)
    assert out[0] is out[1][0] is out[2] and torch.equal(out[0], X)


def test_other_values_are_compiled_in():
    loss = torch.nn.L1Loss()

    def forward(x, function, n, text, nothing, flag):
        assert text == "t" and nothing is None
        return function(x, x * n) if flag else x
    model = inference(forward)
    assert model(X, loss, 3, "t", None, True).item() == 3
    assert model(X, loss, 3, "t", None, True).item() == 3
    for changed, match in (((X, nn.L1Loss(), 3, "t", None, True), "Value mismatch for args"),
                           ((X, loss, 4, "t", None, True), "Value mismatch"),
                           ((X, loss, 3.0, "t", None, True), "Type mismatch"),
                           ((X, loss, 3, "u", None, True), "Value mismatch"),
                           ((X, loss, 3, "t", 0, True), "Type mismatch"),
                           ((X, loss, 3, "t", X, True), "Type mismatch")):
        with pytest.raises(poptorch.Error, match=match):
            model(*changed)


@pytest.mark.parametrize("first, later, match", [
    ((X, Y), (X, torch.ones(3)), r"Shape mismatch for v\[1\]: expected \(2,\) but got \(3,\)"),
    ((X, Y), [X, Y], "Type mismatch for v"), ((X, Y), (X,), "Length mismatch for v"),
    ((X, Y), (X, Y.int()), r"Data type mismatch for v\[1\]"), ({"a": X}, {"b": X}, "Keys mismatch for v"),
    ({"a": X}, {"a": torch.ones(1)}, r"Shape mismatch for v\[a\]"), (X, 3, "Type mismatch for v"),
    (X, torch.ones(2, 1), "Shape mismatch for v")])
def test_later_calls_are_compared(first, later, match):
    model = poptorch.inferenceModel(lambda v: None, options())
    assert model(first) is None
    with pytest.raises(poptorch.Error, match=f"{match}(.|\n)*destroy"):
        model(later)


def test_keys_may_come_in_another_order(log):
    model = inference(lambda d: d["a"] - d["b"])
    assert model({"a": X, "b": Y}).tolist() == model({"b": Y, "a": X}).tolist() == [-9, -18]
    assert "partly supported" in log()


# --- types ----------------------------------------------------------------------------------------

@pytest.mark.parametrize("dtype, returned", [
    (torch.uint8, torch.uint8), (torch.int8, torch.int8), (torch.int16, torch.int16), (torch.int32, torch.int32),
    (torch.int64, torch.int32), (torch.float16, torch.float16), (torch.float32, torch.float32),
    (torch.float64, torch.float32), (torch.bool, torch.bool)])
def test_dtypes(dtype, returned):
    x = torch.tensor([1, 0, 3]).to(dtype)
    model = inference(lambda x: (x, x if x.dtype == torch.bool else x + x), options().deviceIterations(3))
    for _ in range(2):
        same, twice = model(x)
        assert same.dtype == twice.dtype == returned
        assert torch.equal(same, x.to(returned))
        assert torch.equal(twice, (x if dtype == torch.bool else x + x).to(returned))


def test_int16_everywhere():
    class Short(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("b", torch.tensor([100, 200], dtype=torch.int16))

        def forward(self, x):
            self.b.add_(x)
            return self.b * torch.tensor([1, 2], dtype=torch.int16), (self.b + 0.5), x.float()
    net = Short()
    model = inference(net, options().updatableNamedBuffers(["b"]))    # otherwise it is a constant
    x = torch.tensor([-7, 8], dtype=torch.int16)
    for n in (1, 2):
        a, b, c = model(x)
        assert a.dtype == torch.int16 and a.tolist() == [100 - 7 * n, 2 * (200 + 8 * n)]
        assert b.tolist() == [100.5 - 7 * n, 200.5 + 8 * n] and c.tolist() == [-7, 8]
    model.copyWeightsToHost()
    assert net.b.dtype == torch.int16 and net.b.tolist() == [86, 216]


def test_what_cannot_be_an_argument():
    with pytest.raises(poptorch.Error, match="complex128.*not supported|quint8.*not supported"):
        inference(lambda x: x)(torch.quantize_per_tensor(torch.ones(1), 0.1, 0, torch.quint8))


@pytest.mark.filterwarnings("error")
def test_tensors_without_elements():
    """As arguments, weights, results and in between: they are the same in every run, and not the engine's business."""
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.nothing, self.w = nn.Parameter(torch.zeros(0, 3)), nn.Parameter(torch.ones(3))

        def forward(self, none, x):
            rows = torch.cat([none, x[2:2], self.nothing, x * self.w])
            return rows, x[:, :0], none.sum() + x, x[0:0].sum(0) + x[0], poptorch.identity_loss(rows.sum(), "none")
    x = torch.arange(6.0).view(2, 3)
    model = inference(Net())
    for a, b in zip(model(torch.zeros(0, 3), x), Net()(torch.zeros(0, 3), x)):
        assert a.shape == b.shape and torch.equal(a, b.detach())
    out = inference(Net(), options().deviceIterations(2))(torch.zeros(0, 3), torch.cat([x, x]))
    assert [t.shape for t in out] == [(4, 3), (4, 0), (4, 3), (6,), (2,)]
    net = Net()
    trained = poptorch.trainingModel(net, options(), torch.optim.SGD(net.parameters(), lr=1.0))
    trained(torch.zeros(0, 3), x)
    assert net.w.tolist() == [-2, -4, -6] and net.nothing.shape == (0, 3)


def nowhere(*shape):
    return torch.zeros(*(shape or (0,)), dtype=torch.long)


#: What is written to no place, by an index without elements or a mask that is false, and pieces without elements.
NOTHING = {
    "index_put": lambda y: y.index_put((nowhere(),), y[:0]), "x[none] = 5": lambda y: y.__setitem__(nowhere(), 5.0),
    "x[none] += x": lambda y: y.index_put_((nowhere(),), y[:0], accumulate=True), "x[:, none] = x": lambda y: y.__setitem__(
        (slice(None), nowhere()), y[:, :0]), "x[no mask] = 7": lambda y: y.__setitem__(torch.zeros(4, dtype=torch.bool), 7.0),
    "put": lambda y: y.put(nowhere(), y.flatten()[:0]), "put_": lambda y: y.put_(nowhere(), torch.zeros(0)),
    "index_add": lambda y: y.index_add(0, nowhere(), y[:0]), "index_add_": lambda y: y.index_add_(0, nowhere(), torch.zeros(0, 6)),
    "index_copy": lambda y: y.index_copy(0, nowhere(), y[:0]), "index_fill": lambda y: y.index_fill(0, nowhere(), 3.0),
    "index_reduce": lambda y: y.index_reduce(0, nowhere(), y[:0], "prod"),
    "scatter": lambda y: y.scatter(0, nowhere(0, 6), y[:0]), "scatter a number": lambda y: y.scatter(0, nowhere(0, 6), 2.0),
    "scatter_add_": lambda y: y.scatter_add_(1, nowhere(4, 0), y[:, :0]),
    "scatter_reduce": lambda y: y.scatter_reduce(0, nowhere(0, 6), y[:0], "amax", include_self=False),
    "diagonal_scatter": lambda y: y.diagonal_scatter(torch.zeros(0), 6),
    "split": lambda y: torch.cat(torch.split(y, [0, 4, 0, 2], 1)[::-1], 1), "written pieces": lambda y: (
        lambda z: (torch.split(z, [4, 0, 2], 1)[2].mul_(3.0), y + z)[1])(y.detach().clone()), "no piece at all": lambda y: sum(t.sum() for t in torch.split(y[:, :0], [0, 0], 1)) + y,
}


@pytest.mark.parametrize("name", NOTHING)
def test_nothing_is_written(name):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.arange(24.0).view(4, 6))

        def forward(self, x):
            y = x * self.w
            out = NOTHING[name](y)
            out = y if out is None else out
            return out, poptorch.identity_loss((out * torch.arange(1.0, out.numel() + 1).view(out.shape)).sum(), "none")
    x = torch.randn(4, 6)
    net, same = Net(), Net()
    out, loss = poptorch.trainingModel(net, options(), torch.optim.SGD(net.parameters(), lr=1.0))(x)
    expected, total = same(x)
    total.backward()
    assert torch.allclose(out, expected.detach(), atol=1e-5) and torch.allclose(
        torch.arange(24.0).view(4, 6) - net.w.detach(), same.w.grad, rtol=1e-4, atol=1e-4)


def test_inputs_that_are_not_contiguous(log):
    x = torch.arange(6.0).view(2, 3)
    model = inference(lambda x: x + 1)
    for _ in range(2):
        assert torch.equal(model(x.t()), x.t() + 1)
    assert log().count("not contiguous") == 1    # once for each executor


def test_inputs_that_want_a_gradient(log):
    x = torch.ones(2, requires_grad=True)
    out = inference(lambda x: x * 2)(x)
    assert "requires_grad=True" in log() and not out.requires_grad and out.grad_fn is None


# --- written inputs -------------------------------------------------------------------------------

def test_inputs_that_forward_writes():
    def forward(x, y):
        x[0] += 5
        y.copy_(x)
        return x.sum()
    model = inference(forward)
    for n in (1, 2):
        x, y = torch.ones(2), torch.zeros(2)
        assert model(x, y).item() == 7 and x.tolist() == y.tolist() == [6, 1]
    x, y = torch.ones(2, dtype=torch.int16), torch.zeros(2, dtype=torch.int16)
    inference(forward)(x, y)
    assert x.tolist() == y.tolist() == [6, 1]


# --- results --------------------------------------------------------------------------------------

def test_results_have_no_history():
    net, model = training()
    out, loss = model(torch.randn(4, 3), torch.randn(4, 2))
    for t in (out, loss):
        assert t.device.type == "cpu" and not t.requires_grad and t.grad_fn is None
        with pytest.raises(poptorch.Error, match=r"backward\(\) cannot be called explicitly"):
            t.backward()
    total = 0
    total += loss    # rank 0, as any number
    assert total.shape == () and out.data.max(dim=1).indices.shape == (4,)


def test_results_of_all_modes_refuse_backward():
    for mode, n in ((MODES.Sum, None), (MODES.EveryN, 2), (MODES.Final, None)):
        opts = options().deviceIterations(2).replicationFactor(2).outputMode(mode, n)
        out = inference(lambda x: (x + 1, 3), opts)(torch.ones(4))
        assert out[1] == 3
        with pytest.raises(poptorch.Error, match=r"backward\(\)"):
            out[0].backward()


def test_nothing_is_a_result():
    assert inference(lambda x: None)(X) is None
    assert inference(lambda x: (None, x, "text"))(X)[::2] == (None, "text")


def test_results_from_the_cpu():
    constant = torch.tensor([5.0])
    with pytest.warns(UserWarning, match="Output expected to be on the IPU but is on cpu"):
        out, same = inference(lambda x: (x + 1, constant))(X)
    assert same.tolist() == [5] and out.tolist() == [2, 3]


# --- custom types ---------------------------------------------------------------------------------

class Box:
    def __init__(self, a, b, label):
        self.a, self.b, self.label = a, b, label


class Crate(Box):
    pass


class BoxParser(poptorch.ICustomArgParser):
    def yieldTensors(self, struct):
        yield struct.a
        yield struct.b

    def reconstruct(self, original_structure, tensor_iterator):
        return type(original_structure)(next(tensor_iterator), next(tensor_iterator), original_structure.label)


@pytest.fixture
def boxes():
    poptorch.registerCustomArgParser(Box, BoxParser())
    yield
    poptorch.registerCustomArgParser(Box, None)


@pytest.mark.parametrize("kind", [Box, Crate])    # the type, and one that is derived from it
def test_custom_types(boxes, kind):
    model = inference(lambda box: kind(box.a + box.b, box.a, box.label))
    for _ in range(2):
        out = model(kind(X, Y, "name"))
        assert type(out) is kind and out.label == "name" and torch.equal(out.a, X + Y) and torch.equal(out.b, X)
    with pytest.raises(poptorch.Error, match=r"Shape mismatch for args\[0\]\[1\]"):
        model(kind(X, torch.ones(3), "name"))


def test_custom_types_misuse(boxes):
    with pytest.raises(poptorch.Error, match="ICustomArgParser"):
        poptorch.registerCustomArgParser(Pair, object())
    poptorch.registerCustomArgParser(Box, None)
    with pytest.raises(poptorch.Error, match="Expected an IPU tensor"):    # now it is a constant like any other
        inference(lambda x, box: x + box.a)(X, Box(X, Y, "name"))


# --- while forward runs ---------------------------------------------------------------------------

def test_printing_a_tensor(capsys):
    def forward(x):
        print(x * 2, f"{x.sum()}", [x])
        return x
    inference(forward)(X)
    out = capsys.readouterr().out
    assert out.count("<unavailable>") == 3 and "(2,)" in out and "20" not in out


@pytest.mark.parametrize("read", [
    lambda x: x.sum().item(), lambda x: bool(x.sum() > 0), lambda x: float(x[0]), lambda x: int(x[0]),
    lambda x: x.cpu(), lambda x: x.to("cpu"), lambda x: x.to(device="cpu"), lambda x: x.tolist(),
    lambda x: [1, 2][x[0].long()],
    lambda x: x if x.sum() > 0 else -x])
def test_values_are_unknown(read):
    refused(lambda x: (read(x), x)[1], "", X)


@pytest.mark.parametrize("make", [
    lambda: torch.arange(2), lambda: torch.full((2,), 3.0), lambda: torch.linspace(0, 1, 2), lambda: torch.ones(2),
    lambda: torch.zeros(2), lambda: torch.tensor([1.0, 2.0]), lambda: torch.zeros_like(X),
    lambda: torch.full_like(X, 2)])
def test_new_tensors_are_the_devices(make, log):
    expected = X + make()
    log()
    assert torch.equal(inference(lambda x: x + make())(X), expected)
    assert "[warning] No device set in torch." in log()
    inference(lambda x: x + torch.ones(2, device=x.device) + torch.normal(x, x))(X)
    assert "No device set" not in log()
    inference(lambda x: x + torch.normal(0.0, 1.0, (2,)))(X)
    assert "No device set in torch.normal()" in log()


def test_repeated_warnings(log):
    def forward(x):
        for _ in range(9):
            x = x + torch.ones(2)
        return x
    inference(forward)(X)
    assert log().count("No device set in torch.ones()") == 4
    inference(forward, options().maxRepeatLogs(2))(X)
    assert log().count("No device set in torch.ones()") == 2


def test_tensors_of_the_cpu():
    outside = torch.tensor([5.0, 6.0])
    for forward in (lambda x: x + outside, lambda x: x * outside[:1], lambda x: torch.cat([x, outside * 2])):
        refused(forward, "Expected an IPU tensor.*test_poptorch_args", X)

    class Plain(nn.Module):
        def __init__(self):
            super().__init__()
            self.t = torch.ones(2)

        def forward(self, x):
            return x + self.t
    refused(Plain(), "Expected an IPU tensor.*register it as a buffer", X)
    assert inference(lambda x: x + torch.tensor([5.0, 6.0])[:1])(X).tolist() == [6, 7]    # made in forward
    assert inference(lambda x: x[[1, 0]])(X).tolist() == [2, 1]


def test_distributions_are_not_validated():
    def forward(x):
        return torch.distributions.Normal(x, x.abs() + 1).log_prob(x)
    torch.testing.assert_close(inference(forward)(X), forward(X))
    assert torch.distributions.Distribution._validate_args


def test_slices_by_tensors():
    refused(lambda x: x[x > 1], "", X)
    refused(torch.nonzero, "", X)

    def mask(x):
        y = x.clone()
        y[x > 1] = 0
        return y
    assert inference(mask)(X).tolist() == [1, 0]


def test_compiled_modules_are_refused():
    for module in (torch.jit.script(nn.Linear(2, 2)), torch.jit.trace(nn.Linear(2, 2), torch.ones(1, 2))):
        with pytest.raises(poptorch.Error, match="torch.jit.*wrap the module that it was made of"):
            poptorch.inferenceModel(module, options())(torch.ones(1, 2))
