"""Optimizers: torch's, with the arguments that a compiled update can use.

Each class takes torch's arguments in torch's order and a few more. An argument that is passed, even
with its default value, becomes *variable*: it is fed to the device and can change later. One that is left
out is compiled in as a constant.

The device runs the update, so an optimizer here is a description, and describe() turns any accepted one,
poptorch's or torch's, into a plain dictionary for the executor.
"""

import inspect
import math
from typing import (Any, Callable, Dict, FrozenSet, Iterable, NamedTuple, Optional, Sequence, Tuple,
                    Type)

import torch

from ._logging import logger
from .errors import check, createPoptorchError

_ACCUM_TYPES = (torch.float16, torch.float32)


class VariableAttributes:
    """Which of an optimizer's attributes are fed at run time. Change it before compiling."""

    def __init__(self, variable: Iterable[str], allowed: Iterable[str]) -> None:
        self._allowed = tuple(allowed)
        self._variable = {v for v in variable if v in self._allowed}

    def isConstant(self, attr: str) -> bool:
        """True if the attribute is compiled in."""
        self._check(attr)
        return attr not in self._variable

    def markAsConstant(self, attr: str) -> None:
        """Compile the attribute in."""
        self._check(attr)
        self._variable.discard(attr)

    def markAsVariable(self, attr: str) -> None:
        """Feed the attribute at run time."""
        self._check(attr)
        self._variable.add(attr)

    def _check(self, attr: str) -> None:
        check(attr in self._allowed,
              f"Unknown attribute {attr!r}, attributes are: {', '.join(self._allowed)}")


