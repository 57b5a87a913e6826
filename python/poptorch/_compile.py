"""From a module and the arguments of its first call to an executable.

trace() runs forward once and makes the graph; compileProgram() hands it to the compiler. What a later call
needs to know, names of weights, shapes and the structure of the results, is a Program.
"""

import contextlib
import os
import pathlib
import sys
import time
import warnings
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import torch

from . import _args, _core, _drawn, _functions, _groups, _host, _native, _profile, _state, _trace, _wrap, blocks, optim
from ._logging import engineWarning, getLogLevel, logger
from ._batching import Batching
from ._record import SizeAsked
from .enums import CommGroupType, Liveness, MeanReductionStrategy, OutputMode, ReductionType
from .errors import createPoptorchError

_HYPER_BITS = {"lr": 1, "momentum": 2, "dampening": 4, "weight_decay": 8, "betas": 16, "eps": 32, "alpha": 64,
               "max_weight_norm": 128, "loss_scaling": 256, "velocity_scaling": 512}
_OFFLOAD_BITS = {"location_optimizer": 1, "location_weight": 2, "location_accumulator": 4, "location_activation": 8}
_GRAPH_LINES = 10    # of a graph in the log, unless POPTORCH_MAX_GRAPH_LEN says so
_SHARDED_LEAST = 8192    # elements, unless minElementsForReplicatedTensorSharding says so
_BY_ELEMENT = ("SGD", "Adam", "AdamW")    # optimizers that treat both parts of a complex number as numbers of their own
# Values of autoRecomputation: the default, which concerns pipelines only, and those that concern every model.
_RECOMPUTE_PIPELINE, _RECOMPUTE_ALL = 3, (1, 4)


class Anchor:
    """A tensor that getAnchoredTensor() returns: an output, the gradients of a parameter or their sums, or a state,
    of which the last value counts unless it is `followed`."""

    def __init__(self, mode: OutputMode, period: int) -> None:
        self.mode = mode
        self.period = period
        self.output = -1
        self.series: Any = None
        self.summed = False
        self.state = ""
        self.followed = False


class Program:
    """A compiled model."""

    def __init__(self) -> None:
        self.executable: Any = None
        self.arguments: Any = None
        self.results: Any = None                        # the tree of forward's result
        self.returned: List[int] = []                   # for each tensor of it, its output
        self.constants: Dict[int, torch.Tensor] = {}    # those that are not computed by the device
        self.outputs: List[Tuple[torch.dtype, Tuple[int, ...]]] = []    # of one micro-batch
        self.states: Dict[str, torch.Tensor] = {}       # weights and buffers in the graph
        self.changed: List[str] = []                    # of these, those a run writes
        self.trained: List[str] = []
        self.optimized: List[List[str]] = []            # names in the groups of the optimizer
        self.groups: Dict[str, _groups.Grouping] = {}   # of parameters that not all replicas share
        self.own_buffers: List[str] = []                # that each replica has for itself
        self.written: List[Tuple[int, int]] = []        # (input, output): written back after a run
        self.fed: Optional[List[int]] = None            # of the inputs, those that have elements; None: all
        self.host: Any = None                           # what the graph calls
        self.names: List[str] = []                      # of the graph's tensors
        self.anchors: Dict[str, Anchor] = {}
        self.narrow: Dict[int, torch.dtype] = {}        # of returned tensors, types that the engine lacks
        self.has_loss = False
        self.ipus = 1                                   # of a replica
        self.seconds = 0.0
        self.cycles: Any = None                         # of a modelled IPU: (of a step, of a call)

    def engineShape(self, name: str, t: torch.Tensor, replicas: int) -> Tuple[int, ...]:
        """The shape in which the engine gives a weight or buffer that the host has as t."""
        shape = (*t.shape, 2) if t.is_complex() else tuple(t.shape)
        if name in self.own_buffers:
            return (replicas, *shape)
        return (self.groups[name].rows(replicas), *shape[1:]) if name in self.groups else shape


