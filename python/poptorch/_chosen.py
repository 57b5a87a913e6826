"""x[mask] where the mask is computed: how many elements it chooses is known in each run only.

A graph has one size for everything, so x[mask] has all rows of x here: those that the mask leaves out are copies of one that it
chooses, so that nothing is computed of numbers that the program has put aside. What is done to each row by itself goes on so; a
sum, mean, maximum or loss over the rows leaves them out again. Anything else needs the number of rows (SizeAsked): then forward() is
traced once more, and such a mask is refused, or, if it follows from whole numbers among the arguments, has the size of the first batch.
"""

from typing import Any, Callable, Dict, List, Optional, Tuple, TYPE_CHECKING

import torch
import torch.nn.functional as F

from ._memory import tensorsIn

if TYPE_CHECKING:
    from ._trace import Tracer

_T = torch.Tensor

#: What is done to each element.
_POINT = frozenset((
    "add sub rsub mul div neg abs sign sgn reciprocal sqrt rsqrt exp expm1 exp2 log log1p log2 log10 sin cos tan sinh cosh tanh asin "
    "acos atan atan2 erf erfc sigmoid relu gelu silu softplus elu selu celu leaky_relu hardtanh hardswish hardsigmoid mish threshold "
    "log_sigmoid_forward pow square clamp clamp_min clamp_max maximum minimum fmax fmin eq ne lt le gt ge logical_and logical_or "
    "logical_not logical_xor bitwise_and bitwise_or bitwise_not bitwise_xor where masked_fill lerp addcmul addcdiv xlogy floor ceil "
    "round trunc frac remainder fmod floor_divide nan_to_num isnan isinf isfinite hypot _to_copy clone detach alias lift_fresh rand_like randn_like bernoulli native_dropout").split())

#: As large as another: what is in it, by the arguments.
LIKE: Dict[str, Callable] = {"aten::zeros_like": lambda x, *more: 0, "aten::ones_like": lambda x, *more: 1,
                             "aten::full_like": lambda x, value, *more: value, "aten::empty_like": lambda x, *more: 0}

#: What is done along dims: which argument they are. Along others than the first, each row is by itself.
_ALONG = {"_softmax": 1, "_log_softmax": 1, "select": 1, "squeeze": 1, "cumsum": 1, "argmax": 1, "argmin": 1,
          "index_select": 1, "sort": 1, "topk": 2, "linalg_vector_norm": 2, "norm": 2, "logsumexp": 1, "var": 1, "std": 1}

#: Other shapes of the same elements.
_SHAPES = ("view", "_unsafe_view", "_reshape_alias", "expand")

#: Of other calls, whether each row is by itself: function(has it rows?, arguments).
_RULES: Dict[str, Callable] = {
    "cat": lambda rows, given, d=0: all(map(rows, given)) and d % given[0].dim() != 0,
    "mm": lambda rows, a, b: rows(a) and not rows(b),
    "addmm": lambda rows, c, a, b, *more: rows(a) and not rows(b) and not rows(c) and c.dim() < 2,
    "embedding": lambda rows, weight, at, *more: not rows(weight),
    "gather": lambda rows, x, d, at, *more: rows(x) and rows(at) and d % x.dim() != 0,
    "nll_loss_forward": lambda rows, x, target, *more: rows(x) and rows(target) and x.dim() == 2,
    "index": lambda rows, x, at: not rows(x) and all(i is not None and rows(i) and i.dim() == 1 for i in at),
    "unbind": lambda rows, x, d=0: d % x.dim() != 0,
    "slice": lambda rows, x, d=0, start=None, end=None, step=1: d % x.dim() != 0 or
    (not start and step == 1 and (end is None or end >= x.shape[0])),    # all of them
    "unsqueeze": lambda rows, x, d: d % (x.dim() + 1) != 0,
    "transpose": lambda rows, x, a, b: 0 not in (a % x.dim(), b % x.dim()),
    "permute": lambda rows, x, dims: dims[0] % x.dim() == 0,
    "native_layer_norm": lambda rows, x, shape, *more: rows(x) and not any(isinstance(v, _T) and rows(v) for v in more) and len(shape) < x.dim(),
}

