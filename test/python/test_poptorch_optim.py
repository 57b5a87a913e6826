"""poptorch.optim: constructor arguments, variable attributes, state dictionaries, and what the executor is told."""

import copy
import inspect
import io
import logging
import math
import pickle

import pytest

torch = pytest.importorskip("torch")

from poptorch import _logging, optim    # noqa: E402
from poptorch.errors import Error    # noqa: E402

KINDS = ["SGD", "Adam", "AdamW", "RMSprop", "LAMB"]
TORCH_KINDS = KINDS[:4]
INF = math.inf
F16, F32 = torch.float16, torch.float32


@pytest.fixture
def log():
    """The messages logged during a test, as (level, text)."""
    records = []
    handler = logging.Handler()
    handler.emit = lambda r: records.append((r.levelname, r.getMessage()))
    level = _logging.logger.level
    _logging.logger.addHandler(handler)
    _logging.logger.setLevel(1)
    yield records
    _logging.logger.setLevel(level)
    _logging.logger.removeHandler(handler)


def params(n=2):
    torch.manual_seed(0)
    return [torch.nn.Parameter(torch.randn(3, 2)) for _ in range(n)]


def make(kind, *args, p=None, **kwargs):
    if kind == "SGD" and not args:
        kwargs.setdefault("lr", 0.1)
    return getattr(optim, kind)(p or params(), *args, **kwargs)


def torchs(kind, p=None, **kwargs):
    if kind == "SGD":
        kwargs.setdefault("lr", 0.1)
    return getattr(torch.optim, kind)(p or params(), **kwargs)


# Constructors.

SIGNATURES = {
    "SGD": "params lr momentum dampening weight_decay nesterov maximize foreach differentiable loss_scaling "
           "velocity_scaling use_combined_accum accum_type velocity_accum_type max_grad_norm",
    "Adam": "params lr betas eps weight_decay amsgrad foreach maximize capturable differentiable fused loss_scaling "
            "accum_type first_order_momentum_accum_type second_order_momentum_accum_type max_grad_norm",
    "AdamW": "params lr betas eps weight_decay amsgrad maximize foreach capturable differentiable fused loss_scaling "
             "bias_correction accum_type first_order_momentum_accum_type second_order_momentum_accum_type "
             "max_grad_norm",
    "RMSprop": "params lr alpha eps weight_decay momentum centered foreach maximize differentiable loss_scaling "
               "accum_type first_order_momentum_accum_type second_order_momentum_accum_type use_tf_variant",
    "LAMB": "params lr betas eps weight_decay bias_correction loss_scaling max_weight_norm accum_type "
            "first_order_momentum_accum_type second_order_momentum_accum_type",
}


@pytest.mark.parametrize("kind", KINDS)
def test_arguments_in_order(kind):
    assert list(inspect.signature(getattr(optim, kind)).parameters) == SIGNATURES[kind].split()


@pytest.mark.parametrize("kind", KINDS)
def test_classes(kind):
    o = make(kind)
    assert isinstance(o, optim.Optimizer) and isinstance(o, torch.optim.Optimizer)
    if kind in TORCH_KINDS:
        assert isinstance(o, getattr(torch.optim, kind))


GROUP_DEFAULTS = {
    "SGD": {"lr": 0.1, "momentum": 0.0, "dampening": 0.0, "weight_decay": 0.0, "nesterov": False},
    "Adam": {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0},
    "AdamW": {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 1e-2},
    "RMSprop": {"lr": 1e-2, "alpha": 0.99, "eps": 1e-8, "weight_decay": 0.0, "momentum": 0.0},
    "LAMB": {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 1e-2, "max_weight_norm": 65500.0},
}
TYPES = {"accum_type": F32, "first_order_momentum_accum_type": F32, "second_order_momentum_accum_type": F32}
WIDE_DEFAULTS = {
    "SGD": {"loss_scaling": 1.0, "use_combined_accum": False, "accum_type": F32, "velocity_accum_type": F32,
            "max_grad_norm": INF},
    "Adam": {**TYPES, "loss_scaling": 1.0, "max_grad_norm": INF},
    "AdamW": {**TYPES, "loss_scaling": 1.0, "max_grad_norm": INF, "bias_correction": True},
    "RMSprop": {**TYPES, "loss_scaling": 1.0, "use_tf_variant": False, "centered": False},
    "LAMB": {**TYPES, "loss_scaling": 1.0, "bias_correction": True},
}


