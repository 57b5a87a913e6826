"""Operations that torch does not have. Each works on the CPU too."""

import builtins
import math
from typing import Any, Callable, List, Optional, Sequence, Union

import torch

from . import _args, _beam, _trace, custom_ops
from ._print import Print
from .blocks import MAX_DEVICES, module_repr
from .enums import MatMulSerializationMode, MultiConvPlanType, OverlapMode
from .errors import check, createPoptorchError


def _tensor(t: Any, what: str) -> torch.Tensor:
    if not isinstance(t, torch.Tensor):
        raise createPoptorchError(f"{what} must be called on a tensor, got {type(t).__name__}")
    return t


def isRunningOnIpu() -> bool:
    """True while a model's forward is being traced for the device."""
    return _trace.tracer() is not None


def identity_loss(x: torch.Tensor, reduction: str) -> torch.Tensor:
    """x as the loss that training minimises: its "sum", its "mean", or with "none" x itself, summed for
    the gradient."""
    check(reduction in ("sum", "mean", "none"), f"Unsupported reduction type {reduction!r}: use sum, mean or "
          "none")
    compute = {"sum": x.sum, "mean": x.mean, "none": x.clone}[reduction]
    tracer = _trace.tracer()
    if tracer is None:
        return compute()
    out = tracer.emit("poptorch::identity_loss", (reduction,), compute) if tracer.isTraced(x) else compute()
    if tracer.training:
        tracer.markLoss(out, True)
    return out


