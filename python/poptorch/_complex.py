"""Complex numbers as pairs of real ones.

The engine has real numbers only. A complex tensor of forward() is a real value of one more dim in the graph, the pair (real part,
imaginary part) in the last: what torch.view_as_real() shows, and in the same memory. Each complex ATen call becomes real ones on
pairs, which are traced as if forward() had made them; so gradients follow by themselves. A Fourier transform is a product with a
constant matrix; one of a long side is made of two of shorter ones. What has no rule here is refused by name.
"""

import functools
import math
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, TYPE_CHECKING

import torch
import torch.nn.functional as F

from . import _shapes
from ._record import userLine
from .errors import createPoptorchError

if TYPE_CHECKING:
    from ._trace import Tracer

_T = torch.Tensor
_REAL = {torch.complex32: torch.float16, torch.complex64: torch.float32, torch.complex128: torch.float64}

_DENSE = 128     # a transform of so many elements is one product
_LARGEST = 1024    # and one that has no factors, at most


def isComplex(value: Any) -> bool:
    """A complex tensor or number, or a list of them?"""
    if isinstance(value, (list, tuple)):
        return any(map(isComplex, value))
    if isinstance(value, torch.dtype):
        return value.is_complex
    return value.is_complex() if isinstance(value, _T) else isinstance(value, complex)


# --- pairs ---

def _pair(t: "Tracer", v: Any, like: Optional[_T] = None) -> _T:
    """The pairs of a complex tensor, a real one or a number."""
    if not isinstance(v, _T):
        return t.claim(torch.tensor([complex(v).real, complex(v).imag], dtype=like.dtype if like is not None else None))
    return t.pairs(v) if v.is_complex() else torch.stack([v, torch.zeros_like(v)], -1)


def _both(t: "Tracer", a: Any, b: Any) -> Tuple[_T, _T]:
    first = _pair(t, a if isinstance(a, _T) else b)
    return (first, _pair(t, b, first)) if isinstance(a, _T) else (_pair(t, a, first), first)


def _joined(re: _T, im: _T) -> _T:
    return torch.stack([re, im], -1)


def _times(p: _T, q: _T) -> _T:
    (a, b), (c, d) = p.unbind(-1), q.unbind(-1)
    return _joined(a * c - b * d, a * d + b * c)


def _conj(p: _T) -> _T:
    return p * torch.tensor([1, -1], dtype=p.dtype)


def _isReal(v: Any) -> bool:
    return not isComplex(v)


def _spread(v: Any) -> Any:
    """A real factor, for both parts of pairs."""
    return v.unsqueeze(-1) if isinstance(v, _T) else v


def _mul(t: "Tracer", a: Any, b: Any) -> _T:
    if _isReal(a) or _isReal(b):
        z, x = (b, a) if _isReal(a) else (a, b)
        return _pair(t, z) * _spread(x) if isinstance(z, _T) else _times(*_both(t, z, x))
    return _times(*_both(t, a, b))


def _div(t: "Tracer", a: Any, b: Any) -> _T:
    if _isReal(b):
        return _pair(t, a) / _spread(b)
    p, q = _both(t, a, b)
    return _times(p, _conj(q)) / q.square().sum(-1, keepdim=True)


def _abs(p: _T) -> _T:
    """|z|, whose gradient is 0 where z is."""
    square = p.square().sum(-1)
    nothing = square == 0
    return torch.where(nothing, 0.0, torch.where(nothing, 1.0, square).sqrt()).to(p.dtype)


def _angle(p: _T) -> _T:
    re, im = p.unbind(-1)
    nothing = (re == 0) & (im == 0)
    return torch.where(nothing, torch.atan2(im, re).detach(), torch.atan2(torch.where(nothing, 0.0, im), torch.where(nothing, 1.0, re)))