#: What is taken over rows, and what the others count as.
_FOLDS: Dict[str, Callable[[torch.dtype], Any]] = {
    "sum": lambda d: 0, "mean": lambda d: 0, "prod": lambda d: 1, "any": lambda d: False, "all": lambda d: True,
    "amax": lambda d: _least(d), "max": lambda d: _least(d), "logsumexp": lambda d: _least(d), "linalg_vector_norm": lambda d: 0, "norm": lambda d: 0, "amin": lambda d: _most(d), "min": lambda d: _most(d),
}

#: Losses of elements, and which argument says how they are reduced.
_LOSSES = {"mse_loss": 2, "l1_loss": 2, "smooth_l1_loss": 2, "huber_loss": 2, "binary_cross_entropy": 3,
           "binary_cross_entropy_with_logits": 4, "soft_margin_loss": 2}

#: Functions written in Python, which may look at sizes, that do nothing else with them.
_FUNCTIONS = frozenset((
    "cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy binary_cross_entropy_with_logits "
    "soft_margin_loss relu silu mish elu selu celu leaky_relu hardtanh relu6 sigmoid tanh hardsigmoid hardswish softmax log_softmax "
    "layer_norm embedding normalize softsign tanhshrink __rsub__ __rdiv__ __rtruediv__ __rpow__ __pow__ __rmod__ __floordiv__ "
    "__rfloordiv__ __repr__ __format__ norm").split())

#: What asks for a size.
_SIZES = (_T.size, _T.numel, _T.nelement, torch.numel, _T.shape.__get__, _T.__len__)    # type: ignore[attr-defined]


def _least(d: torch.dtype) -> Any:
    return float("-inf") if d.is_floating_point else False if d == torch.bool else torch.iinfo(d).min


def _most(d: torch.dtype) -> Any:
    return float("inf") if d.is_floating_point else True if d == torch.bool else torch.iinfo(d).max


class Rows:
    """All rows of something, of which a mask chooses some. Masks that are made in the same way have the same key."""

    def __init__(self, key: Any, mask: _T) -> None:
        self.key, self.mask = key, mask

    def over(self, x: _T) -> _T:
        """The mask, to be broadcast over x."""
        return self.mask.view(-1, *[1] * (x.dim() - 1))


def ask(t: "Tracer", func: Any, args: Any, kwargs: Dict[str, Any]) -> None:
    """Looks at a function before it is called, for it may look at sizes that are not those of the program."""
    isPython = hasattr(func, "__code__")
    if not (isPython or func in _SIZES) or all(t.rowsOf(v) is None for v in tensorsIn((args, list(kwargs.values())))):
        return
    if func is _T.size and len(args) > 1 and isinstance(args[1], int) and args[1] % args[0].dim():    # of another dim
        return
    target = args[1] if len(args) > 1 else kwargs.get("target")
    shares = func is F.cross_entropy and (target.is_floating_point() or kwargs.get("label_smoothing"))
    if func in _SIZES or func.__name__ not in _FUNCTIONS or shares:
        t.askSize()


def choose(t: "Tracer", x: _T, mask: _T) -> _T:
    """x[mask]"""
    count = mask.numel()
    rows = Rows(t.keyOf(mask), (mask != 0).reshape(count))
    flat = x.reshape(count, *x.shape[mask.dim():])
    one = flat.index_select(0, rows.mask.to(torch.int32).argmax().view(1))
    harmless = torch.full((), 0.5 if x.is_floating_point() else 0, dtype=x.dtype)    # where nothing is chosen: to log(), asin() and 1 / x too
    one = torch.where(rows.mask.any(), one, harmless)
    return t.markRows(torch.where(rows.over(flat), flat, one), rows)


def places(t: "Tracer", mask: _T) -> _T:
    """mask.nonzero()"""
    every = torch.meshgrid([torch.arange(n) for n in mask.shape], indexing="ij")
    return choose(t, torch.stack(every, -1), mask)


def maskOf(t: "Tracer", name: str, args: Tuple) -> Optional[_T]:
    """The one mask of x[mask], x.masked_select(mask) or mask.nonzero() whose size is not known."""
    if name == "aten::nonzero":
        return args[0] if args[0].dim() and args[0].numel() and t.isTraced(args[0]) and not t.isConstant(args[0]) else None
    if name == "aten::masked_select":
        mask = args[1] if args[1].shape == args[0].shape else None
    elif name == "aten::index":
        given = [i for i in args[1] if i is not None]
        mask = given[0] if len(given) == 1 and args[1][0] is given[0] else None
    else:
        return None
    isMask = mask is not None and mask.dtype in (torch.bool, torch.uint8) and mask.dim() and mask.numel()
    return mask if isMask and t.isTraced(mask) and not t.isConstant(mask) else None