@pytest.mark.parametrize("kind, name, value", [(k, n, v) for k, d in GROUP_DEFAULTS.items() for n, v in d.items()])
def test_group_default(kind, name, value):
    o = make(kind)
    assert o.param_groups[0][name] == value
    assert optim.describe(o)["groups"][0][name] == value
    assert optim.describe(o)["defaults"][name] == value


@pytest.mark.parametrize("kind, name, value", [(k, n, v) for k, d in WIDE_DEFAULTS.items() for n, v in d.items()])
def test_wide_default(kind, name, value):
    assert optim.describe(make(kind))[name] == value


@pytest.mark.parametrize("kind", KINDS)
def test_description_has_nothing_else(kind):
    found = optim.describe(make(kind))
    assert found.keys() == WIDE_DEFAULTS[kind].keys() | {"kind", "groups", "defaults", "variable", "automatic"}
    assert found["groups"][0].keys() == GROUP_DEFAULTS[kind].keys() | {"params", "variable"}
    assert found["defaults"].keys() == GROUP_DEFAULTS[kind].keys() | {"variable"}
    assert found["kind"] == kind


def test_sgd_needs_a_learning_rate():
    with pytest.raises(ValueError, match="lr"):
        optim.SGD(params())


def test_positional_learning_rate():
    assert optim.describe(optim.RMSprop(params(), 1.0, eps=1e-4))["groups"][0]["lr"] == 1.0
    assert optim.describe(optim.Adam(params(), 1.0))["groups"][0]["lr"] == 1.0


@pytest.mark.parametrize("kind, name", [(k, n) for k in KINDS for n in SIGNATURES[k].split() if n.endswith("_type")])
def test_accumulator_types(kind, name):
    for dtype in (F16, F32):
        assert optim.describe(make(kind, **{name: dtype}))[name] == dtype
    for dtype in (torch.float64, torch.int32, torch.bfloat16, "float16"):
        with pytest.raises(AssertionError, match=name):
            make(kind, **{name: dtype})


@pytest.mark.parametrize("kind", ["Adam", "AdamW"])
def test_amsgrad(kind):
    make(kind, amsgrad=False)
    with pytest.raises(ValueError, match="amsgrad"):
        make(kind, amsgrad=True)
    assert optim.describe(torchs(kind, amsgrad=True))["groups"][0]["amsgrad"] is True


IGNORED = [("SGD", "foreach"), ("SGD", "differentiable"), ("SGD", "maximize"), ("Adam", "foreach"),
           ("Adam", "maximize"), ("Adam", "capturable"), ("Adam", "differentiable"), ("Adam", "fused"),
           ("AdamW", "foreach"), ("AdamW", "maximize"), ("AdamW", "capturable"), ("AdamW", "differentiable"),
           ("AdamW", "fused"), ("RMSprop", "foreach"), ("RMSprop", "maximize"), ("RMSprop", "differentiable")]


@pytest.mark.parametrize("kind, name", IGNORED)
@pytest.mark.parametrize("value", [True, False])
def test_arguments_without_effect(kind, name, value):
    p = params()
    found, plain = optim.describe(make(kind, p=p, **{name: value})), optim.describe(make(kind, p=p))
    assert {k: v for k, v in found["groups"][0].items() if k != "params"} == \
        {k: v for k, v in plain["groups"][0].items() if k != "params"}
    assert name not in found


def test_maximize_warns(log):
    make("SGD", maximize=True)
    assert [level for level, text in log if "maximize" in text] == ["WARNING"]