def _product(t: "Tracer", multiply: Callable, a: Any, b: Any) -> _T:
    """A product of matrices or vectors: of real parts where one side is real."""
    if _isReal(a):
        return _joined(*(multiply(a, y) for y in _pair(t, b).unbind(-1)))
    if _isReal(b):
        return _joined(*(multiply(x, b) for x in _pair(t, a).unbind(-1)))
    (ar, ai), (br, bi) = _pair(t, a).unbind(-1), _pair(t, b).unbind(-1)
    return _joined(multiply(ar, br) - multiply(ai, bi), multiply(ar, bi) + multiply(ai, br))


def _sgn(p: _T) -> _T:
    size = _abs(p).unsqueeze(-1)
    return p / torch.where(size == 0, 1.0, size).to(p.dtype)


def _exp(p: _T) -> _T:
    re, im = p.unbind(-1)
    return _joined(re.exp() * im.cos(), re.exp() * im.sin())


def _pow(t: "Tracer", z: _T, n: Any) -> _T:
    if isinstance(n, (_T, complex)) or n != int(n) or not 0 <= n <= 16:
        raise _refused("pow", "an exponent that is no whole number from 0 to 16")
    p = t.pairs(z)
    return functools.reduce(_times, [p] * int(n)) if n else _joined(torch.ones_like(p[..., 0]), torch.zeros_like(p[..., 0]))


# --- Fourier transforms ---

def _turns(rows: int, columns: int, n: int, sign: int) -> Tuple[_T, _T]:
    """cos and sin of sign * 2 pi j k / n."""
    places = torch.arange(rows).view(-1, 1) * torch.arange(columns) % n
    angles = places.double() * (sign * 2 * math.pi / n)
    return angles.cos(), angles.sin()


def _matrix(n: int, sign: int) -> _T:
    """[2n, 2n]: the pairs of n numbers to those of their transform."""
    cos, sin = _turns(n, n, n, sign)
    return torch.stack([torch.stack([cos, sin], -1), torch.stack([-sin, cos], -1)], 1).view(2 * n, 2 * n)


def _divisor(n: int) -> int:
    """The largest that is not above the root."""
    return next(d for d in range(math.isqrt(n), 0, -1) if n % d == 0)


def _transformed(p: _T, sign: int) -> _T:
    """The transform over the last dim but one of pairs. Long ones by two shorter: with j = b j1 + j2 and k = k1 + a k2 that over j1,
    a turn by j2 k1, and that over j2."""
    n = p.shape[-2]
    a = _divisor(n)
    if n <= _DENSE or a == 1:
        if n > _LARGEST:
            raise _refused("a Fourier transform", f"of {n} elements, which is a prime number: fill it up to one with small factors, {n + 1} say")
        return (p.flatten(-2) @ _matrix(n, sign).to(p.dtype)).unflatten(-1, (n, 2))
    b = n // a
    inner = _transformed(p.unflatten(-2, (a, b)).transpose(-3, -2), sign)    # [j2, k1]
    turns = torch.stack(_turns(b, a, n, sign), -1).to(p.dtype)
    outer = _transformed(_times(inner, turns).transpose(-3, -2), sign)       # [k1, k2]
    return outer.transpose(-3, -2).flatten(-3, -2)


def _along(p: _T, dim: int, sign: int) -> _T:
    return _transformed(p.movedim(dim, -2), sign).movedim(-2, dim)


def _scaled(x: _T, sizes: Sequence[int], norm: int) -> _T:
    """By torch's numbers of what it is divided by: nothing, the root of the number of elements, or that number."""
    n = math.prod(sizes)
    return x if norm == 0 else x * ((1 / math.sqrt(n)) if norm == 1 else 1 / n)


def _c2c(t: "Tracer", z: _T, dims: List[int], norm: int, forward: bool) -> _T:
    p = t.pairs(z)
    for d in dims:
        p = _along(p, d % z.dim(), -1 if forward else 1)
    return _scaled(p, [z.shape[d] for d in dims], norm)


