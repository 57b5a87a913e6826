"""Calls that are taken before they become ATen calls.

A function mode sees most of them: losses are marked, dropout stays one op, and what needs a value that does not
exist yet (.item(), .numpy(), ...) is an error. What torch calls without asking any mode is replaced while forward()
runs.
"""

import contextlib
import inspect
import math
import sys
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Optional, Tuple

import torch
import torch.nn.functional as F
import torch.nn.utils.rnn
import torch.overrides
import torch.utils.checkpoint
import torch.utils.hooks
from torch.nn.modules import transformer
from torch.overrides import TorchFunctionMode

from . import _chosen, _core, _dtypes, _modes, _packed, _recurrent
from ._composed import FUNCTIONS
from ._memory import tensorsIn
from ._record import TORCH, needsValue
from .errors import createPoptorchError

if TYPE_CHECKING:
    from ._trace import Tracer

#: Functions that make a tensor from nothing. Without a device= they warn, as on the original device.
_FACTORIES = frozenset(getattr(torch, n) for n in (
    "arange empty full full_like linspace logspace ones rand randint randn randperm range tensor zeros "
    "zeros_like").split())

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
_RRELUS: Dict[Any, Dict[str, bool]] = {F.rrelu: {}, torch.rrelu: {}, torch.rrelu_: {"inplace": True}}
_ATTENTION = getattr(F, "scaled_dot_product_attention", None)
_RECURRENT = frozenset((torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu))

_T = torch.Tensor

_PACKED = frozenset((torch._pack_padded_sequence, torch._pad_packed_sequence, _T.size, *_RECURRENT))

_HERE = torch.device("cpu")

#: What takes a tensor to a device, or to where another tensor is.
_MOVES = frozenset((_T.to, _T.type_as, torch.as_tensor, torch.asarray, _T.new_tensor))

#: Files of PyTorch: that of packed sequences, and one that is between a call and its mode in some releases.
_PACKING, _BETWEEN = torch.nn.utils.rnn.__file__, torch.overrides.__file__

_NEED_VALUES: Dict[Any, str] = {
    _T.item: ".item()", _T.tolist: ".tolist()", _T.numpy: ".numpy()", _T.__array__: ".numpy()",
    _T.__bool__: "bool()", _T.__float__: "float()", _T.__int__: "int()", _T.__index__: "an index",
    _T.cpu: ".cpu()",
}

#: Of these, those that PyTorch computes without an operation that the dispatch mode sees.
_READ = (_T.tolist, _T.numpy, _T.__array__)

#: Questions about numbers, and the answers that forward() gets when it branches on them.
_ASSUMED: Dict[Any, bool] = {getattr(of, n): n == "isfinite" for of in (torch, _T)
                             for n in ("isfinite", "isnan", "isinf", "isposinf", "isneginf")}

#: PyTorch looks at a tensor of places itself, and no mode sees it.
_READ_AT_ONCE = (torch.tensor_split, _T.tensor_split)

# A TransformerEncoder asks it of its mask, and leaves the padding out where the answer is yes: the answer is in the
# mask's values, and the sums are the same either way.
_LEFT_ALIGNED = getattr(torch, "_nested_tensor_from_mask_left_aligned", None)


NO_HOOKS = ("The model has hooks on gradients, which are not called: the backward pass is part of the compiled "
            "training step. To see a gradient, use poptorch.ipu_print_tensor or Options.anchorTensor")


@contextlib.contextmanager
def taken(tracer: "Tracer") -> Iterator[None]:
    """Take them, for a trace."""
    with _modes.withoutInferenceMode(), _patched(tracer), _plainPython(tracer), _plainLayers(), _uncompiled(), _anyMask(tracer), \
            _asked(tracer), _dtypes.castWeights(tracer.isTraced), _Functions(tracer):
        yield