class Optimizer:
    """What poptorch's optimizers add to torch's: variable attributes and the device's state.

    For the executor:

    - `ipu_state` and `ipu_param` are dictionaries of tensors, or None before the first run.
    - setStateReader(f): f() returns (ipu_state, ipu_param) read from the device, or None when the copy here
      is up to date. It is called by state_dict() and when the optimizer is copied or pickled.
    - takeLoadedState() returns the pair that load_state_dict() left to be written to the device, once.
    """

    #: Per group, and for the whole optimizer. What is in neither is compiled in.
    group_attrs: Tuple[str, ...] = ()
    wide_attrs: Tuple[str, ...] = ("loss_scaling",)

    def _initOptimizer(self, passed: Dict[str, Any]) -> None:
        self.variable_attrs = VariableAttributes(passed, self.group_attrs + self.wide_attrs)
        self.ipu_state: Optional[Dict[str, torch.Tensor]] = None
        self.ipu_param: Optional[Dict[str, torch.Tensor]] = None
        self._state_reader: Optional[Callable] = None
        self._state_loaded = False

    def setStateReader(self, reader: Optional[Callable]) -> None:
        """Connect to a device's state, or with None disconnect."""
        self._state_reader = reader

    def syncState(self) -> None:
        """Read the state from the device if the copy here is stale."""
        self.takeState(self._state_reader() if self._state_reader is not None else None)

    def takeState(self, found: Optional[Tuple[Dict[str, torch.Tensor], Dict[str, torch.Tensor]]]) -> None:
        """Keep what was read from the device; None is nothing new."""
        if found is not None:
            self.ipu_state, self.ipu_param = found

    def takeLoadedState(self) -> Optional[Tuple[Dict[str, torch.Tensor], Dict[str, torch.Tensor]]]:
        """What to write to the device before the next run, or None."""
        if not self._state_loaded or self.ipu_state is None:
            return None
        self._state_loaded = False
        return self.ipu_state, self.ipu_param or {}

    def state_dict(self) -> Dict[str, Any]:
        """torch's state and groups, and the device's state as `ipu_state` and `ipu_param`."""
        self.syncState()
        ours = {"ipu_state": self.ipu_state, "ipu_param": self.ipu_param}
        return {**ours, **super().state_dict()}    # type: ignore[misc]

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Take over a state; the device gets it before the next run."""
        if not state_dict:
            raise RuntimeError("Cannot load optimizer state dictionary because it is empty.")
        if not {"ipu_state", "ipu_param"} <= state_dict.keys():
            raise RuntimeError("Only IPU optimizer states can be loaded onto the IPU.")
        torchs = {"state": {}, **{k: state_dict[k] for k in ("state", "param_groups") if k in state_dict}}
        if "param_groups" in torchs:
            super().load_state_dict(torchs)    # type: ignore[misc]
        else:
            logger.warning("The optimizer state has no param_groups: hyper-parameters stay as they are")
        self.ipu_state, self.ipu_param = state_dict["ipu_state"], state_dict["ipu_param"]
        self._state_loaded = self.ipu_state is not None

    def __getstate__(self) -> Dict[str, Any]:
        # torch keeps three attributes only. What a copy must not have is the link to the device, and
        # what schedulers and torch hang on the object for themselves (private, or a wrapped step()).
        self.syncState()
        public = {k: v for k, v in self.__dict__.items() if not k.startswith("_") and not callable(v)}
        return {**super().__getstate__(), **public,    # type: ignore[misc]
                "_state_reader": None, "_state_loaded": self.ipu_state is not None}


def _passed(**arguments: Any) -> Dict[str, Any]:
    return {name: value for name, value in arguments.items() if value is not None}


def _toTorch(cls: type, passed: Dict[str, Any]) -> Dict[str, Any]:
    """Those of the arguments that this version of torch knows.

    `fused` stays here: torch refuses it for CPU parameters, and on the device everything is fused.
    """
    if passed.get("amsgrad"):
        raise ValueError("Only non-amsgrad Adam/AdamW optimizers are supported.")
    if passed.get("maximize"):
        logger.warning("maximize=True has no effect on the device: the loss is minimised")
    known = inspect.signature(cls.__init__).parameters    # type: ignore[misc]
    return {k: v for k, v in passed.items() if k in known and k != "fused"}


def _accumType(name: str, dtype: Optional[torch.dtype]) -> torch.dtype:
    dtype = torch.float32 if dtype is None else dtype
    check(dtype in _ACCUM_TYPES, f"{name} must be torch.float32 or torch.float16, got {dtype!r}")
    return dtype


class SGD(Optimizer, torch.optim.SGD):
    """Stochastic gradient descent, with momentum if asked for.

    `use_combined_accum` keeps velocity and gradient accumulator in one tensor, scaled by
    `velocity_scaling`; accumulator types are then ignored. `maximize`, `foreach` and `differentiable`
    have no effect on the device.
    """

    group_attrs = ("lr", "momentum", "dampening", "weight_decay", "nesterov", "velocity_scaling")

    def __init__(self, params: Iterable, lr: Optional[float] = None, momentum: Optional[float] = None,
                 dampening: Optional[float] = None, weight_decay: Optional[float] = None,
                 nesterov: Optional[bool] = None, maximize: Optional[bool] = None,
                 foreach: Optional[bool] = None, differentiable: Optional[bool] = None,
                 loss_scaling: Optional[float] = None, velocity_scaling: Optional[float] = None,
                 use_combined_accum: Optional[bool] = None, accum_type: Optional[torch.dtype] = None,
                 velocity_accum_type: Optional[torch.dtype] = None,
                 max_grad_norm: Optional[float] = None) -> None:
        if lr is None:
            raise ValueError("SGD needs a learning rate: parameter lr is required")
        passed = _passed(lr=lr, momentum=momentum, dampening=dampening, weight_decay=weight_decay,
                         nesterov=nesterov, maximize=maximize, foreach=foreach, differentiable=differentiable,
                         loss_scaling=loss_scaling, velocity_scaling=velocity_scaling)
        self.use_combined_accum = bool(use_combined_accum)
        if velocity_scaling is not None and not self.use_combined_accum:
            logger.warning("velocity_scaling is ignored: it needs use_combined_accum=True")
            del passed["velocity_scaling"]
        torch.optim.SGD.__init__(self, params, **_toTorch(torch.optim.SGD, passed))
        self._initOptimizer(passed)
        self.loss_scaling = 1.0 if loss_scaling is None else loss_scaling
        self.accum_type = _accumType("accum_type", accum_type)
        self.velocity_accum_type = _accumType("velocity_accum_type", velocity_accum_type)
        self.max_grad_norm = math.inf if max_grad_norm is None else max_grad_norm
        if self.use_combined_accum:
            self.defaults["velocity_scaling"] = passed.get("velocity_scaling", 1.0)
            for group in self.param_groups:
                group.setdefault("velocity_scaling", self.defaults["velocity_scaling"])


class _AdamLike(Optimizer):
    """The extra arguments that Adam, AdamW, RMSprop and LAMB have in common."""

    group_attrs = ("lr", "betas", "eps", "weight_decay")

    def _initExtras(self, passed: Dict[str, Any], accum_type: Optional[torch.dtype],
                    first: Optional[torch.dtype], second: Optional[torch.dtype]) -> None:
        self._initOptimizer(passed)
        self.loss_scaling = passed.get("loss_scaling", 1.0)
        self.accum_type = _accumType("accum_type", accum_type)
        self.first_order_momentum_accum_type = _accumType("first_order_momentum_accum_type", first)
        self.second_order_momentum_accum_type = _accumType("second_order_momentum_accum_type", second)


class Adam(_AdamLike, torch.optim.Adam):
    """Adam. `amsgrad` is not supported; foreach, maximize, capturable, differentiable and fused have no
    effect on the device.
    """

    def __init__(self, params: Iterable, lr: Optional[float] = None,
                 betas: Optional[Tuple[float, float]] = None, eps: Optional[float] = None,
                 weight_decay: Optional[float] = None, amsgrad: Optional[bool] = None,
                 foreach: Optional[bool] = None, maximize: Optional[bool] = None,
                 capturable: Optional[bool] = None, differentiable: Optional[bool] = None,
                 fused: Optional[bool] = None, loss_scaling: Optional[float] = None,
                 accum_type: Optional[torch.dtype] = None,
                 first_order_momentum_accum_type: Optional[torch.dtype] = None,
                 second_order_momentum_accum_type: Optional[torch.dtype] = None,
                 max_grad_norm: Optional[float] = None) -> None:
        passed = _passed(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad,
                         foreach=foreach, maximize=maximize, capturable=capturable,
                         differentiable=differentiable, fused=fused, loss_scaling=loss_scaling)
        torch.optim.Adam.__init__(self, params, **_toTorch(torch.optim.Adam, passed))
        self._initExtras(passed, accum_type, first_order_momentum_accum_type,
                         second_order_momentum_accum_type)
        self.max_grad_norm = math.inf if max_grad_norm is None else max_grad_norm


class AdamW(_AdamLike, torch.optim.AdamW):
    """Adam with decoupled weight decay. What has no effect for Adam has none here."""

    def __init__(self, params: Iterable, lr: Optional[float] = None,
                 betas: Optional[Tuple[float, float]] = None, eps: Optional[float] = None,
                 weight_decay: Optional[float] = None, amsgrad: Optional[bool] = None,
                 maximize: Optional[bool] = None, foreach: Optional[bool] = None,
                 capturable: Optional[bool] = None, differentiable: Optional[bool] = None,
                 fused: Optional[bool] = None, loss_scaling: Optional[float] = None,
                 bias_correction: Optional[bool] = None, accum_type: Optional[torch.dtype] = None,
                 first_order_momentum_accum_type: Optional[torch.dtype] = None,
                 second_order_momentum_accum_type: Optional[torch.dtype] = None,
                 max_grad_norm: Optional[float] = None) -> None:
        passed = _passed(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad,
                         maximize=maximize, foreach=foreach, capturable=capturable,
                         differentiable=differentiable, fused=fused, loss_scaling=loss_scaling)
        torch.optim.AdamW.__init__(self, params, **_toTorch(torch.optim.AdamW, passed))
        self._initExtras(passed, accum_type, first_order_momentum_accum_type,
                         second_order_momentum_accum_type)
        self.bias_correction = True if bias_correction is None else bias_correction
        self.max_grad_norm = math.inf if max_grad_norm is None else max_grad_norm


class RMSprop(_AdamLike, torch.optim.RMSprop):
    """RMSprop; `use_tf_variant` puts eps under the root and starts the mean square at 1."""

    group_attrs = ("lr", "momentum", "weight_decay", "alpha", "eps")

    def __init__(self, params: Iterable, lr: Optional[float] = None, alpha: Optional[float] = None,
                 eps: Optional[float] = None, weight_decay: Optional[float] = None,
                 momentum: Optional[float] = None, centered: Optional[bool] = None,
                 foreach: Optional[bool] = None, maximize: Optional[bool] = None,
                 differentiable: Optional[bool] = None, loss_scaling: Optional[float] = None,
                 accum_type: Optional[torch.dtype] = None,
                 first_order_momentum_accum_type: Optional[torch.dtype] = None,
                 second_order_momentum_accum_type: Optional[torch.dtype] = None,
                 use_tf_variant: Optional[bool] = None) -> None:
        passed = _passed(lr=lr, alpha=alpha, eps=eps, weight_decay=weight_decay, momentum=momentum,
                         centered=centered, foreach=foreach, maximize=maximize,
                         differentiable=differentiable, loss_scaling=loss_scaling)
        torch.optim.RMSprop.__init__(self, params, **_toTorch(torch.optim.RMSprop, passed))
        self._initExtras(passed, accum_type, first_order_momentum_accum_type,
                         second_order_momentum_accum_type)
        self.use_tf_variant = False if use_tf_variant is None else use_tf_variant
        _centered(self)


class LAMB(_AdamLike, torch.optim.Optimizer):
    """Layer-wise adaptive moments for large batches (You et al., arXiv:1904.00962). Also runs on the CPU."""

    group_attrs = ("lr", "weight_decay", "betas", "eps", "max_weight_norm")

    def __init__(self, params: Iterable, lr: Optional[float] = None,
                 betas: Optional[Tuple[float, float]] = None, eps: Optional[float] = None,
                 weight_decay: Optional[float] = None, bias_correction: Optional[bool] = None,
                 loss_scaling: Optional[float] = None, max_weight_norm: Optional[float] = None,
                 accum_type: Optional[torch.dtype] = None,
                 first_order_momentum_accum_type: Optional[torch.dtype] = None,
                 second_order_momentum_accum_type: Optional[torch.dtype] = None) -> None:
        passed = _passed(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, loss_scaling=loss_scaling,
                         max_weight_norm=max_weight_norm)
        defaults = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 1e-2,
                    "max_weight_norm": 65500.0}
        defaults.update((k, v) for k, v in passed.items() if k in defaults)
        for name in ("lr", "eps", "weight_decay", "max_weight_norm"):
            if not defaults[name] >= 0.0:    # type: ignore[operator]
                raise ValueError(f"Invalid {name}: {defaults[name]}")
        for i, beta in enumerate(defaults["betas"]):    # type: ignore[arg-type]
            if not 0.0 <= beta < 1.0:
                raise ValueError(f"Invalid beta parameter at index {i}: {beta}")
        torch.optim.Optimizer.__init__(self, params, defaults)
        self._initExtras(passed, accum_type, first_order_momentum_accum_type,
                         second_order_momentum_accum_type)
        self.bias_correction = True if bias_correction is None else bias_correction

    @torch.no_grad()
    def step(self, closure: Optional[Callable] = None) -> Any:    # type: ignore[override]
        """One update on the CPU, with the formula of the device."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self._update(p, group)
        return loss

    def _update(self, p: torch.Tensor, group: Dict[str, Any]) -> None:
        state = self.state[p]
        if not state:
            state.update(step=0, exp_avg=torch.zeros_like(p), exp_avg_sq=torch.zeros_like(p))
        state["step"] += 1
        b1, b2 = group["betas"]
        m = state["exp_avg"].mul_(b1).add_(p.grad, alpha=1 - b1)
        v = state["exp_avg_sq"].mul_(b2).addcmul_(p.grad, p.grad, value=1 - b2)
        if self.bias_correction:
            m, v = m / (1 - b1**state["step"]), v / (1 - b2**state["step"])
        x = m / (v.sqrt() + group["eps"]) + group["weight_decay"] * p
        weight, update = float(p.norm()), float(x.norm())
        trust = min(weight, group["max_weight_norm"]) / update if weight > 0 and update > 0 else 1.0
        p.add_(x, alpha=-group["lr"] * trust)