def _r2c(t: "Tracer", x: _T, dims: List[int], norm: int, onesided: bool) -> _T:
    last, n = dims[-1] % x.dim(), x.shape[dims[-1]]
    count = n // 2 + 1 if onesided else n
    if n <= 2 * _DENSE:
        cos, sin = _turns(n, n, n, -1)
        matrix = torch.stack([cos[:, :count], sin[:, :count]], -1).view(n, 2 * count).to(x.dtype)
        p = (x.movedim(last, -1) @ matrix).unflatten(-1, (count, 2)).movedim(-2, last)
    else:
        p = _along(_pair(t, x), last, -1).narrow(last, 0, count)
    for d in dims[:-1]:
        p = _along(p, d % x.dim(), -1)
    return _scaled(p, [x.shape[d] for d in dims], norm)


def _c2r(t: "Tracer", z: _T, dims: List[int], norm: int, size: int) -> _T:
    p, last = t.pairs(z), dims[-1] % z.dim()
    for d in dims[:-1]:
        p = _along(p, d % z.dim(), 1)
    count, n = size // 2 + 1, size
    p = p.movedim(last, -2)[..., :count, :]
    if n <= 2 * _DENSE:
        twice = torch.tensor([1.0 if k == 0 or 2 * k == n else 2.0 for k in range(count)], dtype=torch.float64).view(-1, 1)
        cos, sin = _turns(n, n, n, 1)
        matrix = torch.stack([cos[:count] * twice, -sin[:count] * twice], 1).view(2 * count, n)
        x = p.flatten(-2) @ matrix.to(p.dtype)
    else:    # the other half is the conjugate, the other way round
        rest = _conj(p[..., 1:n - count + 1, :].flip(-2))
        x = _transformed(torch.cat([p, rest], -2), 1)[..., 0]
    sizes = [n if d == dims[-1] else z.shape[d] for d in dims]
    return _scaled(x.movedim(-1, last), sizes, norm)


# --- the table ---

def _refused(what: str, why: str = "") -> Exception:
    return createPoptorchError(f"{what} of complex numbers is not supported{': ' + why if why else ''} (%s:%d)" % userLine())


def _dims(dims: Any, rank: int) -> List[int]:
    dims = [dims] if isinstance(dims, int) else dims
    return [d % max(1, rank) for d in dims] if dims else list(range(rank))


def _squeezed(p: _T, r: int, dims: Any = None) -> _T:
    which = range(r) if dims is None else _dims(dims, r)
    for d in sorted((d for d in which if r and p.shape[d] == 1), reverse=True):
        p = p.squeeze(d)
    return p.view(p.shape)


#: Calls that do with each part what they do with a real tensor: function(pairs, rank, other arguments).
_ALIKE: Dict[str, Callable] = {
    "view": lambda p, r, size: p.view([*_size(p, size), 2]), "_unsafe_view": lambda p, r, size: p.reshape([*_size(p, size), 2]),
    "_reshape_alias": lambda p, r, size, stride: p.view([*size, 2]), "expand": lambda p, r, size, i=False: p.expand([*size, 2]),
    "permute": lambda p, r, dims: p.permute([*(d % r for d in dims), r]),
    "transpose": lambda p, r, a, b: p.transpose(a % max(1, r), b % max(1, r)), "t": lambda p, r: p.transpose(0, r - 1) if r else p.view(p.shape),
    "select": lambda p, r, d, i: p.select(d % r, i),
    "slice": lambda p, r, d=0, start=None, end=None, step=1: torch.ops.aten.slice(p, d % r, start, end, step),
    "unsqueeze": lambda p, r, d: p.unsqueeze(d % (r + 1)), "squeeze": _squeezed,
    "split": lambda p, r, size, d=0: torch.split(p, size, d % r), "split_with_sizes": lambda p, r, sizes, d=0: torch.split(p, sizes, d % r),
    "unbind": lambda p, r, d=0: p.unbind(d % r), "flip": lambda p, r, dims: p.flip([d % r for d in dims]),
    "roll": lambda p, r, shifts, dims=(): p.roll(shifts, [d % r for d in dims]) if dims else _rolled(p, shifts),
    "clone": lambda p, r, memory_format=None: p.clone(memory_format=torch.contiguous_format), "alias": lambda p, r: p.view(p.shape),
    "detach": lambda p, r: p.detach(), "neg": lambda p, r: -p, "positive": lambda p, r: p.view(p.shape), "lift_fresh": lambda p, r: p.view(p.shape),
    "sum": lambda p, r, dims=None, keep=False, dtype=None: p.sum(_dims(dims, r), keep) if r else p.clone(),
    "mean": lambda p, r, dims=None, keep=False, dtype=None: p.mean(_dims(dims, r), keep) if r else p.clone(),
    "cumsum": lambda p, r, d, dtype=None: p.cumsum(d % r), "repeat": lambda p, r, times: p.repeat([*times, 1]),
    "index": lambda p, r, at: torch.ops.aten.index(p, at), "index_select": lambda p, r, d, at: p.index_select(d % r, at),
    "constant_pad_nd": lambda p, r, pad, value=0: F.pad(p, [0, 0, *pad]) if value == 0 else None,
    "slice_backward": lambda p, r, size, d, start, end, step: torch.ops.aten.slice_backward(p, [*size, 2], d % len(size), start, end, step),
    "select_backward": lambda p, r, size, d, i: torch.ops.aten.select_backward(p, [*size, 2], d % len(size), i),
    "masked_fill": lambda p, r, mask, value: p.masked_fill(mask.unsqueeze(-1), value) if value == 0 else None,
    "zero": lambda p, r: torch.zeros_like(p),
}


