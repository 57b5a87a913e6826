"""Which device runs what: blocks mark operations, strategies say where blocks go.

    Block, BeginBlock, BlockFunction    mark operations of the model   -> block id, maybe a device
    Stage, Phase, *Execution            what the user wants of blocks  -> stage, phase, device
    Recorder                            the two put together while a model is being traced

Nothing here touches a graph. The executor opens recording(strategy) around its trace and asks the
recorder for the placement of each operation it records; outside of that, marking a block does nothing,
so the same model runs on the CPU unchanged.
"""

import contextlib
import functools
import typing
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

import torch

from ._logging import logger
from .enums import AutoStage, Liveness
from .errors import check, createPoptorchError

#: The most devices that one process can use.
MAX_DEVICES = 64


class Stage:
    """Blocks that run together on one device: Stage("B1", "B2").ipu(0)."""

    def __init__(self, *block_ids: str) -> None:
        check(all(isinstance(b, str) for b in block_ids),
              f"Block ids are supposed to be strings but got {list(block_ids)}")
        self._blocks = list(block_ids)
        self._ipu: Optional[int] = None

    @property
    def blocks(self) -> List[str]:
        """The ids of its blocks."""
        return self._blocks

    @property
    def ipu_id(self) -> Optional[int]:
        """The device asked for, or None."""
        return self._ipu

    def ipu(self, ipu: int) -> "Stage":
        """Run on this device of the model's group."""
        check(isinstance(ipu, int), f"Expected an integer but got {type(ipu).__name__}: {ipu!r}")
        self._ipu = ipu
        return self

    def __repr__(self) -> str:
        where = "" if self._ipu is None else f".ipu({self._ipu})"
        return f"Stage({', '.join(map(repr, self._blocks))}){where}"


class Phase:
    """Stages that run at the same time in phased execution.

    Arguments are Stages, or strings: the block ids of a single stage.
    """

    def __init__(self, *args: Union[str, Stage]) -> None:
        if args and all(isinstance(a, str) for a in args):
            args = (Stage(*typing.cast(Tuple[str, ...], args)),)
        check(all(isinstance(a, Stage) for a in args),
              f"A Phase is made of Stages or of block ids, not both: {list(args)}")
        self.stages: List[Stage] = list(typing.cast(Tuple[Stage, ...], args))

    def stage(self, idx: int) -> Stage:
        """Its stage number `idx`."""
        return self.stages[idx]

    def ipus(self, *ipus: int) -> "Phase":
        """One device for each of its stages."""
        check(len(ipus) == len(self.stages),
              f"Phase has {len(self.stages)} stages but {len(ipus)} IPUs were given: {list(ipus)}")
        for stage, ipu in zip(self.stages, ipus):
            stage.ipu(ipu)
        return self

    def __repr__(self) -> str:
        return f"Phase({', '.join(map(repr, self.stages))})"


class Placement(NamedTuple):
    """Where an operation runs. `block` is None for what precedes the first block."""

    block: Optional[str]
    stage: int
    phase: int
    ipu: int


class _Entry(NamedTuple):
    """A block that a strategy lists."""

    stage: Stage
    stage_number: int
    phase: int


# The backend's numbers for ways to execute.
PIPELINED, SHARDED, PHASED = 0, 1, 2


class ExecutionStrategy:
    """What the strategies have in common: a table of the blocks they list."""

    execution_mode = PIPELINED

    def __init__(self) -> None:
        self._entries: Dict[str, _Entry] = {}
        self.auto_stage: Optional[AutoStage] = None

    def stage(self, block_id: str) -> Stage:
        """The stage that lists this block."""
        return self._entry(block_id).stage

    def blocks(self) -> List[str]:
        """The ids of all listed blocks, stage by stage."""
        return list(self._entries)

    def defaultIpu(self, stage_number: int, phase: int) -> int:
        """The device of a stage that nobody chose one for."""
        del phase
        return stage_number

    def place(self, block_id: str, ipu: Optional[int]) -> Placement:
        """Where a listed block runs; `ipu` is what the block itself asks for."""
        entry = self._entry(block_id)
        if entry.stage.ipu_id is not None:
            ipu = entry.stage.ipu_id
        if ipu is None:
            ipu = self.defaultIpu(entry.stage_number, entry.phase)
        return Placement(block_id, entry.stage_number, entry.phase, ipu)

    def backendOptions(self) -> Dict[str, Any]:
        """Its settings, for Options.toDict."""
        return {"execution_mode": self.execution_mode}

    def _entry(self, block_id: str) -> _Entry:
        check(block_id in self._entries,
              f"Unknown Block {block_id!r}, list of expected Blocks: {self.blocks()}")
        return self._entries[block_id]

    def _list(self, stage: Stage, number: int, phase: int) -> None:
        for block in stage.blocks:
            check(block not in self._entries, f"{block} associated with more than one stage")
            self._entries[block] = _Entry(stage, number, phase)