class _Kind(NamedTuple):
    """What describe() reads of an optimizer."""

    name: str
    torch_class: Optional[type]
    poptorch_class: Optional[Type[Optimizer]]
    group_attrs: Tuple[str, ...]
    fixed: Dict[str, Any]    # attributes of the optimizer that are compiled in, with defaults


_TYPES = {"accum_type": torch.float32, "first_order_momentum_accum_type": torch.float32,
          "second_order_momentum_accum_type": torch.float32}

# AdamW before Adam: newer torch derives one from the other.
_KINDS = (
    _Kind("SGD", torch.optim.SGD, SGD, ("lr", "momentum", "dampening", "weight_decay", "nesterov"),
          {"use_combined_accum": False, "accum_type": torch.float32, "velocity_accum_type": torch.float32,
           "max_grad_norm": math.inf}),
    _Kind("AdamW", torch.optim.AdamW, AdamW, AdamW.group_attrs,
          {**_TYPES, "bias_correction": True, "max_grad_norm": math.inf}),
    _Kind("Adam", torch.optim.Adam, Adam, Adam.group_attrs, {**_TYPES, "max_grad_norm": math.inf}),
    _Kind("RMSprop", torch.optim.RMSprop, RMSprop, RMSprop.group_attrs,
          {**_TYPES, "use_tf_variant": False}),
    _Kind("LAMB", None, LAMB, LAMB.group_attrs, {**_TYPES, "bias_correction": True}),
    *(_Kind(name, getattr(torch.optim, name), None, tuple(attrs.split()), _TYPES) for name, attrs in (
        ("Adagrad", "lr lr_decay weight_decay initial_accumulator_value eps"),
        ("Adadelta", "lr rho eps weight_decay"),
        ("Adamax", "lr betas eps weight_decay"),
        ("NAdam", "lr betas eps weight_decay momentum_decay decoupled_weight_decay"),
        ("RAdam", "lr betas eps weight_decay decoupled_weight_decay"),
        ("Rprop", "lr etas step_sizes"),
        ("ASGD", "lr lambd alpha t0 weight_decay"),
        ("Adafactor", "lr beta2_decay eps d weight_decay"),
        ("Muon", "lr weight_decay momentum nesterov ns_coefficients eps ns_steps adjust_lr_fn"),
    ) if hasattr(torch.optim, name)),
)
# Of torch's own optimizers, with any rule that has them.
_TORCH_FLAGS = ("maximize", "amsgrad", "decoupled_weight_decay")

