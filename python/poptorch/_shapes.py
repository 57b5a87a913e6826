"""What PyTorch would answer, without its numbers: the types, shapes and memory of results.

A trace needs to know how large things are and which of them share memory, and nothing else. So an operation is run on meta
tensors, which have no elements, and its results are tensors of the host that nobody fills: the system gives memory to pages
that are written, and these are not. What only looks at memory in another way is run as it is, for it touches nothing. What
writes to its argument is not run at all.

Whole numbers are 0, so that one that PyTorch insists on reading is a place that exists.
"""

import functools
from typing import Any, Dict, List, Optional, Tuple

import torch

_MOST = 1 << 22    # elements of whole numbers that are computed

_META, _HOST = torch.device("meta"), torch.device("cpu")

#: Ops that change what their argument is, and not only its elements.
_RESHAPING = ("resize", "set_", "as_strided_", "squeeze_", "unsqueeze_", "transpose_", "t_", "swapaxes_", "swapdims_", "detach_",
              "_resize", "rename", "requires_grad")


@functools.lru_cache(None)
def _kind(func: Any) -> str:
    """view, write, out, reshape or plain."""
    schema = func._schema
    writes = [a for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    if any(a.kwarg_only for a in writes):
        return "out"
    if writes:
        return "reshape" if schema.name.partition("::")[2].startswith(_RESHAPING) else "write"
    return "view" if any(r.alias_info is not None for r in schema.returns) else "plain"


def _meta(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=_META)
    if isinstance(value, (list, tuple)):
        return type(value)(_meta(v) for v in value)
    if isinstance(value, torch.Generator):
        return None
    return _META if isinstance(value, torch.device) else value


def _apart(t: torch.Tensor) -> bool:
    """Has each element a place of its own? Of an expanded argument some meta kernels of 1.13 make a result that has not."""
    return all(step or n <= 1 for step, n in zip(t.stride(), t.shape))


def _host(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        made = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=_HOST) if _apart(value) else \
            torch.empty(value.shape, dtype=value.dtype, device=_HOST)
        return made if value.is_floating_point() or value.is_complex() else made.zero_()
    return type(value)(_host(v) for v in value) if isinstance(value, (list, tuple)) else value


def _takesDevice(func: Any) -> bool:
    return any(a.name == "device" for a in func._schema.arguments)


def _written(func: Any, args: Tuple, kwargs: Dict[str, Any]) -> List[torch.Tensor]:
    bound = [args[i] if i < len(args) else kwargs.get(a.name) for i, a in enumerate(func._schema.arguments)]
    return [t for t, a in zip(bound, func._schema.arguments) if a.alias_info is not None and a.alias_info.is_write]


def _harmless(t: torch.Tensor) -> torch.Tensor:
    """Of the same type, shape and memory: unit matrices, which every factorisation takes. What nobody filled may be anything."""
    if not (t.is_floating_point() or t.is_complex()):
        return t
    made = torch.empty(t.shape, dtype=t.dtype) if 0 in t.stride() else torch.empty_strided(t.shape, t.stride(), dtype=t.dtype)
    if t.dim() < 2:
        return made.fill_(1)
    made.zero_().diagonal(dim1=-2, dim2=-1).fill_(1)
    return made


def _ran(func: Any, args: Tuple, kwargs: Dict[str, Any]) -> Any:
    """For real, on copies. PyTorch's errors are about shapes here."""
    copies = {id(t): t.clone() for t in _written(func, args, kwargs) if isinstance(t, torch.Tensor)}

    def copied(v: Any) -> Any:
        if isinstance(v, (list, tuple)):
            return type(v)(map(copied, v))
        return copies.get(id(v)) if id(v) in copies else _harmless(v) if isinstance(v, torch.Tensor) else v
    args, kwargs = tuple(map(copied, args)), {k: copied(v) for k, v in kwargs.items()}
    try:
        return func(*args, **kwargs)
    except RuntimeError as e:    # what it cannot do in half precision on a CPU it does in single precision
        if "not implemented for 'Half'" not in str(e):
            raise
    half, single = torch.float16, torch.float32
    return _as(func(*_as(args, half, single), **{k: _as(v, half, single) for k, v in kwargs.items()}), single, half)


def _as(value: Any, old: torch.dtype, new: torch.dtype) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(new) if value.dtype == old else value
    if isinstance(value, (list, tuple)):
        return type(value)(_as(v, old, new) for v in value)
    return value


def isWhole(t: torch.Tensor) -> bool:
    """Whole numbers and bools, and not too many."""
    return not t.is_floating_point() and not t.is_complex() and t.numel() <= _MOST


def allWhole(value: Any) -> bool:
    """Only such tensors?"""
    return all(map(allWhole, value)) if isinstance(value, (list, tuple)) else not isinstance(value, torch.Tensor) or isWhole(value)


def _fits(out: Any, into: List[torch.Tensor]) -> bool:
    """Do results have the shapes of the tensors they are written to?"""
    return [t.shape for t in (out if isinstance(out, (list, tuple)) else [out])] == [t.shape for t in into]


def run(func: Any, args: Tuple, kwargs: Dict[str, Any], known: bool = False) -> Any:
    """func(*args, **kwargs), where the elements of the arguments mean nothing; neither do those of the results. Where they are
    known, whole numbers are computed."""
    kind = _kind(func)
    if kind in ("view", "reshape"):
        return func(*args, **kwargs)
    named = {k: _meta(v) for k, v in kwargs.items()}
    if _takesDevice(func):
        named["device"] = _META
    if func._schema.name == "aten::aminmax" and not args[0].dim():    # a CPU's has a dim more with keepdim, in 1.13
        return _ran(func, args, kwargs)
    try:
        out: Optional[Any] = func(*map(_meta, args), **named)
        if func._schema.name == "aten::native_batch_norm" and len(args) > 5 and not args[5]:    # a CPU's has no statistics then
            out = (out[0], out[1].new_empty(0), out[2].new_empty(0))
    except (NotImplementedError, RuntimeError, IndexError, ValueError, TypeError, AssertionError):    # no such kernel, or wrong shapes
        out = _ran(func, args, kwargs)
        if kind == "plain":
            return out
    if kind == "out" and not _fits(out, _written(func, args, kwargs)):    # it becomes as large as it has to be
        return func(*args, **kwargs)
    if known and kind == "plain" and allWhole(out):
        return func(*args, **kwargs)
    if kind in ("write", "out"):
        found = _written(func, args, kwargs)
        return found if isinstance(out, (list, tuple)) else found[0] if found else None
    return _host(out)