class _Functions(TorchFunctionMode):
    """Calls that are taken before they become ATen calls."""

    def __init__(self, tracer: "Tracer") -> None:
        super().__init__()
        self.tracer = tracer

    def __torch_function__(self, func: Any, types: Any, args: Tuple = (), kwargs: Optional[Dict] = None) -> Any:
        kwargs = kwargs or {}
        t = self.tracer
        if t.pausing:
            return func(*args, **kwargs)
        args, kwargs = _onThisDevice(func, args, kwargs)
        packed = _packed.call(t, func, args, kwargs) if func in _PACKED else None
        if packed is not None:
            return packed
        if t.has_rows:
            _chosen.ask(t, func, args, kwargs)
        made = func in _FACTORIES or (func is torch.normal and next(tensorsIn((args, [*kwargs.values()])), None) is None)
        if made and kwargs.get("device") is None:
            t.warn(f"No device set in torch.{func.__name__}(): forcing to IPU")
        first = args[0] if args else None
        if func in _LOSSES:
            out = _smoothed(t, *args, **kwargs) if func is F.cross_entropy else None
            out = func(*args, **kwargs) if out is None else out
            if t.training:
                t.markLoss(out)
            return out
        ofLibrary = FUNCTIONS.get(getattr(func, "_qualified_op_name", ""))
        if ofLibrary is not None:
            return ofLibrary(*args, **kwargs)
        if func in _READ_AT_ONCE and t.isTraced(args[1] if len(args) > 1 else kwargs.get("tensor_indices_or_sections")):
            raise needsValue("Where tensor_split() splits")
        if func is torch.cdist:
            return _cdist(*args, **kwargs)
        if not t.isTraced(first if first is not None else kwargs.get("input")):
            return _moved(t, func, args, kwargs) if func in _MOVES else func(*args, **kwargs)
        args, kwargs = _dtypes.weightsCast(func, args, kwargs)
        if func in _DROPOUTS:
            return _dropout(t, _DROPOUTS[func], *args, **_dropoutArguments(kwargs))
        if func in _RRELUS:
            return _rrelu(*args, **{{"input": "x"}.get(k, k): v for k, v in kwargs.items()}, **_RRELUS[func])
        if func in _UNTRAINED and not t.training:
            return first if first is not None else kwargs["input"]
        if func in _RECURRENT and not t.training:
            args = _withoutDropout(args)
        if func in _RECURRENT:
            looped = _recurrent.call(t, func, args, kwargs)
            if looped is not None:
                return looped
        if func is _ATTENTION and not t.training:
            return _attention(*args, **kwargs)
        if func is _LEFT_ALIGNED:
            return False
        if func is F.gaussian_nll_loss:
            return _gaussianLoss(*args, **kwargs)
        if func is F.one_hot:
            return _oneHot(t, *args, **kwargs)
        if func in _NEED_VALUES or (func is _T.to and "cpu" in (*args[1:2], kwargs.get("device"))):
            if func is _T.cpu and _askedBy(_PACKING):    # an index of packed sequences
                return first
            if not t.isKnown(first):
                raise needsValue(f"{_NEED_VALUES.get(func, '.to()')} of a tensor", t.isDrawn(first))
            if func in _READ:
                t.expect(first)
        if func in _ASSUMED:
            return t.assume(func(*args, **kwargs), _ASSUMED[func])
        if func is _T.register_hook:
            t.warn(NO_HOOKS)
        if func in (_T.__repr__, _T.__format__):
            return f"tensor(<unavailable>, size={tuple(first.shape)}, dtype={first.dtype})"
        return func(*args, **kwargs)


def _askedBy(file: str) -> bool:
    """Is the function that is called here called by this file?"""
    frame: Any = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename == _BETWEEN:
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename == file


def _onThisDevice(func: Any, args: Tuple, kwargs: Dict[str, Any]) -> Tuple[Tuple, Dict[str, Any]]:
    """The device "ipu" is where the trace is."""
    if _isIpu(kwargs.get("device")):
        kwargs = {**kwargs, "device": _HERE}
    if func is _T.to and len(args) > 1 and _isIpu(args[1]):
        args = (args[0], _HERE, *args[2:])
    return args, kwargs