# Attributes of torch's optimizers are constant iff they have these values; those in _ALWAYS_CONSTANT
# always are, lr never is.
_TORCH_DEFAULTS = {"momentum": 0.0, "dampening": 0.0, "weight_decay": 0.0, "eps": 1e-8, "loss_scaling": 1.0}
_ALWAYS_CONSTANT = ("alpha", "nesterov", "betas")
_MAY_VARY = ("lr", "momentum", "weight_decay", "eps", "dampening", "loss_scaling")

# What groups and optimizers have that is neither a hyper-parameter of the device nor a surprise.
_IGNORED_GROUP = {"params", "initial_lr", "amsgrad", "foreach", "maximize", "capturable", "differentiable",
                  "fused", "centered", "decoupled_weight_decay"}
_IGNORED_WIDE = {"defaults", "state", "param_groups", "variable_attrs", "ipu_state", "ipu_param", "step",
                 "loss_scaling", "group_attrs", "wide_attrs", "zero_grad", "state_dict", "load_state_dict"}


def describe(optimizer: torch.optim.Optimizer, automatic_loss_scaling: Optional[Dict[str, Any]] = None,
             relax_checks: bool = False) -> Dict[str, Any]:
    """An optimizer as a plain dictionary:

        kind        "SGD", "Adam", "AdamW", "RMSprop", "LAMB", or another of torch's classes
        groups      one dictionary per parameter group: `params`, a list of parameters; a value for each
                    attribute of the kind; `variable`, the set of those to feed at run time
                        SGD       lr momentum dampening weight_decay nesterov (+ velocity_scaling, combined)
                        Adam(W)   lr betas eps weight_decay
                        RMSprop   lr momentum weight_decay alpha eps
                        LAMB      lr weight_decay betas eps max_weight_norm
                        others    as in torch; of torch's own also maximize, amsgrad and
                                  decoupled_weight_decay where they are set
        defaults    the same without `params`: for trainable parameters in no group
        variable    the optimizer-wide attributes to feed at run time: {"loss_scaling"} or nothing
        automatic   None, or the settings of an automatic loss scale, which starts with loss_scaling
        loss_scaling, accum_type, ...   optimizer-wide values; all but loss_scaling are compiled in
                        SGD       use_combined_accum accum_type velocity_accum_type max_grad_norm
                        others    accum_type first_order_momentum_accum_type
                                  second_order_momentum_accum_type, and
                                  Adam max_grad_norm; AdamW max_grad_norm bias_correction;
                                  RMSprop use_tf_variant centered; LAMB bias_correction

    Numbers are floats, betas a pair of them. The dictionary holds the values of now: later changes of the
    optimizer do not reach it. Unknown attributes are ignored with a warning, or a debug message with
    `relax_checks`.
    """
    kind = _kindOf(optimizer)
    _warnUnknown(optimizer, kind, relax_checks)
    attrs = kind.group_attrs
    if not isinstance(optimizer, Optimizer):
        attrs += tuple(f for f in _TORCH_FLAGS if f not in attrs and any(g.get(f) for g in optimizer.param_groups)
                       and (f, kind.name) != ("decoupled_weight_decay", "AdamW"))
    out: Dict[str, Any] = {"kind": kind.name}
    out.update({name: getattr(optimizer, name, value) for name, value in kind.fixed.items()})
    if out.get("use_combined_accum"):
        attrs += ("velocity_scaling",)
    if kind.name == "RMSprop":
        out["centered"] = _centered(optimizer)
    out["loss_scaling"] = float(getattr(optimizer, "loss_scaling", 1.0))
    wide = _variable(optimizer, kind, {"loss_scaling": out["loss_scaling"]})
    out["variable"] = wide if automatic_loss_scaling is None else frozenset(("loss_scaling",))
    out["automatic"] = automatic_loss_scaling
    out["groups"] = [_group(optimizer, kind, attrs, g) for g in optimizer.param_groups]
    out["defaults"] = _group(optimizer, kind, attrs, {**optimizer.defaults, "params": []})
    del out["defaults"]["params"]
    return out


