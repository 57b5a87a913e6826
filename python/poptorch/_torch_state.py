"""The state of torch's own optimizers: from the device into `optimizer.state`, and back.

The engine calls the first moment of fc.weight `fc.weight.exp_avg`; torch keeps it as `optimizer.state[weight]["exp_avg"]`.
The names are torch's but for SGD's velocity. The step counter is one number in the engine and one for each parameter in
torch; what belongs to a group (`eta.1`) is there for each of its parameters too.

An optimizer of torch knows nothing of a device. While it belongs to an executor its state_dict() reads the state first, and
load_state_dict() has it written before the next run; both are attributes of the instance, and gone when they part.
"""

from typing import Any, Callable, Dict, Iterator, Optional, Tuple

import torch

from . import _wrap
from ._logging import logger

State = Dict[str, torch.Tensor]

_RENAMED = {"SGD": {"momentum": "momentum_buffer"}}
_OF_GROUPS = ("mu_product", "eta", "mu")
_STEP = "step"
# Where `step` is a plain number in torch 1.x.
_NUMBERED = ("RMSprop", "Adadelta", "Rprop")


class TorchState:
    """An optimizer of torch with the interface that poptorch.optim.Optimizer has for the executor."""

    def __init__(self, optimizer: torch.optim.Optimizer, kind: str, names: Callable[[], Dict[int, str]]) -> None:
        self._optimizer = optimizer
        self._kind = kind
        self._names = names    # of parameters, by id
        self._reader: Optional[Callable] = None
        self._loaded = False

    def setStateReader(self, reader: Optional[Callable]) -> None:
        """Connect to a device's state, or with None disconnect."""
        self._reader = reader
        for name in ("state_dict", "load_state_dict"):
            if reader is None:
                self._optimizer.__dict__.pop(name, None)
            else:
                setattr(self._optimizer, name, getattr(self, "_" + name))

    def _state_dict(self, *args: Any, **kwargs: Any) -> Dict[str, Any]:
        self.syncState()
        return type(self._optimizer).state_dict(self._optimizer, *args, **kwargs)

    def _load_state_dict(self, *args: Any, **kwargs: Any) -> None:
        type(self._optimizer).load_state_dict(self._optimizer, *args, **kwargs)
        self._loaded = True

    def syncState(self) -> None:
        """Read the state from the device if the copy here is stale."""
        if not self._loaded:    # what was loaded is newer
            self.takeState(self._reader() if self._reader is not None else None)

    def takeLoadedState(self) -> Optional[Tuple[State, State]]:
        """What to write to the device before the next run, or None."""
        if not self._loaded:
            return None
        self._loaded = False
        return self.ipu_state or {}, {}

    def _parameters(self) -> Iterator[Tuple[int, torch.Tensor, str]]:
        """(group, parameter, its name)"""
        names = self._names()
        for i, group in enumerate(self._optimizer.param_groups):
            for p in group["params"]:
                if id(p) in names:
                    yield i + 1, p, names[id(p)]

    @property
    def ipu_state(self) -> Optional[State]:
        """optimizer.state under the engine's names; None before there is any."""
        ours = {theirs: name for name, theirs in _RENAMED.get(self._kind, {}).items()}
        out: State = {}
        for group, p, name in self._parameters():
            for key, value in self._optimizer.state.get(p, {}).items():
                if value is None:
                    continue
                value = torch.as_tensor(value, dtype=None if isinstance(value, torch.Tensor) else torch.float32)
                value = torch.view_as_real(value) if value.is_complex() else value
                if key == _STEP and not torch.equal(out.setdefault(_STEP, value), value):
                    logger.warning("The optimizer has parameters of %g and %g steps: on the device all have the same",
                                   float(out[_STEP]), float(value))
                elif key in _OF_GROUPS:
                    out[f"{key}.{group}"] = value
                elif key != _STEP:
                    out[f"{name}.{ours.get(key, key)}"] = value
        return out or None

    ipu_param: State = {}

    def takeState(self, found: Optional[Tuple[State, State]]) -> None:
        """Put what was read from the device, under the engine's names, into optimizer.state; None is nothing new."""
        if found is None:
            return
        engine = found[0]
        theirs = _RENAMED.get(self._kind, {})
        for group, p, name in self._parameters():
            slots = {theirs.get(k[len(name) + 1:], k[len(name) + 1:]): t for k, t in engine.items()
                     if k.startswith(name + ".") and "." not in k[len(name) + 1:] and not k.endswith((".accum", ".share"))}
            if _wrap.isComplex(p):
                slots = {k: torch.view_as_complex(t) if t.dim() and t.shape[-1] == 2 else t for k, t in slots.items()}
            slots.update({k: engine[f"{k}.{group}"].clone() for k in _OF_GROUPS if f"{k}.{group}" in engine})
            if slots and self._kind not in ("SGD", "Muon"):
                slots[_STEP] = self._step(p, engine)
            if slots:
                self._optimizer.state[p].update(slots)

    def _step(self, p: torch.Tensor, engine: State) -> Any:
        """The engine counts where the count matters; else it is as it was."""
        step = engine[_STEP].clone() if _STEP in engine else self._optimizer.state[p].get(_STEP, torch.zeros(()))
        old = int(torch.__version__.split(".")[0]) < 2
        return int(step) if old and self._kind in _NUMBERED else step


def toEngine(state: State, tensors: Any) -> State:
    """What to write to an engine that has these tensors, in its types."""
    out, missing = {}, []
    for name, t in state.items():
        dims = tensors.get(name)
        if dims is None:
            continue
        if tuple(dims[1]) != tuple(t.shape):
            missing.append(name)
        else:
            out[name] = t.detach().to(dims[0]).contiguous()
    if missing:
        logger.warning("The optimizer state has another shape for %s: they keep their values", ", ".join(missing))
    return out