class _StagedExecution(ExecutionStrategy):
    """Stages numbered by position, or a rule that numbers them while tracing."""

    def __init__(self, *args: Union[AutoStage, Stage, str, Sequence[str]]) -> None:
        super().__init__()
        if not args:
            args = (AutoStage.SameAsIpu,)
        self.stages: List[Stage] = []
        if len(args) == 1 and isinstance(args[0], AutoStage):
            self.auto_stage = args[0]
            return
        self.stages = [self._toStage(a) for a in args]
        for number, stage in enumerate(self.stages):
            self._list(stage, number, 0)

    @staticmethod
    def _toStage(arg: Any) -> Stage:
        if isinstance(arg, Stage):
            return arg
        if isinstance(arg, str):
            return Stage(arg)
        check(isinstance(arg, (list, tuple)),
              f"Expected a Stage, a block id, a list of block ids or a single AutoStage, got {arg!r}")
        return Stage(*arg)

    def __repr__(self) -> str:
        inside = str(self.auto_stage) if self.auto_stage is not None else ", ".join(map(repr, self.stages))
        return f"{type(self).__name__}({inside})"


class PipelinedExecution(_StagedExecution):
    """Stages work on different micro-batches at the same time.

    Arguments: nothing or one AutoStage (default SameAsIpu); or any mix of Stages, block ids (a stage of
    one block) and lists of block ids (a stage). A stage's number is its position.
    """

    execution_mode = PIPELINED


class ShardedExecution(_StagedExecution):
    """One micro-batch at a time walks through the stages. Arguments as for PipelinedExecution."""

    execution_mode = SHARDED


class _PhasedExecution(ExecutionStrategy):
    """Phases numbered by position. Takes them as separate arguments or in one list.

    They run one after the other, forward 0, 1, 2 and backward 2, 3, 4. Between them, weights, optimizer state,
    accumulators and activations are in the host's memory unless Options.TensorLocations keeps them on the
    device: a device needs the memory of its largest phase. The results are those of one device, bit for bit.
    """

    execution_mode = PHASED

    def __init__(self, *phases: Any) -> None:
        super().__init__()
        if len(phases) == 1 and _isListOfPhases(phases[0]):
            phases = tuple(phases[0])
        self._phases = [self._toPhase(p) for p in phases]
        check(self._phases and all(p.stages for p in self._phases),
              f"{type(self).__name__} needs phases with stages: it has no automatic staging")
        self._separate_backward_phase = False
        for number, phase in enumerate(self._phases):
            for i, stage in enumerate(phase.stages):
                self._list(stage, i, number)

    @staticmethod
    def _toPhase(arg: Any) -> Phase:
        if isinstance(arg, Phase):
            return arg
        if isinstance(arg, (str, Stage)):
            return Phase(arg)
        check(isinstance(arg, (list, tuple)),
              f"Expected a Phase, a list of Stages or block ids, or a block id, got {arg!r}")
        return Phase(*arg)

    def phase(self, phase: int) -> Phase:
        """Its phase of this number."""
        check(isinstance(phase, int) and 0 <= phase < len(self._phases),
              f"Phase {phase!r} does not exist: there are {len(self._phases)}")
        return self._phases[phase]

    @property
    def num_phases(self) -> int:
        """How many phases a forward pass has."""
        return len(self._phases)

    def useSeparateBackwardPhase(self, use: bool = True) -> "_PhasedExecution":
        """Do not let the last forward phase be the first backward one too."""
        check(isinstance(use, bool), f"Expected a bool but got {use!r}")
        self._separate_backward_phase = use
        return self

    def backwardPhase(self, phase: int) -> int:
        """The number of the phase that computes the gradients of phase `phase`."""
        last = 2 * self.num_phases - (0 if self._separate_backward_phase else 2)
        return last - phase

    def backendOptions(self) -> Dict[str, Any]:
        return {**super().backendOptions(), "separate_backward_phase": self._separate_backward_phase}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self._phases))})"


