"""Casting by policy, as releases up to 3.0 had it.

Inside an autocast region, and with Options.Precision.autocastEnabled (the default), operations on the
policy's lists change type. Outside of one nothing is cast, so ordinary models never notice. A region
is only marked here; the tracer asks isEnabled() and the policy.
"""

import functools
import inspect
from typing import Any, Callable, Dict, List, Optional, Sequence, Set

import torch

_FP16 = ("addbmm addmm addmv addr baddbmm bmm chain_matmul conv1d conv2d conv3d conv_tbc conv_transpose1d "
         "conv_transpose2d conv_transpose3d convolution matmul mm mv").split()
_PROMOTE = "addcdiv addcmul atan2 bilinear cat cross dot equal index_put stack tensordot".split()


#: Functions that reach ATen under another name.
_FUNCTIONS = {"mm": {"matmul", "linear"}, "bmm": {"matmul"}, "mv": {"matmul"}, "dot": {"matmul"},
              "addmm": {"linear"}}


def _namesOf(op: str, args: Sequence[Any]) -> Set[str]:
    """The names that a policy can call an ATen op by."""
    if op == "convolution":
        kind = "conv_transpose" if args[6] else "conv"
        return {op, f"{kind}{args[0].dim() - 2}d"}
    return {op} | _FUNCTIONS.get(op, set())


class Policy:
    """Names of operations to run in half, in float, in the widest or in the narrowest of their types."""

    def __init__(self, fp16: Optional[Sequence[str]] = None, fp32: Optional[Sequence[str]] = None,
                 promote: Optional[Sequence[str]] = None, demote: Optional[Sequence[str]] = None) -> None:
        self.fp16: List[str] = list(_FP16 if fp16 is None else fp16)
        self.fp32: List[str] = list(() if fp32 is None else fp32)
        self.promote: List[str] = list(_PROMOTE if promote is None else promote)
        self.demote: List[str] = list(() if demote is None else demote)

    def castTo(self, op: str, args: Sequence[Any], dtypes: Sequence[torch.dtype]) -> Optional[torch.dtype]:
        """What the floats among an ATen call's arguments become, or None."""
        names = _namesOf(op, args)
        floats = {t for t in dtypes if t.is_floating_point}
        if names & set(self.fp16):
            return torch.float16
        if names & set(self.fp32):
            return torch.float32
        if len(floats) > 1 and names & set(self.promote):
            return max(floats, key=lambda t: torch.finfo(t).bits)
        if len(floats) > 1 and names & set(self.demote):
            return min(floats, key=lambda t: torch.finfo(t).bits)
        return None

    def toDict(self) -> Dict[str, List[str]]:
        """The four lists."""
        return {"fp16": self.fp16, "fp32": self.fp32, "promote": self.promote, "demote": self.demote}

    def __repr__(self) -> str:
        return f"Policy({', '.join(f'{k}={v}' for k, v in self.toDict().items())})"


_regions: List[bool] = []


def isEnabled() -> bool:
    """True inside an autocast region that is not switched off."""
    return bool(_regions) and _regions[-1]


class autocast:
    """Marks a region: a context manager, and a decorator of a function."""

    def __init__(self, enabled: bool = True) -> None:
        self._enabled = enabled

    def __enter__(self) -> "autocast":
        _regions.append(self._enabled)
        return self

    def __exit__(self, *exc: Any) -> None:
        _regions.pop()

    def __call__(self, function: Callable) -> Callable:
        @functools.wraps(function)
        def inRegion(*args: Any, **kwargs: Any) -> Any:
            with autocast(self._enabled):
                return function(*args, **kwargs)
        return inRegion


class _Forward:
    """A module's forward() in a region. Not a closure, so that the module can be copied and pickled."""

    def __init__(self, module: torch.nn.Module, enabled: bool) -> None:
        self._module = module
        self._enabled = enabled

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(functools.partial(type(self._module).forward, self._module))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with autocast(self._enabled):
            return type(self._module).forward(self._module, *args, **kwargs)


def _autocastModule(module: torch.nn.Module, enabled: bool = True) -> torch.nn.Module:
    """Run this module's forward() in an autocast region. Returns the module."""
    module.forward = _Forward(module, enabled)    # type: ignore[assignment]
    return module


torch.nn.Module.autocast = _autocastModule    # type: ignore[attr-defined]