def namedStates(model: torch.nn.Module) -> Iterator[Tuple[str, torch.Tensor]]:
    """Parameters and buffers; a tensor with several names comes once, under the first."""
    seen = set()
    for prefix, module in model.named_modules():
        for name, t in (*module._parameters.items(), *module._buffers.items()):
            if t is not None and id(t) not in seen:
                seen.add(id(t))
                yield (f"{prefix}.{name}" if prefix else name), t


@contextlib.contextmanager
def _restored(states: List[Tuple[str, torch.Tensor]]) -> Iterator[None]:
    """Weights and buffers have their own memory again, and gradients their values; the trace writes to neither."""
    saved = [(t, t.detach(), t.grad) for _, t in states]
    try:
        yield
    finally:
        for t, value, grad in saved:
            t.grad = grad    # which a backward() in forward has added to
            if t.data_ptr() != value.data_ptr():
                t.data = value


@contextlib.contextmanager
def _sameMembers(model: torch.nn.Module, tracer: _trace.Tracer) -> Iterator[None]:
    """A parameter or buffer that forward rebinds is an error, BatchNorm's apart."""
    before = [(prefix, m, which, dict(getattr(m, which))) for prefix, m in model.named_modules()
              for which in ("_parameters", "_buffers")]
    try:
        yield
        for prefix, module, which, members in before:
            for name, t in members.items():
                now = getattr(module, which).get(name)
                exempt = isinstance(module, torch.nn.modules.batchnorm._BatchNorm)
                if now is not t and not exempt:
                    full = f"{prefix}.{name}" if prefix else name
                    raise createPoptorchError(f"{full} is reassigned within the model: change it in place, "
                                              f"as in self.{name}.copy_(src)")
    finally:
        for _, module, which, members in before:
            getattr(module, which).clear()
            getattr(module, which).update(members)


def _grouped(model: torch.nn.Module, groups: Dict[str, _groups.Grouping],
             batching: Batching) -> Dict[str, torch.Tensor]:
    """The parameters with groups, which have the shape for it."""
    found = {name: t for name, t in namedStates(model) if name in groups}
    for name, t in found.items():
        _groups.checkShape(name, t, groups[name], batching.replicas)
    return found


def trace(model: torch.nn.Module, arguments: Any, batching: Batching, options: Any, training: bool,
          hooks: Tuple[List[Callable], List[Callable]],
          groups: Dict[str, _groups.Grouping]) -> Tuple[Program, _trace.Tracer]:
    """Run forward once and write it down. The caller's torch.no_grad() and torch.inference_mode() are about what
    PyTorch computes: a training step has gradients in any of them."""
    ordinary = torch.inference_mode(False) if torch.is_inference_mode_enabled() else contextlib.nullcontext()
    with ordinary, torch.enable_grad() if training else contextlib.nullcontext():
        try:
            return _written(model, arguments, batching, options, training, hooks, groups, False)
        except SizeAsked:    # once more, with masks of the size they have now
            return _written(model, arguments, batching, options, training, hooks, groups, True)