def _isIpu(device: Any) -> bool:
    return isinstance(device, (str, torch.device)) and str(device).startswith("ipu")


def _moved(t: "Tracer", func: Any, args: Tuple, kwargs: Dict[str, Any]) -> Any:
    """A tensor of the host that goes where another one is: to the device, as a constant. A copy, so that writes to it stay
    in the model."""
    out = func(*args, **kwargs)
    to = (*args[1:], *kwargs.values())
    there = func is _T.new_tensor or any(isinstance(v, torch.device) or t.isTraced(v) for v in to)
    if not isinstance(out, torch.Tensor) or not there:
        return out
    return t.claim(out.detach().clone())


def _cdist(x1: torch.Tensor, x2: torch.Tensor, p: float = 2.0, compute_mode: Any = None) -> torch.Tensor:
    """Of any number of points as of few: PyTorch has another op for many, which takes a product and is less exact."""
    return torch.cdist(x1, x2, p, "donot_use_mm_for_euclid_dist")


def _withoutDropout(args: Tuple) -> Tuple:
    """Of a recurrent layer, (..., has biases, layers, dropout, ...)."""
    at = next(i for i, a in enumerate(args) if isinstance(a, bool)) + 2
    return (*args[:at], 0.0, *args[at + 1:])


def _attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: Optional[torch.Tensor] = None,
               dropout_p: float = 0.0, *more: Any, **named: Any) -> torch.Tensor:
    """In inference, without dropout."""
    return _ATTENTION(query, key, value, attn_mask, 0.0, *more, **named)    # type: ignore[misc]


def _dropoutArguments(kwargs: Dict[str, Any]) -> Dict[str, Any]:
    return {{"input": "x", "train": "training"}.get(k, k): v for k, v in kwargs.items()}


def _dropout(tracer: "Tracer", op: str, x: torch.Tensor, p: float = 0.5, training: bool = True,
             inplace: bool = False) -> torch.Tensor:
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    if not training or not tracer.training or p == 0.0:
        return x
    y = x * tracer.emit(op, (p,), x.new_ones(()).expand(x.shape).clone)    # so that autograd, when forward() asks it, knows too
    return x.copy_(y) if inplace else y


def _smoothed(t: "Tracer", input: torch.Tensor, target: torch.Tensor, weight: Optional[torch.Tensor] = None,
              size_average: Any = None, ignore_index: int = -100, reduce: Any = None, reduction: str = "mean",
              label_smoothing: float = 0.0) -> Optional[torch.Tensor]:
    """cross_entropy with smoothed labels, which PyTorch makes of ops that choose elements by their values;
    None for the other kinds. What autograd sees is written out, what the device computes is one op."""
    if not label_smoothing or not t.isTraced(input) or target.is_floating_point():
        return None
    dim = 0 if input.dim() == 1 else 1
    classes = input.shape[dim]
    logs = F.log_softmax(input, dim)
    counts = target != ignore_index
    share = counts.to(logs.dtype)
    every = -logs
    if weight is not None:
        share = torch.where(counts, weight[torch.where(counts, target, 0)], 0.0)
        every = every * weight.view(-1, *[1] * (input.dim() - dim - 1))
    every = torch.where(counts, every.sum(dim), 0.0)
    if reduction != "none":
        every = every.sum() / share.sum() if reduction == "mean" else every.sum()
    loss = F.nll_loss(logs, target, weight, ignore_index=ignore_index, reduction=reduction)
    loss = loss * (1 - label_smoothing) + every * (label_smoothing / classes)
    return t.instead(loss, "poptorch::cross_entropy", (input, target, weight, reduction, ignore_index, label_smoothing))


def _rrelu(x: torch.Tensor, lower: float = 1. / 8, upper: float = 1. / 3, training: bool = False,
           inplace: bool = False) -> torch.Tensor:
    """PyTorch's own draws the slopes behind autograd's back."""
    slope = torch.empty_like(x).uniform_(lower, upper) if training else (lower + upper) / 2
    y = torch.where(x > 0, x, x * slope)
    return x.copy_(y) if inplace else y