def call(t: "Tracer", func: Any, args: Tuple, kwargs: Dict[str, Any]) -> Any:
    """A call with chosen rows among its arguments."""
    name = func._schema.name.partition("::")[2]
    given = [t.rowsOf(v) for v in tensorsIn((args, list(kwargs.values())))]
    found = [r for r in given if r is not None]
    rows = found[0]
    if any(r.key != rows.key for r in found):
        t.askSize()
    bound = [args[i] if i < len(args) else kwargs.get(a.name, a.default_value) for i, a in enumerate(func._schema.arguments)]
    if name in ("index_put", "index_put_", "_index_put_impl_"):
        return _put(t, func, bound, rows)
    if name == "nll_loss_forward" and bound[3]:
        return _classLoss(t, func, bound, rows)
    if name in _LOSSES and bound[_LOSSES[name]]:
        how = bound[_LOSSES[name]]
        _sameRows(t, rows, bound)
        bound[_LOSSES[name]] = 0
        return _fold(t, rows, torch.ops.aten.sum.default, "sum" if how == 2 else "mean", (func(*bound),), {})
    if name in ("var", "std") and _overRows(name, bound):
        return _spread(t, rows, name, bound)
    if name in _FOLDS and _overRows(name, bound):
        return _fold(t, rows, func, name, args, kwargs)
    if not _byRow(t, name, bound, rows):
        t.askSize()
    return _marked(t, rows, func(*args, **kwargs))


def _marked(t: "Tracer", rows: Rows, out: Any) -> Any:
    for v in tensorsIn([out] if isinstance(out, _T) else list(out)):
        if v.numel() and (not v.dim() or v.shape[0] != len(rows.mask)):
            if v.dim():
                t.askSize()
        elif v.numel():
            t.markRows(v, rows)
    return out


def _sameRows(t: "Tracer", rows: Rows, bound: List[Any]) -> None:
    """Every other operand is the same for all rows."""
    most = max(v.dim() for v in tensorsIn(bound) if t.rowsOf(v) is not None)
    for v in tensorsIn(bound):
        if t.rowsOf(v) is None and v.dim() >= most and v.shape[0] != 1:
            t.askSize()
        if t.rowsOf(v) is not None and v.dim() < most:    # its rows would lie along another dim
            t.askSize()


def _dims(value: Any, rank: int) -> List[int]:
    value = [value] if isinstance(value, int) else value
    return [d % max(1, rank) for d in value] if value else list(range(rank))


def _overRows(name: str, bound: List[Any]) -> bool:
    if name in _ALONG and _ALONG[name] == 2:    # of the order of a norm
        bound = [bound[0], *bound[2:]]
    return len(bound) < 2 or not isinstance(bound[1], (int, list, tuple)) or isinstance(bound[1], bool) or 0 in _dims(bound[1], bound[0].dim())


def _byRow(t: "Tracer", name: str, bound: List[Any], rows: Rows) -> bool:
    """Is each row by itself?"""
    if name in _POINT:
        _sameRows(t, rows, bound)
        return True
    rule = _RULES.get(name)
    if rule is not None:
        return rule(lambda v: t.rowsOf(v) is not None, *bound)
    x = bound[0]
    if not isinstance(x, _T) or t.rowsOf(x) is None:
        return False
    if name in _SHAPES:
        return len(bound[1]) > 0 and bound[1][0] == len(rows.mask)
    dims = bound[_ALONG[name]] if name in _ALONG else None
    return name in _FOLDS or (isinstance(dims, (int, list, tuple)) and 0 not in _dims(dims, x.dim()))


def like(t: "Tracer", name: str, x: _T, args: Tuple, kwargs: Dict[str, Any]) -> _T:
    """zeros_like(x[mask]) and the like: the same for all rows."""
    rows, dtype = t.rowsOf(x), kwargs.get("dtype") or x.dtype
    value = torch.full((), LIKE[name](*args, *([kwargs["fill_value"]] if "fill_value" in kwargs else [])), dtype=dtype)
    return t.markRows(torch.where(rows.over(x), value, value).expand(x.shape), rows)    # type: ignore[union-attr]


