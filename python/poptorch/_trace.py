"""One run of a module's forward(), written down as a graph.

forward() runs once, on ordinary tensors of micro-batch size, below a dispatch mode: PyTorch tells the mode
every ATen call, and calls that depend on inputs, weights or buffers ("traced" tensors) are passed to
`_core.Graph.lower`. Everything else is computed by PyTorch there and then and becomes a constant when a
traced call reads it; so masks, positions and anchors cost nothing at run time, and need no support.

A graph has values, PyTorch has memory. A _Tensor here is a tensor of the program, a _Memory what several of
them share. A write changes the memory's version; a view that is read after that is computed again from the
tensor it views, and a write through a view is carried up to the tensor that owns the memory by the view's
inverse (`_core.Graph.put`).

Some calls are taken before ATen sees them, by a function mode: losses are marked, dropout stays one op, and
what needs a value that does not exist yet (.item(), .numpy(), ...) is an error.
"""

import contextlib
import os
import sys
from typing import Any, Callable, Dict, FrozenSet, Iterator, List, Optional, Sequence, Set, Tuple

import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch.nn.modules import module as hooks, transformer
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from . import _core, _dtypes, _gradients, _overlap, autocasting, blocks
from ._host import Host, Series
from ._logging import logger
from .errors import createNativeError, createPoptorchError

DTYPES: Dict[torch.dtype, str] = {
    torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16", torch.float64: "f64",
    torch.int8: "i8", torch.uint8: "u8", torch.int32: "i32", torch.int64: "i64", torch.bool: "bool",
}
TORCH_DTYPES = {name: dtype for dtype, name in DTYPES.items()}
DTYPES[torch.int16] = "i32"    # the engine has none: see engineTensor()

#: What a call returns in place of types that the original device lacks.
OUTPUT_DTYPES = {"i64": "i32", "f64": "f32", "bf16": "f32"}

#: Functions that make a tensor from nothing. Without a device= they warn, as on the original device.
_FACTORIES = frozenset(getattr(torch, n) for n in (
    "arange empty full full_like linspace logspace ones rand randint randn randperm range tensor zeros "
    "zeros_like").split())

#: The result depends on the shape of the arguments only, so it is a constant.
_SHAPE_ONLY = frozenset(f"aten::{n}" for n in (
    "empty_like zeros_like ones_like full_like new_zeros new_ones new_full new_empty empty_strided "
    "new_empty_strided").split())

#: New numbers in every run.
_RANDOM = frozenset(f"aten::{n}" for n in (
    "rand rand_like randn randn_like bernoulli bernoulli_ uniform_ normal_ normal exponential_ randint "
    "randint_like random_ randperm").split())

#: Writes that do not look at what was there before.
_OVERWRITES = frozenset(f"aten::{n}" for n in "copy_ fill_ zero_ bernoulli_ uniform_ normal_ exponential_ random_".split())

#: What PyTorch itself calls on results that nobody else may ever read.
_BOOKKEEPING = tuple(f"aten::{n}" for n in "detach alias squeeze unsqueeze view _reshape_alias".split())

#: Ops whose rows have another name, and which of their arguments the row takes.
_RENAMED = {
    "aten::copy_": ("poptorch::copy", (1,)),
    "aten::_index_put_impl_": ("aten::index_put", (0, 1, 2, 3)),
    "aten::rrelu_with_noise": ("aten::rrelu_with_noise", (0, 2, 3, 4)),    # the noise is only for PyTorch
    "aten::rrelu_with_noise_": ("aten::rrelu_with_noise", (0, 2, 3, 4)),
}

#: Second results that hardly anybody reads: made by this row, of the same arguments, when somebody does.
_ON_DEMAND = {
    f"aten::{pool}": f"poptorch::{pool.replace('_with_indices', '')}_places"
    for pool in ("max_pool2d_with_indices", "max_pool3d_with_indices", "adaptive_max_pool2d", "adaptive_max_pool3d")
}

#: Writes that the schema does not tell: {op: ((argument, result), ...)}, done when argument 5 is true.
_STATISTICS = {
    "aten::native_batch_norm": ((3, 3), (4, 4)),
    "aten::_native_batch_norm_legit": ((3, 3), (4, 4)),
}

_LOSSES = frozenset(getattr(module, n) for module in (F, torch, torch._C._nn) for n in (
    "nll_loss cross_entropy l1_loss mse_loss smooth_l1_loss binary_cross_entropy "
    "binary_cross_entropy_with_logits kl_div poisson_nll_loss hinge_embedding_loss soft_margin_loss "
    "margin_ranking_loss cosine_embedding_loss triplet_margin_loss ctc_loss huber_loss").split()
    if hasattr(module, n))

_DROPOUTS = {F.dropout: "poptorch::dropout", torch.dropout: "poptorch::dropout"}
_DROPOUTS.update({getattr(F, n): "poptorch::feature_dropout"
                  for n in ("dropout1d", "dropout2d", "dropout3d") if hasattr(F, n)})
_DROPOUT_NAMES = ("dropout", "dropout1d", "dropout2d", "dropout3d")
_UNTRAINED = frozenset((F.alpha_dropout, F.feature_alpha_dropout, *(getattr(torch, n) for n in (
    "alpha_dropout alpha_dropout_ dropout_ feature_dropout feature_dropout_ feature_alpha_dropout "
    "feature_alpha_dropout_").split())))
_RECURRENT = frozenset((torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu))

_T = torch.Tensor
_NEED_VALUES: Dict[Any, str] = {
    _T.item: ".item()", _T.tolist: ".tolist()", _T.numpy: ".numpy()", _T.__array__: ".numpy()",
    _T.__bool__: "bool()", _T.__float__: "float()", _T.__int__: "int()", _T.__index__: "an index",
    _T.cpu: ".cpu()",
}

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep

_tracer: Optional["Tracer"] = None


def tracer() -> Optional["Tracer"]:
    """The trace that is going on, or None."""
    return _tracer


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
    """The elements as the engine has them: side by side, and of a type that it knows."""
    t = t.detach()
    return (t.to(torch.int32) if t.dtype == torch.int16 else t).contiguous()