def _isListOfPhases(arg: Any) -> bool:
    return isinstance(arg, (list, tuple)) and any(isinstance(a, (Phase, list, tuple)) for a in arg)


class ParallelPhasedExecution(_PhasedExecution):
    """Two groups of devices take turns: even phases on even devices, odd phases on odd ones."""

    def __init__(self, *phases: Any) -> None:
        super().__init__(*phases)
        self._tensors_liveness = Liveness.OffChipAfterFwd

    def defaultIpu(self, stage_number: int, phase: int) -> int:
        return 2 * stage_number + phase % 2

    def place(self, block_id: str, ipu: Optional[int]) -> Placement:
        placement = super().place(block_id, ipu)
        if placement.ipu % 2 != placement.phase % 2:
            raise createPoptorchError(
                f"Block {block_id!r} of phase {placement.phase} is on IPU {placement.ipu}: even phases run "
                "on even IPUs and odd phases on odd ones")
        return placement

    def sendTensorsOffChipAfterFwd(self, off_chip: bool = True) -> "ParallelPhasedExecution":
        """Move tensors out of device memory after their last use in the forward pass, and bring them back for
        the backward pass (the default). False keeps them on the device."""
        check(isinstance(off_chip, bool), f"Expected a bool but got {off_chip!r}")
        self._tensors_liveness = Liveness.OffChipAfterFwd if off_chip else Liveness.AlwaysLive
        return self

    def backendOptions(self) -> Dict[str, Any]:
        return {**super().backendOptions(), "serial_phases_execution": False,
                "tensors_liveness": self._tensors_liveness}


class SerialPhasedExecution(_PhasedExecution):
    """One group of devices runs all phases one after the other."""

    def __init__(self, *phases: Any) -> None:
        super().__init__(*phases)
        self._tensors_liveness = Liveness.OffChipAfterEachPhase

    def setTensorsLiveness(self, liveness: Liveness) -> "SerialPhasedExecution":
        """When tensors leave device memory: never, after their last use in the forward pass or the backward
        pass (with or without overlap is the same here), or after each phase (the default) but for what the
        next one uses too."""
        check(isinstance(liveness, Liveness), f"Expected a Liveness but got {liveness!r}")
        self._tensors_liveness = liveness
        return self

    def backendOptions(self) -> Dict[str, Any]:
        return {**super().backendOptions(), "serial_phases_execution": True,
                "tensors_liveness": self._tensors_liveness}


class Recorder:
    """The blocks of one trace: which is current, and where each one went.

    `placements` lists the blocks in the order they were first used; `order` has one entry every time
    the current block changed.
    """

    def __init__(self, strategy: ExecutionStrategy) -> None:
        self.strategy = strategy
        self.placements: Dict[str, Placement] = {}
        self.order: List[Placement] = []
        self._next_auto_id = 0
        self._next_stage = 1
        self._started = False
        self._current: Optional[Placement] = None

    def resetAutoId(self) -> None:
        """Blocks without a name are "0", "1", ... from here on."""
        self._next_auto_id = 0

    def autoId(self) -> str:
        """A name for a block without one."""
        name = str(self._next_auto_id)
        self._next_auto_id += 1
        return name

    def begin(self, user_id: Optional[str], ipu_id: Optional[int]) -> str:
        """Make this the current block; returns its id."""
        block = self.autoId() if user_id is None or user_id == "" else str(user_id)
        if ipu_id is not None or block not in self.placements:
            self.placements[block] = self._place(block, ipu_id)
        self._started = True
        self._current = self.placements[block]
        self.order.append(self._current)
        return block

    def beginAt(self, stage: int, phase: int, ipu: int) -> None:
        """Make a block current whose place the caller says, whatever the strategy."""
        self._started = True
        self._current = Placement(f"stage {stage}, phase {phase}, device {ipu}", stage, phase, ipu)
        self.order.append(self._current)

    def resume(self) -> None:
        """The last block goes on."""
        if self._current is None and self.order:
            self._current = self.order[-1]

    def end(self) -> None:
        """No block is current."""
        self._current = None

    def place(self) -> Placement:
        """Where the operation being recorded runs."""
        if not self._started:
            return Placement(None, 0, 0, 0)
        if self._current is None:
            raise createPoptorchError("No active Block, all the ops must belong to a Block")
        return self._current

    def numPipelineStages(self, placements: Optional[Sequence[Placement]] = None) -> int:
        """Forward stages: device switches in execution order, plus one.

        `placements` are those of the operations when the executor knows which blocks are empty; without
        it, every block counts.
        """
        ipus = [p.ipu for p in (self.order if placements is None else placements)]
        return 1 + sum(a != b for a, b in zip(ipus, ipus[1:]))

    def _place(self, block: str, ipu: Optional[int]) -> Placement:
        auto = self.strategy.auto_stage
        if auto is None:
            return self.strategy.place(block, ipu)
        if auto == AutoStage.SameAsIpu:
            if ipu is None:
                check(False, f"poptorch.AutoStage.SameAsIpu was selected but no IPU was specified for "
                      f"block {block!r}")
            return Placement(block, typing.cast(int, ipu), 0, typing.cast(int, ipu))
        if block in self.placements:
            stage = self.placements[block].stage
        else:
            stage = self._next_stage
            self._next_stage += 1
        return Placement(block, stage, 0, stage if ipu is None else ipu)