def _kindOf(optimizer: Any) -> _Kind:
    for kind in _KINDS:
        classes = tuple(c for c in (kind.torch_class, kind.poptorch_class) if c is not None)
        if isinstance(optimizer, classes):
            if type(optimizer) not in classes:
                logger.warning("%s derives from a supported optimizer: its update is %s's, its own step() "
                               "is not run", type(optimizer).__name__, kind.name)
            return kind
    supported = ", ".join(f"torch.optim.{k.name}" for k in _KINDS if k.torch_class is not None)
    ours = ", ".join(f"poptorch.optim.{k.name}" for k in _KINDS if k.poptorch_class is not None)
    raise AssertionError(f"Unsupported optimizer type {type(optimizer).__name__}. Types supported: "
                         f"{ours}, {supported}")


def _group(optimizer: torch.optim.Optimizer, kind: _Kind, attrs: Sequence[str],
           group: Dict[str, Any]) -> Dict[str, Any]:
    if group.get("amsgrad") and isinstance(optimizer, Optimizer):
        raise ValueError("Only non-amsgrad Adam/AdamW optimizers are supported.")
    values = {name: _plain(group.get(name, optimizer.defaults.get(name, False if name in _TORCH_FLAGS else 1.0)))
              for name in attrs}
    return {"params": list(group["params"]), **values, "variable": _variable(optimizer, kind, values)}


