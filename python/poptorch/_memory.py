"""Tensors of the program and the memory they share, as values of the graph.

A graph has values, PyTorch has memory. A Tensor here is a tensor of the program, a Memory what several of
them share. A write changes the memory's version; a view that is read after that is computed again from the
tensor it views, and a write through a view is carried up to the tensor that owns the memory by the view's
inverse (`_core.Graph.put`).
"""

import contextlib
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Set, Tuple

import torch

from ._host import Host, Series
from ._native import DTYPES, OUTPUT_DTYPES, engineTensor
from ._record import Missing, Record, SizeAsked, userLine
from .errors import createPoptorchError


#: How well the elements of a memory are known while forward() is traced: not at all, as they are in the first batch, or as
#: they always are.
UNKNOWN, EXAMPLE, CONSTANT = range(3)

#: Constants of at most so many whole numbers are compared by their elements.
_COMPARED = 4096

#: Of a complex type, that of its parts.
_PARTS = {torch.complex32: torch.float16, torch.complex64: torch.float32, torch.complex128: torch.float64}


class Memory:
    """What tensors share. Version 0 is what it started with."""

    def __init__(self) -> None:
        self.version = 0
        self.known = UNKNOWN
        self.drawn = False    # random numbers, and nothing else, made it
        self.rows: Any = None    # of what a computed mask has chosen (_chosen.py)
        self.tensors: List["Tensor"] = []


class Tensor:
    """A traced tensor: the owner of its memory, or a view of `parent` made by `op`.

    `value` is its value as of `version`; None stands for a result of an op that is not supported.
    """

    def __init__(self, tensor: torch.Tensor, memory: Memory, value: Any = None) -> None:
        self.tensor = tensor    # also keeps it alive, so that its id and its memory stay its own
        self.memory = memory
        self.value = value
        self.version = memory.version
        self.parent: Optional["Tensor"] = None
        self.op = ""
        self.args: Any = ()    # a tuple, or what makes it when it is asked for
        self.which = 0
        self.make: Optional[Callable[[], Any]] = None    # of a leaf that nobody has read yet
        self.start: Any = None                           # of a leaf: the state itself
        self.written = False                             # by an op that was given this very tensor
        self.trained = False                             # of a leaf: a parameter that the loss has a gradient of
        memory.tensors.append(self)

    @property
    def spec(self) -> Tuple[str, Tuple[int, ...]]:
        return DTYPES[self.tensor.dtype], tuple(self.tensor.shape)


def storage(t: torch.Tensor) -> int:
    try:
        return _address(t)
    except (NotImplementedError, RuntimeError):
        raise createPoptorchError("A tensor without memory of its own, as a sparse one is, is not supported "
                                  "(%s:%d)" % userLine()) from None


def _address(t: torch.Tensor) -> int:
    storage = t.untyped_storage() if hasattr(t, "untyped_storage") else t.storage()
    return storage.data_ptr()


def geometry(t: torch.Tensor) -> Tuple:
    return t.dtype, tuple(t.shape), t.stride(), t.storage_offset()


def _reach(t: torch.Tensor) -> int:
    """One past the last place of the memory that a tensor shows."""
    return t.storage_offset() + sum((n - 1) * s for n, s in zip(t.shape, t.stride())) + 1


def sameElements(t: torch.Tensor, size: Sequence[int], stride: Sequence[int], offset: Optional[int]) -> bool:
    """Would as_strided_ leave the elements where they are? Strides of sizes of 1 say nothing."""
    same = tuple(size) == tuple(t.shape) and offset in (None, t.storage_offset())
    return same and all(n == 1 or a == b for n, a, b in zip(size, stride, t.stride()))