def _gaussianLoss(input: torch.Tensor, target: torch.Tensor, var: torch.Tensor, full: bool = False, eps: float = 1e-6,
                  reduction: str = "mean") -> torch.Tensor:
    """PyTorch's own looks whether a variance is negative. One below eps counts as eps, and has its gradient."""
    if var.shape == input.shape[:-1] and var.shape != input.shape:
        var = var.unsqueeze(-1)
    elif var.shape != input.shape and (var.shape[:-1] != input.shape[:-1] or var.shape[-1] != 1):
        raise ValueError("var is of incorrect size")
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not valid")
    var = var + (var.clamp(min=eps) - var).detach()
    loss = 0.5 * (var.log() + (input - target) ** 2 / var)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return loss if reduction == "none" else getattr(loss, reduction)()


def _oneHot(t: "Tracer", tensor: torch.Tensor, num_classes: int = -1) -> torch.Tensor:
    if num_classes < 1:
        raise createPoptorchError("one_hot needs num_classes: the largest class is not known while the model "
                                  "is traced")
    shape = (*tensor.shape, num_classes)
    return t.emit("poptorch::one_hot", (), lambda: tensor.new_zeros(shape, dtype=torch.int64))


def _hasTensorBounds(t: "Tracer", index: Any) -> bool:
    if type(index) not in (slice, tuple):
        return False
    items = index if isinstance(index, tuple) else (index,)
    return any(isinstance(i, slice) and (t.isTraced(i.start) or t.isTraced(i.stop)) for i in items)


def _sliced(t: "Tracer", x: torch.Tensor, index: Any) -> torch.Tensor:
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