def _written(model: torch.nn.Module, arguments: Any, batching: Batching, options: Any, training: bool,
          hooks: Tuple[List[Callable], List[Callable]],
          groups: Dict[str, _groups.Grouping], sized: bool) -> Tuple[Program, _trace.Tracer]:
    """Run forward once and write it down."""
    program = Program()
    program.arguments = arguments
    names = arguments.names_of_tensors()
    tensors = [batching.microBatch(n, t) for n, t in zip(names, arguments.tensors)]
    for name, t in zip(names, arguments.tensors):
        if t.requires_grad:
            logger.warning("Input tensor %s has requires_grad=True: it was detached", name)
    tracer = _trace.Tracer(type(model).__name__, training, options)
    tracer.sized = sized
    for long_name, *_ in options.anchored_tensors.values():
        prefix, parameter = _prefixed(long_name)
        if prefix == _GRADIENT or (prefix == _ACCUMULATED and batching.accumulation > 1):
            tracer.gradients[parameter] = None    # type: ignore[assignment]
    with _wrap.unwatched(model), _groups.firstRows(_grouped(model, groups, batching)):
        states = list(namedStates(model))
        for name in set(options.updatable_named_buffers) - {name for name, _ in model.named_buffers()}:
            raise createPoptorchError(f"updatableNamedBuffers: the model has no buffer {name}")
        for name, t in zip(names, tensors):
            tracer.addInput(name, t)
        for name, t in states:
            trained = training and isinstance(t, torch.nn.Parameter) and t.requires_grad
            tracer.addState(name, t, trained)
            if trained and (t._backward_hooks or getattr(t, "_post_accumulate_grad_hooks", None)):
                tracer.warn(_functions.NO_HOOKS)
        with _restored(states), _sameMembers(model, tracer):
            result = _forward(model, arguments, tensors, tracer, hooks)
        if tracer.size_asked:    # and the program went on
            raise SizeAsked()
        tracer.checkMissing()
        _finish(program, tracer, result, tensors, dict(states), training)
        for i, t in program.constants.items():
            if not t.numel():    # as many micro-batches of nothing as of anything
                program.constants[i] = t.new_empty(batching.returned(tuple(t.shape)))
        program.fed = [i for i, t in enumerate(tensors) if t.numel()] if not all(t.numel() for t in tensors) else None
        program.groups = {name: group for name, group in groups.items() if name in program.states}
        program.host = tracer.host
        program.ipus = 1 + max((p.ipu for p in tracer.placements), default=0)
        _addNames(program, tracer)
        _addAnchors(program, tracer, batching, options)
    return program, tracer


_GRADIENT, _UPDATED, _ACCUMULATED = "Gradient___", "UpdatedVar___", "Accum___"


def _prefixed(name: str) -> Tuple[str, str]:
    prefix, found, parameter = name.partition("___")
    return prefix + found, parameter


def _addNames(program: Program, tracer: _trace.Tracer) -> None:
    program.names = [*program.states, *tracer.names]
    for name in program.trained:
        program.names += [_GRADIENT + name, _UPDATED + name]


def _addAnchors(program: Program, tracer: _trace.Tracer, batching: Batching, options: Any) -> None:
    """What Options.anchorTensor() asked for. A mode that is not the model's needs all results."""
    known: Dict[int, int] = {}
    for short, (name, use_model_mode, *rest) in options.anchored_tensors.items():
        mode, period = (batching.mode, batching.period) if use_model_mode else (OutputMode(rest[0]), rest[1])
        anchor = program.anchors[short] = Anchor(mode, period)
        if name in tracer.names:
            anchor.output = _output(program, tracer, tracer.names[name], known)
            if (mode, period) != (batching.mode, batching.period):
                batching.wantAll()
            continue
        prefix, parameter = _prefixed(name)
        anchor.state = parameter if prefix == _UPDATED else name
        series = tracer.gradients.get(parameter)
        if prefix in (_GRADIENT, _ACCUMULATED) and isinstance(series, _host.Series):
            anchor.series, anchor.summed = series, prefix == _ACCUMULATED
            continue
        last = mode == OutputMode.Final or batching.iterations * batching.accumulation == 1
        if anchor.state in program.states and anchor.state not in program.trained:
            if not last or batching.replicas > 1:    # forward computes it, for each replica
                anchor.output = _output(program, tracer, tracer.leaves[anchor.state].value, known)
                batching.wantAll()
        elif not last:
            anchor.followed = True
            batching.split()