_recorder: Optional[Recorder] = None


@contextlib.contextmanager
def recording(strategy: ExecutionStrategy) -> Iterator[Recorder]:
    """For the executor: while a model is traced, blocks report to the recorder this yields."""
    global _recorder
    outer, _recorder = _recorder, Recorder(strategy)
    try:
        yield _recorder
    finally:
        _recorder = outer


def recorder() -> Optional[Recorder]:
    """The recorder of the trace that is going on, or None."""
    return _recorder


def checkPipeline(num_stages: int, training: bool, gradient_accumulation: int,
                  device_iterations: int) -> None:
    """Raise an Error when a pipeline of this many forward stages cannot be filled."""
    if training and num_stages > 1 and gradient_accumulation < 2 * num_stages - 1:
        raise createPoptorchError(
            "poptorch.Options().Training.gradientAccumulation must be greater than or equal to the number "
            f"of pipeline stages ({2 * num_stages - 1}) for a pipelined training model, got "
            f"{gradient_accumulation}")
    if not training and num_stages > 1 and device_iterations < num_stages:
        raise createPoptorchError(
            "poptorch.Options().deviceIterations must be greater than or equal to the number of pipeline "
            f"stages ({num_stages}) for a pipelined inference model, got {device_iterations}")


def countDevices(ipus: Sequence[int], replication_factor: int, auto_round: bool) -> int:
    """How many devices a model needs that uses these device numbers. None used: 0."""
    if not ipus:
        return 0
    used = max(len(set(ipus)), max(ipus) + 1) * replication_factor
    rounded = 1 << (used - 1).bit_length()
    if rounded != used and not auto_round:
        raise createPoptorchError(
            f"The model specifies the use of {used} IPUs, however PopTorch must reserve a minimum of "
            f"{rounded} in order to allow the model to run, because PopTorch must reserve a power of 2. "
            "Please reconfigure your model to use a different number of IPUs or set "
            "poptorch.Options().autoRoundNumIPUs(True).")
    if rounded != used:
        logger.warning("Reserving %d IPUs although the model uses %d: the count must be a power of 2",
                       rounded, used)
    if rounded > MAX_DEVICES:
        raise createPoptorchError(f"The model needs {rounded} IPUs, a process can use {MAX_DEVICES} at most")
    return rounded


class Block(torch.nn.Module):
    """A context manager: operations inside belong to the block. When it ends no block is current, so
    blocks do not nest. Does nothing on the CPU.

    `user_id` names the block; using the name again returns to the block. Without a name it gets the
    next number. `ipu_id` is a device of the model's group.
    """

    def __init__(self, user_id: Union[str, int, None] = None, ipu_id: Optional[int] = None) -> None:
        super().__init__()
        self._user_id = _checkIds(user_id, ipu_id)
        self._ipu_id = ipu_id

    @staticmethod
    def useAutoId() -> None:
        """Call at the top of forward(): blocks without a name are "0", "1", ... in order of execution."""
        if _recorder is not None:
            _recorder.resetAutoId()

    @staticmethod
    def start(user_id: Union[str, int, None] = None, ipu_id: Optional[int] = None) -> None:
        """Switch to this block, until the next switch."""
        name = _checkIds(user_id, ipu_id)
        if _recorder is not None:
            _recorder.begin(name, ipu_id)

    def __enter__(self) -> "Block":
        if _recorder is not None:
            _recorder.begin(self._user_id, self._ipu_id)
        return self

    def __exit__(self, *exc: Any) -> None:
        if _recorder is not None:
            _recorder.end()