@pytest.mark.parametrize("kind, kwargs", [
    ("SGD", {"lr": -1.0}), ("SGD", {"momentum": -1.0}), ("SGD", {"nesterov": True}), ("Adam", {"betas": (1.0, 0.9)}),
    ("Adam", {"eps": -1.0}), ("AdamW", {"weight_decay": -1.0}), ("RMSprop", {"alpha": -1.0}), ("LAMB", {"lr": -1.0}),
    ("LAMB", {"betas": (0.9, 1.0)}), ("LAMB", {"betas": (-0.1, 0.5)}), ("LAMB", {"eps": -1e-8}),
    ("LAMB", {"weight_decay": -1.0}), ("LAMB", {"max_weight_norm": -1.0}), ("LAMB", {"lr": math.nan})])
def test_invalid_values(kind, kwargs):
    with pytest.raises(ValueError):
        make(kind, **kwargs)


@pytest.mark.parametrize("kind, name, value", [
    ("SGD", "loss_scaling", 8.0), ("SGD", "max_grad_norm", 2.0), ("SGD", "use_combined_accum", True),
    ("Adam", "loss_scaling", 8.0), ("Adam", "max_grad_norm", 2.0), ("AdamW", "loss_scaling", 8.0),
    ("AdamW", "max_grad_norm", 2.0), ("AdamW", "bias_correction", False), ("RMSprop", "loss_scaling", 8.0),
    ("RMSprop", "use_tf_variant", True), ("RMSprop", "centered", True), ("LAMB", "loss_scaling", 8.0),
    ("LAMB", "bias_correction", False)])
def test_wide_value(kind, name, value):
    assert optim.describe(make(kind, **{name: value}))[name] == value


def test_velocity_scaling_needs_the_combined_variant(log):
    o = make("SGD", velocity_scaling=2.0)
    assert "velocity_scaling" not in optim.describe(o)["groups"][0]
    assert [level for level, text in log if "velocity_scaling" in text] == ["WARNING"]


def test_velocity_scaling():
    p = params()
    o = optim.SGD([{"params": p[:1], "velocity_scaling": 3.0}, {"params": p[1:]}], lr=0.1, use_combined_accum=True,
                  velocity_scaling=2.0)
    assert [g["velocity_scaling"] for g in optim.describe(o)["groups"]] == [3.0, 2.0]
    o.add_param_group({"params": params(1)})
    assert optim.describe(o)["groups"][2]["velocity_scaling"] == 2.0
    constant = optim.describe(make("SGD", use_combined_accum=True))["groups"][0]
    assert constant["velocity_scaling"] == 1.0 and "velocity_scaling" not in constant["variable"]


def test_rmsprop_groups_agree_on_centered():
    p = params()
    groups = [{"params": p[:1], "centered": True}, {"params": p[1:], "centered": False}]
    with pytest.raises(AssertionError, match="centered"):
        optim.RMSprop(groups)
    with pytest.raises(AssertionError, match="centered"):
        optim.describe(torch.optim.RMSprop([{**g, "lr": 0.1} for g in groups]))


# Variable and constant.

VALUES = {"lr": 0.5, "momentum": 0.9, "dampening": 0.1, "weight_decay": 0.2, "betas": (0.8, 0.9), "eps": 1e-5,
          "alpha": 0.5, "max_weight_norm": 10.0, "loss_scaling": 4.0, "nesterov": False}
ATTRS = [(k, n) for k in KINDS for n in list(GROUP_DEFAULTS[k]) + ["loss_scaling"]]


def variable(o, name):
    found = optim.describe(o)
    return name in (found["variable"] if name == "loss_scaling" else found["groups"][0]["variable"])


@pytest.mark.parametrize("kind, name", [a for a in ATTRS if a != ("SGD", "lr")])
def test_left_out_is_constant(kind, name):
    o = make(kind)
    assert o.variable_attrs.isConstant(name)
    assert not variable(o, name)


