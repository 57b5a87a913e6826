"""What a wrapper does with the module's own methods, and poptorch.poptorch_core."""

import inspect

import pytest
import torch
import torch.nn as nn
from poptorch_helpers import Small, log, nothing_cached, options, training    # noqa: F401

import poptorch
from poptorch import poptorch_core


class Net(Small):
    def generate(self, x):
        return self.fc(x) + 1

    def scaled(self, x):
        return x @ self.fc.weight.t()

    def weights(self):
        return sum(p.numel() for p in self.parameters())

    def reset(self, to):
        nn.init.zeros_(self.fc.bias)
        with torch.no_grad():
            self.fc.weight.copy_(to)
        return self

    def chained(self):
        return self


def wrappers():
    return [training(Net())[1], poptorch.inferenceModel(Net(), options())]


#: Arguments of those methods of nn.Module that return the module and need some.
ARGUMENTS = {"apply": (lambda m: None,), "to": (torch.float64,), "to_empty": {"device": "cpu"}, "type": (torch.float64,)}


def returns_itself(name):
    """Does this method of nn.Module return the module?"""
    method = getattr(nn.Module, name)
    given = ARGUMENTS.get(name, ())
    net = Net()
    try:
        bound = getattr(net, name)
        return callable(method) and (bound(**given) if isinstance(given, dict) else bound(*given)) is net
    except Exception:    # it needs more arguments, or a device that is not there
        return False


METHODS = [name for name in dir(nn.Module) if not name.startswith("_") and returns_itself(name)]


def test_which_methods_those_are():
    assert set(METHODS) >= {"apply", "bfloat16", "cpu", "double", "eval", "float", "half", "requires_grad_",
                            "share_memory", "to", "to_empty", "train", "type"}


@pytest.mark.parametrize("name", [*METHODS, "chained"])
def test_what_returns_the_module_returns_the_wrapper(name):
    given = ARGUMENTS.get(name, ())
    for model in wrappers():
        method = getattr(model, name)
        assert (method(**given) if isinstance(given, dict) else method(*given)) is model


@pytest.mark.parametrize("convert, dtype", [(lambda m: m.double(), torch.float64), (lambda m: m.half(), torch.float16),
                                            (lambda m: m.type(torch.float64), torch.float64)])
def test_converted_wrappers_run_on_the_device(convert, dtype):
    for model in wrappers():
        model = convert(model)
        out = model(torch.ones(2, 3, dtype=dtype), torch.zeros(2, 2, dtype=dtype))
        assert model.isCompiled() and model.fc.weight.dtype == dtype
        assert torch.isfinite(out[0].float()).all()


def test_other_methods_are_as_ever():
    for model in wrappers():
        assert [n for n, _ in model.named_parameters()] == ["fc.weight", "fc.bias"]
        assert model.weights() == 8 and list(model.state_dict()) == ["fc.weight", "fc.bias"]
        assert inspect.signature(model.generate).parameters.keys() == {"x"}
        assert len(list(model.children())) == 1


def test_methods_that_compute_are_told_of_once(log):    # noqa: F811
    for model in wrappers():
        x = torch.ones(2, 3)
        log()
        model.generate(x)
        model.generate(x)
        said = log()
        assert said.count("generate() of Net computes on the host") == 1
        model.scaled(x)
        assert log().count("scaled() of Net") == 1
        model.weights()
        model.reset(torch.ones(2, 3))
        model.eval().train()
        assert "host" not in log()


def test_direct_calls_are_told_of_once(log):    # noqa: F811
    net, model = training(Net())
    x, t = torch.ones(2, 3), torch.zeros(2, 2)
    model(x, t)
    assert "host" not in log()
    net(x)
    net(x)
    assert log().count("A direct call of Net computes on the host") == 1
    poptorch.inferenceModel(net, options())(x)    # traced, not called
    assert "host" not in log()
    model.destroy()
    net(x)
    assert "host" not in log()


class Flagged(nn.Module):
    """Shows the flags of itself and of a part."""

    def __init__(self):
        super().__init__()
        self.part, self.w = nn.Identity(), nn.Parameter(torch.ones(1))

    def forward(self, x):
        y = x * self.w * 0 + float(self.training) * 10 + float(self.part.training)
        return y, poptorch.identity_loss(y.sum(), "sum")


@pytest.mark.parametrize("wrap", [lambda net: training(net)[1], lambda net: poptorch.inferenceModel(net, options()),
                                  lambda net: poptorch.inferenceModel(training(net)[1], options())])
@pytest.mark.parametrize("how", [lambda net, model: model.model.eval(), lambda net, model: net.eval(),
                                 lambda net, model: model.eval(), lambda net, model: net.train(False)])
def test_flags_of_the_inner_module_count(wrap, how):
    net = Flagged()
    model = wrap(net)
    how(net, model)
    assert float(model(torch.ones(1))[0]) == 0
    net.train()
    model.destroy()
    assert float(model(torch.ones(1))[0]) == 11


# poptorch.poptorch_core

def test_names_of_the_core():
    for name in ("Error", "RecoverableError", "UnrecoverableError", "OutputMode", "ConnectionType", "SyncPattern"):
        assert getattr(poptorch_core, name) is getattr(poptorch, name)
    assert poptorch.poptorch_core is poptorch_core and not poptorch_core.isCompilingWithDispatcher()
    seen = []
    poptorch.inferenceModel(lambda x: seen.append(poptorch_core.isCompilingWithDispatcher()) or x + 1,
                            options())(torch.ones(1))
    assert seen == [True]


@pytest.mark.parametrize("kind", poptorch_core.TestErrorType.__members__.values())
def test_errors_on_demand(kind):
    with pytest.raises(poptorch_core.Error) as e:
        poptorch_core._throwTestError(kind)
    recoverable = kind == poptorch_core.TestErrorType.PoplarRecoverableFullReset
    assert isinstance(e.value, poptorch.RecoverableError) == recoverable
    assert not recoverable or e.value.recovery_action == "FULL_RESET"
    assert isinstance(e.value, poptorch.UnrecoverableError) == (kind == poptorch_core.TestErrorType.PoplarUnrecoverable)
    assert f"'{e.value.type}': " in str(e.value)