class _Memory:
    """What tensors share. Version 0 is what it started with."""

    def __init__(self) -> None:
        self.version = 0
        self.tensors: List["_Tensor"] = []


class _Tensor:
    """A traced tensor: the owner of its memory, or a view of `parent` made by `op`.

    `value` is its value as of `version`; None stands for a result of an op that is not supported.
    """

    def __init__(self, tensor: torch.Tensor, memory: _Memory, value: Any = None) -> None:
        self.tensor = tensor    # also keeps it alive, so that its id and its memory stay its own
        self.memory = memory
        self.value = value
        self.version = memory.version
        self.parent: Optional["_Tensor"] = None
        self.op = ""
        self.args: Tuple = ()
        self.which = 0
        self.make: Optional[Callable[[], Any]] = None    # of a leaf that nobody has read yet
        self.start: Any = None                           # of a leaf: the state itself
        self.cut = False                                 # made under no_grad()
        memory.tensors.append(self)

    @property
    def spec(self) -> Tuple[str, Tuple[int, ...]]:
        return DTYPES[self.tensor.dtype], tuple(self.tensor.shape)


def _storage(t: torch.Tensor) -> int:
    storage = t.untyped_storage() if hasattr(t, "untyped_storage") else t.storage()
    return storage.data_ptr()


def _geometry(t: torch.Tensor) -> Tuple:
    return t.dtype, tuple(t.shape), t.stride(), t.storage_offset()


def _reach(t: torch.Tensor) -> int:
    """One past the last place of the memory that a tensor shows."""
    return t.storage_offset() + sum((n - 1) * s for n, s in zip(t.shape, t.stride())) + 1


def _sameElements(t: torch.Tensor, size: Sequence[int], stride: Sequence[int], offset: Optional[int]) -> bool:
    """Would as_strided_ leave the elements where they are? Strides of sizes of 1 say nothing."""
    same = tuple(size) == tuple(t.shape) and offset in (None, t.storage_offset())
    return same and all(n == 1 or a == b for n, a, b in zip(size, stride, t.stride()))