@pytest.mark.parametrize("kind, name", ATTRS)
def test_passed_is_variable(kind, name):
    o = make(kind, **{name: VALUES[name]})
    assert not o.variable_attrs.isConstant(name)
    assert variable(o, name)
    others = {n for k, n in ATTRS if k == kind} - {name, "lr"}
    assert not any(variable(o, n) for n in others)


@pytest.mark.parametrize("kind, name", [(k, n) for k, n in ATTRS if n in GROUP_DEFAULTS[k]])
def test_passing_the_default_makes_it_variable(kind, name):
    assert variable(make(kind, **{name: GROUP_DEFAULTS[kind][name]}), name)


@pytest.mark.parametrize("kind, name", ATTRS)
def test_marking(kind, name):
    o = make(kind)
    o.variable_attrs.markAsVariable(name)
    assert variable(o, name) and not o.variable_attrs.isConstant(name)
    o.variable_attrs.markAsConstant(name)
    assert not variable(o, name) and o.variable_attrs.isConstant(name)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["isConstant", "markAsConstant", "markAsVariable"])
def test_unknown_attribute_name(kind, method):
    with pytest.raises(AssertionError, match="nope"):
        getattr(make(kind).variable_attrs, method)("nope")


TORCH_RULES = [
    ("SGD", {}, {"lr"}), ("SGD", {"momentum": 0.9}, {"lr", "momentum"}),
    ("SGD", {"momentum": 0.9, "nesterov": True}, {"lr", "momentum"}),
    ("SGD", {"momentum": 0.9, "dampening": 0.1, "weight_decay": 0.1}, {"lr", "momentum", "dampening", "weight_decay"}),
    ("SGD", {"weight_decay": 0.0}, {"lr"}),
    ("Adam", {}, {"lr"}), ("Adam", {"betas": (0.5, 0.5)}, {"lr"}), ("Adam", {"eps": 1e-4}, {"lr", "eps"}),
    ("Adam", {"weight_decay": 0.01}, {"lr", "weight_decay"}),
    ("AdamW", {}, {"lr"}), ("AdamW", {"weight_decay": 0.0}, {"lr", "weight_decay"}),
    ("AdamW", {"weight_decay": 0.01}, {"lr"}), ("AdamW", {"eps": 1e-8}, {"lr"}),
    ("RMSprop", {}, {"lr"}), ("RMSprop", {"alpha": 0.5}, {"lr"}), ("RMSprop", {"momentum": 0.1}, {"lr", "momentum"}),
    ("RMSprop", {"eps": 1e-3, "weight_decay": 0.1}, {"lr", "eps", "weight_decay"}),
]


@pytest.mark.parametrize("kind, kwargs, expected", TORCH_RULES)
def test_variable_attributes_of_torchs_optimizers(kind, kwargs, expected):
    found = optim.describe(torchs(kind, **kwargs))
    assert found["groups"][0]["variable"] == expected
    assert found["variable"] == set()


@pytest.mark.parametrize("scale, expected", [(1.0, set()), (2.0, {"loss_scaling"})])
def test_loss_scaling_of_a_torch_optimizer(scale, expected):
    o = torchs("SGD")
    o.loss_scaling = scale
    found = optim.describe(o)
    assert found["loss_scaling"] == scale and found["variable"] == expected


@pytest.mark.parametrize("kind", KINDS)
def test_automatic_loss_scaling_makes_it_variable(kind):
    assert optim.describe(make(kind), automatic_loss_scaling={})["variable"] == {"loss_scaling"}


# Accepted optimizers.

@pytest.mark.parametrize("kind", TORCH_KINDS)
def test_torchs_optimizers_are_described_like_ours(kind):
    p = params()
    ours, theirs = optim.describe(make(kind, p=p)), optim.describe(torchs(kind, p=p))
    assert ours.keys() == theirs.keys()
    for name in WIDE_DEFAULTS[kind]:
        assert ours[name] == theirs[name]
    for name in GROUP_DEFAULTS[kind]:
        assert ours["groups"][0][name] == theirs["groups"][0][name]