def _spread(t: "Tracer", rows: Rows, name: str, bound: List[Any]) -> _T:
    """var(x, dims, correction, keepdim), std: in two passes, of the rows that were chosen. The slope of a root at 0 is 0."""
    x, dims, correction, keep = (bound + [None, False])[:4]
    if isinstance(bound[1], bool) or isinstance(correction, bool):    # the overloads of 1.13: unbiased
        unbiased = bound[1] if isinstance(bound[1], bool) else correction
        dims, correction, keep = None if isinstance(bound[1], bool) else dims, int(unbiased), False if isinstance(bound[1], bool) else keep
    over = _dims(dims, x.dim())
    with t.choosing():
        mask, count = rows.over(x), rows.mask.sum()
        for d in over:
            count = count * (x.shape[d] if d else 1)
        count = count.to(x.dtype)
        mean = torch.where(mask, x, 0.0).sum(over, keepdim=True) / count
        v = torch.where(mask, (x - mean).square(), 0.0).sum(over, keepdim=bool(keep)) / (count - (1 if correction is None else correction)).clamp(min=0)
        return v if name == "var" else torch.where(v == 0, 0.0, torch.where(v == 0, 1.0, v).sqrt())


def _fold(t: "Tracer", rows: Rows, func: Any, name: str, args: Tuple, kwargs: Dict[str, Any]) -> Any:
    """Over the rows that were chosen."""
    x, *more = args
    if more and name in ("max", "min"):    # the place is one of the rows
        t.askSize()
    x = x.to(kwargs["dtype"]) if kwargs.get("dtype") is not None else x
    if name in ("norm", "linalg_vector_norm") and more and isinstance(more[0], (int, float)) and more[0] < 0:
        t.askSize()
    with t.choosing():
        left = torch.where(rows.over(x), x, torch.full((), _FOLDS[name](x.dtype), dtype=x.dtype))
        if name != "mean":
            return func(left, *more, **kwargs)
        dims = _dims(more[0] if more else None, x.dim())
        others = 1
        for d in dims:
            others *= x.shape[d] if d else 1
        return left.sum(dims, keepdim=len(more) > 1 and more[1]) / (rows.mask.sum() * others).to(x.dtype)


def _classLoss(t: "Tracer", func: Any, bound: List[Any], rows: Rows) -> Any:
    """The rows that were not chosen have the class that does not count."""
    x, target, weight, reduction, ignored = bound
    if t.rowsOf(x) is None or t.rowsOf(target) is None or x.dim() != 2:
        t.askSize()
    with t.choosing():
        return func(x, torch.where(rows.mask, target, torch.full((), ignored, dtype=target.dtype)), weight, reduction, ignored)


def _put(t: "Tracer", func: Any, bound: List[Any], rows: Rows) -> Any:
    """x[mask] = what was made of y[mask], and x[places] = of places that a mask chooses."""
    x, at, values = bound[:3]
    given = [i for i in at if i is not None]
    if t.rowsOf(x) is not None or not given or at[0] is not given[0]:
        t.askSize()
    with t.choosing():
        if all(t.rowsOf(i) is not None and i.dim() == 1 for i in at):
            same = t.rowsOf(values) is None and values.dim() > x.dim() - len(at) and values.numel() > 1    # one for each row
            new = _atPlaces(rows, x, at, values, bool(bound[3])) if not same else t.askSize()
        elif len(given) == 1 and t.rowsOf(values) is not None and not bound[3] and t.keyOf(given[0]) == rows.key:
            new = _atMask(rows, x, given[0], values)
        else:
            t.askSize()
        return x.copy_(new) if func._schema.name.endswith("_") else new


def _atMask(rows: Rows, x: _T, given: _T, values: _T) -> _T:
    values = values.expand(len(rows.mask), *x.shape[given.dim():]).reshape(x.shape)
    mask = given.view([*given.shape, *[1] * (x.dim() - given.dim())])
    return torch.where(mask != 0, values.to(x.dtype), x)


def _atPlaces(rows: Rows, x: _T, at: List[_T], values: _T, adds: bool) -> _T:
    """The rows that were not chosen go to one more row of x, which is left out again."""
    count = x.shape[0]
    first = torch.where(rows.mask, torch.where(at[0] < 0, at[0] + count, at[0]), count)
    values = values.to(x.dtype).expand(len(rows.mask), *x.shape[len(at):])
    return torch.cat([x, x[:1]]).index_put([first, *at[1:]], values, adds)[:count]