def _size(p: _T, size: Sequence[int]) -> List[int]:
    """Sizes with a -1 in them, of pairs."""
    known = math.prod(s for s in size if s >= 0)
    return [p.numel() // 2 // max(1, known) if s < 0 else s for s in size]


def _rolled(p: _T, shifts: Any) -> _T:
    shift = shifts[0] if isinstance(shifts, (list, tuple)) else shifts
    return p.flatten(0, -2).roll(shift, 0).view(p.shape) if p.dim() > 1 else p.clone()


#: Other calls whose result is complex: function(tracer, arguments).
_RULES: Dict[str, Callable] = {
    "add": lambda t, a, b, alpha=1: _sum(t, a, b, alpha), "sub": lambda t, a, b, alpha=1: _sum(t, a, b, -alpha),
    "rsub": lambda t, a, b, alpha=1: _sum(t, b, a, -alpha), "mul": _mul, "div": _div, "true_divide": _div, "reciprocal": lambda t, z: _div(t, 1, z),
    "square": lambda t, z: _mul(t, z, z), "exp": lambda t, z: _exp(t.pairs(z)), "sgn": lambda t, z: _sgn(t.pairs(z)), "pow": _pow,
    "mm": lambda t, a, b: _product(t, torch.mm, a, b), "bmm": lambda t, a, b: _product(t, torch.bmm, a, b),
    "mv": lambda t, a, b: _product(t, torch.mv, a, b), "dot": lambda t, a, b: _product(t, torch.dot, a, b),
    "vdot": lambda t, a, b: _joined(*_inner(_pair(t, a), _pair(t, b))),
    "addmm": lambda t, c, a, b, beta=1, alpha=1: _pair(t, c) * beta + _product(t, torch.mm, a, b) * alpha,
    "baddbmm": lambda t, c, a, b, beta=1, alpha=1: _pair(t, c) * beta + _product(t, torch.bmm, a, b) * alpha,
    "_conj_physical": lambda t, z: _conj(t.pairs(z)), "conj_physical": lambda t, z: _conj(_pair(t, z)),
    "complex": lambda t, re, im: _joined(*torch.broadcast_tensors(re, im)),
    "polar": lambda t, size, angle: _joined(size * angle.cos(), size * angle.sin()),
    "view_as_complex": lambda t, x: x, "_to_copy": lambda t, x, *how: _pair(t, x), "copy": lambda t, z, x, *how: _pair(t, x).expand([*z.shape, 2]),
    "_fft_c2c": _c2c, "_fft_r2c": _r2c,
    "cat": lambda t, all, d=0: torch.cat([_pair(t, z) for z in all if z.numel()], d % max(z.dim() for z in all)),
    "stack": lambda t, all, d=0: torch.stack([_pair(t, z) for z in all], d % (all[0].dim() + 1)),
    "where": lambda t, mask, a, b: torch.where(mask.unsqueeze(-1), *_both(t, a, b)),
    "index_put": lambda t, z, at, v, accumulate=False: torch.index_put(_pair(t, z), at, _pair(t, v), accumulate),
    "fill": lambda t, z, v: _pair(t, v, t.pairs(z)).expand([*z.shape, 2]),
}

#: Those whose result is real.
_TO_REAL: Dict[str, Callable] = {
    "view_as_real": lambda t, z: t.pairs(z).view([*z.shape, 2]), "abs": lambda t, z: _abs(t.pairs(z)), "angle": lambda t, z: _angle(t.pairs(z)),
    "_fft_c2r": _c2r,
}

#: Calls that change what their argument is, and not its elements.
_RESHAPING = ("transpose_", "t_", "squeeze_", "unsqueeze_")

#: Calls that make complex numbers of real ones.
MAKERS = frozenset(f"aten::{n}" for n in ("complex", "polar", "view_as_complex", "_fft_r2c"))


def _sum(t: "Tracer", a: Any, b: Any, alpha: Any) -> _T:
    p, q = _both(t, a, b)
    return p + (q if alpha == 1 else q * alpha)


def _inner(p: _T, q: _T) -> Tuple[_T, _T]:
    (a, b), (c, d) = p.unbind(-1), q.unbind(-1)
    return (a * c + b * d).sum(), (a * d - b * c).sum()


def _pairsOf(t: "Tracer", name: str, bound: List[Any]) -> Any:
    """The pairs of a complex result; None: there is no rule."""
    if name in _ALIKE and isinstance(bound[0], _T) and bound[0].is_complex():
        return _ALIKE[name](t.pairs(bound[0]), bound[0].dim(), *bound[1:])
    return _RULES[name](t, *bound) if name in _RULES else None


def call(t: "Tracer", func: Any, args: Tuple, kwargs: Dict[str, Any]) -> Any:
    """A call with complex arguments or results, in a trace."""
    schema = func._schema
    name = schema.name.partition("::")[2]
    bound = [args[i] if i < len(args) else kwargs.get(a.name, a.default_value) for i, a in enumerate(schema.arguments)]
    writes = [a for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    if writes:
        return _write(t, func, name, bound, writes)
    if name in _TO_REAL:
        return _TO_REAL[name](t, *bound)
    if name == "_conj":
        with t.paused():
            made = func(*args)
        return t.addConjugate(made, _conj(t.pairs(args[0])), args[0])
    pairs = _pairsOf(t, name, bound)
    if pairs is None:
        raise _refused(f"aten::{name}.{schema.overload_name or 'default'}")
    with t.paused():
        made = _shapes.run(func, args, kwargs)
    if isinstance(made, (list, tuple)):
        return [t.addPairs(p, z) for p, z in zip(pairs, made)]
    return t.addPairs(pairs, made)


def _write(t: "Tracer", func: Any, name: str, bound: List[Any], writes: List[Any]) -> _T:
    """z += w, z[i] = w: the pairs of z become those of the result."""
    target = bound[0]
    if name in _RESHAPING and t.isTraced(target):
        pairs = _ALIKE[name[:-1]](t.pairs(target), target.dim(), *bound[1:])
        with t.paused():
            func(*bound)
        return t.addPairs(pairs, target)
    if len(writes) > 1 or writes[0].kwarg_only or not target.is_complex() or target.is_conj():
        raise _refused(f"aten::{name}", "writing to a real or conjugated tensor, or to out=")
    into = t.ownPairs(target)
    pairs = _pairsOf(t, name[:-1] if name.endswith("_") else name, bound)
    if pairs is None:
        raise _refused(f"aten::{name}.{func._schema.overload_name or 'default'}")
    into.copy_(pairs.to(into.dtype))
    return target