@pytest.mark.parametrize("name", ["LBFGS", "SparseAdam"])
def test_unsupported_optimizers(name):
    with pytest.raises(AssertionError, match=f"{name}.*poptorch.optim.SGD.*torch.optim.RMSprop"):
        optim.describe(getattr(torch.optim, name)(params(), lr=0.1))


@pytest.mark.parametrize("thing", [None, 3, "SGD", torch.optim.SGD])
def test_not_an_optimizer(thing):
    with pytest.raises(AssertionError, match="Unsupported optimizer"):
        optim.describe(thing)


@pytest.mark.parametrize("base", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop,
                                  optim.SGD, optim.Adam, optim.AdamW, optim.RMSprop, optim.LAMB])
def test_derived_class_warns(log, base):
    class Mine(base):
        pass
    found = optim.describe(Mine(params(), lr=0.1))
    assert found["kind"] == base.__name__
    assert [level for level, text in log if "Mine" in text] == ["WARNING"]


# Groups.

def test_groups_keep_their_values_and_parameters():
    p = params(3)
    o = optim.SGD([{"params": p[:2], "lr": 0.5}, {"params": p[2], "momentum": 0.9}], lr=0.1)
    a, b = optim.describe(o)["groups"]
    assert [id(x) for x in a["params"]] == [id(x) for x in p[:2]] and [id(x) for x in b["params"]] == [id(p[2])]
    assert (a["lr"], a["momentum"], b["lr"], b["momentum"]) == (0.5, 0.0, 0.1, 0.9)
    assert optim.describe(o)["defaults"]["lr"] == 0.1


def test_description_is_a_snapshot():
    o = make("SGD")
    found = optim.describe(o)
    o.param_groups[0]["lr"] = 7.0
    o.add_param_group({"params": params(1)})
    assert found["groups"][0]["lr"] == 0.1 and len(found["groups"]) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_are_floats(kind):
    o = make(kind, lr=1, weight_decay=0)
    group = optim.describe(o)["groups"][0]
    assert type(group["lr"]) is float and type(group["weight_decay"]) is float
    if "betas" in group:
        assert type(group["betas"]) is tuple and all(type(b) is float for b in group["betas"])


@pytest.mark.parametrize("kind", KINDS)
def test_schedulers(kind, log):
    o = make(kind, lr=1.0)
    scheduler = torch.optim.lr_scheduler.LambdaLR(o, lambda epoch: 0.5**epoch)
    o.step()
    scheduler.step()
    assert optim.describe(o)["groups"][0]["lr"] == 0.5
    assert not log, "a scheduler's own attributes are not unknown ones"
    assert optim.describe(copy.deepcopy(o))["groups"][0]["lr"] == 0.5


@pytest.mark.parametrize("relax, level", [(False, "WARNING"), (True, "DEBUG")])
@pytest.mark.parametrize("cls", ["poptorch", "torch"])
def test_unknown_attributes(log, relax, level, cls):
    o = make("SGD") if cls == "poptorch" else torchs("SGD")
    o.my_extra = 1
    o.param_groups[0]["group_extra"] = 2
    optim.describe(o, relax_checks=relax)
    assert [lv for lv, text in log if "group_extra, my_extra" in text] == [level]


@pytest.mark.parametrize("kind", KINDS)
def test_no_warning_in_normal_use(log, kind):
    optim.describe(make(kind, loss_scaling=2.0))
    if kind in TORCH_KINDS:
        optim.describe(torchs(kind))
    assert not log


# State.

@pytest.mark.parametrize("kind", KINDS)
def test_state_dict_before_compiling(kind):
    o = make(kind)
    state = o.state_dict()
    assert set(state) == {"ipu_state", "ipu_param", "state", "param_groups"}
    assert state["ipu_state"] is None and state["ipu_param"] is None
    make(kind).load_state_dict(state)


