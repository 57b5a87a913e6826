"""Operations that users write in C or C++, against tessera/custom.h.

    poptorch.custom_ops.load("cube.c")         # or a shared object
    y, = poptorch.custom_op([x], "Cube", "my.ops", 1, example_outputs=[x])

On the device an operation is a call of the host, and its gradient another one (ts_host_op of tessera.h). Outside of a model it
computes at once, with a gradient too. A shared object that the program has loaded by itself, with ctypes, is found.
"""

import ctypes
import os
import shlex
import subprocess
import sys
import tempfile
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

import torch

from . import _trace
from .errors import createPoptorchError

_SOURCES = {".c": ("TESSERA_CC", "CC", "cc"), **dict.fromkeys((".cc", ".cpp", ".cxx"), ("CXX", "CXX", "c++"))}
_TYPES = {d: i + 1 for i, d in enumerate((torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.uint8,
                                          torch.int32, torch.int64, torch.bool))}
_NOLOAD = 4    # of dlopen: only what is loaded already


class _Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("dims", ctypes.POINTER(ctypes.c_int64)), ("rank", ctypes.c_int32),
                ("type", ctypes.c_int32), ("count", ctypes.c_int64)]


class _Attribute(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("count", ctypes.c_int64), ("ints", ctypes.POINTER(ctypes.c_int64)),
                ("floats", ctypes.POINTER(ctypes.c_double)), ("strings", ctypes.POINTER(ctypes.c_char_p))]


class _Call(ctypes.Structure):
    _fields_ = [("inputs", ctypes.POINTER(_Tensor)), ("outputs", ctypes.POINTER(_Tensor)),
                ("attributes", ctypes.POINTER(_Attribute)), ("ninputs", ctypes.c_int32), ("noutputs", ctypes.c_int32),
                ("nattributes", ctypes.c_int32), ("error", ctypes.c_char * 500)]


_Function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Call))


class _Row(ctypes.Structure):
    _fields_ = [("domain", ctypes.c_char_p), ("name", ctypes.c_char_p), ("version", ctypes.c_int32), ("forward", _Function),
                ("gradient", _Function), ("check", _Function)]


class Op:
    """An operation of a loaded file."""

    def __init__(self, row: _Row, path: str) -> None:
        self.domain, self.name, self.version = row.domain.decode(), row.name.decode(), row.version
        self.path = path
        self._functions = {what: getattr(row, what) for what in ("forward", "gradient", "check") if getattr(row, what)}
        if "forward" not in self._functions:
            raise createPoptorchError(f"{self}: no forward function")

    def __str__(self) -> str:
        return f"Custom operation {self.domain}.{self.name} version {self.version} ({self.path})"

    @property
    def differentiable(self) -> bool:
        """Has it a gradient?"""
        return "gradient" in self._functions

    def call(self, what: str, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor], attributes: Any,
             empty: bool = False) -> None:
        """Call one of its functions; with `empty` it sees no elements."""
        if what not in self._functions:
            return
        call = _Call(_tensors(inputs, empty), _tensors(outputs, empty), attributes, len(inputs), len(outputs), len(attributes))
        code = self._functions[what](ctypes.byref(call))
        if code:
            why = call.error.decode(errors="replace") or f"it returned {code}"
            raise createPoptorchError(f"{self}: {what} failed: {why}")


def _tensors(tensors: Sequence[torch.Tensor], empty: bool) -> Any:
    rows = (_Tensor * max(len(tensors), 1))()
    for row, t in zip(rows, tensors):
        absent = empty or t.device.type == "meta"
        row.data = None if absent else t.data_ptr()
        row.dims = (ctypes.c_int64 * max(t.dim(), 1))(*t.shape)
        row.rank, row.type, row.count = t.dim(), _TYPES[t.dtype], t.numel()
    return rows


_loaded: Dict[Tuple[str, str, int], Op] = {}


def include() -> str:
    """The folder of tessera/custom.h, for those who compile by themselves."""
    folders = [os.path.join(f, "include") for f in sys.modules[__package__].__path__]    # an install in place has two
    return next((f for f in folders if os.path.exists(os.path.join(f, "tessera", "custom.h"))), folders[0])