def nop(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself, through an operation that is not optimised away."""
    tracer = _trace.tracer()
    _tensor(tensor, "nop")
    if tracer is None or not tracer.isTraced(tensor):
        return tensor
    return tracer.emit("poptorch::nop", (), tensor.clone)


def ipu_print_tensor(tensor: torch.Tensor, title: str = "", print_gradient: bool = True,
                     summarise_threshold: int = 1000, edge_items: int = 3, max_line_width: int = 80,
                     digits: int = 4, float_format: str = "auto", separator: str = ", ",
                     open_bracket: str = "(", close_bracket: str = ")") -> torch.Tensor:
    """The tensor itself, written to stderr whenever it was computed, and in training so is its gradient. Use
    what this returns: otherwise there is nothing to write."""
    _tensor(tensor, "ipu_print_tensor")
    layout = (summarise_threshold, edge_items, max_line_width, digits, float_format, separator, open_bracket,
              close_bracket)
    value = Print(title, *layout)
    tracer = _trace.tracer()
    if tracer is None or not tracer.isTraced(tensor):
        return tensor
    gradient = None
    if print_gradient and tracer.training and tensor.is_floating_point():
        gradient = Print(f"{title}_gradient" if title else f"Gradient___{tracer.nameOf(tensor)}", *layout)
    return tracer.tap(tensor, value, gradient)


def recomputationCheckpoint(*tensors: Any) -> Any:
    """The tensors themselves, or tuples and lists of them, to be kept for the backward pass where it computes the forward pass again: in
    pipelined training, and on one device with autoRecomputation 1 (Standard) or 4 (RecomputeAll). What lies between
    two checkpoints is in memory only while the backward pass is there. Use what this returns."""
    found: List[torch.Tensor] = []
    tree = _args.flatten(tensors, found)
    for other in _args.constants(tree):
        raise ValueError(f"recomputationCheckpoint takes tensors, got {type(other).__name__}")
    marked = _args.rebuild(tree, [_checkpoint(t) for t in found])
    return marked[0] if len(marked) == 1 else marked


def _checkpoint(tensor: torch.Tensor) -> torch.Tensor:
    tracer = _trace.tracer()
    if tracer is None or not tracer.isTraced(tensor):
        return tensor
    return tracer.emit("poptorch::checkpoint", (), tensor.clone)


def set_available_memory(tensor: torch.Tensor, available_memory_proportion: float) -> torch.Tensor:
    """The tensor itself. A hint that has no effect on our devices."""
    del available_memory_proportion
    return _tensor(tensor, "set_available_memory")


def set_overlap_for_input(input_tensors: Any, mode: OverlapMode) -> Any:
    """The tensors themselves, inputs of the model: transfer them while the device computes. It has no effect on our
    devices, and is checked: see Options.TensorLocations.numIOTiles()."""
    return _overlapping(input_tensors, mode, lambda tracer: tracer.overlapInput)


def set_overlap_for_output(output_tensors: Any, mode: OverlapMode) -> Any:
    """The tensors, for forward to return: transfer them while the device computes. It has no effect on our devices,
    and is checked: it also needs OutputMode.All or OutputMode.Sum."""
    return _overlapping(output_tensors, mode, lambda tracer: tracer.overlap.output)


def _overlapping(value: Any, mode: Any, which: Callable) -> Any:
    check(isinstance(mode, OverlapMode), f"mode must be a poptorch.OverlapMode, got {mode!r}")
    tracer = _trace.tracer()
    if tracer is None or mode == OverlapMode.NoOverlap:
        return value
    tensors: List[torch.Tensor] = []
    tree = _args.flatten(value, tensors)
    return _args.rebuild(tree, [which(tracer)(t) for t in tensors])


def serializedMatMul(lhs: torch.Tensor, rhs: torch.Tensor, mode: Any, factor: int = 0,
                     keep_precision: bool = False) -> torch.Tensor:
    """lhs @ rhs. How it is split has no effect on our devices."""
    check(isinstance(lhs, torch.Tensor) and isinstance(rhs, torch.Tensor), "serializedMatMul takes tensors")
    check(isinstance(factor, int), f"factor must be an integer, got {factor!r}")
    check(isinstance(keep_precision, bool), f"keep_precision must be a bool, got {keep_precision!r}")
    check(isinstance(mode, MatMulSerializationMode), f"mode must be a MatMulSerializationMode, got {mode!r}")
    split = {MatMulSerializationMode.InputChannels: lhs.shape[-2:-1], MatMulSerializationMode.ReducingDim:
             lhs.shape[-1:], MatMulSerializationMode.OutputChannels: rhs.shape[-1:]}.get(mode, ())
    check(factor <= 0 or not split or split[0] % factor == 0,
          f"The dimension that {mode} splits has size {split[0] if split else 0}, which {factor} does not divide")
    return torch.matmul(lhs, rhs)


class NameScope:
    """A context manager: names of operations inside begin with `name/`."""

    def __init__(self, name: str) -> None:
        check(isinstance(name, str), f"A scope's name is a string, got {name!r}")
        self.name = name

    def __enter__(self) -> "NameScope":
        tracer = _trace.tracer()
        if tracer is not None:
            tracer.beginScope(self.name)
        return self

    def __exit__(self, *exc: Any) -> None:
        tracer = _trace.tracer()
        if tracer is not None:
            tracer.endScope()


class MultiConv:
    """A context manager that groups convolutions that do not depend on each other. Their values are those of
    separate ones, and so is the way our devices run them; the settings are accepted."""

    def __enter__(self) -> "MultiConv":
        tracer = _trace.tracer()
        if tracer is not None:
            if tracer.convolutions is not None:
                raise createPoptorchError("A MultiConv cannot be inside another one")
            tracer.convolutions = []
        return self

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        tracer = _trace.tracer()
        if tracer is not None:
            found, tracer.convolutions = tracer.convolutions, None
            if kind is None and not found:
                raise createPoptorchError("There is no convolution in this poptorch.MultiConv")

    def availableMemoryProportions(self, value: Union[float, Sequence[float]]) -> "MultiConv":
        """Accepted; no effect on our devices."""
        if not isinstance(value, (float, list, tuple)):
            raise AssertionError("availableMemoryProportions takes a float or a list of them")
        return self

    def partialsTypes(self, value: Union[torch.dtype, Sequence[torch.dtype]]) -> "MultiConv":
        """Accepted; no effect on our devices."""
        values = value if isinstance(value, (list, tuple)) else [value]
        if any(v not in (torch.float, torch.half) for v in values):
            raise ValueError(f"partialsTypes takes torch.float or torch.half, got {value!r}")
        return self

    def enableConvDithering(self, value: Union[bool, Sequence[bool]]) -> "MultiConv":
        """Accepted; no effect on our devices."""
        values = value if isinstance(value, (list, tuple)) else [value]
        if any(not isinstance(v, bool) for v in values):
            raise ValueError(f"enableConvDithering takes bools, got {value!r}")
        return self

    def planType(self, value: Any) -> "MultiConv":
        """Accepted; no effect on our devices."""
        check(isinstance(value, MultiConvPlanType), f"planType takes a MultiConvPlanType, got {value!r}")
        return self

    def perConvReservedTiles(self, value: int) -> "MultiConv":
        """Accepted; no effect on our devices."""
        check(isinstance(value, int), f"perConvReservedTiles takes an int, got {value!r}")
        return self

    def cycleBackOff(self, value: float) -> "MultiConv":
        """Accepted; no effect on our devices."""
        check(isinstance(value, float), f"cycleBackOff takes a float, got {value!r}")
        return self


class Attribute:
    """A context manager that attaches backend attributes. Accepted; no effect on our devices."""

    def __init__(self, **attributes: Any) -> None:
        self.attributes = attributes

    def __enter__(self) -> "Attribute":
        return self

    def __exit__(self, *exc: Any) -> None:
        pass


def for_loop(count: int, body: Any, inputs: List[torch.Tensor]) -> List[torch.Tensor]:
    """body(*inputs) again and again, `count` times. On the device the loop is written out. What the body writes to its
    arguments stays in the loop."""
    if not isinstance(inputs, list) or any(not isinstance(t, torch.Tensor) for t in inputs):
        raise ValueError("for_loop takes a list of tensors")
    for _ in range(count):
        out = _copied(body, inputs)
        if [(t.dtype, t.shape) for t in out] != [(t.dtype, t.shape) for t in inputs]:
            raise createPoptorchError("The body of a for_loop must return tensors like those it takes")
        inputs = out
    return inputs


def _copied(body: Any, inputs: List[torch.Tensor]) -> List[torch.Tensor]:
    """What the body makes of copies, which it may write to."""
    return _listOf(body(*(t.clone() for t in inputs)))


def _listOf(out: Any) -> List[torch.Tensor]:
    return list(out) if isinstance(out, (list, tuple)) else [out]


def cond(condition: torch.Tensor, then_body: Any, then_inps: List[torch.Tensor], else_body: Any,
         else_inps: List[torch.Tensor]) -> List[torch.Tensor]:
    """then_body(*then_inps) where the condition holds, else else_body(*else_inps). On the device both are
    computed, so they may write to their arguments, which nobody else sees, and to nothing else."""
    if not isinstance(condition, torch.Tensor) or not isinstance(then_inps, list) or \
            not isinstance(else_inps, list):
        raise ValueError("cond takes a tensor, and lists of tensors")
    tracer = _trace.tracer()
    if tracer is None:
        return _copied(then_body, then_inps) if bool(condition) else _copied(else_body, else_inps)
    with tracer.unwritten("The body of a cond"):
        yes, no = _copied(then_body, then_inps), _copied(else_body, else_inps)
    if [(t.dtype, t.shape) for t in yes] != [(t.dtype, t.shape) for t in no]:
        raise createPoptorchError("Both bodies of a cond must return tensors of the same types and shapes")
    return [torch.where(condition.reshape(()), a, b) for a, b in zip(yes, no)]


class CPU:
    """A function or module that the host computes in the middle of a model: for inference. It is called once
    with zeros while the model is traced, to learn the shapes of its results, and then in every run."""

    def __init__(self, layer_to_call: Any, ID: str) -> None:
        self.layer_to_call = layer_to_call
        self.ID = ID
        if isinstance(layer_to_call, torch.nn.Module):
            layer_to_call.requires_grad_(False)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        tracer = _trace.tracer()
        if tracer is None:
            return self.layer_to_call(*args, **kwargs)
        tensors: List[torch.Tensor] = []
        tree = _args.flatten((args, kwargs), tensors)

        def call(*values: torch.Tensor) -> List[torch.Tensor]:
            positional, named = _args.rebuild(tree, list(values))
            found: List[torch.Tensor] = []
            with torch.no_grad():
                call.results = _args.flatten(self.layer_to_call(*positional, **named), found)    # type: ignore
            return found
        with tracer.paused():
            results = [t.clone() for t in call(*(torch.zeros_like(t) for t in tensors))]
        if not tensors or not results:
            raise createPoptorchError(f"poptorch.CPU {self.ID}: a host function takes and returns tensors")
        return _args.rebuild(call.results, tracer.callHost(call, tensors, results))    # type: ignore


def custom_op(inputs: Any, name: str, domain: str, domain_version: int, example_outputs: Any,
              attributes: Optional[dict] = None) -> List[torch.Tensor]:
    """An operation that poptorch.custom_ops.load() or the program has loaded: results like example_outputs. Its gradient is the
    one that it has."""
    return custom_ops.customOp(inputs, name, domain, domain_version, example_outputs, attributes)


def _places(tensor: Any, dim: Any, start: Any, size: Any, step: Any) -> torch.Tensor:
    """The places along dim of a slice that starts at a tensor's value and goes round at the end."""
    _tensor(tensor, "A dynamic slice")
    for name, v in (("dim", dim), ("size", size), ("step", step)):
        if not isinstance(v, int) or isinstance(v, bool):
            raise createPoptorchError(f"{name} of a dynamic slice must be an int, got {v!r}")
    if not isinstance(start, (int, torch.Tensor)) or (isinstance(start, torch.Tensor) and start.numel() != 1):
        raise createPoptorchError(f"A dynamic slice starts at a tensor of one element, got {start!r}")
    n = tensor.shape[dim]
    if size < 1 or step < 1 or n % size != 0:
        raise createPoptorchError(f"The size of a dynamic slice must divide the dimension: {size} and {n}")
    if isinstance(start, torch.Tensor):
        start = start.reshape(()).long()
    return torch.remainder(torch.arange(0, size, step, device=tensor.device) + start, n)


def dynamic_slice(tensor: torch.Tensor, dim: int, start: Any, size: int, step: int) -> torch.Tensor:
    """tensor[start:start + size:step] along dim, where start is a tensor. The size must divide the dimension;
    what goes past the end begins again at its start."""
    places = _places(tensor, dim, start, size, step)
    return tensor.index_select(dim, places)


def dynamic_update(input: torch.Tensor, src: torch.Tensor, dim: int, start: Any, size: int) -> torch.Tensor:
    """input with src at start (a tensor) along dim."""
    places = _places(input, dim, start, size, 1)
    if _tensor(src, "dynamic_update").shape[dim] != size or src.dim() != input.dim():
        raise createPoptorchError(f"dynamic_update writes {size} places along dim {dim}, and src has shape "
                                  f"{tuple(src.shape)}")
    n = input.shape[dim]
    since = torch.remainder(torch.arange(n, device=input.device) - places[0], n)    # places after the start
    shape = [1] * input.dim()
    shape[dim] = n
    return torch.where((since < size).reshape(shape), src.index_select(dim, since.clamp(max=size - 1)), input)


def ctc_beam_search_decoder(probs: torch.Tensor, lengths: torch.Tensor, blank: int = 0,
                            beam_width: int = 100, top_paths: int = 1) -> Any:
    """The most probable labellings of log-probabilities [T, batch, classes], of which each row has its length:
    their probabilities and lengths [batch, top_paths], and their labels [batch, top_paths, T], with `blank` behind the
    end. For inference; the host computes it."""
    for t, what in ((probs, "probs"), (lengths, "lengths")):
        if not isinstance(t, torch.Tensor):
            raise createPoptorchError(f"ctc_beam_search_decoder: {what} must be a tensor, got {type(t).__name__}")
    if probs.dim() != 3 or lengths.shape != probs.shape[1:2] or not 0 < top_paths <= beam_width or \
            not 0 <= blank < probs.shape[2]:
        raise createPoptorchError("ctc_beam_search_decoder takes log-probabilities [T, batch, classes], a length for "
                                  "each row of the batch, a class as blank, and top_paths of at most beam_width")
    decode = _beam.Decoder(blank, beam_width, top_paths)
    return CPU(decode, "ctc_beam_search_decoder")(probs, lengths)


def fps(src: torch.Tensor, ptr: List[int], ratio: float = 0.5, random_start: bool = False) -> torch.Tensor:
    """Farthest point sampling: of the points ptr[i] to ptr[i + 1] (rows of src) the first, or any, and then always
    that which is farthest from those chosen before, until `ratio` of them are chosen. Their places. The host computes
    it."""
    if not isinstance(src, torch.Tensor) or not isinstance(ptr, list) or len(ptr) < 2 or \
            not all(isinstance(p, int) for p in ptr):
        raise createPoptorchError("fps takes a tensor of points, and a list of at least two integers: where the clouds "
                                  "of points begin, and where the last one ends")
    clouds = list(zip(ptr, ptr[1:]))
    if not all(0 <= a < b <= src.shape[0] for a, b in clouds) or not 0 < ratio <= 1:
        raise createPoptorchError(f"fps: {ptr} does not divide {src.shape[0]} points, or the ratio {ratio} is not in "
                                  "(0, 1]")

    def sample(points: torch.Tensor) -> torch.Tensor:
        return torch.cat([_farthest(points[a:b].float().flatten(1), ratio, random_start) + a for a, b in clouds])
    return CPU(sample, "fps")(src.detach())


def _farthest(points: torch.Tensor, ratio: float, random_start: bool) -> torch.Tensor:
    count = math.ceil(ratio * len(points))
    chosen = torch.zeros(count, dtype=torch.int64)
    if random_start:
        chosen[0] = torch.randint(len(points), ())
    far = torch.full((len(points),), math.inf)
    for i in range(1, count):
        far = torch.minimum(far, (points - points[chosen[i - 1]]).square().sum(1))
        chosen[i] = far.argmax()
    return chosen


def nearest(x: torch.Tensor, y: torch.Tensor, batch_x: Any = None, batch_y: Any = None) -> torch.Tensor:
    """The place of the point (row) of y that is nearest to each point of x; with batches, among the points of y that
    belong to the same one."""
    _tensor(x, "nearest")
    _tensor(y, "nearest")
    if (batch_x is None) != (batch_y is None):
        raise createPoptorchError("nearest takes a batch for the points of both, or of neither")
    x, y = (t.unsqueeze(1) if t.dim() == 1 else t for t in (x, y))
    distance = (x.unsqueeze(1) - y.unsqueeze(0)).square().sum(-1)
    if batch_x is not None:
        of_x, of_y = (b if isinstance(b, torch.Tensor) else torch.tensor(b, device=x.device) for b in (batch_x, batch_y))
        if of_x.shape != x.shape[:1] or of_y.shape != y.shape[:1]:
            raise createPoptorchError("nearest: a batch has a number for each point")
        distance = distance.masked_fill(of_x.unsqueeze(1) != of_y.unsqueeze(0), math.inf)
    return distance.argmin(1)


def ipuHardwareIsAvailable(num_ipus: int = 1) -> bool:
    """True for as many devices as a process can have: they are made of the CPU that this runs on."""
    return num_ipus <= MAX_DEVICES


def ipuHardwareVersion() -> int:
    """The version of the devices: ours answer 2."""
    return 2


def print(module: Any) -> None:    # noqa: A001
    """Print a module with the blocks that begin in it, anything else as ever."""
    builtins.print(module_repr(module) if isinstance(module, torch.nn.Module) else module)


__all__ = [
    "Attribute", "CPU", "MultiConv", "NameScope", "cond", "ctc_beam_search_decoder", "custom_op",
    "dynamic_slice", "dynamic_update", "for_loop", "fps", "identity_loss", "ipuHardwareIsAvailable",
    "ipuHardwareVersion", "ipu_print_tensor", "isRunningOnIpu", "nearest", "nop", "print",
    "recomputationCheckpoint", "serializedMatMul", "set_available_memory", "set_overlap_for_input",
    "set_overlap_for_output",
]