def chooseReplicas(program: Program, batching: Batching, options: Any,
                   description: Optional[Dict[str, Any]]) -> None:
    """Whether the engine has the replicas: calls of the host would come in any order, and a combined velocity
    cannot be added up over replicas."""
    combined = description is not None and description.get("use_combined_accum", False)
    batching.useReplicas(not len(program.host) and not combined)
    why = "has a combined velocity (use_combined_accum)" if combined else "calls the host"
    apart = [name for name, group in program.groups.items() if group.groups(batching.replicas) > 1]
    if apart and options.Distributed.numProcesses > 1:
        raise createPoptorchError(f"replicaGrouping of {', '.join(apart)} in several processes is not supported yet")
    if apart and batching.engine_replicas < batching.replicas:
        raise createPoptorchError(f"replicaGrouping of {', '.join(apart)} in a model that {why} is not supported yet")
    changed = [name for name in program.changed if name not in program.trained]
    if batching.replicas < 2 or not changed:
        return
    names = ", ".join(changed)
    if options.broadcast_buffers and batching.groups > 1:
        raise createPoptorchError(f"The model changes its buffers ({names}) and has several replicas, which would no "
                                  "longer agree about them. To let each replica keep its own, use "
                                  "Options.broadcastBuffers(False)")
    if batching.engine_replicas < batching.replicas:
        raise createPoptorchError(f"Several replicas of a model that changes its buffers ({names}) and {why} are not "
                                  "supported yet, with broadcastBuffers(False) or without")
    if not options.broadcast_buffers and options.Distributed.numProcesses == 1:
        program.own_buffers = changed


def _forward(model: torch.nn.Module, arguments: Any, tensors: List[torch.Tensor], tracer: _trace.Tracer,
             hooks: Tuple[List[Callable], List[Callable]]) -> Any:
    for hook in hooks[0]:
        hook()
    validate = torch.distributions.Distribution._validate_args
    torch.distributions.Distribution.set_default_validate_args(False)
    defaults = arguments.defaults()
    for t in defaults.values():
        tracer.claim(t)
    try:
        with _drawn.told(model, tracer.warn):
            return tracer.run(model, lambda: arguments.call(model, tensors, defaults))
    finally:
        torch.distributions.Distribution.set_default_validate_args(validate)
        for hook in hooks[1]:
            hook()


def _finish(program: Program, tracer: _trace.Tracer, result: Any, inputs: List[torch.Tensor],
            states: Dict[str, torch.Tensor], training: bool) -> None:
    """Outputs, loss and assignments."""
    leaves: List[torch.Tensor] = []
    program.results = _args.flatten(result, leaves)
    for value in _args.constants(program.results):
        if any(tracer.isTraced(v) for v in getattr(value, "__dict__", {}).values()):
            raise createPoptorchError(f"forward() returns an object of type {type(value).__name__} that holds tensors: "
                                      "return a tuple, list, dict or named tuple of them, or tell how to take it "
                                      "apart with poptorch.registerCustomArgParser")
    tracer.overlap.checkReturned(leaves, tracer.output)
    values: Dict[int, int] = {}
    for i, t in enumerate(leaves):
        if not tracer.isTraced(t):
            if t.numel():
                warnings.warn("Output expected to be on the IPU but is on cpu", stacklevel=2)
            program.constants[i] = t.detach()
            program.returned.append(-1)
            continue
        program.returned.append(_output(program, tracer, tracer.output(t), values))
        if t.dtype == torch.int16 or t.is_complex():
            program.narrow[i] = t.dtype
    for i, value in tracer.writtenInputs():
        program.written.append((i, _output(program, tracer, value, values)))
    for value in tracer.expected:
        _output(program, tracer, value, values)
    if not program.outputs and not training:
        _output(program, tracer, tracer.graph.full("f32", (), 0.0), values)    # a graph has a result
    if training:
        loss = tracer.theLoss()
        tracer.graph.loss(loss)
        program.has_loss = True
        for i, t in enumerate(leaves):
            if program.returned[i] >= 0 and tracer.isAfterLoss(t, loss):
                logger.warning("A result of forward() is computed from the loss. What is done to a loss after "
                               "it was computed has no effect on training; if it should, wrap the result in "
                               "poptorch.identity_loss")
                break
    for name, leaf in tracer.frozen.items():
        if leaf.memory.version > 0 and name.rpartition(".")[2] != "num_batches_tracked":
            logger.warning("forward() writes to %s, which holds whole numbers and so is a constant of the compiled "
                           "model: each run starts from the same values. Make it a float buffer, or list it in "
                           "Options.updatableNamedBuffers", name)
    assigned = []
    for name, state, value in tracer.assignments():
        if training and isinstance(states[name], torch.nn.Parameter) and states[name].requires_grad:
            raise createPoptorchError(f"forward() writes to {name}, which is trained: that is not supported; "
                                      "make it a buffer, or set its requires_grad to False")
        tracer.graph.assign(state, value)
        assigned.append(name)
    used = tracer.usedStates()
    program.states = {name: states[name] for name in used}
    program.trained = [n for n in used if training and isinstance(states[n], torch.nn.Parameter)
                       and states[n].requires_grad]
    program.changed = program.trained + [n for n in assigned if n not in program.trained]