def _checkIds(user_id: Union[str, int, None], ipu_id: Optional[int]) -> Optional[str]:
    """The user_id as a string; a number is its digits."""
    check(user_id is None or isinstance(user_id, (str, int)), f"A block's user_id is a string, got {user_id!r}")
    check(ipu_id is None or isinstance(ipu_id, int), f"A block's ipu_id is an integer, got {ipu_id!r}")
    return None if user_id is None else str(user_id)


class BlockHook:
    """The forward-pre-hook that BeginBlock installs."""

    def __init__(self, user_id: Optional[str], ipu_id: Optional[int]) -> None:
        self.user_id = user_id
        self.ipu_id = ipu_id

    def __call__(self, module: torch.nn.Module, inputs: Any) -> None:
        if _recorder is not None:
            self.user_id = _recorder.begin(self.user_id, self.ipu_id)

    def __repr__(self) -> str:
        return f"BeginBlock(user_id={self.user_id}, ipu_id={self.ipu_id})"


class _CallableModule(torch.nn.Module):
    """Gives a plain function a forward() to hook."""

    def __init__(self, function: Callable) -> None:
        super().__init__()
        self._function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)


def blockHook(module: torch.nn.Module) -> Optional[BlockHook]:
    """The block that begins at this module, or None."""
    for hook in module._forward_pre_hooks.values():
        if isinstance(hook, BlockHook):
            return hook
    return None


def BeginBlock(layer_to_call: Any, user_id: Union[str, int, None] = None,
               ipu_id: Optional[int] = None) -> torch.nn.Module:
    """From this layer on, operations belong to the block, until another one starts.

    Returns the same module, or a module that calls `layer_to_call` when that is a plain function.
    """
    user_id = _checkIds(user_id, ipu_id)
    if not isinstance(layer_to_call, torch.nn.Module):
        if not callable(layer_to_call):
            raise createPoptorchError("module is not an instance of torch.nn.Module or function: "
                                      f"{type(layer_to_call).__name__}")
        layer_to_call = _CallableModule(layer_to_call)
    if blockHook(layer_to_call) is not None:
        raise createPoptorchError("module has already been assigned to a block: "
                                  f"{blockHook(layer_to_call)!r}")
    layer_to_call.register_forward_pre_hook(BlockHook(user_id, ipu_id))
    return layer_to_call


def BlockFunction(user_id: Union[str, int, None] = None, ipu_id: Optional[int] = None) -> Callable:
    """A decorator: the function's operations belong to the block."""
    _checkIds(user_id, ipu_id)

    def decorate(function: Callable) -> Callable:
        @functools.wraps(function)
        def inBlock(*args: Any, **kwargs: Any) -> Any:
            with Block(user_id, ipu_id):
                return function(*args, **kwargs)
        return inBlock
    return decorate


def removeBlocks(module: torch.nn.Module) -> None:
    """Take back every BeginBlock in this module and its children."""
    check(isinstance(module, torch.nn.Module), f"Expected a torch.nn.Module but got {type(module).__name__}")
    for child in module.modules():
        hooks = child._forward_pre_hooks
        for key in [k for k, hook in hooks.items() if isinstance(hook, BlockHook)]:
            del hooks[key]


def module_repr(module: torch.nn.Module) -> str:
    """torch's listing of a module, with `BeginBlock(...) ` in front of the modules that begin a block."""
    extra = [line for line in module.extra_repr().split("\n") if line]
    children = [f"({name}): {_indent(module_repr(child)) if child is not None else None}"
                for name, child in module._modules.items()]
    inline = len(extra) <= 1 and not children
    inside = "".join(extra) if inline else "\n  " + "\n  ".join(extra + children) + "\n"
    text = f"{module._get_name()}({inside})"
    hook = blockHook(module)
    return text if hook is None else f"{hook!r} {text}"


def _indent(text: str) -> str:
    return text.replace("\n", "\n  ")


__all__ = [
    "BeginBlock", "Block", "BlockFunction", "ParallelPhasedExecution", "Phase", "PipelinedExecution",
    "SerialPhasedExecution", "ShardedExecution", "Stage", "module_repr", "removeBlocks",
]