def load(path: str) -> List[str]:
    """Load the operations of a C or C++ file, which is compiled, or of a shared object: their names."""
    path = os.path.abspath(os.fspath(path))
    if not os.path.exists(path):
        raise createPoptorchError(f"custom_ops.load: there is no {path}")
    extension = os.path.splitext(path)[1]
    if extension not in _SOURCES:
        return _take(_open(path, path), path)
    with tempfile.TemporaryDirectory(prefix="poptorch-custom-") as folder:
        built = os.path.join(folder, "ops.so")
        _compile(path, built, _SOURCES[extension])
        return _take(_open(built, path), path)


def _compile(source: str, to: str, compilers: Tuple[str, str, str]) -> None:
    compiler = os.environ.get(compilers[0]) or os.environ.get(compilers[1]) or compilers[2]
    command = [*shlex.split(compiler), "-O3", "-march=native", "-shared", "-fPIC", "-I", include(), source, "-o", to, "-lm"]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    except OSError as e:
        raise createPoptorchError(f"custom_ops.load: {compiler} cannot be run ({e.strerror}); a C compiler is needed") from None
    if done.returncode:
        raise createPoptorchError(f"custom_ops.load: {source} does not compile:\n{done.stdout.strip()}")


def _open(path: str, source: str) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(path)
    except OSError as e:
        raise createPoptorchError(f"custom_ops.load: {source} cannot be loaded: {e}") from None


def _take(library: ctypes.CDLL, path: str) -> List[str]:
    try:
        function = library.ts_custom_ops
    except AttributeError:
        raise createPoptorchError(f"custom_ops.load: {path} has no ts_custom_ops(): end it with TS_CUSTOM_OPS(...) of "
                                  "tessera/custom.h. Operations for an IPU (popart.Op) must be written again") from None
    function.restype = ctypes.POINTER(_Row)
    rows, names, i = function(), [], 0
    while rows[i].name:
        op = Op(rows[i], path)
        _loaded[op.domain, op.name, op.version] = op
        names.append(f"{op.domain}.{op.name}")
        i += 1
    return names


def _mapped() -> Iterator[str]:
    """Shared objects of this process."""
    with open("/proc/self/maps") as f:
        paths = {line.split(maxsplit=5)[-1].strip() for line in f if ".so" in line}
    return iter(sorted(p for p in paths if p.startswith("/")))


def _takeLoaded() -> None:
    """Those which the program has loaded by itself."""
    known = {op.path for op in _loaded.values()}
    for path in _mapped():
        if path in known or not os.path.exists(path):
            continue
        try:
            library = ctypes.CDLL(path, mode=_NOLOAD | ctypes.DEFAULT_MODE)
        except OSError:
            continue
        if hasattr(library, "ts_custom_ops"):
            _take(library, path)


def find(domain: str, name: str, version: int) -> Op:
    """The operation, or an Error."""
    if (domain, name, version) not in _loaded:
        _takeLoaded()
    if (domain, name, version) not in _loaded:
        there = ", ".join(f"{d}.{n} version {v}" for d, n, v in _loaded) or "none"
        raise createPoptorchError(f"custom_op: no operation {domain}.{name} version {version} was loaded (there are: {there}); "
                                  "poptorch.custom_ops.load() takes a C or C++ file or a shared object, see tessera/custom.h")
    return _loaded[domain, name, version]


# Attributes.


def checkAttributes(attributes: Optional[Dict[str, Any]]) -> Dict[str, List[Any]]:
    """The attributes as lists; a ValueError for those that an operation cannot have."""
    if attributes is None:
        return {}
    if not isinstance(attributes, dict) or not all(isinstance(k, str) for k in attributes):
        raise ValueError("Attributes of a custom_op are a dictionary whose keys are strings")
    return {_ascii(key): _list(key, value) for key, value in attributes.items()}


def _ascii(text: str) -> str:
    if not text.isascii():
        raise ValueError(f"Attributes of a custom_op must be ASCII text, got {text!r}")
    return text


def _list(key: str, value: Any) -> List[Any]:
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    kinds = {type(v) for v in values}
    if len(kinds) != 1 or not kinds <= {int, float, str}:
        raise ValueError(f"Attribute {key} of a custom_op: expected a float, an int, a string or a list of one of these, got "
                         f"{value!r}")
    return [_ascii(v) for v in values] if kinds == {str} else values