def _output(program: Program, tracer: _trace.Tracer, value: Any, known: Dict[int, int]) -> int:
    if id(value) not in known:
        known[id(value)] = len(program.outputs)
        tracer.graph.output(value, f"output{len(program.outputs)}")
        program.outputs.append((_native.TORCH_DTYPES[value.dtype], value.shape))
    return known[id(value)]


# What optimizers call otherwise than ts_hyper does, and pairs of numbers.
_HYPER_FIELDS = {"betas": ("beta1", "beta2"), "etas": ("eta_minus", "eta_plus"), "step_sizes": ("step_min", "step_max"),
                 "ns_coefficients": ("ns_a", "ns_b", "ns_c"), "rho": ("alpha",), "d": ("clip",),
                 "adjust_lr_fn": ("adjust_lr",)}


def _hyper(group: Dict[str, Any]) -> Dict[str, Any]:
    """By the names of tessera.h's ts_hyper."""
    out = {"momentum": 0.0, "dampening": 0.0, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "alpha": 0.99,
           "max_weight_norm": 65500.0, "velocity_scaling": 1.0}
    for name, value in group.items():
        if name in ("params", "variable"):
            continue
        fields = _HYPER_FIELDS.get(name, (name, "eps2"))    # Adafactor's eps are two
        values = value if isinstance(value, tuple) else (value,)
        out.update(zip(fields, values))
    return {name: int(value) if name == "ns_steps" else {None: "original"}.get(value, value) if name == "adjust_lr" else
            {None: 0.0}.get(value, value) for name, value in out.items()}


def _variableBits(description: Dict[str, Any]) -> int:
    bits = 0
    for part in (description, description["defaults"], *description["groups"]):
        for name in part["variable"]:
            bits |= _HYPER_BITS.get(name, 0)
    return bits


def groupNames(description: Dict[str, Any], model: torch.nn.Module, trained: List[str]) -> List[List[str]]:
    """The names of each group's parameters that are in the graph."""
    names = {id(t): name for name, t in namedStates(model)}
    out = []
    for group in description["groups"]:
        for p in group["params"]:
            if id(p) not in names:
                raise KeyError(f"A parameter of the optimizer, of shape {tuple(p.shape)}, is not part of the "
                               "model")
            if _wrap.isComplex(p) and description["kind"] not in _BY_ELEMENT:
                raise createPoptorchError(f"{names[id(p)]} is complex: only {', '.join(_BY_ELEMENT)} train that, not {description['kind']}")
        out.append([names[id(p)] for p in group["params"] if names[id(p)] in trained])
    return out


def _optimizer(description: Dict[str, Any], names: List[List[str]]) -> Dict[str, Any]:
    """By the names of tessera.h's ts_optimizer."""
    dtype = _native.DTYPES
    first = description.get("velocity_accum_type", description.get("first_order_momentum_accum_type"))
    second = description.get("second_order_momentum_accum_type", torch.float32)
    norm = description.get("max_grad_norm", float("inf"))
    return {"kind": description["kind"].lower(), "hyper": _hyper(description["defaults"]),
            "groups": [(n, _hyper(g)) for n, g in zip(names, description["groups"])],
            "variable": _variableBits(description), "loss_scaling": float(description["loss_scaling"]),
            "max_grad_norm": 0.0 if norm == float("inf") else float(norm),
            "bias_correction": bool(description.get("bias_correction", True)),
            "centered": bool(description.get("centered", False)),
            "tf_variant": bool(description.get("use_tf_variant", False)),
            "combined_accum": bool(description.get("use_combined_accum", False)),
            "accum_type": dtype[description["accum_type"]], "first_type": dtype[first], "second_type": dtype[second],
            **_scaling(description["automatic"])}


