"""Where PyTorch and the engine meet: the names of types, tensors as the engine has them, its errors."""

import contextlib
from typing import Dict, Iterator

import torch

from . import _core
from .errors import createNativeError

DTYPES: Dict[torch.dtype, str] = {
    torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16", torch.float64: "f64",
    torch.int8: "i8", torch.uint8: "u8", torch.int32: "i32", torch.int64: "i64", torch.bool: "bool",
}
TORCH_DTYPES = {name: dtype for dtype, name in DTYPES.items()}
DTYPES[torch.int16] = "i32"    # the engine has none: see engineTensor()

#: What a call returns in place of types that the original device lacks.
OUTPUT_DTYPES = {"i64": "i32", "f64": "f32", "bf16": "f32"}


def coreError(error: BaseException) -> BaseException:
    """What _core raised, as a poptorch.Error."""
    if not isinstance(error, _core.Error):
        return error
    kind, message, where, doing, hint = error.args
    text = message + (f"\n  hint: {hint}" if hint else "")
    return createNativeError("poptorch_cpp_error", f"{kind}: {text}", where, [doing] if doing else [])


@contextlib.contextmanager
def nativeErrors() -> Iterator[None]:
    """Errors of _core leave as poptorch.Error."""
    try:
        yield
    except _core.Error as e:
        raise coreError(e) from None


def engineTensor(t: torch.Tensor) -> torch.Tensor:
    """The elements as the engine has them: side by side, and of a type that it knows. Complex ones are pairs."""
    t = t.detach()
    t = torch.view_as_real(t.resolve_conj()) if t.is_complex() else t
    return (t.to(torch.int32) if t.dtype == torch.int16 else t).contiguous()


def pairsAsComplex(t: torch.Tensor) -> torch.Tensor:
    """The opposite; several numbers without dims come one after the other."""
    return torch.view_as_complex(t.reshape(-1, 2) if t.dim() == 1 and len(t) > 2 else t.contiguous())
