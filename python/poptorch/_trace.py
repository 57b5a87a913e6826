"""One run of a module's forward(), written down as a graph.

forward() runs once, on tensors of micro-batch size, below a dispatch mode: PyTorch tells the mode every ATen call, and
calls that depend on inputs, weights or buffers ("traced" tensors) are passed to `_core.Graph.lower`. They are not computed:
their results are tensors of the right type and shape whose elements mean nothing (_shapes.py). Everything else is computed by
PyTorch there and then and becomes a constant when a traced call reads it; so masks, positions and anchors cost nothing at run
time, and need no support.

What follows from the whole numbers among the inputs alone is computed as well: when forward() asks for such a value, to
branch on or to make a size of it, it gets that of the first batch, and every run looks whether it is still the same.

A call's way:

    _functions.py   what is taken before ATen sees it: losses, dropout, slices
    _composed.py    ATen ops that are made of others
    _chosen.py      what computed masks choose
    _complex.py     calls of complex numbers, as calls of pairs of real ones
    _trace.py       an ATen call: its row, its arguments, its results
    _memory.py      tensors, views and writes to values
    _record.py      values to nodes, with the user's line, names, blocks and losses
    _core           the words of src/front, over tessera.h
"""

import contextlib
import functools
import operator
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import torch
from torch.autograd import forward_ad
from torch.autograd.function import BackwardCFunction
from torch.nn.modules import module as hooks
from torch.utils._python_dispatch import TorchDispatchMode

from . import (_chosen, _complex, _core, _drawn, _dtypes, _functions, _gradients, _record, _recurrent, _shapes, autocasting,
               blocks)
from ._composed import COMPOSED, MORE, borders
from ._memory import CONSTANT, EXAMPLE, UNKNOWN, Memories, Memory, Tensor, sameElements, storage, tensorsIn
from ._native import DTYPES, TORCH_DTYPES
from ._record import Missing, needsValue, userLine
from .errors import Error, createPoptorchError

#: The result depends on the shape of the arguments only, so it is a constant.
_SHAPE_ONLY = frozenset(f"aten::{n}" for n in (
    "empty_like zeros_like ones_like full_like new_zeros new_ones new_full new_empty empty_strided "
    "new_empty_strided is_same_size _has_same_storage_numel").split())

#: New numbers in every run.
_RANDOM = frozenset(f"aten::{n}" for n in (
    "rand rand_like randn randn_like bernoulli bernoulli_ uniform_ normal_ normal exponential_ randint "
    "randint_like random_ randperm multinomial log_normal_ cauchy_ geometric_").split())

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

#: An argument that PyTorch writes to for its own gradient, which newer releases tell in the schema.
_SCRATCH = {"aten::rrelu_with_noise": 1, "aten::rrelu_with_noise_": 1}

#: Second results that hardly anybody reads: made by this row, of the same arguments, when somebody does.
_ON_DEMAND = {
    f"aten::{pool}": f"poptorch::{pool.replace('_with_indices', '')}_places"
    for pool in ("max_pool2d_with_indices", "max_pool3d_with_indices", "adaptive_max_pool2d", "adaptive_max_pool3d")
}

#: What is added to a product, which may be one of nothing.
_WITH_PRODUCTS = frozenset(f"aten::{n}" for n in "addmm addmv baddbmm addbmm".split())

#: Ops that write to places of their first argument, and which argument says where, or what. Where it has no elements nothing
#: is written.
_BY_INDEX = {f"aten::{n}": i for i, names in ((1, "index_put _index_put_impl _unsafe_index_put put slice_scatter diagonal_scatter"), (
    2, "index_add index_copy index_fill index_reduce scatter scatter_add scatter_reduce")) for n in names.split()}

#: Of them only pieces with elements are the engine's.
_PIECES = ("aten::split_with_sizes.", "aten::unsafe_split_with_sizes.")

#: Ops along a dim. Of a tensor without dims they are what they are of one with one element.
_ALONG_A_DIM = frozenset(f"aten::{n}" for n in (
    "argmax argmin var std var_mean std_mean logsumexp flip max min cummax cummin index_select index_add index_copy "
    "index_fill index_reduce gather scatter scatter_add scatter_reduce mode kthvalue sort topk unfold").split())