def _plain(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return tuple(map(_plain, value))
    return value if value is None or isinstance(value, (bool, str)) else float(value)


def _variable(optimizer: Any, kind: _Kind, values: Dict[str, Any]) -> FrozenSet[str]:
    if isinstance(optimizer, Optimizer):
        return frozenset(n for n in values if not optimizer.variable_attrs.isConstant(n))
    defaults = {**_TORCH_DEFAULTS, "weight_decay": 0.01 if kind.name == "AdamW" else 0.0}
    if kind.poptorch_class is None:
        defaults.update((n, p.default) for n, p in inspect.signature(kind.torch_class.__init__).parameters.items()
                        if n in defaults)    # type: ignore[misc]
    return frozenset(n for n, v in values.items() if n == "lr" or (
        n in _MAY_VARY and n not in _ALWAYS_CONSTANT and isinstance(v, float) and v != defaults[n]))


def _centered(optimizer: torch.optim.Optimizer) -> bool:
    found = {bool(g["centered"]) for g in optimizer.param_groups}
    check(len(found) == 1, "All parameter groups of RMSprop must have the same value of centered")
    return found.pop()


def _warnUnknown(optimizer: Any, kind: _Kind, relax_checks: bool) -> None:
    known = set(kind.group_attrs) | {"velocity_scaling"} | _IGNORED_GROUP
    unknown = {name for g in optimizer.param_groups for name in g if name not in known}
    wide = _IGNORED_WIDE | kind.fixed.keys()
    unknown |= {name for name in vars(optimizer) if not name.startswith("_") and name not in wide}
    if unknown:
        log = logger.debug if relax_checks else logger.warning
        log("Ignored unknown optimizer attributes: %s", ", ".join(sorted(unknown)))


def wantsRunningMean(description: Dict[str, Any]) -> bool:
    """True if gradients are accumulated in half precision, where only a running mean is safe."""
    return description["accum_type"] == torch.float16 and not description.get("use_combined_accum")


def checkUpdate(old: Dict[str, Any], new: Dict[str, Any]) -> None:
    """For setOptimizer after compiling: an Error unless `new` differs from `old` in the values of variable
    attributes only. Both come from describe().
    """
    if old["kind"] != new["kind"]:
        raise createPoptorchError(f"The optimizer cannot change from {old['kind']} to {new['kind']} once the "
                                  "model is compiled")
    if len(old["groups"]) != len(new["groups"]):
        raise createPoptorchError(f"The model was compiled with {len(old['groups'])} parameter groups, the "
                                  f"optimizer has {len(new['groups'])}")
    _checkConstants("the optimizer", old, new, {"groups", "defaults"})
    _checkConstants("the default group", old["defaults"], new["defaults"], set())
    for i, (a, b) in enumerate(zip(old["groups"], new["groups"])):
        if [id(p) for p in a["params"]] != [id(p) for p in b["params"]]:
            raise createPoptorchError(f"The parameters of group {i} changed after the model was compiled")
        _checkConstants(f"group {i}", a, b, {"params"})
    _checkVelocity(old, new)


def _checkConstants(where: str, old: Dict[str, Any], new: Dict[str, Any], skip: set) -> None:
    switched = old["variable"] ^ new["variable"]
    if switched:
        raise createPoptorchError(f"{', '.join(sorted(switched))} of {where} cannot change between constant "
                                  "and variable once the model is compiled")
    for name in sorted(old.keys() - old["variable"] - skip - {"variable"}):
        if old[name] != new.get(name):
            raise createPoptorchError(f"{name} of {where} is compiled in as {old[name]}, it cannot become "
                                      f"{new.get(name)}; what is passed to an optimizer of poptorch.optim can change, "
                                      "unless it was marked as constant")


def _checkVelocity(old: Dict[str, Any], new: Dict[str, Any]) -> None:
    """A momentum that was 0 when compiled has no velocity tensor to work with."""
    for a, b in zip(old["groups"], new["groups"]):
        if "momentum" in a and (a["momentum"] == 0.0) != (b["momentum"] == 0.0):
            raise createPoptorchError("momentum cannot change between 0 and another value once the model is "
                                      f"compiled, from {a['momentum']} to {b['momentum']}")


__all__ = ["Adam", "AdamW", "LAMB", "Optimizer", "RMSprop", "SGD", "VariableAttributes"]
