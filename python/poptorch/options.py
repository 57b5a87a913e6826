"""Options: how a model is compiled and run.

Every setting is a value in a table, with a default whose type a new value must have. Values can be
read and written as attributes (`opts.device_iterations`), and each has a setter that returns the object
it belongs to, so that calls chain. Giving options to a loader or a model freezes them; clone() makes a
copy that can be changed.

Some settings steer hardware that our devices do not have (tiles, device links, sync). They are checked
and stored like the others, and their docstrings say "Accepted; no effect on our devices".
"""

import copy
import json
import os
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

import torch

from . import enums
from ._config_file import applyFile
from ._logging import logger
from .autocasting import Policy
from .blocks import ExecutionStrategy, PipelinedExecution
from .enums import (CommGroupType, ConnectionType, HalfFloatCastingBehavior, MeanReductionStrategy,
                    OutputMode, ReductionType, SyncPattern)
from .errors import ConfigFileError, check, createPoptorchError

#: What maxRepeatLogs(None) stores.
UNLIMITED = 2**64 - 1

#: Stack frames that are never a model's source.
SOURCE_EXCLUDES = ["install/poptorch", "site-packages/torch", "site-packages/poptorch"]

#: Keys of _Popart.set that a compilation accepts; a name ending in "." has dotted sub-options.
POPART_KEYS = frozenset((
    "accumulateOuterFragmentSettings.", "accumulatorTensorLocationSettings.", "activationTensorLocationSettings.",
    "aliasZeroCopy", "autodiffSettings.", "automaticLossScalingSettings.", "autoRecomputation",
    "batchSerializationSettings.", "bufferingDepthMap", "cachePath", "compilationProgressTotal", "constantWeights",
    "convolutionOptions", "createImplicitPipeliningFwdOnlyProgram", "customCodelets", "decomposeGradSum",
    "defaultBufferingDepth", "defaultPrefetchBufferingDepth", "delayVarUpdates", "developerSettings.", "deviceMemory",
    "disableGradAccumulationTensorStreams", "disableOptimizerStateTensorStreams", "dotChecks", "dotOpNames",
    "enableEfficientOverlapIOTopoCons", "enableEngineCaching", "enableExplicitMainLoops", "enableFloatingPointChecks",
    "enableFullyConnectedPass", "enableGradientAccumulation", "enableInplaceAmbiguityChecking",
    "enableLoadAndOffloadRNGState", "enableMergeExchange", "enableNonStableSoftmax", "enableOutlining",
    "enableOutliningCopyCostPruning", "enablePrefetchDatastreams", "enableRngStateManagement",
    "enableSerializedMatmuls", "enableStableNorm", "enableStochasticRounding", "enableSupportedDataTypeCasting",
    "enableVariablesCaching", "engineOptions", "ensureFp32LossScaleTensor", "executionPhaseSettings.",
    "experimentalSettings.", "explicitPipeliningEnabled", "explicitRecomputation", "exportPoplarComputationGraph",
    "exportPoplarVertexGraph", "finalDotOp", "firstDotOp", "gclOptions", "groupHostSync",
    "groupNormStridedChannelGrouping", "hardwareInstrumentations", "instrumentWithHardwareCycleCounter",
    "kahnTieBreaker", "logDir", "looseThresholdAtPeak", "lstmOptions", "matmulOptions", "mergeVarUpdate",
    "mergeVarUpdateMemThreshold", "numIOTiles", "optimizerStateTensorLocationSettings.", "opxAliasChecking",
    "opxModifyChecking", "outlineSequenceBreakCost", "outlineThreshold", "partialsTypeMatMuls",
    "prefetchBufferingDepthMap", "rearrangeAnchorsOnHost", "rearrangeStreamsOnHost", "replicatedCollectivesSettings.",
    "reportOptions", "saveInitializersToFile", "scheduleNonWeightUpdateGradientConsumersEarly", "separateCallOpPdfs",
    "serializedPoprithmsShiftGraphsDir", "strictOpVersions", "subgraphCopyingStrategy", "swapLimitScheduler",
    "syntheticDataMode", "tensorLocationSettingsOverride", "throwIfLog2ScaleFactorNotInRange", "timeLimitScheduler",
    "transitiveClosureOptimizationThreshold", "useHostCopyOps", "useLoopCandidateCreator", "virtualGraphMode",
    "weightTensorLocationSettings.",
))

#: Those that change what a model does; the others are for hardware that our devices do not have.
_POPART_USED = frozenset((
    "autoRecomputation", "cachePath", "enableEngineCaching", "enableFloatingPointChecks", "enableStochasticRounding",
    "engineOptions", "instrumentWithHardwareCycleCounter", "numIOTiles", "rearrangeAnchorsOnHost", "syntheticDataMode",
    *(f"automaticLossScalingSettings.{k}" for k in ("enabled", "binEdgeLocation", "thresholdUpperCountProportion",
                                                    "updatePeriod"))))

_ENGINE_OPTIONS = "POPLAR_ENGINE_OPTIONS"

#: Simulated devices by version: the kind in tessera.h.
_MODELS = {2: 1, 21: 1, 1: 2}
_GPUS = {"gpu": 3, "opencl": 4}    # ts_device_kind


class _Freezable:
    """What can be made read-only."""

    _is_frozen = False

    def _checkNotFrozen(self) -> None:
        if self._is_frozen:
            raise AttributeError("Can't modify frozen Options")

    def _freeze(self) -> None:
        self._is_frozen = True

    def _unfreeze(self) -> None:
        self._is_frozen = False