def _scaling(settings: Optional[Dict[str, Any]]) -> Dict[str, Any]:
    """Is the loss scale automatic, and its edge, share and period; 0 is the engine's default."""
    given = settings or {}
    return {"automatic_scaling": settings is not None, "scaling_edge": float(given.get("binEdgeLocation", 0.0)),
            "scaling_share": float(given.get("thresholdUpperCountProportion", 0.0)),
            "scaling_period": int(given.get("updatePeriod", 0))}


def hyperValues(description: Dict[str, Any]) -> Iterator[Tuple[str, float]]:
    """(name in the engine, value) of all that is variable, and not chosen by the device."""
    bits = _variableBits(description)
    parts = [("", description["defaults"])]
    parts += [(f".{i + 1}", g) for i, g in enumerate(description["groups"])]
    for suffix, part in parts:
        for name, value in part.items():
            if name not in _HYPER_BITS or not bits & _HYPER_BITS[name]:
                continue
            if name == "betas":
                yield f"beta1{suffix}", value[0]
                yield f"beta2{suffix}", value[1]
            else:
                yield f"{name}{suffix}", float(value)
    if bits & _HYPER_BITS["loss_scaling"] and description["automatic"] is None:
        yield "loss_scaling", description["loss_scaling"]


class _Bar:
    """The compiler's progress, as a bar on stderr."""

    def __init__(self, show: bool) -> None:
        self._bar: Any = None
        if show:
            try:
                import tqdm
            except ImportError:
                return
            form = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}]"
            self._bar = tqdm.tqdm(total=100, desc="Graph compilation", bar_format=form, file=sys.stderr)

    def __call__(self, percent: int) -> None:
        if self._bar is not None and percent > self._bar.n:
            self._bar.update(percent - self._bar.n)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


def _cacheFolder(options: Any) -> Optional[str]:
    """Where the compiler looks for what it compiled before; None is its own place."""
    folder = options.cache_path
    if folder is None:
        if options.Distributed.numProcesses > 1:
            logger.warning("Several processes without enableExecutableCaching(): each of them compiles the model")
        return None
    if options.uses_ipu_model:
        logger.warning("enableExecutableCaching() has no effect with a simulated device (useIpuModel)")
        return ""
    if not os.path.isdir(folder):
        engineWarning(f'Specified directory not found. Creating "{folder}" directory ')
    return folder


def _stages(tracer: _trace.Tracer, batching: Batching, options: Any,
            training: bool) -> List[Tuple[int, int, List[str]]]:
    """(device, phase, its blocks) for each device and phase, or nothing for a model on one without phases."""
    mode = options.execution_strategy.execution_mode
    ipus = [p.ipu for p in tracer.placements]
    blocks.countDevices(ipus, batching.replicas, options.auto_round_num_ipus)
    tracer.overlap.checkStages(options.execution_strategy, len(set(ipus)))
    if len(set(ipus)) < 2 and mode != blocks.PHASED:
        return []
    if mode == blocks.PIPELINED:
        blocks.checkPipeline(tracer.numPipelineStages(), training, batching.accumulation, batching.iterations)
    used = sorted({phase for _, phase in tracer.stages})    # phases whose blocks forward() does not reach are none
    return [(ipu, used.index(phase), names) for (ipu, phase), names in tracer.stages.items()]


def _recomputes(options: Any, stages: List[Tuple[int, int, List[str]]]) -> bool:
    how = options._Popart.options.get("autoRecomputation", _RECOMPUTE_PIPELINE)
    pipelined = options.execution_strategy.execution_mode == blocks.PIPELINED and len(stages) > 1
    return how in _RECOMPUTE_ALL or (how == _RECOMPUTE_PIPELINE and pipelined)


