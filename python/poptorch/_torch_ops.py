"""torch.ops.poptorch: the functions of this package under the names that PopTorch registers with torch.

They are plain Python functions that are put where torch looks first: a trace takes them as it takes poptorch.X(), and
nothing is compiled for one release of torch. signatures.py has what each of them takes.
"""

import functools
import inspect
from typing import Any, Callable, Dict, List, NoReturn

import torch

from . import blocks, custom_ops, ops, signatures
from .enums import MatMulSerializationMode, OverlapMode
from .errors import check, createPoptorchError

_REDUCTIONS = ("sum", "mean", "none")
_FLOAT_FORMATS = ("auto", "fixed", "scientific", "none")

#: The names that internal_cast() knows.
_DTYPES = {
    "FLOAT": torch.float32, "FLOAT16": torch.float16, "BFLOAT16": torch.bfloat16, "DOUBLE": torch.float64,
    "INT8": torch.int8, "UINT8": torch.uint8, "INT16": torch.int16, "INT32": torch.int32, "INT64": torch.int64,
    "BOOL": torch.bool,
}

_multi_convs: List[Any] = []


def identity_loss(x: torch.Tensor, reduction: int) -> torch.Tensor:
    check(reduction in range(3), f"identity_loss: a reduction is 0 (sum), 1 (mean) or 2 (none), got {reduction!r}")
    return ops.identity_loss(x, _REDUCTIONS[reduction])


def internal_cast(t: torch.Tensor, dtype: str) -> torch.Tensor:
    if dtype not in _DTYPES:
        raise createPoptorchError(f"internal_cast: no type {dtype!r}; there are {', '.join(_DTYPES)}")
    return t.to(_DTYPES[dtype])


def ipu_print_tensor(t: torch.Tensor, title: str = "", print_gradient: bool = True, summarise_threshold: int = 1000,
                     edge_items: int = 3, max_line_width: int = 80, digits: int = 4, float_format: int = 0,
                     separator: str = ", ", open_bracket: str = "(", close_bracket: str = ")") -> torch.Tensor:
    check(float_format in range(4), f"ipu_print_tensor: a float_format is a number from 0 to 3, got {float_format!r}")
    return ops.ipu_print_tensor(t, title, bool(print_gradient), summarise_threshold, edge_items, max_line_width, digits,
                                _FLOAT_FORMATS[float_format], separator, open_bracket, close_bracket)


def push_name_scope(name: str) -> None:
    ops.NameScope(name).__enter__()


def pop_name_scope() -> None:
    ops.NameScope("").__exit__()


def begin_ipu_block(stage_id: int, phase_id: int, ipu_id: int) -> None:
    recorder = blocks.recorder()
    if recorder is not None:
        recorder.beginAt(stage_id, phase_id, ipu_id)


def end_ipu_block() -> None:
    recorder = blocks.recorder()
    if recorder is not None:
        recorder.end()


def begin_multi_conv() -> None:
    _multi_convs.append(ops.MultiConv().__enter__())


def end_multi_conv(*_: Any, **__: Any) -> None:
    if not _multi_convs:
        raise createPoptorchError("end_multi_conv: no begin_multi_conv was called before it")
    _multi_convs.pop().__exit__(None, None, None)


def set_attribute(attribute: str, key: str, value: str) -> None:
    """As poptorch.Attribute: no effect on our devices."""
    check(all(isinstance(s, str) for s in (attribute, key, value)), "set_attribute takes three strings")


def clear_attribute(attribute: str, key: str) -> None:
    """As poptorch.Attribute: no effect on our devices."""
    check(all(isinstance(s, str) for s in (attribute, key)), "clear_attribute takes two strings")


def set_matmul_serialization(matmul: torch.Tensor, mode: str, factor: int, keep_precision: bool) -> torch.Tensor:
    """As poptorch.serializedMatMul: how a product is split has no effect on our devices."""
    MatMulSerializationMode(mode)
    check(isinstance(factor, int) and isinstance(keep_precision, bool),
          "set_matmul_serialization takes a tensor, a mode, an int and a bool")
    return matmul


def set_overlap_for_input(t: torch.Tensor, mode: str) -> torch.Tensor:
    return ops.set_overlap_for_input(t, OverlapMode(mode))


def set_overlap_for_output(t: torch.Tensor, mode: str) -> torch.Tensor:
    return ops.set_overlap_for_output(t, OverlapMode(mode))


def _inside(name: str, instead: str) -> Callable:
    """An op that is half of something: a trace cannot tell what lies between the two."""
    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise createPoptorchError(f"torch.ops.poptorch.{name} is not supported: use {instead}")
    refuse.__name__ = name
    return refuse


_INSIDE = {
    "start_for_loop": "poptorch.for_loop", "end_for_loop": "poptorch.for_loop", "start_if_block": "poptorch.cond",
    "start_else_block": "poptorch.cond", "end_if_block": "poptorch.cond", "call_cpu_op": "poptorch.CPU",
    "end_cpu_op": "poptorch.CPU", "optimizer_group": "the parameter groups of the optimizer",
}

_SAME = {
    "ctc_beam_search_decoder": ops.ctc_beam_search_decoder, "dynamic_slice": ops.dynamic_slice,
    "dynamic_update": ops.dynamic_update, "fps": ops.fps, "nearest": ops.nearest, "nearest_batch_list": ops.nearest,
    "nop": ops.nop, "recomputation_checkpoint": ops.recomputationCheckpoint, "set_available_memory": ops.set_available_memory,
    "custom_operation": custom_ops.customOperation,
}


def functions() -> Dict[str, Callable]:
    """All of them by name."""
    own = {name: f for name, f in globals().items() if name in signatures.OPS and inspect.isfunction(f)}
    return {**own, **_SAME, **{name: _inside(name, instead) for name, instead in _INSIDE.items()}}


def install() -> None:
    """Put them where torch looks before it asks for a registered operator."""
    for name, function in functions().items():
        setattr(torch.ops.poptorch, name, _named(name, function))


def _named(name: str, function: Callable) -> Callable:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)
    call.__name__ = call.__qualname__ = name
    call.__doc__ = signatures.OPS[name]
    call.default = call    # type: ignore[attr-defined]    # torch.ops.poptorch.nop.default
    return call