class _Settings(_Freezable):
    """A table of values that can be frozen.

    `_values` has what was set or has a default, `_types` the type a value must have. Both are filled by
    _add(). Names with a leading underscore are ordinary Python attributes and are never frozen.
    """

    _values: Dict[str, Any]
    _types: Dict[str, type]

    def __init__(self) -> None:
        self._values = {}
        self._types = {}
        self._warnings: Dict[str, str] = {}
        self._warnings_disabled: Set[str] = set()

    def _add(self, **defaults: Any) -> None:
        """New values; their types are the types of the defaults."""
        for name, value in defaults.items():
            self._values[name] = value
            self._types[name] = type(value)

    def _addUnset(self, **types: type) -> None:
        """Values that exist only once they are set."""
        self._types.update(types)

    def _set(self, **values: Any) -> "_Settings":
        self._checkNotFrozen()
        for name, value in values.items():
            check(name in self._types, f"Invalid option {name}, must be one of {sorted(self._types)}")
            expected = self._types[name]
            check(isinstance(value, expected),
                  f"Unexpected type {type(value).__name__} for option {name}. Expected {expected.__name__}")
            self._values[name] = value
        return self

    def _warn(self, name: str, text: str) -> None:
        """Log a warning, once for this object, unless its name is in `_warnings_disabled`."""
        if name not in self._warnings and name not in self._warnings_disabled:
            self._warnings[name] = text
            logger.warning(text)

    def exists(self, name: str) -> bool:
        """True if this value has a default or was set."""
        return name in self._values

    def __call__(self, name: str) -> Any:
        check(self.exists(name), f"Invalid option {name}, must be one of {sorted(self._values)}")
        return self._values[name]

    def __getattr__(self, name: str) -> Any:
        values = self.__dict__.get("_values", {})    # empty while unpickling
        if name in values:
            return values[name]
        raise AttributeError(f"Invalid attribute {name}, must be one of {sorted(values)}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            self.__dict__[name] = value
        else:
            self._set(**{name: value})

    def __repr__(self) -> str:
        shown = dict(self._values, _warnings=self._warnings, _warnings_disabled=self._warnings_disabled,
                     _is_frozen=self._is_frozen)
        return f"{type(self).__name__}({_listing(shown)})"

    def toDict(self) -> Dict[str, Any]:
        """The values, by name."""
        return dict(self._values)


def _listing(values: Dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in values.items())


class _PopartOptions(_Freezable):
    """Options of the layer below, by name. Any key can be set; unknown ones fail when compiling."""

    def __init__(self) -> None:
        self.options: Dict[str, Any] = {}
        self.set("instrumentWithHardwareCycleCounter", False)
        self.set("rearrangeAnchorsOnHost", False)

    def set(self, key: str, value: Any) -> "_PopartOptions":
        """Set one option."""
        self._checkNotFrozen()
        check(isinstance(key, str), f"An option's name is a string, got {key!r}")
        self.options[key] = value
        return self

    def setEngineOptions(self, engine_options: Dict[str, str]) -> "_PopartOptions":
        """Add options of the execution engine, names to strings."""
        check(isinstance(engine_options, dict), f"Expected a dict but got {engine_options!r}")
        return self.set("engineOptions", {**self.options.get("engineOptions", {}), **engine_options})

    def setPatterns(self, patterns: Dict[str, bool], level: int = 2) -> "_PopartOptions":
        """Switch graph rewrites on or off by name, over the set of level `level`. Accepted; no effect."""
        check(isinstance(patterns, dict), f"Expected a dict but got {patterns!r}")
        check(isinstance(level, int), f"Expected an integer but got {level!r}")
        self.set("patterns", dict(patterns))
        return self.set("patterns_level", level)

    def checkKeys(self) -> None:
        """For compiling: an Error that names the keys nobody knows, and a word about those without effect."""
        known = POPART_KEYS | {"patterns", "patterns_level"}
        unknown = [k for k in self.options if k not in known and k[:k.find(".") + 1] not in known]
        if unknown:
            raise createPoptorchError(f"Unknown session option: {', '.join(sorted(unknown))}")
        for key in self.options:
            if key not in _POPART_USED:
                logger.info("The session option %s has no effect on our devices", key)

    def lossScaling(self) -> Optional[Dict[str, Any]]:
        """The settings of an automatic loss scale by name, or None."""
        prefix = "automaticLossScalingSettings."
        found = {key[len(prefix):]: value for key, value in self.options.items() if key.startswith(prefix)}
        return found if found.get("enabled") else None

    def toDict(self) -> Dict[str, Any]:
        """The options, by name."""
        return dict(self.options)

    def __repr__(self) -> str:
        return f"_PopartOptions({_listing(self.options)})"


class _DistributedOptions(_Settings):
    """Several processes training one model. Starts from what mpirun says of this process."""

    def __init__(self) -> None:
        super().__init__()
        self._add(num_distributed_processes=1, distributed_process_id=0)
        self.setEnvVarNames("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK")

    def disable(self) -> "_DistributedOptions":
        """This process is alone, whatever the environment says."""
        return self.configureProcessId(0, 1)

    def setEnvVarNames(self, var_num_processes: str, var_process_id: str) -> "_DistributedOptions":
        """Read the number of processes and this process's number from these variables, if they are set."""
        return self.configureProcessId(int(os.environ.get(var_process_id, "0")),
                                       int(os.environ.get(var_num_processes, "1")))

    def configureProcessId(self, process_id: int, num_processes: int) -> "_DistributedOptions":
        """This is process `process_id` of `num_processes`."""
        self._set(distributed_process_id=process_id, num_distributed_processes=num_processes)
        return self

    @property
    def processId(self) -> int:
        """The number of this process."""
        return self.distributed_process_id

    @property
    def numProcesses(self) -> int:
        """How many processes there are."""
        return self.num_distributed_processes


class _TrainingOptions(_Settings):
    """Options of training models only."""

    def __init__(self, popart: _PopartOptions) -> None:
        super().__init__()
        self._popart = popart
        self._add(gradient_accumulation=1, accumulation_and_replication_reduction_type=ReductionType.Mean,
                  meanAccumulationAndReplicationReductionStrategy=MeanReductionStrategy.Post)

    def gradientAccumulation(self, gradient_accumulation: int) -> "_TrainingOptions":
        """Micro-batches whose gradients are reduced before each weight update. Default 1."""
        self._set(gradient_accumulation=gradient_accumulation)
        return self

    def accumulationAndReplicationReductionType(self, reduction_type: ReductionType) -> "_TrainingOptions":
        """Whether the applied gradient is the Mean (default) or the Sum of the micro-batches'."""
        if reduction_type not in (ReductionType.Sum, ReductionType.Mean):
            raise ValueError("accumulationAndReplicationReductionType must be set to "
                             "poptorch.ReductionType.Sum or poptorch.ReductionType.Mean, got "
                             f"{reduction_type!r}")
        self._set(accumulation_and_replication_reduction_type=ReductionType(reduction_type))
        return self

    def setMeanAccumulationAndReplicationReductionStrategy(
            self, mean_reduction_strategy: MeanReductionStrategy) -> "_TrainingOptions":
        """When a mean is divided: Post (default) or Running."""
        self._set(meanAccumulationAndReplicationReductionStrategy=mean_reduction_strategy)
        return self

    def setAutomaticLossScaling(self, enabled: bool) -> "_TrainingOptions":
        """Let the device choose the loss scale of float16 models, from the optimizer's `loss_scaling` on: doubled with
        every update, halved when gradients come near float16's limit. An update with infinite gradients is left out.
        `_Popart.set("automaticLossScalingSettings...")` takes `binEdgeLocation` (0.125, of the greatest float16),
        `thresholdUpperCountProportion` (1e-7, of the gradients' elements) and `updatePeriod` (1). Default off."""
        check(isinstance(enabled, bool), f"Expected a bool but got {enabled!r}")
        self._checkNotFrozen()
        self._popart.set("automaticLossScalingSettings.enabled", enabled)
        return self

    def setConvolutionDithering(self, enabled: bool) -> "_TrainingOptions":
        """Where convolutions start on a device. Accepted; no effect on our devices."""
        check(isinstance(enabled, bool), f"Expected a bool but got {enabled!r}")
        self._checkNotFrozen()
        _addConvolutionOption(self._popart, "enableConvDithering", "true" if enabled else "false")
        return self


def _addConvolutionOption(popart: _PopartOptions, key: str, value: str) -> None:
    popart.set("convolutionOptions", {**popart.options.get("convolutionOptions", {}), key: value})


class _PrecisionOptions(_Settings):
    """Options of number formats."""

    def __init__(self, popart: _PopartOptions) -> None:
        super().__init__()
        self._popart = popart
        self._add(autocast_enabled=True, autocast_policy=Policy(),
                  half_float_casting=HalfFloatCastingBehavior.Default)

    def enableFloatingPointExceptions(self, enabled: bool) -> "_PrecisionOptions":
        """Fail a run in which an operation makes an infinity or a NaN of numbers, makes a NaN of infinities, or compares
        a NaN. The `Error` names the operation and its line. Same results, about half the speed. Default off."""
        check(isinstance(enabled, bool), f"Expected a bool but got {enabled!r}")
        self._checkNotFrozen()
        self._popart.set("enableFloatingPointChecks", enabled)
        return self

    def enableStochasticRounding(self, enabled: bool) -> "_PrecisionOptions":
        """Round float16 and bfloat16 results, and such weights after their update, up or down at random: up the more
        often the closer the number is to the one above, so that they are right on average. The numbers are drawn with
        those of dropout: the same seed gives the same results. Default off: to the nearest."""
        check(isinstance(enabled, bool), f"Expected a bool but got {enabled!r}")
        self._checkNotFrozen()
        self._popart.set("enableStochasticRounding", enabled)
        return self

    def setPartialsType(self, dtype: torch.dtype) -> "_PrecisionOptions":
        """Accumulate matrix products and convolutions in torch.float (default) or torch.half. Accepted; no effect on our
        devices, which add up half precision in float32 and round the sum once."""
        if dtype not in (torch.float, torch.half):
            raise ValueError(f"partials type must be either torch.float or torch.half, got {dtype!r}")
        self._checkNotFrozen()
        name = "float" if dtype == torch.float else "half"
        _addConvolutionOption(self._popart, "partialsType", name)
        self._popart.set("partialsTypeMatMuls", name)
        return self

    def halfFloatCasting(self, half_float_casting: HalfFloatCastingBehavior) -> "_PrecisionOptions":
        """Deprecated; no effect."""
        del half_float_casting
        self._checkNotFrozen()
        self._warn("halfFloatCasting", "halfFloatCasting is deprecated since version 3.0 and has no effect")
        return self

    def runningStatisticsAlwaysFloat(self, value: bool) -> "_PrecisionOptions":
        """Deprecated; no effect."""
        if not isinstance(value, bool):
            raise ValueError(f"runningStatisticsAlwaysFloat needs a bool, got {value!r}")
        self._checkNotFrozen()
        self._warn("runningStatisticsAlwaysFloat",
                   "runningStatisticsAlwaysFloat is deprecated since version 3.0 and has no effect")
        return self

    def autocastEnabled(self, autocast_enabled: bool) -> "_PrecisionOptions":
        """Whether poptorch.autocast regions cast. Default True; see poptorch.autocasting."""
        self._set(autocast_enabled=autocast_enabled)
        return self

    def autocastPolicy(self, autocast_policy: Policy) -> "_PrecisionOptions":
        """What poptorch.autocast regions cast."""
        self._set(autocast_policy=autocast_policy)
        return self


class _JitOptions(_Settings):
    """Left of a time when models were traced by torch.jit."""

    def traceModel(self, trace_model: bool) -> "_JitOptions":
        """Deprecated: False is what always happens, True a ValueError."""
        self._checkNotFrozen()
        if trace_model:
            raise ValueError("traceModel(True) is no longer supported: models are not traced by torch.jit")
        self._warn("traceModel", "Jit.traceModel is deprecated since version 3.0 and has no effect")
        return self


class TensorLocationSettings:
    """Where a kind of tensors is stored. They move storage only; results do not change."""

    def __init__(self) -> None:
        self._content: Dict[str, int] = {}

    def minElementsForOffChip(self, min_elements: int) -> "TensorLocationSettings":
        """Tensors with fewer elements stay on the device; 2 when it is not set."""
        return self._setNumber("minElementsForOffChip", min_elements)

    def minElementsForReplicatedTensorSharding(self, min_elements: int) -> "TensorLocationSettings":
        """Of what is split over the replicas, smaller tensors stay whole. Default 8192."""
        return self._setNumber("minElementsForReplicatedTensorSharding", min_elements)

    def useOnChipStorage(self, use: Optional[bool] = True) -> "TensorLocationSettings":
        """Keep the tensors on the device, or in host memory. None: whatever is the default."""
        if use is None:
            self._content.pop("onChip", None)
            return self
        return self._setFlag("onChip", use)

    def useReplicatedTensorSharding(self, use: bool = True) -> "TensorLocationSettings":
        """Let each replica keep and update only its part of the optimizer's state; the results are the same bits.
        For weights, accumulators and activations it is not supported."""
        return self._setFlag("useReplicatedTensorSharding", use)

    def useIOTilesToLoad(self, use: bool = True) -> "TensorLocationSettings":
        """Accepted; no effect on our devices."""
        return self._setFlag("useIOTilesToLoad", use)

    def useIOTilesToStore(self, use: bool = True) -> "TensorLocationSettings":
        """Accepted; no effect on our devices."""
        return self._setFlag("useIOTilesToStore", use)

    def _setNumber(self, name: str, value: int) -> "TensorLocationSettings":
        check(isinstance(value, int) and not isinstance(value, bool),
              f"{name} needs an integer, got {value!r}")
        self._content[name] = value
        return self

    def _setFlag(self, name: str, value: bool) -> "TensorLocationSettings":
        check(isinstance(value, bool), f"{name} needs a bool, got {value!r}")
        self._content[name] = int(value)
        return self

    def toDict(self) -> Dict[str, int]:
        """A copy of what was set."""
        return dict(self._content)

    def __repr__(self) -> str:
        return f"TensorLocationSettings({_listing(self._content)})"


class _TensorLocationOptions(_Settings):
    """Where activations, weights, optimizer state and gradient accumulators are stored."""

    def __init__(self) -> None:
        super().__init__()
        self._addUnset(location_activation=dict, location_weight=dict, location_optimizer=dict,
                       location_accumulator=dict, num_io_tiles=int)

    def setActivationLocation(self, location: TensorLocationSettings) -> "_TensorLocationOptions":
        """Of the activations kept for the backward pass."""
        return self._setLocation("location_activation", location)

    def setWeightLocation(self, location: TensorLocationSettings) -> "_TensorLocationOptions":
        """Of the weights."""
        return self._setLocation("location_weight", location)

    def setOptimizerLocation(self, location: TensorLocationSettings) -> "_TensorLocationOptions":
        """Of the optimizer's state."""
        return self._setLocation("location_optimizer", location)

    def setAccumulatorLocation(self, location: TensorLocationSettings) -> "_TensorLocationOptions":
        """Of the gradient accumulators."""
        return self._setLocation("location_accumulator", location)

    def numIOTiles(self, num_tiles: int) -> "_TensorLocationOptions":
        """An even number of tiles, 32 to 192, for host transfers. Accepted; no effect on our devices."""
        check(isinstance(num_tiles, int), f"numIOTiles needs an integer, got {num_tiles!r}")
        check(32 <= num_tiles <= 192, f"numIOTiles must be between 32 and 192, got {num_tiles}")
        check(num_tiles % 2 == 0, f"numIOTiles must be an even number, got {num_tiles}")
        self._set(num_io_tiles=num_tiles)
        return self

    def _setLocation(self, name: str, location: TensorLocationSettings) -> "_TensorLocationOptions":
        check(isinstance(location, TensorLocationSettings),
              f"Expected a TensorLocationSettings but got {location!r}")
        self._set(**{name: location.toDict()})
        return self


class Options(_Settings):
    """All settings of a model and of the loader that feeds it.

        opts = poptorch.Options().deviceIterations(10).replicationFactor(2)
        opts.Training.gradientAccumulation(8)
    """

    #: Values that repr() leaves out.
    _HIDDEN = ("show_compilation_progress_bar", "relax_optimizer_checks", "module_namescope_enabled",
               "updatable_named_buffers", "source_location_excludes")

    def __init__(self) -> None:
        super().__init__()
        self._add(replication_factor=1, input_group_size=1, input_cgt=CommGroupType.Consecutive,
                  broadcast_buffers=True, device_iterations=1, log_dir=".", max_repeat_logs=4,
                  auto_round_num_ipus=False, anchored_tensors={}, output_mode=OutputMode.Default.value,
                  output_return_period=1, connection_type=ConnectionType.Always.value,
                  sync_pattern=SyncPattern.Full.value, available_memory_proportion={})
        self._add(show_compilation_progress_bar=True, relax_optimizer_checks=False,
                  module_namescope_enabled=True, updatable_named_buffers=[],
                  source_location_excludes=list(SOURCE_EXCLUDES))
        self._addUnset(random_seed=int, use_model=bool, ipu_id=int, ipu_version=int, model_name=str, gpu=str)
        self._popart_options = _PopartOptions()
        self._distributed = _DistributedOptions()
        self._jit = _JitOptions()
        self._precision = _PrecisionOptions(self._popart_options)
        self._tensor_locations = _TensorLocationOptions()
        self._training = _TrainingOptions(self._popart_options)
        self._execution_strategy: ExecutionStrategy = PipelinedExecution()
        self._applyEnvironment()

    def _applyEnvironment(self) -> None:
        if "POPTORCH_CACHE_DIR" in os.environ:
            self.enableExecutableCaching(os.environ["POPTORCH_CACHE_DIR"])
        if "POPTORCH_DEFAULT_OPTIONS" in os.environ:
            self.from_json(os.environ["POPTORCH_DEFAULT_OPTIONS"])

    # The groups.

    @property
    def TensorLocations(self) -> _TensorLocationOptions:
        """Where tensors are stored."""
        return self._tensor_locations

    @property
    def Distributed(self) -> _DistributedOptions:
        """Several processes."""
        return self._distributed

    @property
    def Jit(self) -> _JitOptions:
        """Legacy."""
        return self._jit

    @property
    def Precision(self) -> _PrecisionOptions:
        """Number formats."""
        return self._precision

    @property
    def Training(self) -> _TrainingOptions:
        """Training models only."""
        return self._training

    @property
    def _Popart(self) -> _PopartOptions:
        """The layer below, by name."""
        return self._popart_options

    @property
    def execution_strategy(self) -> ExecutionStrategy:
        """What setExecutionStrategy set."""
        return self._execution_strategy

    def _groups(self) -> Dict[str, Any]:
        return {"Distributed": self._distributed, "Jit": self._jit, "Precision": self._precision,
                "TensorLocations": self._tensor_locations, "Training": self._training,
                "_Popart": self._popart_options}

    # Batching and results.

    def deviceIterations(self, device_iterations: int) -> "Options":
        """Iterations of the model's loop that a single call runs. Default 1."""
        self._set(device_iterations=device_iterations)
        return self

    def replicationFactor(self, replication_factor: int) -> "Options":
        """Copies of the model, each on its own devices and with its own rows. Default 1."""
        self._set(replication_factor=replication_factor)
        return self

    def inputReplicaGrouping(self, input_group_size: int, input_group_type: CommGroupType) -> "Options":
        """Give the replicas of a group the same rows. Call after replicationFactor."""
        if input_group_type == CommGroupType.NoGrouping:
            input_group_size, input_group_type = 1, CommGroupType.Consecutive
        if input_group_type == CommGroupType.All:
            raise ValueError("inputReplicaGrouping does not support CommGroupType.All; use Consecutive "
                             "with a group of all replicas")
        replicas = self.replication_factor
        if input_group_size > replicas:
            raise ValueError(f"Input group size {input_group_size} is greater than the replication factor "
                             f"{replicas}")
        if input_group_size < 1 or replicas % input_group_size != 0:
            raise ValueError(f"Input group size {input_group_size} is not a factor of the replication factor "
                             f"{replicas}")
        self._set(input_group_size=input_group_size, input_cgt=input_group_type)
        return self

    def broadcastBuffers(self, broadcast_buffers: bool = True) -> "Options":
        """Whether all replicas have the first one's buffers (default), or each keeps its own."""
        self._set(broadcast_buffers=broadcast_buffers)
        return self

    def outputMode(self, output_mode: OutputMode, output_return_period: Optional[int] = None) -> "Options":
        """Which results come back; EveryN also needs a period, in device iterations."""
        period = _checkedPeriod(output_mode, output_return_period)
        self._set(output_mode=output_mode.value, output_return_period=period)
        return self

    def defaultOutputMode(self) -> bool:
        """True while outputMode was not called."""
        return self.output_mode == OutputMode.Default

    def anchorTensor(self, short_name: str, long_name: str, output_mode: Optional[OutputMode] = None,
                     output_return_period: Optional[int] = 1, *, anchor_mode: Optional[OutputMode] = None,
                     anchor_return_period: Optional[int] = None) -> None:
        """Make an internal tensor readable, after a run, as executor.getAnchoredTensor(short_name).

        `long_name` is one of executor.getTensorNames(). Without a mode, the model's mode is used. Stored in
        `anchored_tensors` as [long_name, True], or as [long_name, False, mode, period].
        """
        self._checkNotFrozen()
        output_mode = anchor_mode if output_mode is None else output_mode
        if anchor_return_period is not None:
            output_return_period = anchor_return_period
        if output_mode is None:
            self.anchored_tensors[short_name] = [long_name, True]
            return
        check(isinstance(output_mode, OutputMode), _notA("OutputMode", output_mode))
        if output_mode != OutputMode.EveryN:
            output_return_period = None
        period = _checkedPeriod(output_mode, output_return_period)
        self.anchored_tensors[short_name] = [long_name, False, output_mode.value, period]

    def anchorMode(self, anchor_mode: OutputMode, anchor_return_period: Optional[int] = None) -> "Options":
        """Deprecated name of outputMode."""
        self._warn("anchorMode", "anchorMode is deprecated since version 2.4, use outputMode instead")
        return self.outputMode(anchor_mode, anchor_return_period)

    def defaultAnchorMode(self) -> bool:
        """Deprecated name of defaultOutputMode."""
        self._warn("defaultAnchorMode",
                   "defaultAnchorMode is deprecated since version 2.4, use defaultOutputMode instead")
        return self.defaultOutputMode()

    # Devices.

    def setExecutionStrategy(self, strategy: ExecutionStrategy) -> "Options":
        """How blocks are spread over devices. Default PipelinedExecution()."""
        check(isinstance(strategy, ExecutionStrategy),
              f"Expected an execution strategy such as poptorch.PipelinedExecution, got {strategy!r}")
        self._checkNotFrozen()
        self._execution_strategy = strategy
        return self

    def autoRoundNumIPUs(self, auto_round_num_ipus: bool = True) -> "Options":
        """Reserve the next power of two when a model uses another number of devices. Default off."""
        self._set(auto_round_num_ipus=auto_round_num_ipus)
        return self

    def setAvailableMemoryProportion(self, available_memory_proportion: Dict[str, float]) -> "Options":
        """Memory for temporaries, by device: {"IPU0": 0.5}. Accepted; no effect on our devices."""
        self._checkNotFrozen()
        check(isinstance(available_memory_proportion, dict),
              f"Expected a dict but got {available_memory_proportion!r}")
        for key in available_memory_proportion:
            check(isinstance(key, str) and key.startswith("IPU") and key[3:].isdigit(),
                  f"Memory proportions are set by device, as in {{'IPU0': 0.5}}, got {key!r}")
        for key, proportion in available_memory_proportion.items():
            self.available_memory_proportion[int(key[3:])] = proportion
        return self

    def useIpuModel(self, use_model: bool) -> "Options":
        """Use a simulated device. Wins over POPTORCH_IPU_MODEL.

        It computes as the others do and has an IPU's memory: a model that needs more is an Error. The version is
        POPTORCH_IPU_MODEL_VERSION's: ipu2 or ipu21 (897 MiB, the default) or ipu1 (304 MiB).
        _Popart.set("deviceMemory", bytes) sets another size, for all kinds of devices.
        """
        self._set(use_model=use_model)
        return self

    def useGpu(self, kind: str = "gpu") -> "Options":
        """Run on an NVIDIA GPU, or with "opencl" on an OpenCL device. Wins over TESSERA_DEVICE, which does the same for
        programs that are left as they are; PopTorch does not have it.
        """
        if kind not in _GPUS:
            raise createPoptorchError(f"useGpu takes {' or '.join(map(repr, _GPUS))}, got {kind!r}")
        self._set(gpu=kind)
        return self

    def useIpuId(self, ipu_id: int) -> "Options":
        """Use this device of the system, and those after it when a model needs several. No other process may have
        them meanwhile; POPTORCH_WAIT_FOR_IPU=1 waits until they are free."""
        self._set(ipu_id=ipu_id)
        return self

    def useOfflineIpuTarget(self, ipu_version: int = 2) -> "Options":
        """Compile only, for devices of version 1, 2 or 21 and with their memory."""
        check(ipu_version in (1, 2, 21), f"The IPU version is 1, 2 or 21, got {ipu_version!r}")
        self._set(ipu_version=ipu_version)
        return self.connectionType(ConnectionType.Never)

    def connectionType(self, connection_type: ConnectionType) -> "Options":
        """When devices are taken: Always (before compiling; default), OnDemand (after) or Never."""
        check(isinstance(connection_type, ConnectionType), _notA("ConnectionType", connection_type))
        self._set(connection_type=connection_type.value)
        return self

    def syncPattern(self, sync_pattern: SyncPattern) -> "Options":
        """How devices wait for each other. Accepted; no effect on our devices."""
        check(isinstance(sync_pattern, SyncPattern), _notA("SyncPattern", sync_pattern))
        self._set(sync_pattern=sync_pattern.value)
        return self

    # Running.

    def randomSeed(self, random_seed: int) -> "Options":
        """Seed the device's random numbers, and torch's."""
        check(isinstance(random_seed, int), f"randomSeed needs an integer, got {random_seed!r}")
        self._set(random_seed=random_seed)
        torch.manual_seed(random_seed)
        return self

    def enableStableNorm(self, enabled: bool) -> "Options":
        """Compute statistics of normalisations in two passes. Ours always do."""
        check(isinstance(enabled, bool), f"Expected a bool but got {enabled!r}")
        self._popart_options.set("enableStableNorm", enabled)
        return self

    def enableSyntheticData(self, enabled: bool) -> "Options":
        """Run on random data made by the device, without host transfers: arguments are checked and not read,
        results are zeros. Also _Popart.set("syntheticDataMode", 1) for zeros and 3 for uniform numbers."""
        check(isinstance(enabled, bool), f"Expected a bool but got {enabled!r}")
        self._popart_options.set("syntheticDataMode", 2 if enabled else 0)
        return self

    def updatableNamedBuffers(self, buffers: List[str]) -> "Options":
        """Buffers that executor.copyNamedBuffersToDevice() uploads."""
        self._set(updatable_named_buffers=buffers)
        return self

    def relaxOptimizerAttributesChecks(self, relax: bool = True) -> "Options":
        """Report unknown optimizer attributes as debug messages, not as warnings. Default off."""
        self._set(relax_optimizer_checks=relax)
        return self

    # Compiling.

    def enableExecutableCaching(self, path: Optional[str]) -> "Options":
        """Keep compiled models in this directory; None: do not. Also POPTORCH_CACHE_DIR."""
        self._popart_options.set("enableEngineCaching", path is not None)
        if path is None:
            self._popart_options.options.pop("cachePath", None)
            return self
        self._popart_options.set("cachePath", os.fspath(path))
        return self

    def disableModuleNamescope(self) -> "Options":
        """Name operations without the path of their module."""
        self._set(module_namescope_enabled=False)
        return self

    def showCompilationProgressBar(self, show: bool = True) -> "Options":
        """Show a progress bar while compiling. Default on."""
        self._set(show_compilation_progress_bar=show)
        return self

    def sourceLocationExcludes(self, excludes: List[str]) -> "Options":
        """Stack frames whose file name contains one of these are not a model's source."""
        self._set(source_location_excludes=excludes)
        return self

    def appendToLocationExcludes(self, *excludes: str) -> "Options":
        """Add to sourceLocationExcludes."""
        check(all(isinstance(e, str) for e in excludes), f"Expected strings but got {list(excludes)}")
        self._set(source_location_excludes=self.source_location_excludes + list(excludes))
        return self

    # Logs and profiles.

    def enableProfiling(self, profile_dir: Optional[str] = None) -> "Options":
        """Write profiles to this directory, "." by default: profile.db, trace.json (Perfetto, chrome://tracing) and
        plan.txt in a folder "training", "inference" or named by modelName(); profiling.openReport() reads them.
        POPLAR_ENGINE_OPTIONS wins over this."""
        wanted = {"debug.allowOutOfMemory": "true", "autoReport.directory": profile_dir or ".",
                  "autoReport.all": "true"}
        for key in sorted(wanted.keys() & _engineEnvironment().keys()):
            self._warn(f"enableProfiling.{key}",
                       f"{_ENGINE_OPTIONS} sets {key}, which wins over enableProfiling()")
            del wanted[key]
        self._popart_options.setEngineOptions(wanted)
        return self

    def modelName(self, name: str) -> "Options":
        """The sub-directory of profiles; by default `training` or `inference`."""
        self._set(model_name=name)
        return self

    def logCycleCount(self, log_cycle_count: bool) -> "Options":
        """Count the device's cycles, for executor.cycleCount(). Default off."""
        check(isinstance(log_cycle_count, bool), f"Expected a bool but got {log_cycle_count!r}")
        self._popart_options.set("instrumentWithHardwareCycleCounter", log_cycle_count)
        return self

    def logDir(self, log_dir: str) -> "Options":
        """The folder of the graph that POPTORCH_EXPORT_PROTO_FILE asks for. Default "."."""
        self._set(log_dir=log_dir)
        return self

    def maxRepeatLogs(self, max_lines: Optional[int]) -> "Options":
        """How often a log line is repeated; None: without limit. Default 4."""
        self._set(max_repeat_logs=UNLIMITED if max_lines is None else max_lines)
        return self

    # Files, strings, copies.

    def loadFromFile(self, filepath: str) -> "Options":
        """Apply a file of setter calls, one a line, without `options.` in front; # starts a comment.

            deviceIterations(4)
            Training.gradientAccumulation(2)
            setExecutionStrategy(poptorch.ShardedExecution())

        The file is not executed: a call's arguments are literals, names of `poptorch` that an option can
        need, and torch's types. What cannot be read is a ConfigFileError.
        """
        applyFile(self, filepath, _configNames())
        return self

    def from_json(self, string: str) -> "Options":
        """Apply an object of "setter": argument. A list has all the arguments; "Enum.Member" is that.

            {"deviceIterations": 4, "outputMode": ["OutputMode.EveryN", 2], "_Popart.set": ["k", 1]}
        """
        settings = json.loads(string)
        check(isinstance(settings, dict), f"Expected a JSON object but got {string!r}")
        for accessor, value in settings.items():
            args = value if isinstance(value, list) else [value]
            self._setter(accessor)(*(_toEnum(a) for a in args))
        return self

    def _setter(self, accessor: str) -> Callable:
        target: Any = self
        for part in accessor.split("."):
            if part.startswith("_") and part != "_Popart":
                raise AttributeError(f"Invalid attribute {part}")
            target = getattr(target, part)
        if not callable(target):
            raise AttributeError(f"{accessor} is not a setter")
        return target

    def toDict(self) -> Dict[str, Any]:
        """Everything, merged, for the executor. The output mode must no longer be Default."""
        check(not self.defaultOutputMode(), "The output mode must be set before options are passed on")
        self.checkRanges()
        merged = super().toDict()
        for group in self._groups().values():
            merged.update(group.toDict())
        merged.update(self._execution_strategy.backendOptions())
        return merged

    def checkRanges(self) -> None:
        """For compiling: an Error if a count is not positive, or EveryN does not divide the iterations."""
        counts = {"deviceIterations": self.device_iterations, "replicationFactor": self.replication_factor,
                  "Training.gradientAccumulation": self._training.gradient_accumulation}
        for name, count in counts.items():
            if count < 1:
                raise createPoptorchError(f"{name} must be greater than 0, got {count}")
        strategy = self._training.meanAccumulationAndReplicationReductionStrategy
        if strategy == MeanReductionStrategy.PostAndLoss:
            raise createPoptorchError("MeanReductionStrategy.PostAndLoss is no longer supported")
        self._checkPeriod(self.output_mode, self.output_return_period)
        for _, use_model_mode, *rest in self.anchored_tensors.values():
            if not use_model_mode:
                self._checkPeriod(*rest)

    def _checkPeriod(self, mode: int, period: int) -> None:
        if mode == OutputMode.EveryN and self.device_iterations % period != 0:
            raise createPoptorchError(
                f"The period of OutputMode.EveryN ({period}) must divide deviceIterations "
                f"({self.device_iterations})")

    def clone(self) -> "Options":
        """A copy that can be changed."""
        return copy.deepcopy(self)

    def __deepcopy__(self, memo: Dict[int, Any]) -> "Options":
        other = memo[id(self)] = type(self).__new__(type(self))
        other.__dict__.update(copy.deepcopy(self.__dict__, memo))
        other._unfreeze()
        return other

    def forThisMachine(self) -> "Options":
        """What was compiled for a machine that was not there runs on this one: no pinned version of the hardware,
        and devices are taken."""
        self._values.pop("ipu_version", None)
        if self.connection_type == ConnectionType.Never:
            self.connectionType(ConnectionType.Always)
        return self

    def _freeze(self) -> None:
        super()._freeze()
        for group in self._groups().values():
            group._freeze()

    def _unfreeze(self) -> None:
        super()._unfreeze()
        for group in self._groups().values():
            group._unfreeze()

    def __repr__(self) -> str:
        shown = {name: v for name, v in self._values.items() if name not in self._HIDDEN}
        return f"Options({_listing({**shown, **self._groups()})})"

    # What the environment adds, for the executor.

    @property
    def engine_options(self) -> Dict[str, str]:
        """Options of the execution engine, those of POPLAR_ENGINE_OPTIONS winning."""
        return {**self._popart_options.options.get("engineOptions", {}), **_engineEnvironment()}

    @property
    def uses_ipu_model(self) -> bool:
        """useIpuModel, or else POPTORCH_IPU_MODEL or POPTORCH_SMALL_IPU_MODEL."""
        if self.exists("use_model"):
            return self.use_model
        return any(os.environ.get(v, "0") == "1" for v in ("POPTORCH_IPU_MODEL", "POPTORCH_SMALL_IPU_MODEL"))

    @property
    def device_kind(self) -> Tuple[int, int]:
        """For the compiler: the kind of the devices, and their memory in bytes or 0 for the kind's."""
        memory = self._popart_options.options.get("deviceMemory", 0)
        if not isinstance(memory, int) or memory < 0:
            raise createPoptorchError(f"deviceMemory is a number of bytes, got {memory!r}")
        if self.exists("gpu"):
            return _GPUS[self.gpu], memory
        if not self.uses_ipu_model and not self.exists("ipu_version"):
            return 0, memory
        kind = _MODELS[self.ipu_version if self.exists("ipu_version") else _modelVersion()]
        return kind, memory

    @property
    def synthetic_data(self) -> int:
        """syntheticDataMode: 0 for the host's data, 1 zeros, 2 normal, 3 uniform numbers."""
        mode = self._popart_options.options.get("syntheticDataMode", 0)
        if mode not in (0, 1, 2, 3):
            raise createPoptorchError(f"syntheticDataMode is 0, 1, 2 or 3, got {mode!r}")
        return int(mode)

    @property
    def cache_path(self) -> Optional[str]:
        """Where compiled models are kept, or None."""
        popart = self._popart_options.options
        return popart.get("cachePath") if popart.get("enableEngineCaching") else None


#: What strategies add to Options.toDict().
_STRATEGY_KEYS = frozenset("execution_mode separate_backward_phase serial_phases_execution tensors_liveness".split())


def validate(values: Dict[str, Any]) -> None:
    """An Error that names what is no option in the dictionary of Options.toDict()."""
    opts = Options()
    types = {**opts._types, **{k: t for group in opts._groups().values() for k, t in getattr(group, "_types", {}).items()}}
    unknown = [k for k in values if k not in types and k not in _STRATEGY_KEYS and k not in opts._popart_options.options]
    popart = _PopartOptions()
    popart.options = {k: values[k] for k in unknown}
    popart.checkKeys()
    for name, value in values.items():
        if name in types and not isinstance(value, types[name]):
            raise createPoptorchError(f"Unexpected type {type(value).__name__} for option {name}. Expected "
                                      f"{types[name].__name__}")


def _modelVersion() -> int:
    name = os.environ.get("POPTORCH_IPU_MODEL_VERSION", "ipu2")
    known = {f"ipu{version}": version for version in _MODELS}
    if name not in known:
        raise createPoptorchError(f"POPTORCH_IPU_MODEL_VERSION is ipu1, ipu2 or ipu21, got {name!r}")
    return known[name]


def _notA(name: str, value: Any) -> str:
    return f"Expected a poptorch.{name} but got {type(value).__name__}: {value!r}"


def _checkedPeriod(mode: Any, period: Optional[int]) -> int:
    """The period to store for an output mode: 1 unless EveryN."""
    check(isinstance(mode, OutputMode), _notA("OutputMode", mode))
    if mode == OutputMode.EveryN:
        check(isinstance(period, int) and period > 0,
              f"EveryN needs a positive output_return_period, got {period!r}")
        return period or 1
    if period is not None:
        logger.info("The output_return_period of %s is ignored: only EveryN has one", period)
    return 1


def _engineEnvironment() -> Dict[str, str]:
    """POPLAR_ENGINE_OPTIONS; what is not a JSON object in there is an Error."""
    text = os.environ.get(_ENGINE_OPTIONS, "") or "{}"
    try:
        found = json.loads(text)
    except ValueError as e:
        raise createPoptorchError(f"{_ENGINE_OPTIONS} is not JSON ({e}): {text}") from e
    if not isinstance(found, dict):
        raise createPoptorchError(f"{_ENGINE_OPTIONS} is not a JSON object: {text}")
    return found


def _toEnum(value: Any) -> Any:
    """The member that "EnumName.Member" names; any other value as it is."""
    if not isinstance(value, str) or value.count(".") != 1:
        return value
    kind, member = value.split(".")
    if kind not in enums.__all__:
        return value
    try:
        return getattr(enums, kind)[member]
    except KeyError:
        raise AttributeError(f"{kind} has no member {member}") from None


def _configNames() -> Dict[str, Any]:
    """What a config file can call `poptorch.X`."""
    from . import blocks
    names = {name: getattr(enums, name) for name in enums.__all__}
    names.update({name: getattr(blocks, name) for name in blocks.__all__})
    names.update(TensorLocationSettings=TensorLocationSettings)
    return names


__all__ = ["ConfigFileError", "Options", "TensorLocationSettings"]