def tensorsIn(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for v in value:
            yield from tensorsIn(v)


class Memories(Record):
    """The tensors of a trace: those it starts from, what their values are, and which were written."""

    def __init__(self, name: str, options: Any) -> None:
        super().__init__(name, options)
        self.host = Host()
        self.gradients: Dict[str, Series] = {}    # of parameters, for anchors
        self.leaves: Dict[str, Tensor] = {}      # parameters and buffers by name
        self.frozen: Dict[str, Tensor] = {}      # those that are constants
        self.inputs: List[Tensor] = []           # those that have elements
        self._given = 0                         # inputs so far
        self._places: List[int] = []            # of `inputs` among all
        self._made: Set[int] = set()            # memory that the trace itself made
        self._tensors: Dict[int, Tensor] = {}
        self._memories: Dict[int, Memory] = {}
        self._constants: Dict[Tuple[int, int], Tuple[torch.Tensor, Any]] = {}
        self.sized = False         # masks have the size of the first batch, or are refused
        self.has_rows = False      # something was chosen by a computed mask
        self.in_rows = False
        self.packings: Dict[int, Any] = {}    # by the ids of the batch_sizes of packed sequences (_packed.py)
        self.size_asked = False
        self._alike: Dict[int, Any] = {}                                  # id of a value: how it was made
        self._pairs: Dict[int, Tuple[torch.Tensor, torch.Tensor]] = {}    # id of a complex tensor: it, and its pairs
        self._pairs_at: Dict[Tuple, torch.Tensor] = {}                    # the same, by where it lies
        self._conjugated: Dict[int, Tuple[Memory, int]] = {}              # id of a conjugate: what it shows, and in which version

    # --- what a trace starts from ---

    def _add(self, t: Tensor) -> Tensor:
        self._tensors[id(t.tensor)] = t
        return t

    def _newMemory(self, t: torch.Tensor) -> Memory:
        memory = self._memories[storage(t)] = Memory()
        return memory

    def addInput(self, name: str, t: torch.Tensor) -> None:
        """An input of a run, in the order of these calls. One without elements is the same in every run."""
        self._given += 1
        if not t.numel():
            return
        if t.is_complex():
            self._keepPairs(t, self._asPairs(t))
            t = self._pairs[id(t)][1]
        if t.dtype not in DTYPES:
            raise createPoptorchError(f"{name} has type {t.dtype}, which is not supported; there are "
                                      f"{', '.join(str(d) for d in DTYPES)}")
        value = self.named("input", self.graph.input(name, DTYPES[t.dtype], t.shape))
        self.inputs.append(self._add(Tensor(t, self._newMemory(t), value)))
        if not t.is_floating_point():
            self.inputs[-1].memory.known = EXAMPLE
        self._places.append(self._given - 1)

    def addState(self, name: str, t: torch.Tensor, trained: bool) -> None:
        """A parameter or buffer; it joins the graph when it is read."""
        if not t.numel():
            return
        known = self._find(t)
        if known is not None and t.is_complex():
            return    # found by its memory
        if known is not None:
            self._add(known if known.tensor is t else self._alias(t, known))
            return
        if t.is_complex():
            self._keepPairs(t, self._asPairs(t).requires_grad_(trained))
            t = self._pairs[id(t)][1]
        leaf = Tensor(t, self._newMemory(t))
        leaf.trained = trained
        if not t.is_floating_point() and name not in self.options.updatable_named_buffers:
            number = t.detach().clone()    # whole numbers are constants of the graph: no run changes them
            leaf.make = lambda: self._constant(number)
            leaf.memory.known = CONSTANT
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

    # --- complex tensors, which are pairs of real numbers (_complex.py) ---

    def addPairs(self, pairs: torch.Tensor, view: torch.Tensor) -> torch.Tensor:
        """The complex tensor of these pairs: the view that PyTorch has made of their memory, or one in their memory."""
        wanted = _PARTS[view.dtype]
        if tuple(pairs.shape) != (*view.shape, 2):
            raise createPoptorchError(f"Complex numbers of shape {tuple(view.shape)} have pairs of shape {tuple(pairs.shape)}. This is a bug "
                                      "of this package (%s:%d)" % userLine())
        if not view.numel():
            return view
        if storage(view) != storage(pairs) or pairs.dtype != wanted:
            pairs = pairs.to(wanted).contiguous()
            with self.paused(), torch.no_grad():    # type: ignore[attr-defined]
                view = torch.view_as_complex(pairs.detach())
        return self._keepPairs(view, pairs)

    def _keepPairs(self, z: torch.Tensor, pairs: torch.Tensor) -> torch.Tensor:
        self._pairs[id(z)] = z, pairs
        self._pairs_at[(storage(z), geometry(z), z.is_conj())] = pairs
        return z

    def addConjugate(self, z: torch.Tensor, pairs: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
        """z shows the memory of another one, whose pairs it does not share: that must stay as it is."""
        found = self._find(of)
        if found is not None:
            self._conjugated[id(z)] = found.memory, found.memory.version
        return self._keepPairs(z, pairs)

    def _pairsIn(self, z: torch.Tensor) -> Optional[torch.Tensor]:
        """The traced pairs of a complex tensor; None: it is not traced."""
        memory, version = self._conjugated.get(id(z), (None, 0))
        if memory is not None and memory.version != version:
            raise createPoptorchError("conj() of a tensor that was written to afterwards is not supported: use conj_physical() "
                                      "(%s:%d)" % userLine())
        if id(z) in self._pairs:
            return self._pairs[id(z)][1]
        if not z.numel() or storage(z) not in self._memories:
            return None
        known = self._pairs_at.get((storage(z), geometry(z), z.is_conj()))
        if known is None:
            known = self._asPairs(z)
        self._keepPairs(z, known)
        return known

    def _asPairs(self, z: torch.Tensor) -> torch.Tensor:
        with self.paused(), torch.no_grad():    # type: ignore[attr-defined]
            return torch.view_as_real(z.detach().resolve_conj())

    def pairs(self, z: torch.Tensor) -> torch.Tensor:
        """The pairs of a complex tensor, which are constants if it is not traced."""
        known = self._pairsIn(z)
        if known is not None:
            return known
        self._checkMade(z)
        return self.claim(self._asPairs(z))

    def ownPairs(self, z: torch.Tensor) -> torch.Tensor:
        """The pairs of a complex tensor that is written to."""
        if self._pairsIn(z) is None:
            self._adopt(self._asPairs(z if z._base is None else z._base), False)
        return self._pairsIn(z)    # type: ignore[return-value]

    # --- what a computed mask has chosen (_chosen.py) ---

    def rowsOf(self, t: torch.Tensor) -> Any:
        found = self._find(t) if self.has_rows else None
        return None if found is None else found.memory.rows

    def markRows(self, t: torch.Tensor, rows: Any) -> torch.Tensor:
        found = self._find(t)
        if found is not None:
            found.memory.rows, self.has_rows = rows, True
        return t

    def askSize(self) -> None:
        """Somebody needs to know how many rows there are."""
        self.size_asked = True
        raise SizeAsked("How many elements a computed mask chooses is not known while the model is traced (%s:%d)" % userLine())

    def keyOf(self, t: torch.Tensor) -> Any:
        """The same for values that are made in the same way."""
        value = self._valueOf(self._find(t))    # type: ignore[arg-type]
        return self._alike.get(id(value), id(value))

    @contextlib.contextmanager
    def choosing(self) -> Iterator[None]:
        """In here, chosen rows are rows like others."""
        before, self.in_rows = self.in_rows, True
        try:
            yield
        finally:
            self.in_rows = before

    # --- values of tensors ---

    def _find(self, t: torch.Tensor) -> Optional[Tensor]:
        known = self._tensors.get(id(t))
        if known is not None:
            return known
        if t.is_complex():
            pairs = self._pairsIn(t)
            return None if pairs is None else self._find(pairs)
        try:
            memory = self._memories.get(_address(t)) if t.numel() else None
        except (NotImplementedError, RuntimeError):    # in torch.func, around one that the trace is told of
            return None
        if memory is None:
            return None
        for other in reversed(memory.tensors):
            if geometry(other.tensor) == geometry(t):
                return self._add(self._alias(t, other))
        return self._strided(t, memory.tensors[0])

    def _strided(self, t: torch.Tensor, of: Tensor) -> Optional[Tensor]:
        """A view without a better name: made by as_strided, or before its memory was traced.

        Where each of its elements lies in `of` is found out with numbers; in order, it is a reshape. None: it
        has none of them, as pieces of one split of which only some are traced.
        """
        base = of.tensor
        if base.dtype == t.dtype and base.is_contiguous() and base.storage_offset() <= t.storage_offset() and \
                _reach(t) <= _reach(base):
            if t.is_contiguous() and t.numel() == base.numel():
                return self._view(t, of, "aten::view", (list(t.shape),), 0, None)
            where = t.shape, t.stride(), t.storage_offset() - base.storage_offset()
            return self._view(t, of, "poptorch::places",    # only if somebody reads it: it is as large as t
                              lambda: (self._constant(torch.arange(base.numel()).as_strided(*where).flatten()),), 0, None)
        size = max(_reach(base), _reach(t))
        inside = torch.full((size,), -1, dtype=torch.int64)
        inside.as_strided(base.shape, base.stride(), base.storage_offset()).copy_(
            torch.arange(base.numel()).view(base.shape))
        places = inside.as_strided(t.shape, t.stride(), t.storage_offset()).flatten()
        if base.dtype == t.dtype and bool((places < 0).all()):
            return None
        if base.dtype != t.dtype or bool((places < 0).any()):
            raise createPoptorchError("A view of memory in which another tensor lies is not supported "
                                      "(%s:%d)" % userLine())
        if torch.equal(places, torch.arange(base.numel())):
            return self._view(t, of, "aten::view", (list(t.shape),), 0, None)
        return self._view(t, of, "poptorch::places", (self._constant(places),), 0, None)

    def _alias(self, t: torch.Tensor, of: Tensor) -> Tensor:
        """Another Python object for the same elements: x.data, and what autograd makes for itself."""
        cut = of.tensor.requires_grad and not t.requires_grad
        return self._view(t, of, "aten::detach" if cut else "aten::alias", (), 0, None)

    def _view(self, t: torch.Tensor, of: Tensor, op: str, args: Any, which: int, value: Any) -> Tensor:
        view = Tensor(t, of.memory, value)
        view.parent, view.op, view.args, view.which = of, op, args, which
        if value is None:
            view.version = -1
        return self._add(view)

    def isTraced(self, t: Any) -> bool:
        """Does the tensor's value depend on the run?"""
        return isinstance(t, torch.Tensor) and self._find(t) is not None

    def isKnown(self, t: Any) -> bool:
        """Are the elements of a traced tensor those of the first batch?"""
        found = self._find(t) if isinstance(t, torch.Tensor) else None
        return found is not None and found.memory.known != UNKNOWN

    def isConstant(self, t: Any) -> bool:
        """Are the elements of a tensor the same in every run?"""
        found = self._find(t)
        return found is None or found.memory.known == CONSTANT

    def isDrawn(self, t: Any) -> bool:
        """Is a traced tensor made of random numbers?"""
        found = self._find(t)
        return found is not None and found.memory.drawn

    def _argsOf(self, t: Tensor) -> Tuple:
        if callable(t.args):
            t.args = t.args()
        return t.args

    def _valueOf(self, t: Tensor) -> Any:
        if t.memory.rows is not None and not self.in_rows:
            self.askSize()
        if t.make is not None:
            t.start = t.value = t.make()
            t.make = None
            self._values.append(t.value)
        if t.parent is None or t.version == t.memory.version:
            if t.value is None:
                raise Missing(t.op)
            return t.value
        args = (self._valueOf(t.parent),) + self._argsOf(t)
        t.value = self._lower(t.op, t.spec, args)[t.which]
        t.version = t.memory.version
        return t.value

    def _write(self, t: Tensor, value: Any) -> None:
        """t's elements become value's, and so do those of every tensor that shares them."""
        up, node = value, t
        while node.parent is not None:
            if up is not None:
                args = (self._valueOf(node.parent),) + self._argsOf(node)
                up = self._tracked(self.graph.put(node.op, *node.spec, args, up, node.which), (args, up))
                if node.op.startswith("aten::detach") and node.parent.tensor.grad_fn is not None:
                    up = self._changed(node.parent, up)
            node = node.parent
        if node.make is not None:
            self._valueOf(node)
        t.memory.version += 1
        t.memory.known = UNKNOWN
        node.value, node.version = up, t.memory.version
        t.value, t.version, t.written = value, t.memory.version, True

    def _changed(self, t: Tensor, value: Any) -> Any:
        """Another value for t, with the gradient of its old one: of a write that autograd does not see."""
        old = self._valueOf(t)
        nothing = self._lower("aten::sub.Tensor", t.spec, (old, self.graph.detach(old), 1))[0]
        return self._lower("aten::add.Tensor", t.spec, (self.graph.detach(value), nothing, 1))[0]

    def _constant(self, t: torch.Tensor) -> Any:
        key = (id(t), t._version)
        if key in self._constants:
            return self._constants[key][1]
        if not t.numel():
            raise Missing(f"a tensor of shape {tuple(t.shape)}, without elements")
        if t.dtype not in DTYPES:
            raise createPoptorchError(f"A tensor of type {t.dtype} and shape {tuple(t.shape)} cannot be part "
                                      "of a model")
        alike = not any(t.stride())    # one element, shown everywhere
        kept = engineTensor(t.flatten()[:1] if alike else t)
        first = kept.flatten()[0].item()
        if abs(first) < 2**53 and (alike or bool((kept == first).all())):
            value = self.graph.full(DTYPES[t.dtype], t.shape, float(first))
        else:
            value = self.graph.const(DTYPES[t.dtype], t.shape, kept.data_ptr())
        self._constants[key] = (t, value)
        if t.numel() <= _COMPARED and not t.is_floating_point():    # of the same elements: the same mask is made of them
            self._alike[id(value)] = str(t.dtype), tuple(t.shape), tuple(t.flatten().tolist())
        return value

    def claim(self, t: torch.Tensor) -> torch.Tensor:
        """A tensor of the host whose elements go to the device, as constants."""
        self._made.add(storage(t))
        return t

    def _checkMade(self, t: torch.Tensor) -> None:
        """A tensor from outside of the trace would be the same in every run, whatever becomes of it."""
        if t.dim() and t.numel() and storage(t) not in self._made:
            file, line = userLine()
            raise createPoptorchError(f"Expected an IPU tensor but got one of shape {tuple(t.shape)} that was made "
                                      f"on the CPU, outside of forward() ({file}:{line}): make it in forward(), "
                                      "pass it as an argument, or register it as a buffer")

    def _adopt(self, t: torch.Tensor, overwritten: bool) -> None:
        """An ordinary tensor becomes part of the graph, because a traced value is written to it."""
        owner = t if t._base is None else t._base
        self._checkMade(owner)
        value = None if overwritten and owner is t else self._constant(owner)
        self._add(Tensor(owner, self._newMemory(owner), value))

    def _poison(self, t: Tensor) -> None:
        while t.parent is not None:
            t = t.parent
        t.value, t.version = None, t.memory.version
        t.memory.known = UNKNOWN

    # --- what became of them ---

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

    def overlapInput(self, t: torch.Tensor) -> torch.Tensor:
        """For poptorch.set_overlap_for_input."""
        known = self._find(t)
        return self.overlap.input(t, [i.value for i in self.inputs], known and known.value)

    def writtenInputs(self) -> Iterator[Tuple[int, Any]]:
        """(index, value) of the inputs that forward wrote to."""
        for i, t in zip(self._places, self.inputs):
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

    def close(self) -> None:
        """Let go of the tensors of the trace, which point at each other, now rather than some time."""
        for t in self._tensors.values():
            t.memory.tensors.clear()
        for table in (self._tensors, self._memories, self._constants, self._values, self.inputs, self.leaves,
                      self.frozen, self.names):
            table.clear()    # type: ignore[attr-defined]