@pytest.mark.parametrize("kind", KINDS)
def test_state_comes_from_the_device_and_goes_back(kind):
    o = make(kind, lr=0.3)
    read = [({"Accl1___fc1.weight": torch.ones(2)}, {"lossScaling_FLOAT": torch.ones(())}), None]
    o.setStateReader(lambda: read.pop(0))
    state = o.state_dict()
    assert state["ipu_state"]["Accl1___fc1.weight"].tolist() == [1.0, 1.0]
    assert o.state_dict()["ipu_param"] == state["ipu_param"], "None from the reader: the copy is up to date"
    assert o.takeLoadedState() is None, "what was read needs no writing"

    other = make(kind)
    other.load_state_dict(state)
    assert other.param_groups[0]["lr"] == 0.3
    ipu_state, ipu_param = other.takeLoadedState()
    assert ipu_state == state["ipu_state"] and ipu_param == state["ipu_param"]
    assert other.takeLoadedState() is None, "once"


@pytest.mark.parametrize("kind", KINDS)
def test_state_survives_a_file(kind):
    o = make(kind)
    o.setStateReader(lambda: ({"Step___a": torch.tensor(3.0)}, {}))
    buffer = io.BytesIO()
    torch.save(o.state_dict(), buffer)
    buffer.seek(0)
    other = make(kind)
    other.load_state_dict(torch.load(buffer))
    assert other.state_dict()["ipu_state"]["Step___a"] == 3.0


@pytest.mark.parametrize("kind", KINDS)
def test_foreign_states_are_refused(kind):
    o = make(kind)
    with pytest.raises(RuntimeError, match="empty"):
        o.load_state_dict({})
    with pytest.raises(RuntimeError, match="Only IPU optimizer states can be loaded onto the IPU."):
        o.load_state_dict(torchs("SGD").state_dict())
    with pytest.raises(RuntimeError, match="Only IPU optimizer states"):
        o.load_state_dict({"ipu_state": None, "state": {}, "param_groups": []})


def test_missing_groups_are_skipped_with_a_warning(log):
    o = make("SGD")
    o.load_state_dict({"ipu_state": {}, "ipu_param": {}})
    assert o.param_groups[0]["lr"] == 0.1
    assert [level for level, text in log if "param_groups" in text] == ["WARNING"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("again", [copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))], ids=["copy", "pickle"])
def test_copies_keep_everything_but_the_device(kind, again):
    o = make(kind, lr=0.25, loss_scaling=2.0, accum_type=F16)
    o.setStateReader(lambda: ({"Accl1___a": torch.ones(1)}, {}))
    other = again(o)
    found = optim.describe(other)
    assert found["groups"][0]["lr"] == 0.25 and found["loss_scaling"] == 2.0 and found["accum_type"] == F16
    assert found["variable"] == {"loss_scaling"}
    assert set(other.takeLoadedState()[0]) == {"Accl1___a"}
    assert other._state_reader is None
    other.zero_grad()
    other.state_dict()


# The CPU.

@pytest.mark.parametrize("kind", TORCH_KINDS)
def test_cpu_step_is_torchs(kind):
    a, b = params(), params()
    ours, theirs = make(kind, p=a), torchs(kind, p=b)
    for _ in range(3):
        for p in a + b:
            p.grad = p.detach() * 2 + 1
        ours.step()
        theirs.step()
    assert all(torch.equal(x, y) for x, y in zip(a, b))


@pytest.mark.parametrize("correct", [True, False])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("max_norm", [65500.0, 0.5])
def test_lamb_step(correct, weight_decay, max_norm):
    p = params(1)
    o = optim.LAMB(p, lr=0.1, weight_decay=weight_decay, bias_correction=correct, max_weight_norm=max_norm)
    w, m, v = p[0].detach().clone().double(), 0.0, 0.0
    for t in (1, 2, 3):
        p[0].grad = (p[0].detach() * 3 + t)
        g = w * 3 + t
        o.step()
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        mh, vh = (m / (1 - 0.9**t), v / (1 - 0.999**t)) if correct else (m, v)
        x = mh / (vh.sqrt() + 1e-8) + weight_decay * w
        w = w - 0.1 * min(w.norm().item(), max_norm) / x.norm() * x
        assert torch.allclose(p[0].detach().double(), w, rtol=1e-4, atol=1e-6)