def _encoded(attributes: Dict[str, List[Any]]) -> Any:
    rows = (_Attribute * len(attributes))()
    for row, (key, values) in zip(rows, attributes.items()):
        row.name, row.count = key.encode(), len(values)
        if isinstance(values[0], str):
            row.strings = (ctypes.c_char_p * len(values))(*[v.encode() for v in values])
        elif isinstance(values[0], float):
            row.floats = (ctypes.c_double * len(values))(*values)
        else:
            row.ints = (ctypes.c_int64 * len(values))(*values)
    return rows


# Calls.


class _Bound:
    """An operation with its attributes, for inputs and results of one kind."""

    def __init__(self, op: Op, attributes: Dict[str, List[Any]], examples: Sequence[torch.Tensor]) -> None:
        self.op = op
        self._attributes = _encoded(attributes)
        self._specs = [(t.shape, t.dtype) for t in examples]

    def check(self, inputs: Sequence[torch.Tensor]) -> None:
        """What the operation itself says of these shapes."""
        self.op.call("check", inputs, self._made(), self._attributes, empty=True)

    def _made(self) -> List[torch.Tensor]:
        return [torch.zeros(shape, dtype=dtype) for shape, dtype in self._specs]

    def forward(self, *inputs: torch.Tensor) -> List[torch.Tensor]:
        """The results."""
        outputs = self._made()
        self.op.call("forward", [t.contiguous() for t in inputs], outputs, self._attributes)
        return outputs

    def gradient(self, *values: torch.Tensor) -> List[torch.Tensor]:
        """From the inputs, the results and their gradients: those of the inputs that are no whole numbers."""
        inputs = values[:len(values) - 2 * len(self._specs)]
        outputs = [torch.zeros(t.shape, dtype=t.dtype, device=None if t.is_floating_point() else "meta") for t in inputs]
        self.op.call("gradient", [t.contiguous() for t in values], outputs, self._attributes)
        return [t for t in outputs if t.is_floating_point()]


class _Eager(torch.autograd.Function):
    """An operation outside of a model."""

    @staticmethod
    def forward(ctx: Any, bound: _Bound, *inputs: torch.Tensor) -> Any:    # type: ignore[override]
        outputs = bound.forward(*inputs)
        ctx.bound = bound
        ctx.save_for_backward(*inputs, *outputs)
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        op = ctx.bound.op
        if not op.differentiable:
            raise createPoptorchError(f"{op} has no gradient")
        saved = ctx.saved_tensors
        found = iter(ctx.bound.gradient(*saved, *gradients))
        return (None, *(next(found) if t.is_floating_point() else None for t in saved[:len(saved) - len(gradients)]))


def customOp(inputs: Any, name: str, domain: str, domain_version: int, example_outputs: Any,
             attributes: Optional[Dict[str, Any]] = None) -> List[torch.Tensor]:
    """poptorch.custom_op."""
    given, examples = list(inputs), list(example_outputs)
    for t in (*given, *examples):
        if not isinstance(t, torch.Tensor) or t.dtype not in _TYPES:
            raise createPoptorchError(f"custom_op ({domain}.{name}) takes and returns tensors of types that the device has, got "
                                      f"{t.dtype if isinstance(t, torch.Tensor) else type(t).__name__}")
    if not given or not examples:
        raise createPoptorchError(f"custom_op ({domain}.{name}) has at least one input and one output")
    bound = _Bound(find(domain, name, domain_version), checkAttributes(attributes), examples)
    bound.check(given)
    tracer = _trace.tracer()
    if tracer is None:
        return list(_Eager.apply(bound, *given))
    results = [torch.zeros(t.shape, dtype=t.dtype) for t in examples]
    return tracer.callHost(bound.forward, given, results, bound.gradient if bound.op.differentiable else None)


def customOperation(inputs: List[torch.Tensor], name: str, domain: str, domain_version: int, num_outputs: int,
                    example_outputs: List[torch.Tensor], attributes_map_id: str = "") -> List[torch.Tensor]:
    """torch.ops.poptorch.custom_operation: without attributes, which only poptorch.custom_op has."""
    if attributes_map_id:
        raise createPoptorchError("torch.ops.poptorch.custom_operation takes no attributes: use poptorch.custom_op")
    if num_outputs != len(example_outputs):
        raise createPoptorchError(f"custom_operation: {num_outputs} outputs, but {len(example_outputs)} examples of them")
    return customOp(inputs, name, domain, domain_version, example_outputs)