#: Writes that the schema does not tell: {op: ((argument, result), ...)}, done when argument 5 is true.
_STATISTICS = {
    "aten::native_batch_norm": ((3, 3), (4, 4)),
    "aten::_native_batch_norm_legit": ((3, 3), (4, 4)),
}

#: What the size of a result is made of.
_SIZES: Dict[str, Callable] = {
    "aten::bincount": lambda x, weights, least: x.max().clamp(min=least - 1),
    "aten::repeat_interleave": lambda repeats, *size: repeats.sum(),
}

#: Ops of which nobody reads the part that has such a size.
_SIZED_OTHERWISE = frozenset(("aten::_ctc_loss",))

#: Random numbers from [0, 1), and what they are compared by.
_UNIFORM = ("aten::rand.default", "aten::rand_like.default")
_COMPARISONS: Dict[str, Callable] = {f"aten::{n}": getattr(operator, n) for n in ("lt", "le", "gt", "ge")}

#: What PyTorch's gradient of x[mask] is made of.
_UNCHOSEN = ("aten::_index_put_impl_", "aten::masked_scatter", "aten::masked_select_backward")

_tracer: Optional["Tracer"] = None


def tracer() -> Optional["Tracer"]:
    """The trace that is going on, or None."""
    return _tracer


class Tracer(Memories, TorchDispatchMode):
    """The dispatch mode. Use run()."""

    def __init__(self, name: str, training: bool, options: Any) -> None:
        TorchDispatchMode.__init__(self)
        Memories.__init__(self, name, options)
        borders()
        self.training = training
        self.pausing = False
        self.writesOut = False    # recurrent layers, step by step
        self._offsets: Dict[int, Tuple[int, int]] = {}    # id of a tensor: that of another, how much more it is
        self._override: Optional[Tuple[str, Tuple]] = None
        self._python_gradients = False    # of torch.autograd.Function
        self._host_gradients = False      # that the host computes or looks at
        self._lost: List[torch.Tensor] = []    # the tensors of self.losses
        self.expected: List[Any] = []          # values that forward() has read, which runs look at

    def __torch_dispatch__(self, func: Any, types: Any, args: Tuple = (), kwargs: Optional[Dict] = None) -> Any:
        kwargs = kwargs or {}
        schema = func._schema
        name = schema.name
        if self.pausing:
            return func(*args, **kwargs)
        if name == "aten::_efficientzerotensor":    # has no memory: of derivatives in forward mode
            func = torch.ops.aten.zeros.default
        traced = any(self._find(t) is not None for t in tensorsIn((args, list(kwargs.values()))))
        if name in _chosen.LIKE and self.has_rows and not self.in_rows and not self.sized and self.rowsOf(args[0]) is not None:
            with self, self.choosing():
                return _chosen.like(self, name, args[0], args, kwargs)
        if self._override is None and (name in _SHAPE_ONLY or not (traced or name in _RANDOM)):
            return self._claim(name, (args, list(kwargs.values())), self._onHost(func, _withTensors(schema, args), kwargs))
        if self.training and getattr(forward_ad, "_current_level", -1) >= 0:    # a norm's would lack a part
            raise createPoptorchError("Derivatives in forward mode (torch.func.jvp, jacfwd, hessian) are for inference "
                                      "only (%s:%d)" % userLine())
        if not self.in_rows and not self.sized:
            mask = _chosen.maskOf(self, name, args)
            if mask is not None:
                with self, self.choosing():
                    return _chosen.places(self, mask) if mask is args[0] else _chosen.choose(self, args[0], mask)
            if self.has_rows and any(self.rowsOf(t) is not None for t in tensorsIn((args, list(kwargs.values())))):
                with self, self.choosing():
                    return _chosen.call(self, func, args, kwargs)
            if self.has_rows and name in _UNCHOSEN:    # PyTorch's gradient of x[mask]
                self.askSize()
        if name in _complex.MAKERS or any(map(_complex.isComplex, (*args, *kwargs.values()))):
            self._python_gradients |= any(self._ofFunction(t) for t in tensorsIn((args, list(kwargs.values()))))
            with self:
                return _complex.call(self, func, args, kwargs)
        args = self._autocast(name, args)
        with self:
            args = _dtypes.unified(name, args)
            decomposed = COMPOSED.get(f"{name}.{schema.overload_name}" if schema.overload_name else name)    # not of out=
            decomposed = decomposed or _gradients.decomposition(func, _core.supported)
            if decomposed is not None:
                return decomposed(*args, **kwargs)
        if name == "aten::_local_scalar_dense":
            if not self.isKnown(args[0]):
                raise needsValue("The value of a tensor", self.isDrawn(args[0]))
            self.expect(args[0])
            return func(*args, **kwargs)
        settled = self._settled(name, args)
        if settled is not None:
            return settled
        if name in _COUNTED and all(self._find(t) is None or self.isKnown(t) for t in tensorsIn([args[-1]])):
            with self:
                return _COUNTED[name](self, *args)
        if name in _WITH_PRODUCTS and not args[1].numel():
            nothing = _shapes.run(func, args, kwargs)
            beta = kwargs.get("beta", 1)
            with self:
                return (args[0] * beta).expand(nothing.shape).clone() if beta else torch.zeros_like(nothing)
        if name in _ALONG_A_DIM and isinstance(args[0], torch.Tensor) and not args[0].dim() and "out" not in kwargs \
                and not (isinstance(args[-1], list) and not args[-1]):    # along none
            shapes = [t.shape for t in tensorsIn([_shapes.run(func, args, kwargs)])]
            lifted = [v if s.name == "value" else _asOne(v) for v, s in zip(args, schema.arguments)]
            with self:
                return _shaped(func(*lifted, **{k: _asOne(v) for k, v in kwargs.items()}), shapes)
        bound = [args[i] if i < len(args) else kwargs.get(a.name, a.default_value)
                 for i, a in enumerate(schema.arguments)]
        if name == "aten::as_strided_" and sameElements(*bound[:4]):
            return func(*args, **kwargs)
        args = _withTensors(schema, args)
        return self._call(func, name, bound, args, kwargs)

    def _onHost(self, func: Any, args: Tuple, kwargs: Dict) -> Any:
        """What PyTorch computes now, once. A random number that no device draws (torch.poisson of a constant) is told of."""
        if not _drawn.mayDraw(func):
            return func(*args, **kwargs)
        before = torch.get_rng_state()
        out = func(*args, **kwargs)
        if kwargs.get("generator") is not None or not torch.equal(before, torch.get_rng_state()):
            self.warn(f"{func._schema.name} of constants draws random numbers on the host (%s:%d): they are the same in every run. "
                      "Draw them before the call, and pass them as an argument of forward()" % userLine())
        return out

    def _settled(self, name: str, args: Tuple) -> Optional[torch.Tensor]:
        """A random number from [0, 1) compared with one that is outside: `torch.rand([]) < layerdrop`."""
        compare = _COMPARISONS.get(name)
        drawn = [self._isUniform(v) for v in args[:2]] if compare else []
        if sum(drawn) != 1 or self.isTraced(args[drawn.index(False)]):
            return None
        with self.paused():
            ends = [0.5 if uniform else float(v) for uniform, v in zip(drawn, args)]
            if 0.0 < ends[drawn.index(False)] < 1.0:
                return None
            return self.claim(torch.full(args[drawn.index(True)].shape, compare(*ends)))    # type: ignore[misc]

    def _isUniform(self, t: Any) -> bool:
        found = self._find(t) if isinstance(t, torch.Tensor) else None
        while found is not None and found.parent is not None and found.op.startswith(("aten::detach", "aten::alias")):
            found = found.parent
        return found is not None and found.op in _UNIFORM and not found.memory.version

    def places(self, mask: torch.Tensor) -> List[torch.Tensor]:
        """The indices of a mask's true elements, for each dim: as many as there are in the first batch, which every run
        looks at."""
        flat = (mask != 0).flatten()
        count = int(flat.sum())
        n = flat.numel()
        key = torch.where(flat, torch.arange(n, device=flat.device), n)
        at = key.sort()[0][:count]
        out: List[torch.Tensor] = []
        for size in reversed(mask.shape):
            out.insert(0, at % size)
            at = torch.div(at, size, rounding_mode="floor")
        return out

    def assume(self, t: torch.Tensor, value: bool) -> torch.Tensor:
        """What isfinite() and its like say of numbers that nobody knows yet; a run that finds otherwise is an error, if
        forward() has looked."""
        found = self._find(t)
        if found is None or found.parent is not None or not _shapes.isWhole(t):
            return t
        with self.paused():
            t.fill_(value)
        found.memory.known = EXAMPLE
        return t

    def _claim(self, name: str, args: Any, out: Any) -> Any:
        """Remember what was made in the trace, and not of tensors from outside of it."""
        inside = name in _SHAPE_ONLY or name == "aten::lift_fresh" or all(
            not t.dim() or not t.numel() or storage(t) in self._made or self._find(t) is not None for t in tensorsIn(args))
        if inside:
            self._made.update(storage(t) for t in tensorsIn(out))
        return out

    def _autocast(self, name: str, args: Tuple) -> Tuple:
        """The arguments as the policy of an autocast region has them."""
        if not autocasting.isEnabled() or not self.options.Precision.autocast_enabled:
            return args
        policy = self.options.Precision.autocast_policy
        dtype = policy.castTo(name.partition("::")[2], args, [t.dtype for t in tensorsIn(args)])
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
                   if a.alias_info is not None and a.alias_info.is_write and i != _SCRATCH.get(name)]
        op, given = self._named(func, name, bound, bool(written))
        given = self._unmasked(op, given)
        if written in ([], [0]) and _writesNothing(op, given):
            with self:
                return bound[0] if written else bound[0].clone()
        encoded: Optional[Tuple] = None
        trouble = ""
        try:
            encoded = tuple(self._encode(v) for v in given)
        except Missing as e:
            if not _core.supported(op):
                trouble = op
            elif not self.missing and name not in _BOOKKEEPING:
                trouble = f"{e}: the result that is read here is not supported"
        except NotImplementedError as e:    # a view that cannot be made again
            trouble = str(e)
        for i in written:    # the constant it was, before PyTorch writes to it
            if self._find(bound[i]) is None:
                self._adopt(bound[i], name in _OVERWRITES)
        known = self._knownOf(name, op, bound) if not written else UNKNOWN
        sized = _sizeIsValue(func, given, self.isTraced)
        if sized:
            self._checkSize(name, op, bound, known)
        out = _shapes.run(func, _dtypes.forPyTorch(name, args), kwargs, bool(known))
        if trouble and any(t.numel() for t in tensorsIn(out)):
            self._note(trouble)
        if written:
            self._finishWrite(op, [bound[i] for i in written], encoded)
        else:
            self._finishCall(op, name, bound, encoded, out)
            self._setKnown(out, known, name in _RANDOM or self._areDrawn(bound))
        return out

    def _areDrawn(self, bound: List[Any]) -> bool:
        found = [self._find(t) for t in tensorsIn(bound)]
        return any(t is not None for t in found) and all(t is None or t.memory.drawn for t in found)

    def _checkSize(self, name: str, op: str, bound: List[Any], known: int) -> None:
        """The size of the result depends on values: every run looks whether it is that of the first batch."""
        if known and name in _SIZES:
            with self:
                return self.expect(_SIZES[name](*bound))
        if known == CONSTANT or name in _SIZED_OTHERWISE or (name == "aten::bincount" and bound[2]):
            return None
        why = "a mask of bools that is computed: the result's size depends on its values" if name == "aten::index" else \
            "a result whose size depends on values is not supported"
        self._note(f"{op}: {why}")    # it is empty from here on
        return None

    def _knownOf(self, name: str, op: str, bound: List[Any]) -> int:
        """How well the result is known: as the least known of what it is made of."""
        if name in _RANDOM or op.startswith("poptorch::"):
            return UNKNOWN
        found = [self._find(t) for t in tensorsIn(bound)]
        return min((t.memory.known for t in found if t is not None), default=UNKNOWN)

    def _setKnown(self, out: Any, known: int, drawn: bool) -> None:
        if not _shapes.allWhole(out):    # nothing was computed
            known = UNKNOWN
        for t in tensorsIn(out) if known or drawn else ():
            made = self._find(t)
            if made is not None:
                made.memory.drawn = drawn
            if made is not None and made.parent is None:
                made.memory.known = known

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
        if name in _gradients.UNREAD:
            bound = [None if i == _gradients.UNREAD[name] else v for i, v in enumerate(bound)]
        if writes and name.endswith("_") and not name.endswith("__"):
            name = name[:-1]
        if name in MORE:
            bound = [*bound, MORE[name](bound[0])]
        return f"{name}.{func._schema.overload_name or 'default'}", bound

    def _ofFunction(self, t: torch.Tensor) -> bool:
        """Is it a result of a torch.autograd.Function of the program's?"""
        return self.training and torch.is_grad_enabled() and isinstance(t.grad_fn, BackwardCFunction) and \
            t.grad_fn._forward_cls is not _recurrent.Loop    # type: ignore[attr-defined]

    def _encode(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            known = self._find(value)
            self._python_gradients |= self._ofFunction(value)
            if known is not None and known.trained and not value.requires_grad:    # for the time being
                return self._tracked(self.graph.detach(self._valueOf(known)), self._valueOf(known))
            if known is not None:
                return self._valueOf(_attached(value, known))
            self._checkMade(value)
            return self._constant(value)
        if isinstance(value, (list, tuple)):
            return [self._encode(v) for v in value]
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        return None    # a dtype, device, layout, memory format or generator: the result's type says it

    def _unmasked(self, op: str, given: List[Any]) -> List[Any]:
        """A mask that is a constant picks a known number of elements: it becomes their indices. What has no elements
        adds none."""
        if op.startswith("aten::cat."):
            return [[t for t in given[0] if t.numel()], *given[1:]]
        if op.startswith(_PIECES):
            return [given[0], [n for n in given[1] if n], *given[2:]]
        if op == "aten::masked_select.default" and not self.isTraced(given[1]):
            x, mask = torch.broadcast_tensors(given[0], given[1])
            if x.shape != given[0].shape:
                return given
            return [given[0], list(mask.nonzero(as_tuple=True))]
        if not op.startswith(("aten::index.", "aten::index_put")):
            return given
        indices: List[Any] = []
        for i in given[1]:
            isMask = isinstance(i, torch.Tensor) and i.dtype in (torch.bool, torch.uint8)
            if isMask and self.isKnown(i) and (op.startswith("aten::index.") or given[2].numel() > 1):
                with self:
                    indices.extend(self.places(i))
            elif isMask and self.isTraced(i):
                with self:
                    indices.append(i != 0 if i.dtype == torch.uint8 else i)    # bytes are a mask too
            else:
                indices.extend(i.nonzero(as_tuple=True) if isMask else [i])
        return [given[0], indices, *given[2:]]

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
                    self._add(Tensor(t, self._newMemory(t)))
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

    def _finishCall(self, op: str, name: str, bound: List[Any], encoded: Optional[Tuple], out: Any) -> None:
        outs = [o for o in (out if isinstance(out, (list, tuple)) else [out])]
        if op.startswith(_PIECES):
            outs = [o for o in outs if o.numel()] or outs
        tensors = [o for o in outs if isinstance(o, torch.Tensor)]
        if not tensors:
            self._note(op)
            return
        if not any(t.numel() for t in tensors):    # the same in every run
            return
        first = next(t for t in tensors if t.numel())
        if first.dtype not in DTYPES:
            file, line = userLine()
            raise createPoptorchError(f"{op} makes a tensor of type {first.dtype} and shape "
                                      f"{tuple(first.shape)}, which is not supported ({file}:{line})")
        if name == "aten::as_strided":
            if encoded is not None:
                self._strided(first, self._find(bound[0]))    # type: ignore[arg-type]
            return
        values = self._results(op, (DTYPES[first.dtype], tuple(first.shape)), encoded)
        if not first.is_floating_point() and values and name not in _RANDOM:
            self._noteAlike(op, encoded, tuple(first.shape), values[0])
        base = self._find(bound[0]) if bound and isinstance(bound[0], torch.Tensor) else None
        for i, t in enumerate(outs):
            if not isinstance(t, torch.Tensor) or not t.numel() or (base is not None and t is base.tensor):
                continue
            value = values[i] if i < len(values) else None
            if value is not None:
                value = self._checked(op, t, value)
            if name.startswith("aten::unsafe_"):    # promised not to be written through
                self._add(Tensor(t, Memory(), value))
            elif base is not None and storage(t) == storage(base.tensor):
                self._view(t, base, op, (encoded or (None,))[1:], i, value)
            else:
                self._add(Tensor(t, self._newMemory(t), value))
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

    def _checked(self, op: str, t: torch.Tensor, value: Any, written: Optional[Tensor] = None) -> Any:
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
            value = self._changed(written, value)
        return value

    def _noteAlike(self, op: str, encoded: Any, shape: Tuple, value: Any) -> None:
        """Two values of whole numbers or bools that are made in the same way are the same."""
        def key(v: Any) -> Any:
            if isinstance(v, (list, tuple)):
                return tuple(map(key, v))
            return ("value", self._alike.get(id(v), id(v))) if isinstance(v, _core.Value) else repr(v)
        self._alike[id(value)] = op, key(encoded), shape

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

    # --- what the function mode and the ops of this package ask for ---

    def emit(self, op: str, extra: Sequence[Any], compute: Callable[[], torch.Tensor]) -> torch.Tensor:
        """compute() makes one ATen call on a traced tensor; it is written down as `op` with that tensor
        and `extra` for arguments."""
        self._override = (op, tuple(extra))
        try:
            return compute()
        finally:
            self._override = None

    def instead(self, t: torch.Tensor, op: str, args: Sequence[Any]) -> torch.Tensor:
        """t, computed as `op` of these arguments. Autograd goes on to see how it was computed."""
        known = self._find(t)
        try:
            given = tuple(self._encode(v) for v in args)
            known.value = self._checked(op, t, self._lower(op, known.spec, given)[0])    # type: ignore[union-attr]
        except Missing:
            pass
        return t

    def make(self, op: str, args: Sequence[Any], results: Sequence[torch.Tensor]) -> None:
        """These tensors are what `op` makes of its arguments."""
        values: List[Any] = []
        try:
            given = tuple(self._encode(v) for v in args)
            values = self._results(op, (DTYPES[results[0].dtype], tuple(results[0].shape)), given)
        except Missing as e:
            if str(e):
                self._note(str(e))
        for t, v in zip(results, values or [None] * len(results)):
            self._add(Tensor(t, self._newMemory(t), None if v is None else self._checked(op, t, v)))

    @contextlib.contextmanager
    def writtenOut(self) -> Iterator[None]:
        """Recurrent layers in here are as PyTorch has them, a step after the other."""
        self.writesOut = True
        try:
            yield
        finally:
            self.writesOut = False

    def markLoss(self, t: Any, asked: bool = False) -> None:
        """A loss: the last one standing is minimised. `asked`: by identity_loss()."""
        known = self._find(t) if isinstance(t, torch.Tensor) else None
        if known is None:
            return
        try:
            self._addLoss(self._valueOf(known), asked)
        except Missing:
            return
        self._lost.append(t)

    def _takeReturned(self, result: Any) -> None:
        """A scalar that forward() returns is the loss when it depends on all that could be: a sum of several, say. What
        identity_loss() says counts more."""
        t, sure = _returnedScalar(result)
        known = self._find(t) if t is not None and t.requires_grad else None
        if known is None or not self.training or self.missing:
            return
        left = self.standing()
        value = self._valueOf(known)
        feeds = self._feeds.get(id(value), frozenset())
        if any(k in self.asked for k in left) or not all(k in feeds for k in left) or not (left or sure):
            return
        if not any(self.losses[k] is value for k in left):
            self.markLoss(t)

    def _differentiate(self) -> None:
        """Gradients that a torch.autograd.Function has a part in are PyTorch's: its backward pass is written down as what
        forward() itself differentiates is, and the loss becomes one that has these gradients, sum(p * g) over all parameters
        p, where g is a constant. Nobody sees its value: the loss that is returned is forward()'s."""
        if not self._python_gradients or not self.training or self.missing:
            return
        loss = self._lost[self.losses.index(self.theLoss())]
        if self._host_gradients:
            raise createPoptorchError("A model with a torch.autograd.Function cannot have a custom_op or print gradients: only "
                                      "one of them can say what gradients are")
        self._recorder.resume()    # type: ignore[union-attr]
        trained = [leaf.tensor for leaf in self.leaves.values() if leaf.trained]
        if any(pairs is t for _, pairs in self._pairs.values() for t in trained):
            raise createPoptorchError("A model with a torch.autograd.Function cannot have complex parameters")
        found = torch.autograd.grad(loss.sum(), trained, allow_unused=True)
        parts = [(p * g.detach()).sum() for p, g in zip(trained, found) if g is not None]
        if not parts:
            raise createPoptorchError("No trained parameter reaches the loss: there is nothing to train")
        self.losses.clear()
        self._lost.clear()
        self.demoted.clear()
        self._feeds.clear()
        self.markLoss(functools.reduce(torch.add, parts))

    def tap(self, t: torch.Tensor, look: Callable, look_at_gradient: Optional[Callable]) -> torch.Tensor:
        """The tensor, shown to a function whenever it was computed, and so is its gradient."""
        out = t.clone()
        known = self._find(out)
        try:
            value = self._valueOf(known)    # type: ignore[arg-type]
        except Missing:
            return out
        spec = [(TORCH_DTYPES[value.dtype], value.shape)]
        self._host_gradients |= look_at_gradient is not None
        gradient = self.host.add(look_at_gradient, spec) if look_at_gradient is not None else -1
        known.value = self._tracked(    # type: ignore[union-attr]
            self.graph.tap(value, self.host.add(look, spec), gradient), value)
        return out

    def callHost(self, function: Callable, inputs: List[torch.Tensor], results: List[torch.Tensor],
                 gradient: Optional[Callable] = None) -> List[torch.Tensor]:
        """function(*inputs), called by the device: a list of tensors like these results. gradient(*inputs, *results,
        *gradients of the results) are those of the inputs that are no whole numbers."""
        try:
            values = [self._encode(t) for t in inputs]
        except Missing as e:
            self._note(str(e))
            return results
        self.graph.here(*userLine())
        self._enterBlock()
        specs = [(DTYPES[t.dtype], tuple(t.shape)) for t in results]
        takes = [(TORCH_DTYPES[v.dtype], v.shape) for v in values]
        gives = [(TORCH_DTYPES[d], shape) for d, shape in specs]
        which = self.host.add(function, takes, gives)
        self._host_gradients |= gradient is not None
        back = -1 if gradient is None else self.host.add(gradient, [*takes, *gives, *gives],
                                                         [t for t in takes if t[0].is_floating_point])
        types = " ".join(f"{d}[{','.join(map(str, shape))}]" for d, shape in specs)
        for t, v in zip(results, self.graph.host_call(which, values, types, back)):
            self._add(Tensor(t, self._newMemory(t), self.named("host_call:0", self._tracked(v, values))))
        return results

    def expect(self, t: torch.Tensor) -> None:
        """forward() has read the value of a known tensor: every run looks whether it is still that one."""
        found = self._find(t)
        if found is None or found.memory.known == CONSTANT:
            return
        expected, where = t.detach().clone(), userLine()

        def look(now: torch.Tensor) -> None:
            if not torch.equal(now.view(expected.shape), expected.to(now.dtype)):
                raise createPoptorchError(
                    f"forward() reads a value ({where[0]}:{where[1]}) and was compiled for {_brief(expected)}; in this batch it is "
                    f"{_brief(now.view(expected.shape))}. Call destroy() on the model to compile it for such inputs")
        value = self._valueOf(found)
        spec = [(TORCH_DTYPES[value.dtype], value.shape)]
        self.expected.append(self._tracked(self.graph.tap(value, self.host.add(look, spec), -1), value))

    @contextlib.contextmanager
    def unwritten(self, who: str) -> Iterator[None]:
        """An Error when something is written that was there before."""
        before = [(t.memory, t.memory.version) for t in self._tensors.values()]
        yield
        if any(memory.version != version for memory, version in before):
            raise createPoptorchError(f"{who} must not write to a tensor of the model that is not an argument "
                                      "(%s:%d)" % userLine())

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """What happens in here is not part of the model."""
        global _tracer
        before = self.pausing, _tracer
        self.pausing, _tracer = True, None
        try:
            yield
        finally:
            self.pausing, _tracer = before

    # --- the run ---

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

    def _called(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Exception as e:
            if not isinstance(e, Error):
                self.checkMissing()    # what is not supported has the wrong size, perhaps: that is the first thing to tell
            raise

    def run(self, root: torch.nn.Module, call: Callable[[], Any]) -> Any:
        """call() in the trace; its result."""
        global _tracer
        if _tracer is not None:
            raise createPoptorchError("A model cannot be compiled inside another model's forward()")
        _tracer = self
        _record.excluded = self.options.source_location_excludes
        try:
            with blocks.recording(self.options.execution_strategy) as self._recorder, \
                    self._moduleScopes(root), _functions.taken(self), self:
                result = self._called(call)
                self._takeReturned(result)
                self._differentiate()
                return result
        finally:
            _tracer = None
            _record.excluded = ()


def _returnedScalar(result: Any) -> Tuple[Optional[torch.Tensor], bool]:
    """A float without dims that is the result, is called loss in it, or comes first of such; and whether that alone says that
    it is the loss."""
    named = result.get("loss") if isinstance(result, dict) else getattr(result, "loss", None)
    items = result if isinstance(result, (list, tuple)) else [result]
    for t in [named, *items]:
        if isinstance(t, torch.Tensor) and t.is_floating_point() and t.numel() == 1 and t.dim() < 2:
            return t, t is named or t is items[0]
    return None, False


def _nonzero(tracer: "Tracer", mask: torch.Tensor) -> torch.Tensor:
    found = tracer.places(mask)
    return torch.stack(found, 1) if found else torch.zeros(int(mask != 0), 0, dtype=torch.int64)


def _selected(tracer: "Tracer", x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    x, mask = torch.broadcast_tensors(x, mask)
    return x[tuple(tracer.places(mask))] if mask.dim() else x.reshape(1)[:int(mask)]


#: Ops with as many results as a mask has true elements.
_COUNTED: Dict[str, Callable] = {"aten::nonzero": _nonzero, "aten::masked_select": _selected}


def _brief(t: torch.Tensor) -> str:
    return str(t.tolist()) if t.numel() <= 8 else f"a tensor of shape {tuple(t.shape)}"


def _attached(t: torch.Tensor, known: Tensor) -> Tensor:
    """What an op needs of its own result for its gradient PyTorch keeps as a detached copy, to which it attaches the op
    again when a backward formula reads it: then it is the result itself, whose gradient goes on. A detached tensor that
    the program made has a grad_fn only when it was written to."""
    above = known
    while t.grad_fn is not None and above.parent is not None and not above.written and \
            above.op.startswith(("aten::detach", "aten::alias")):
        above = above.parent
        if above.tensor.is_leaf and above.tensor.requires_grad:    # cut on purpose, to begin a graph of its own
            return known
    return above


def _writesNothing(op: str, given: List[Any]) -> bool:
    at = _BY_INDEX.get(op.partition(".")[0])
    return at is not None and any(not t.numel() for t in tensorsIn([given[at]]))


def _asOne(value: Any) -> Any:
    """Tensors without dims as such with one element."""
    if isinstance(value, (list, tuple)):
        return type(value)(map(_asOne, value))
    return value.reshape(1) if isinstance(value, torch.Tensor) and not value.dim() else value


def _shaped(out: Any, shapes: List[Any]) -> Any:
    return out.reshape(shapes[0]) if isinstance(out, torch.Tensor) else tuple(t.reshape(s) for t, s in zip(out, shapes))


def _sizeIsValue(func: Any, given: List[Any], isTraced: Callable[[Any], bool]) -> bool:
    """Does the size of the result depend on values? Of an index, only that of a mask does."""
    if not any(tag.name == "dynamic_output_shape" for tag in func.tags):
        return False
    if func._schema.name != "aten::index":
        return True
    return any(t.dtype in (torch.bool, torch.uint8) and isTraced(t) for t in tensorsIn(given[1]))


def _withTensors(schema: Any, args: Tuple) -> Tuple:
    """PyTorch hands the 3 of `x ^ 3` over as a number, and takes it back as a tensor only."""
    if not schema.name.startswith(("aten::bitwise", "aten::__")):
        return args
    return tuple(torch.tensor(a) if isinstance(a, (bool, int, float)) and str(s.type) == "Tensor" else a
                 for a, s in zip(args, schema.arguments))