@contextlib.contextmanager
def _patched(tracer: "Tracer") -> Iterator[None]:
    """For calls that torch.nn.functional makes to itself, which no function mode sees, checkpoint() and x[i:j]."""
    saved = {name: getattr(F, name) for name in _DROPOUT_NAMES if hasattr(F, name)}
    checkpoint = torch.utils.checkpoint.checkpoint
    torch.utils.checkpoint.checkpoint = _checkpoint

    def read(x: torch.Tensor, index: Any) -> Any:    # PyTorch asks a slice's bounds for numbers before any mode
        return _sliced(tracer, x, index) if _hasTensorBounds(tracer, index) else _T.__getitem__(x, index)
    _core.subscript(_T, read)

    def patch(original: Callable) -> Callable:
        op = _DROPOUTS[original]

        def call(input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
            if not tracer.isTraced(input):
                return original(input, p, training, inplace)
            return _dropout(tracer, op, input, p, training, inplace)
        return call
    for name, original in saved.items():
        setattr(F, name, patch(original))
    if _ATTENTION is not None and not tracer.training:
        F.scaled_dot_product_attention = _attention
    try:
        yield
    finally:
        torch.utils.checkpoint.checkpoint = checkpoint
        if _ATTENTION is not None:
            F.scaled_dot_product_attention = _ATTENTION
        _core.subscript(_T, None)
        for name, original in saved.items():
            setattr(F, name, original)


def _checkpoint(function: Callable, *args: Any, use_reentrant: bool = True, **kwargs: Any) -> Any:
    """torch.utils.checkpoint: the compiler decides what to compute again."""
    for name in ("preserve_rng_state", "context_fn", "determinism_check", "debug", "early_stop"):
        kwargs.pop(name, None)
    return function(*args, **kwargs)


@contextlib.contextmanager
def _plainPython(tracer: "Tracer") -> Iterator[None]:
    """Without gradients in Python, where torch puts them into a model by itself: checkpoint(), also when a program
    has imported the function, and modules with register_full_backward_hook()."""
    apply = torch.utils.checkpoint.CheckpointFunction.__dict__.get("apply")
    hook = torch.utils.hooks.BackwardHook
    saved = hook.setup_input_hook, hook.setup_output_hook

    def unhooked(self: Any, args: Any) -> Any:
        tracer.warn(NO_HOOKS)
        return args
    torch.utils.checkpoint.CheckpointFunction.apply = staticmethod(    # type: ignore[assignment]
        lambda function, preserve_rng_state, *args: function(*args))
    hook.setup_input_hook = hook.setup_output_hook = unhooked
    try:
        yield
    finally:
        hook.setup_input_hook, hook.setup_output_hook = saved
        if apply is None:
            del torch.utils.checkpoint.CheckpointFunction.apply    # it is a base class's
        else:
            torch.utils.checkpoint.CheckpointFunction.apply = apply


@contextlib.contextmanager
def _plainLayers() -> Iterator[None]:
    """No layers made of one large kernel, which PyTorch 2 chooses on a CPU: an LSTM and attention are written
    down as the products and sums they consist of, with any mask.
    """
    flash = getattr(torch.backends.cuda, "flash_sdp_enabled", bool)()
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


@contextlib.contextmanager
def _uncompiled() -> Iterator[None]:
    """What torch.compile() has wrapped runs as it was written: it is compiled here."""
    frames = sys.modules.get("torch._dynamo.eval_frame")    # not there before the first torch.compile()
    stance = getattr(getattr(torch, "compiler", None), "set_stance", None)
    if frames is None:
        yield
    elif stance is not None:
        with stance("force_eager"):
            yield
    else:    # before PyTorch 2.6
        original = frames.set_eval_frame    # type: ignore[attr-defined]
        frames.set_eval_frame = lambda callback: None    # type: ignore[attr-defined]
        try:
            yield
        finally:
            frames.set_eval_frame = original    # type: ignore[attr-defined]


@contextlib.contextmanager
def _asked(tracer: "Tracer") -> Iterator[None]:
    """Libraries that ask whether somebody traces them are told so: then they look at no values of masks, and keep no tensors
    for the next call. Torch's own code is not told by jit.is_tracing(): functional_call() would refuse."""
    compiler, tracing = getattr(torch, "compiler", None), torch.jit.is_tracing
    flags = [n for n in ("_is_compiling_flag", "_is_exporting_flag") if hasattr(compiler, n)]
    before = [getattr(compiler, n) for n in flags]

    def isTracing() -> bool:
        caller = sys._getframe(1).f_code.co_filename
        return tracing() if tracer.pausing or caller.startswith(TORCH) else True
    torch.jit.is_tracing = isTracing    # type: ignore[assignment]
    for name in flags:
        setattr(compiler, name, True)
    try:
        yield
    finally:
        torch.jit.is_tracing = tracing
        for name, value in zip(flags, before):
            setattr(compiler, name, value)


@contextlib.contextmanager
def _anyMask(tracer: "Tracer") -> Iterator[None]:
    """To choose a kernel, an encoder looks whether its mask is the causal one; a mask that is not known yet is
    not. PyTorch 2.0 looks in the encoder's forward() itself, unless it is told; 1.13 does not look."""
    detect = getattr(transformer, "_detect_is_causal_mask", None)
    encoder = transformer.TransformerEncoder
    forward = encoder.forward

    def told(self: Any, src: torch.Tensor, mask: Optional[torch.Tensor] = None, *more: Any, **named: Any) -> Any:
        if not more[1:] and named.get("is_causal") is None and tracer.isTraced(mask):
            named["is_causal"] = False
        return forward(self, src, mask, *more, **named)
    if detect:
        transformer._detect_is_causal_mask = (
            lambda mask, *more: detect(None if tracer.isTraced(mask) else mask, *more))
    elif "is_causal" in inspect.signature(forward).parameters:
        encoder.forward = told    # type: ignore[method-assign]
    try:
        yield
    finally:
        encoder.forward = forward    # type: ignore[method-assign]
        if detect:
            transformer._detect_is_causal_mask = detect