def _offloading(options: Any) -> Dict[str, Any]:
    """What _core.compile takes of tensor locations. Phased execution keeps everything in the host's memory that no
    location keeps on the device."""
    strategy = options.execution_strategy.backendOptions()
    live = strategy.get("tensors_liveness", Liveness.AlwaysLive)
    locations = {name: options.TensorLocations.toDict().get(name) or {} for name in _OFFLOAD_BITS}
    default = int(live == Liveness.AlwaysLive)
    return {"offload": sum(bit for name, bit in _OFFLOAD_BITS.items() if not locations[name].get("onChip", default)),
            "offload_least": tuple(max(1, at.get("minElementsForOffChip", 2)) for at in locations.values()),
            "offload_by_pass": live in (Liveness.OffChipAfterFwd, Liveness.OffChipAfterFwdNoOverlap),
            "separate_backward": strategy.get("separate_backward_phase", False)}


def _sharded(options: Any, replicas: int) -> Dict[str, Any]:
    """Whether the optimizer's state is split over the replicas, and of how large tensors."""
    locations = options.TensorLocations.toDict()
    asked = [name for name in _OFFLOAD_BITS if (locations.get(name) or {}).get("useReplicatedTensorSharding")]
    if replicas < 2 or not asked:
        return {}
    if asked != ["location_optimizer"]:
        other = ", ".join(name[len("location_"):] for name in asked if name != "location_optimizer")
        raise createPoptorchError(f"useReplicatedTensorSharding is not supported for {other}: only the optimizer's "
                                  "state (setOptimizerLocation) can be split over replicas")
    settings = locations["location_optimizer"]
    return {"shard_optimizer": True,
            "shard_least": max(1, settings.get("minElementsForReplicatedTensorSharding", _SHARDED_LEAST))}


def _replicaGroups(program: Program) -> List[Tuple[str, int, int, bool]]:
    """What _core.compile takes."""
    return [(name, int(g.kind), g.size, g.read_all) for name, g in program.groups.items()] + \
        [(name, int(CommGroupType.NoGrouping), 1, False) for name in program.own_buffers]


def hasRunningMean(options: Any, description: Optional[Dict[str, Any]]) -> bool:
    """Are gradients accumulated as their mean so far?"""
    training = options.Training
    strategy = training.meanAccumulationAndReplicationReductionStrategy
    return training.accumulation_and_replication_reduction_type != ReductionType.Sum and (
        strategy == MeanReductionStrategy.Running or (
            description is not None and optim.wantsRunningMean(description)))


def _showGraph(graph: Any, options: Any) -> None:
    """What is about to be compiled, for those who want to see it: in a file that `tessera` reads too, or in the log."""
    path = os.environ.get("POPTORCH_EXPORT_PROTO_FILE")
    if path and options.Distributed.processId == 0:
        try:
            where = pathlib.Path(options.log_dir, path)
            where.parent.mkdir(parents=True, exist_ok=True)
            where.write_text(graph.text())
        except OSError as e:
            raise createPoptorchError(f"POPTORCH_EXPORT_PROTO_FILE: the graph cannot be written: {e}") from None
    if getLogLevel() in ("DEBUG_IR", "TRACE_ALL"):
        lines = graph.text().splitlines()
        most = int(os.environ.get("POPTORCH_MAX_GRAPH_LEN", _GRAPH_LINES))
        rest = f"\n... and {len(lines) - most} lines more (POPTORCH_MAX_GRAPH_LEN)" if len(lines) > most else ""
        logger.debug("The graph:\n%s%s", "\n".join(lines[:most]), rest)