def test_lamb_step_of_a_zero_weight():
    p = torch.nn.Parameter(torch.zeros(2))
    p.grad = torch.tensor([1.0, -1.0])
    optim.LAMB([p], lr=0.1, weight_decay=0.0).step()
    assert torch.allclose(p.detach(), torch.tensor([-0.1, 0.1]))


def test_lamb_step_calls_the_closure():
    p = params(1)[0]
    o = optim.LAMB([p], lr=0.1)

    def closure():
        o.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        return loss
    first = o.step(closure)
    assert o.step(closure) < first


# setOptimizer after compiling.

def changed(kind, change, **kwargs):
    p = params()
    old = make(kind, p=p, **kwargs)
    new = make(kind, p=p, **kwargs)
    change(new)
    return optim.describe(old), optim.describe(new)


def set_group(name, value):
    return lambda o: o.param_groups[0].__setitem__(name, value)


@pytest.mark.parametrize("kind, name", [a for a in ATTRS if a[1] not in ("nesterov", "loss_scaling")])
def test_variable_value_may_change(kind, name):
    optim.checkUpdate(*changed(kind, set_group(name, (0.1, 0.2) if name == "betas" else 0.77),
                               **{name: VALUES[name]}))


@pytest.mark.parametrize("kind, name", [a for a in ATTRS if a[1] not in ("nesterov", "loss_scaling", "lr")])
def test_constant_value_may_not_change(kind, name):
    with pytest.raises(Error, match=f"{name} of group 0 is compiled in"):
        optim.checkUpdate(*changed(kind, set_group(name, (0.1, 0.2) if name == "betas" else 0.77)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("change, words", [
    (lambda o: o.variable_attrs.markAsVariable("weight_decay"), "between constant and variable"),
    (lambda o: setattr(o, "loss_scaling", 3.0), "loss_scaling of the optimizer is compiled in"),
    (lambda o: setattr(o, "accum_type", F16), "accum_type"),
    (lambda o: o.add_param_group({"params": params(1)}), "parameter groups"),
    (lambda o: o.param_groups[0]["params"].pop(), "parameters of group 0 changed")])
def test_changes_that_are_refused(kind, change, words):
    with pytest.raises(Error, match=words):
        optim.checkUpdate(*changed(kind, change))


def test_other_changes_that_are_refused():
    p = params()
    with pytest.raises(Error, match="from SGD to Adam"):
        optim.checkUpdate(optim.describe(make("SGD", p=p)), optim.describe(make("Adam", p=p)))
    with pytest.raises(Error, match="max_grad_norm"):
        optim.checkUpdate(*changed("Adam", lambda o: setattr(o, "max_grad_norm", 1.0)))
    with pytest.raises(Error, match="momentum cannot change between 0"):
        optim.checkUpdate(*changed("SGD", set_group("momentum", 0.0), momentum=0.9))


def test_a_torch_optimizer_may_follow_ours():
    p = params()
    optim.checkUpdate(optim.describe(make("SGD", p=p, lr=0.1)), optim.describe(torchs("SGD", p=p, lr=0.2)))


@pytest.mark.parametrize("kind, kwargs, expected", [
    ("SGD", {}, False), ("SGD", {"accum_type": F16}, True), ("SGD", {"accum_type": F16, "use_combined_accum": True}, False),
    ("Adam", {"accum_type": F16}, True), ("AdamW", {"accum_type": F32}, False), ("LAMB", {"accum_type": F16}, True)])
def test_running_mean(kind, kwargs, expected):
    assert optim.wantsRunningMean(optim.describe(make(kind, **kwargs))) is expected