def _tensorsIn(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for v in value:
            yield from _tensorsIn(v)


def _valuesIn(value: Any) -> Iterator[Any]:
    if isinstance(value, _core.Value):
        yield value
    elif isinstance(value, (list, tuple)):
        for v in value:
            yield from _valuesIn(v)


def _userLine() -> Tuple[str, int]:
    """The innermost line that is neither torch's nor ours, nor in a file of Options.sourceLocationExcludes."""
    frame = sys._getframe(1)
    excludes = _tracer.options.source_location_excludes if _tracer is not None else ()
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith((_HERE, _TORCH, "<frozen")) and not any(e in name for e in excludes):
            return name, frame.f_lineno
        frame = frame.f_back
    return "?", 0


class Missing(Exception):
    """Raised inside the tracer for a call that cannot be lowered."""


class Tracer(TorchDispatchMode):
    """The dispatch mode. Use run()."""

    def __init__(self, name: str, training: bool, options: Any) -> None:
        super().__init__()
        self.graph = _core.Graph(name)
        self.training = training
        self.options = options
        self.host = Host()
        self.overlap = _overlap.Overlap(options)
        self.names: Dict[str, Any] = {}         # values by the names of getTensorNames()
        self.gradients: Dict[str, Series] = {}    # of parameters, for anchors
        self.convolutions: Optional[List[int]] = None    # of the MultiConv that is open
        self._scopes: List[str] = []
        self._made: Set[int] = set()            # memory that the trace itself made
        self._repeats: Dict[str, int] = {}
        self._paused = False
        self.missing: Dict[str, Tuple[str, int]] = {}
        self.losses: List[Any] = []
        self.demoted: Set[int] = set()
        self.leaves: Dict[str, _Tensor] = {}    # parameters and buffers by name
        self.frozen: Dict[str, _Tensor] = {}    # those that are constants
        self.inputs: List[_Tensor] = []
        self._tensors: Dict[int, _Tensor] = {}
        self._memories: Dict[int, _Memory] = {}
        self._constants: Dict[Tuple[int, int], Tuple[torch.Tensor, Any]] = {}
        self._feeds: Dict[int, FrozenSet[int]] = {}    # id of a value: the losses it depends on
        self._values: List[Any] = []                   # keeps those ids their own
        self._offsets: Dict[int, Tuple[int, int]] = {}    # id of a tensor: that of another, how much more it is
        self._override: Optional[Tuple[str, Tuple]] = None
        self._recorder: Optional[blocks.Recorder] = None
        self.placements: List[blocks.Placement] = []    # of the operations, where it changes
        self.stages: Dict[int, List[str]] = {0: []}     # device: its blocks; what is in no block is on the first

    # --- what a trace starts from ---

    def _add(self, t: _Tensor) -> _Tensor:
        self._tensors[id(t.tensor)] = t
        return t

    def _newMemory(self, t: torch.Tensor) -> _Memory:
        memory = self._memories[_storage(t)] = _Memory()
        return memory

    def addInput(self, name: str, t: torch.Tensor) -> None:
        """An input of a run, in the order of these calls."""
        if t.dtype not in DTYPES:
            raise createPoptorchError(f"{name} has type {t.dtype}, which is not supported; there are "
                                      f"{', '.join(str(d) for d in DTYPES)}")
        value = self.named("input", self.graph.input(name, DTYPES[t.dtype], t.shape))
        self.inputs.append(self._add(_Tensor(t, self._newMemory(t), value)))

    def addState(self, name: str, t: torch.Tensor, trained: bool) -> None:
        """A parameter or buffer; it joins the graph when it is read."""
        known = self._find(t)
        if known is not None:
            self._add(known if known.tensor is t else self._alias(t, known))
            return
        leaf = _Tensor(t, self._newMemory(t))
        if not t.is_floating_point() and name not in self.options.updatable_named_buffers:
            number = t.detach().clone()    # whole numbers are constants of the graph: no run changes them
            leaf.make = lambda: self._constant(number)
            self.frozen[name] = self._add(leaf)
            return
        declare = self.graph.param if trained else self.graph.buffer
        leaf.make = lambda: declare(name, *leaf.spec)
        if trained and name in self.gradients:
            spec = t.dtype, tuple(t.shape)
            self.gradients[name] = Series(spec)
            ids = self.host.add(None, [spec]), self.host.add(self.gradients[name], [spec])
            leaf.make = lambda: self.graph.tap(declare(name, *leaf.spec), *ids)
        self.leaves[name] = self._add(leaf)

    def named(self, name: str, value: Any) -> Any:
        """Give a value its name; the second of a name is name/1."""
        if name in self.names:
            n = self._repeats[name] = self._repeats.get(name, 0) + 1
            name = f"{name}/{n}"
        self.names[name] = value
        return value

    def beginScope(self, name: str) -> None:
        """Names of operations begin with name/ from here on."""
        self._scopes.append(name)
        self.graph.scope_begin(name)

    def endScope(self) -> None:
        """The end of beginScope()."""
        self._scopes.pop()
        self.graph.scope_end()

    # --- values of tensors ---

    def _find(self, t: torch.Tensor) -> Optional[_Tensor]:
        known = self._tensors.get(id(t))
        if known is not None:
            return known
        memory = self._memories.get(_storage(t)) if t.numel() else None
        if memory is None:
            return None
        for other in reversed(memory.tensors):
            if _geometry(other.tensor) == _geometry(t):
                return self._add(self._alias(t, other))
        return self._strided(t, memory.tensors[0])

    def _strided(self, t: torch.Tensor, of: _Tensor) -> Optional[_Tensor]:
        """A view without a better name: made by as_strided, or before its memory was traced.

        Where each of its elements lies in `of` is found out with numbers; in order, it is a reshape. None: it
        has none of them, as pieces of one split of which only some are traced.
        """
        base = of.tensor
        size = max(_reach(base), _reach(t))
        inside = torch.full((size,), -1, dtype=torch.int64)
        inside.as_strided(base.shape, base.stride(), base.storage_offset()).copy_(
            torch.arange(base.numel()).view(base.shape))
        places = inside.as_strided(t.shape, t.stride(), t.storage_offset()).flatten()
        if base.dtype == t.dtype and bool((places < 0).all()):
            return None
        if base.dtype != t.dtype or bool((places < 0).any()):
            raise createPoptorchError("A view of memory in which another tensor lies is not supported "
                                      "(%s:%d)" % _userLine())
        if torch.equal(places, torch.arange(base.numel())):
            return self._view(t, of, "aten::view", (list(t.shape),), 0, None)
        return self._view(t, of, "poptorch::places", (self._constant(places),), 0, None)

    def _alias(self, t: torch.Tensor, of: _Tensor) -> _Tensor:
        """Another Python object for the same elements: x.data, and what autograd makes for itself."""
        cut = of.tensor.requires_grad and not t.requires_grad
        return self._view(t, of, "aten::detach" if cut else "aten::alias", (), 0, None)

    def _view(self, t: torch.Tensor, of: _Tensor, op: str, args: Tuple, which: int, value: Any) -> _Tensor:
        view = _Tensor(t, of.memory, value)
        view.parent, view.op, view.args, view.which = of, op, args, which
        if value is None:
            view.version = -1
        return self._add(view)

    def isTraced(self, t: Any) -> bool:
        """Does the tensor's value depend on the run?"""
        return isinstance(t, torch.Tensor) and self._find(t) is not None

    def _valueOf(self, t: _Tensor) -> Any:
        if t.make is not None:
            t.start = t.value = t.make()
            t.make = None
            self._values.append(t.value)
        if t.parent is None or t.version == t.memory.version:
            if t.value is None:
                raise Missing(t.op)
            return t.value
        args = (self._valueOf(t.parent),) + t.args
        t.value = self._lower(t.op, t.spec, args)[t.which]
        t.version = t.memory.version
        return t.value

    def _write(self, t: _Tensor, value: Any) -> None:
        """t's elements become value's, and so do those of every tensor that shares them."""
        up, node = value, t
        while node.parent is not None:
            if up is not None:
                args = (self._valueOf(node.parent),) + node.args
                up = self._tracked(self.graph.put(node.op, *node.spec, args, up, node.which), (args, up))
            node = node.parent
        if node.make is not None:
            self._valueOf(node)
        t.memory.version += 1
        node.value, node.version = up, t.memory.version
        t.value, t.version = value, t.memory.version

    def _constant(self, t: torch.Tensor) -> Any:
        key = (id(t), t._version)
        if key in self._constants:
            return self._constants[key][1]
        if t.dtype not in DTYPES or t.numel() == 0:
            raise createPoptorchError(f"A tensor of type {t.dtype} and shape {tuple(t.shape)} cannot be part "
                                      "of a model")
        kept = engineTensor(t)
        first = kept.flatten()[0].item()
        if abs(first) < 2**53 and bool((kept == first).all()):
            value = self.graph.full(DTYPES[t.dtype], t.shape, float(first))
        else:
            value = self.graph.const(DTYPES[t.dtype], t.shape, kept.data_ptr())
        self._constants[key] = (t, value)
        return value

    # --- calls ---

    def _checkMade(self, t: torch.Tensor) -> None:
        """A tensor from outside of the trace would be the same in every run, whatever becomes of it."""
        if t.dim() and _storage(t) not in self._made:
            file, line = _userLine()
            raise createPoptorchError(f"Expected an IPU tensor but got one of shape {tuple(t.shape)} that was made "
                                      f"on the CPU, outside of forward() ({file}:{line}): make it in forward(), "
                                      "pass it as an argument, or register it as a buffer")

    def _encode(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            known = self._find(value)
            if known is not None and known.cut and value.grad_fn is not None and torch.is_grad_enabled():
                self._note(f"{type(value.grad_fn).__name__}: a gradient that is a Python function "
                           "(torch.autograd.Function) is not supported")
            if known is not None:
                return self._valueOf(known)
            self._checkMade(value)
            return self._constant(value)
        if isinstance(value, (list, tuple)):
            return [self._encode(v) for v in value]
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        return None    # a dtype, device, layout, memory format or generator: the result's type says it

    def _tracked(self, value: Any, inputs: Any) -> Any:
        self._values.append(value)
        feeds: FrozenSet[int] = frozenset()
        for v in _valuesIn(inputs):
            feeds |= self._feeds.get(id(v), frozenset())
        if feeds:
            self._feeds[id(value)] = feeds
        return value

    def _lower(self, op: str, spec: Tuple[str, Tuple[int, ...]], args: Tuple) -> List[Any]:
        self.graph.here(*_userLine())
        self._enterBlock()
        self.overlap.read.update(map(id, _valuesIn(args)))
        values = self.graph.lower(op, spec[0], spec[1], args)
        name = "/".join((*self._scopes, op.partition("::")[2].partition(".")[0]))
        for i, v in enumerate(values):
            if v is not None:
                self.named(f"{name}:{i}", self._tracked(v, args))
        if self.convolutions is not None and op.startswith("aten::convolution"):
            self._group(values[0], args)
        return list(values)

    def _group(self, value: Any, args: Tuple) -> None:
        """A convolution in a MultiConv must not need another one's result. Those are marked with numbers
        below 0, which no loss has."""
        feeds = frozenset().union(*(self._feeds.get(id(v), frozenset()) for v in _valuesIn(args)))
        if feeds & set(self.convolutions):    # type: ignore[arg-type]
            raise createPoptorchError("The convolutions in a poptorch.MultiConv must not depend on each other")
        mark = -1 - len(self._values)
        self.convolutions.append(mark)    # type: ignore[union-attr]
        self._feeds[id(value)] = feeds | {mark}

    def _enterBlock(self) -> None:
        if self._recorder is None:
            return
        place, last = self._recorder.place(), self.placements[-1] if self.placements else None
        if place == last:
            return
        if last is not None and last.block is not None:
            self.graph.block_end()
        if place.block is not None:
            self.graph.block_begin(self._graphBlock(place.block, place.ipu))
        self.placements.append(place)

    def numPipelineStages(self) -> int:
        """Of the operations so far."""
        return self._recorder.numPipelineStages(self.placements) if self._recorder is not None else 1

    def _graphBlock(self, name: str, ipu: int) -> str:
        """A block's name in the graph, noted for its device. One that comes again on another device is two
        blocks there."""
        if any(name in names for other, names in self.stages.items() if other != ipu):
            name = f"{name} on {ipu}"
        names = self.stages.setdefault(ipu, [])
        if name not in names:
            names.append(name)
        return name

    def _note(self, why: str) -> None:
        self.missing.setdefault(why, _userLine())

    def __torch_dispatch__(self, func: Any, types: Any, args: Tuple = (), kwargs: Optional[Dict] = None) -> Any:
        kwargs = kwargs or {}
        schema = func._schema
        name = schema.name
        if self._paused:
            return func(*args, **kwargs)
        traced = any(self._find(t) is not None for t in _tensorsIn((args, list(kwargs.values()))))
        if self._override is None and (name in _SHAPE_ONLY or not (traced or name in _RANDOM)):
            return self._claim(name, (args, list(kwargs.values())), func(*_withTensors(schema, args), **kwargs))
        args = self._autocast(name, args)
        with self:
            args = _dtypes.unified(name, args)
            decomposed = _gradients.decomposition(func, _core.supported)
            if decomposed is not None:
                return decomposed(*args, **kwargs)
        if name == "aten::_local_scalar_dense":
            raise _needsValue("The value of a tensor")
        bound = [args[i] if i < len(args) else kwargs.get(a.name, a.default_value)
                 for i, a in enumerate(schema.arguments)]
        if name == "aten::as_strided_" and _sameElements(*bound[:4]):
            return func(*args, **kwargs)
        args = _withTensors(schema, args)
        return self._call(func, name, bound, args, kwargs)

    def _claim(self, name: str, args: Any, out: Any) -> Any:
        """Remember what was made in the trace, and not of tensors from outside of it."""
        inside = name in _SHAPE_ONLY or name == "aten::lift_fresh" or all(
            not t.dim() or _storage(t) in self._made or self._find(t) is not None for t in _tensorsIn(args))
        if inside:
            self._made.update(_storage(t) for t in _tensorsIn(out))
        return out

    def _autocast(self, name: str, args: Tuple) -> Tuple:
        """The arguments as the policy of an autocast region has them."""
        if not autocasting.isEnabled() or not self.options.Precision.autocast_enabled:
            return args
        policy = self.options.Precision.autocast_policy
        dtype = policy.castTo(name.partition("::")[2], args, [t.dtype for t in _tensorsIn(args)])
        if dtype is None:
            return args

        def cast(v: Any) -> Any:
            if isinstance(v, torch.Tensor):
                wanted = v.is_floating_point() and v.dtype != dtype
                return torch.ops.aten._to_copy(v, dtype=dtype) if wanted else v
            return type(v)(cast(x) for x in v) if isinstance(v, (list, tuple)) else v
        with self:
            return tuple(cast(v) for v in args)

    def _call(self, func: Any, name: str, bound: List[Any], args: Tuple, kwargs: Dict) -> Any:
        written = [i for i, a in enumerate(func._schema.arguments)
                   if a.alias_info is not None and a.alias_info.is_write]
        op, given = self._named(func, name, bound, bool(written))
        given = self._unmasked(op, given)
        encoded: Optional[Tuple] = None
        try:
            encoded = tuple(self._encode(v) for v in given)
        except Missing as e:
            if not _core.supported(op):
                self._note(op)
            elif not self.missing and name not in _BOOKKEEPING:
                self._note(f"{e}: the result that is read here is not supported")
        except NotImplementedError as e:    # a view that cannot be made again
            self._note(str(e))
        for i in written:    # the constant it was, before PyTorch writes to it
            if self._find(bound[i]) is None:
                self._adopt(bound[i], name in _OVERWRITES)
        out = _execute(func, _dtypes.forPyTorch(name, args), kwargs)
        if written:
            self._finishWrite(op, [bound[i] for i in written], encoded)
        else:
            self._finishCall(op, name, bound, encoded, out)
        return out

    def _unmasked(self, op: str, given: List[Any]) -> List[Any]:
        """A mask that is a constant picks a known number of elements: it becomes their indices."""
        if op == "aten::masked_select.default" and not self.isTraced(given[1]):
            x, mask = torch.broadcast_tensors(given[0], given[1])
            if x.shape != given[0].shape:
                return given
            return [given[0], list(mask.nonzero(as_tuple=True))]
        if not op.startswith(("aten::index.", "aten::index_put")):
            return given
        indices: List[Any] = []
        for i in given[1]:
            isMask = isinstance(i, torch.Tensor) and i.dtype in (torch.bool, torch.uint8) and not self.isTraced(i)
            indices.extend(i.nonzero(as_tuple=True) if isMask else [i])
        return [given[0], indices, *given[2:]]

    def _adopt(self, t: torch.Tensor, overwritten: bool) -> None:
        """An ordinary tensor becomes part of the graph, because a traced value is written to it."""
        owner = t if t._base is None else t._base
        self._checkMade(owner)
        value = None if overwritten and owner is t else self._constant(owner)
        self._add(_Tensor(owner, self._newMemory(owner), value))

    def _named(self, func: Any, name: str, bound: List[Any], writes: bool) -> Tuple[str, List[Any]]:
        """The row's name, and the arguments it takes."""
        if self._override is not None:
            (op, extra), self._override = self._override, None
            return op, [bound[0], *extra]
        if name in _RENAMED:
            op, which = _RENAMED[name]
            return op, [bound[i] for i in which]
        if name in _OVERWRITES:
            bound = [None, *bound[1:]]
        if writes and name.endswith("_") and not name.endswith("__"):
            name = name[:-1]
        return f"{name}.{func._schema.overload_name or 'default'}", bound

    def _results(self, op: str, spec: Tuple, encoded: Optional[Tuple]) -> List[Any]:
        """The values, or nothing when the call is not supported."""
        if encoded is None:
            return []
        try:
            return self._lower(op, spec, encoded)
        except NotImplementedError as e:
            self._note(str(e))
            return []

    def _finishWrite(self, op: str, targets: List[torch.Tensor], encoded: Optional[Tuple]) -> None:
        target = self._find(targets[0])
        if target is None or len(targets) != 1:    # resized, or several at once
            self._note(op)
            for t in targets:    # what is read from them is missing too
                if t.numel() and self._find(t) is None:
                    self._add(_Tensor(t, self._newMemory(t)))
            return
        values = self._results(op, target.spec, encoded)
        value = values[0] if values else None
        try:
            if value is not None:
                value = self._checked(op, target.tensor, value, target)
            self._write(target, value)
        except (Missing, NotImplementedError) as e:
            if str(e):
                self._note(str(e))
            target.memory.version += 1
            self._poison(target)

    def _poison(self, t: _Tensor) -> None:
        while t.parent is not None:
            t = t.parent
        t.value, t.version = None, t.memory.version

    def _finishCall(self, op: str, name: str, bound: List[Any], encoded: Optional[Tuple], out: Any) -> None:
        outs = [o for o in (out if isinstance(out, (list, tuple)) else [out])]
        tensors = [o for o in outs if isinstance(o, torch.Tensor)]
        if not tensors:
            self._note(op)
            return
        first = tensors[0]
        if first.dtype not in DTYPES or first.numel() == 0:
            raise createPoptorchError(f"{op} makes a tensor of type {first.dtype} and shape "
                                      f"{tuple(first.shape)}, which is not supported")
        if name == "aten::as_strided":
            if encoded is not None:
                self._strided(first, self._find(bound[0]))    # type: ignore[arg-type]
            return
        values = self._results(op, (DTYPES[first.dtype], tuple(first.shape)), encoded)
        base = self._find(bound[0]) if bound and isinstance(bound[0], torch.Tensor) else None
        for i, t in enumerate(outs):
            if not isinstance(t, torch.Tensor) or not t.numel() or (base is not None and t is base.tensor):
                continue
            value = values[i] if i < len(values) else None
            if value is not None:
                value = self._checked(op, t, value)
            cut = self.training and t.dtype.is_floating_point and not torch.is_grad_enabled()
            if name.startswith("aten::unsafe_"):    # promised not to be written through
                self._add(_Tensor(t, _Memory(), value)).cut = cut
            elif base is not None and _storage(t) == _storage(base.tensor):
                self._view(t, base, op, (encoded or (None,))[1:], i, value)
            else:
                self._add(_Tensor(t, self._newMemory(t), value)).cut = cut
            self._tensors[id(t)].op = op
        if name in ("aten::add", "aten::sub"):
            self._noteOffset(name, bound, first)
        if name in _ON_DEMAND and encoded is not None and len(outs) > 1:
            self._onDemand(outs[1], lambda spec: self._lower(_ON_DEMAND[name], spec, encoded)[0])
        if name in _gradients.STATISTICS and encoded is not None:
            for i, t in enumerate(tensors[1:3]):
                self._onDemand(t, lambda spec, i=i + 1: _gradients.STATISTICS[name](self._lower, spec, encoded)[i])
        if name in _STATISTICS and bound[5] and len(values) == 5:
            for argument, result in _STATISTICS[name]:
                if isinstance(bound[argument], torch.Tensor):
                    self._write(self._find(bound[argument]), self._checked(op, bound[argument], values[result]))

    def _onDemand(self, t: Any, make: Callable[[Any], Any]) -> None:
        """A result that is made of its spec when somebody reads it."""
        late = self._tensors.get(id(t))
        if late is not None and late.value is None:
            late.make = lambda: make(late.spec)    # type: ignore[union-attr]

    def _noteOffset(self, name: str, bound: List[Any], out: torch.Tensor) -> None:
        """Whole numbers that differ by a constant: the bounds of x[i:i + n]."""
        other = bound[1]
        if out.is_floating_point() or not isinstance(bound[0], torch.Tensor):
            return
        if isinstance(other, torch.Tensor):
            if other.numel() != 1 or self._find(other) is not None:
                return
            other = int(other)
        root, offset = self._offsets.get(id(bound[0]), (id(bound[0]), 0))
        self._offsets[id(out)] = root, offset + (other if name == "aten::add" else -other) * (bound[2] or 1)

    def distance(self, start: Any, stop: Any) -> Optional[int]:
        """stop - start, when that is known whatever they are."""
        a, b = (self._offsets.get(id(t), (id(t), 0)) for t in (start, stop))
        return b[1] - a[1] if a[0] == b[0] else None

    def _checked(self, op: str, t: torch.Tensor, value: Any, written: Optional[_Tensor] = None) -> Any:
        """The value has PyTorch's dtype and shape; no gradient flows where PyTorch lets none flow.

        A write under no_grad() to a tensor that has a gradient changes its value and leaves the gradient
        as if there had been no write.
        """
        if value.shape != tuple(t.shape):
            raise createPoptorchError(f"{op} should give a tensor of shape {tuple(t.shape)}, but gave "
                                      f"{value.shape}. This is a bug of this package")
        if value.dtype != DTYPES[t.dtype]:
            value = self._tracked(self.graph.cast(value, DTYPES[t.dtype]), value)
        if self.training and t.dtype.is_floating_point and not torch.is_grad_enabled():
            if written is None or t.grad_fn is None:
                return self._tracked(self.graph.detach(value), value)
            old, spec = self._valueOf(written), written.spec
            change = self._lower("aten::sub.Tensor", spec, (value, old, 1))[0]
            value = self._lower("aten::add.Tensor", spec, (old, self.graph.detach(change), 1))[0]
        return value

    # --- what the function mode and the ops of this package ask for ---

    def emit(self, op: str, extra: Sequence[Any], compute: Callable[[], torch.Tensor]) -> torch.Tensor:
        """compute() makes one ATen call on a traced tensor; it is written down as `op` with that tensor
        and `extra` for arguments."""
        self._override = (op, tuple(extra))
        try:
            return compute()
        finally:
            self._override = None

    def markLoss(self, t: Any) -> None:
        """A loss: the last one standing is minimised."""
        known = self._find(t) if isinstance(t, torch.Tensor) else None
        if known is None:
            return
        try:
            value = self._valueOf(known)
        except Missing:
            return
        self.named("loss", value)
        before = self._feeds.get(id(value), frozenset())
        self.demoted |= before
        self._feeds[id(value)] = before | {len(self.losses)}
        self.losses.append(value)

    def theLoss(self) -> Any:
        """The one loss that feeds no other."""
        left = [v for k, v in enumerate(self.losses) if k not in self.demoted]
        if not left:
            raise createPoptorchError("Couldn't find a loss in graph! A training model's forward() must "
                                      "compute one; wrap what it should minimise in poptorch.identity_loss")
        if len(left) > 1:
            raise createPoptorchError("Multiple independent losses found in graph: wrap the final loss in "
                                      "poptorch.identity_loss, e.g. identity_loss(a + b, reduction='sum')")
        return left[0]

    def checkMissing(self) -> None:
        """An Error that names everything that is not supported."""
        if not self.missing:
            return
        lines = [f"  {why}  ({file}:{line})" for why, (file, line) in sorted(self.missing.items())]
        raise createPoptorchError("The model uses operations that are not supported:\n" + "\n".join(lines))

    def output(self, t: torch.Tensor) -> Any:
        """The value to return for a tensor of forward's result."""
        try:
            value = self._valueOf(self._find(t))    # type: ignore[arg-type]
        except Missing as e:
            raise createPoptorchError(f"{e}: the result that forward() returns is not supported") from None
        wanted = OUTPUT_DTYPES.get(value.dtype)
        return value if wanted is None else self._tracked(self.graph.cast(value, wanted), value)

    def isAfterLoss(self, t: torch.Tensor, loss: Any) -> bool:
        """Is the tensor computed from the loss, and not the loss itself?"""
        value = self._valueOf(self._find(t))    # type: ignore[arg-type]
        return value is not loss and self.losses.index(loss) in self._feeds.get(id(value), frozenset())

    def nameOf(self, t: torch.Tensor) -> str:
        """The name of a tensor's value, or ""."""
        known = self._find(t)
        value = known.value if known is not None else None
        for name, leaf in self.leaves.items():
            if leaf is known:
                return name
        return next((name for name, v in self.names.items() if v is value), "") if value is not None else ""

    def tap(self, t: torch.Tensor, look: Callable, look_at_gradient: Optional[Callable]) -> torch.Tensor:
        """The tensor, shown to a function whenever it was computed, and so is its gradient."""
        out = t.clone()
        known = self._find(out)
        try:
            value = self._valueOf(known)    # type: ignore[arg-type]
        except Missing:
            return out
        spec = [(TORCH_DTYPES[value.dtype], value.shape)]
        gradient = self.host.add(look_at_gradient, spec) if look_at_gradient is not None else -1
        known.value = self._tracked(    # type: ignore[union-attr]
            self.graph.tap(value, self.host.add(look, spec), gradient), value)
        return out

    def callHost(self, function: Callable, inputs: List[torch.Tensor],
                 results: List[torch.Tensor]) -> List[torch.Tensor]:
        """function(*inputs), called by the device: a list of tensors like these results."""
        try:
            values = [self._encode(t) for t in inputs]
        except Missing as e:
            self._note(str(e))
            return results
        self.graph.here(*_userLine())
        self._enterBlock()
        specs = [(DTYPES[t.dtype], tuple(t.shape)) for t in results]
        which = self.host.add(function, [(TORCH_DTYPES[v.dtype], v.shape) for v in values],
                              [(TORCH_DTYPES[d], shape) for d, shape in specs])
        types = " ".join(f"{d}[{','.join(map(str, shape))}]" for d, shape in specs)
        for t, v in zip(results, self.graph.host_call(which, values, types)):
            self._add(_Tensor(t, self._newMemory(t), self.named("host_call:0", self._tracked(v, values))))
        return results

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """What happens in here is not part of the model."""
        global _tracer
        self._paused, _tracer = True, None
        try:
            yield
        finally:
            self._paused, _tracer = False, self

    def warn(self, message: str) -> None:
        """Log it, and stop after Options.maxRepeatLogs() of the same."""
        n = self._repeats[message] = self._repeats.get(message, 0) + 1
        if n <= self.options.max_repeat_logs:
            logger.warning("%s", message)

    def overlapInput(self, t: torch.Tensor) -> torch.Tensor:
        """For poptorch.set_overlap_for_input."""
        known = self._find(t)
        return self.overlap.input(t, [i.value for i in self.inputs], known and known.value)

    def writtenInputs(self) -> Iterator[Tuple[int, Any]]:
        """(index, value) of the inputs that forward wrote to."""
        for i, t in enumerate(self.inputs):
            if t.memory.version > 0:
                yield i, self._valueOf(t)

    def assignments(self) -> Iterator[Tuple[str, Any, Any]]:
        """(name, state, next value) of the parameters and buffers that forward wrote to."""
        for name, leaf in self.leaves.items():
            if leaf.memory.version > 0:
                yield name, leaf.start, leaf.value

    def usedStates(self) -> List[str]:
        """Names of the parameters and buffers that are part of the graph."""
        return [name for name, leaf in self.leaves.items() if leaf.make is None]

    @contextlib.contextmanager
    def _moduleScopes(self, root: torch.nn.Module) -> Iterator[None]:
        """Nodes carry the path of the module they were made in, for error messages."""
        names = {id(m): name.rpartition(".")[2] for name, m in root.named_modules()
                 if name and self.options.module_namescope_enabled}

        def enter(module: torch.nn.Module, inputs: Any) -> None:
            if id(module) in names:
                self.beginScope(names[id(module)])

        def leave(module: torch.nn.Module, inputs: Any, output: Any) -> None:
            if id(module) in names:
                self.endScope()

        handles = [hooks.register_module_forward_pre_hook(enter), hooks.register_module_forward_hook(leave)]
        try:
            yield
        finally:
            for h in handles:
                h.remove()

    def close(self) -> None:
        """Let go of the tensors of the trace, which point at each other, now rather than some time."""
        for t in self._tensors.values():
            t.memory.tensors.clear()
        for table in (self._tensors, self._memories, self._constants, self._values, self.inputs, self.leaves,
                      self.frozen, self.names):
            table.clear()    # type: ignore[attr-defined]

    def run(self, root: torch.nn.Module, call: Callable[[], Any]) -> Any:
        """call() in the trace; its result."""
        global _tracer
        if _tracer is not None:
            raise createPoptorchError("A model cannot be compiled inside another model's forward()")
        _tracer = self
        try:
            with blocks.recording(self.options.execution_strategy) as self._recorder, _patched(self), _plainLayers(self), \
                    _dtypes.castWeights(self.isTraced), self._moduleScopes(root), _Functions(self), self:
                return call()
        finally:
            _tracer = None


def _as(value: Any, old: torch.dtype, new: torch.dtype) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(new) if value.dtype == old else value
    if isinstance(value, (list, tuple)):
        return type(value)(_as(v, old, new) for v in value)
    return value


def _withTensors(schema: Any, args: Tuple) -> Tuple:
    """PyTorch hands the 3 of `x ^ 3` over as a number, and takes it back as a tensor only."""
    if not schema.name.startswith(("aten::bitwise", "aten::__")):
        return args
    return tuple(torch.tensor(a) if isinstance(a, (bool, int, float)) and str(s.type) == "Tensor" else a
                 for a, s in zip(args, schema.arguments))


def _execute(func: Any, args: Tuple, kwargs: Dict[str, Any]) -> Any:
    """PyTorch's own answer. What it cannot do in half precision on a CPU it does in single precision: only
    dtype and shape matter here."""
    try:
        return func(*args, **kwargs)
    except RuntimeError as e:
        if "not implemented for 'Half'" not in str(e):
            raise
    half, single = torch.float16, torch.float32
    out = _as(func(*_as(args, half, single), **{k: _as(v, half, single) for k, v in kwargs.items()}), single, half)
    written = [a for a, s in zip(args, func._schema.arguments)
               if s.alias_info is not None and s.alias_info.is_write]
    return written[0].copy_(out) if written else out


def _needsValue(what: str) -> Exception:
    file, line = _userLine()
    return createPoptorchError(f"{what} is not known while the model is traced ({file}:{line}): forward() "
                               "cannot branch on, print or convert what the device computes")


def _dropout(tracer_: Tracer, op: str, x: torch.Tensor, p: float = 0.5, training: bool = True,
             inplace: bool = False) -> torch.Tensor:
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    if not training or not tracer_.training or p == 0.0:
        return x
    y = tracer_.emit(op, (p,), x.clone)
    return x.copy_(y) if inplace else y


def _checkpoint(function: Callable, *args: Any, use_reentrant: bool = True, **kwargs: Any) -> Any:
    """torch.utils.checkpoint: the compiler decides what to compute again."""
    for name in ("preserve_rng_state", "context_fn", "determinism_check", "debug", "early_stop"):
        kwargs.pop(name, None)
    return function(*args, **kwargs)


@contextlib.contextmanager
def _plainLayers(tracer_: Tracer) -> Iterator[None]:
    """No layers made of one large kernel, which PyTorch 2 chooses on a CPU: an LSTM and attention are written
    down as the products and sums they consist of, with any mask. To choose, an encoder also looks whether its
    mask is the causal one; a mask that is not known yet is not.
    """
    flash = getattr(torch.backends.cuda, "flash_sdp_enabled", bool)()
    detect = getattr(transformer, "_detect_is_causal_mask", None)
    if detect:
        transformer._detect_is_causal_mask = (
            lambda mask, *more: detect(None if tracer_.isTraced(mask) else mask, *more))
    if flash:
        torch.backends.cuda.enable_flash_sdp(False)
    mkldnn = torch._C._get_mkldnn_enabled()    # torch.backends.mkldnn.flags() warns of other things it sets
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(mkldnn)
        if flash:
            torch.backends.cuda.enable_flash_sdp(True)
        if detect:
            transformer._detect_is_causal_mask = detect


@contextlib.contextmanager
def _patched(tracer_: Tracer) -> Iterator[None]:
    """For calls that torch.nn.functional makes to itself, which no function mode sees, checkpoint() and x[i:j]."""
    saved = {name: getattr(F, name) for name in _DROPOUT_NAMES if hasattr(F, name)}
    checkpoint = torch.utils.checkpoint.checkpoint
    torch.utils.checkpoint.checkpoint = _checkpoint
    getitem = _T.__getitem__

    def read(x: torch.Tensor, index: Any) -> Any:    # PyTorch asks a slice's bounds for numbers before any mode
        return _sliced(tracer_, x, index) if _hasTensorBounds(tracer_, index) else getitem(x, index)
    own = _T.__dict__.get("__getitem__")
    _T.__getitem__ = read    # type: ignore[assignment]

    def patch(original: Callable) -> Callable:
        op = _DROPOUTS[original]

        def call(input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
            if not tracer_.isTraced(input):
                return original(input, p, training, inplace)
            return _dropout(tracer_, op, input, p, training, inplace)
        return call
    for name, original in saved.items():
        setattr(F, name, patch(original))
    try:
        yield
    finally:
        torch.utils.checkpoint.checkpoint = checkpoint
        if own is None:
            del _T.__getitem__    # it is a base class's
        else:
            _T.__getitem__ = own
        for name, original in saved.items():
            setattr(F, name, original)


# A TransformerEncoder asks it of its mask, and leaves the padding out where the answer is yes: the answer is in the
# mask's values, and the sums are the same either way.
_LEFT_ALIGNED = getattr(torch, "_nested_tensor_from_mask_left_aligned", None)


class _Functions(TorchFunctionMode):
    """Calls that are taken before they become ATen calls."""

    def __init__(self, tracer_: Tracer) -> None:
        super().__init__()
        self.tracer = tracer_

    def __torch_function__(self, func: Any, types: Any, args: Tuple = (), kwargs: Optional[Dict] = None) -> Any:
        kwargs = kwargs or {}
        t = self.tracer
        if tracer() is None:
            return func(*args, **kwargs)
        made = func in _FACTORIES or (
            func is torch.normal and next(_tensorsIn((args, [*kwargs.values()])), None) is None)
        if made and kwargs.get("device") is None:
            t.warn(f"No device set in torch.{func.__name__}(): forcing to IPU")
        first = args[0] if args else None
        if func in _LOSSES:
            out = _smoothed(t, *args, **kwargs) if func is F.cross_entropy else None
            out = func(*args, **kwargs) if out is None else out
            if t.training:
                t.markLoss(out)
            return out
        if not t.isTraced(first if first is not None else kwargs.get("input")):
            return func(*args, **kwargs)
        args, kwargs = _dtypes.weightsCast(func, args, kwargs)
        if func in _DROPOUTS:
            return _dropout(t, _DROPOUTS[func], *args, **_dropoutArguments(kwargs))
        if func in _UNTRAINED and not t.training:
            return first if first is not None else kwargs["input"]
        if func in _RECURRENT and not t.training:
            args = _withoutDropout(args)
        if func is _LEFT_ALIGNED:
            return False
        if func is F.one_hot:
            return _oneHot(t, *args, **kwargs)
        if func in _NEED_VALUES or (func is _T.to and "cpu" in (*args[1:2], kwargs.get("device"))):
            raise _needsValue(f"{_NEED_VALUES.get(func, '.to()')} of a tensor")
        if func in (_T.__repr__, _T.__format__):
            return f"tensor(<unavailable>, size={tuple(first.shape)}, dtype={first.dtype})"
        return func(*args, **kwargs)


def _withoutDropout(args: Tuple) -> Tuple:
    """Of a recurrent layer, (..., has biases, layers, dropout, ...)."""
    at = next(i for i, a in enumerate(args) if isinstance(a, bool)) + 2
    return (*args[:at], 0.0, *args[at + 1:])


def _dropoutArguments(kwargs: Dict[str, Any]) -> Dict[str, Any]:
    return {{"input": "x", "train": "training"}.get(k, k): v for k, v in kwargs.items()}


def _smoothed(t: Tracer, input: torch.Tensor, target: torch.Tensor, weight: Optional[torch.Tensor] = None,
              size_average: Any = None, ignore_index: int = -100, reduce: Any = None, reduction: str = "mean",
              label_smoothing: float = 0.0) -> Optional[torch.Tensor]:
    """cross_entropy with smoothed labels, which PyTorch makes of ops that choose elements by their values;
    None for the other kinds."""
    if not label_smoothing or not t.isTraced(input) or target.is_floating_point():
        return None
    compute = (lambda: input.sum(0 if input.dim() == 1 else 1)) if reduction == "none" else input.sum
    return t.emit("poptorch::cross_entropy", (target, weight, reduction, ignore_index, label_smoothing), compute)


def _oneHot(t: Tracer, tensor: torch.Tensor, num_classes: int = -1) -> torch.Tensor:
    if num_classes < 1:
        raise createPoptorchError("one_hot needs num_classes: the largest class is not known while the model "
                                  "is traced")
    shape = (*tensor.shape, num_classes)
    return t.emit("poptorch::one_hot", (), lambda: tensor.new_zeros(shape, dtype=torch.int64))


def _hasTensorBounds(t: Tracer, index: Any) -> bool:
    if type(index) not in (slice, tuple):
        return False
    items = index if isinstance(index, tuple) else (index,)
    return any(isinstance(i, slice) and (t.isTraced(i.start) or t.isTraced(i.stop)) for i in items)


def _sliced(t: Tracer, x: torch.Tensor, index: Any) -> torch.Tensor:
    """x[i:i + n], where i is a tensor."""
    from .ops import dynamic_slice
    rest: List[Any] = []
    dim = 0
    for item in index if isinstance(index, tuple) else (index,):
        if _hasTensorBounds(t, item):
            size = t.distance(item.start, item.stop)
            if size is None or any(r is Ellipsis for r in rest):
                raise createPoptorchError("A slice whose bounds are tensors needs a size that is known, as in "
                                          "x[i:i + 5], and no ellipsis before it")
            x = dynamic_slice(x, dim, item.start, size, item.step or 1)
            item = slice(None)
        rest.append(item)
        dim += item is not None
    return x[tuple(rest)]