def _settings(program: Program, tracer: _trace.Tracer, batching: Batching, options: Any,
              description: Optional[Dict[str, Any]]) -> Dict[str, Any]:
    """What _core.compile takes, but for the progress."""
    training = options.Training
    stages = _stages(tracer, batching, options, description is not None)
    kind, memory = options.device_kind
    return {
        "optimizer": None if description is None else _optimizer(description, program.optimized),
        "device_iterations": batching.engine_iterations,
        "gradient_accumulation": batching.engine_accumulation,
        "accumulate_sum": training.accumulation_and_replication_reduction_type == ReductionType.Sum,
        "accumulate_running": hasRunningMean(options, description),
        "output_mode": batching.engine_mode, "output_period": batching.period,
        "cache_dir": _cacheFolder(options), "stages": stages,
        "schedule": options.execution_strategy.execution_mode, "recompute": _recomputes(options, stages),
        "stochastic_rounding": bool(options._Popart.options.get("enableStochasticRounding", False)),
        "replicas": batching.engine_replicas,
        "processes": 1 if description is None else options.Distributed.numProcesses,
        "device_kind": kind, "device_memory": memory, "replica_groups": _replicaGroups(program),
        "exceptions": bool(options._Popart.options.get("enableFloatingPointChecks")),
        **_profile.compileOptions(options, description is not None),
        **({} if description is None else _sharded(options, batching.engine_replicas)),
        **_offloading(options)}


def _findCycles(program: Program, tracer: _trace.Tracer, options: Any, asked: Dict[str, Any]) -> None:
    if options.uses_ipu_model and options._Popart.options.get("instrumentWithHardwareCycleCounter"):
        program.cycles = _core.cycles(tracer.graph, asked)


def compileProgram(program: Program, tracer: _trace.Tracer, batching: Batching, options: Any,
                   description: Optional[Dict[str, Any]]) -> None:
    """Fill in the executable."""
    asked = _settings(program, tracer, batching, options, description)
    _showGraph(tracer.graph, options)
    started = time.perf_counter()
    bar = _Bar(options.show_compilation_progress_bar and options.Distributed.processId == 0)
    try:
        with _native.nativeErrors():
            program.executable = _core.compile(tracer.graph, {**asked, "progress": bar})
            _findCycles(program, tracer, options, asked)
    finally:
        bar.close()
    program.seconds = time.perf_counter() - started


def observeLoaded(program: Program, tracer: _trace.Tracer, batching: Batching, options: Any,
                  description: Optional[Dict[str, Any]]) -> None:
    """The profile and the cycles of an executable that came from a file, if they are asked for. One that another version or
    machine made runs all the same, without a profile."""
    with _native.nativeErrors():
        asked = _settings(program, tracer, batching, options, description)
        _findCycles(program, tracer, options, asked)
        if "profile" not in asked:
            return
        try:
            _core.profile(tracer.graph, asked, program.executable)
        except _core.Error as e:
            logger.warning("No profile of the loaded model: %s", e.args[1])


def checkExecutable(program: Program, batching: Batching) -> None:
    """An Error unless a loaded executable has the inputs, outputs and weights of the traced model."""
    outputs = program.executable.tensors(1)
    found = [(_native.TORCH_DTYPES[t[1]], t[2]) for t in outputs[:len(program.outputs)]]
    state = {t[0]: t[2] for t in program.executable.tensors(2)}
    same = found == program.outputs and len(outputs) == len(program.outputs) + program.has_loss
    for name, t in program.states.items():
        same = same and state.get(name) == program.engineShape(name, t, batching.replicas)
    if not same:
        raise createPoptorchError("The compiled model in the file was made from another model")


def checkAnchors(program: Program) -> None:
    """An Error for an anchor that names no tensor."""
    state = [t[0] for t in program.executable.tensors(2)]
    known = {*state, *_state.namesOf([(n,) for n in state], program.states, program.trained)}
    for short, anchor in program.anchors.items():
        gradient = anchor.series is not None and not anchor.summed
        if anchor.state and not gradient and anchor.state not in known:
            raise createPoptorchError(f"anchorTensor({short!r}, ...): the model has no tensor {anchor.state}; "
                                      "getTensorNames() lists them")
