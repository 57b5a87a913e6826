"""The enumerations of the package, with the names and values that programs, option files and saved
options rely on. All are integers except the last two, which are strings.
"""

import enum


class OutputMode(enum.IntEnum):
    """Which of a call's micro-batch results come back to the host."""

    Final = 0    #: the last micro-batch of each replica
    EveryN = 1   #: those of every Nth device iteration
    All = 2      #: every one, in the order of the input rows
    Sum = 3      #: their sum, one per replica
    Default = 4  #: Final when training, All for inference


#: The name of OutputMode before release 2.4.
AnchorMode = OutputMode


class ConnectionType(enum.IntEnum):
    """When a model takes its devices."""

    Always = 0    #: before compiling
    OnDemand = 1  #: after compiling
    Never = 2     #: not at all: compile only


class ReductionType(enum.IntEnum):
    """How gradients of several micro-batches become one."""

    Sum = 0
    Mean = 1
    NoReduction = 2


class MeanReductionStrategy(enum.IntEnum):
    """When the mean of ReductionType.Mean is divided."""

    Running = 0      #: a running mean, safe in half precision
    Post = 1         #: add everything, divide once
    PostAndLoss = 2  #: deprecated; refused when compiling


class SyncPattern(enum.IntEnum):
    """How devices wait for each other. Accepted; no effect on our devices."""

    Full = 0
    SinglePipeline = 1
    ReplicaAndLadder = 2


class DataLoaderMode(enum.IntEnum):
    """How a DataLoader fetches."""

    Sync = 0            #: as torch's own
    Async = 1           #: a separate process stays ahead of the model
    AsyncRebatched = 2  #: the same, and puts batches together from smaller ones


class SharingStrategy(enum.IntEnum):
    """How the dataset reaches an asynchronous loader's process."""

    SharedMemory = 0  #: spawn a process, pass the dataset through a pipe
    FileSystem = 1    #: spawn a process, pass the dataset through a temporary file
    Fork = 2          #: fork this process; not safe with threads
    ForkServer = 3    #: fork a clean server process


class HalfFloatCastingBehavior(enum.IntEnum):
    """Legacy; see Options.Precision.halfFloatCasting."""

    FloatDowncastToHalf = 0
    HalfUpcastToFloat = 1
    Default = 2


class Liveness(enum.IntEnum):
    """When phased execution moves tensors out of device memory."""

    AlwaysLive = 0
    OffChipAfterFwd = 1
    OffChipAfterFwdNoOverlap = 2
    OffChipAfterEachPhase = 3


class AutoStage(enum.IntEnum):
    """How blocks that no Stage names find their stage."""

    SameAsIpu = 0      #: stage = the block's ipu_id
    AutoIncrement = 1  #: one more for each new block


class MultiConvPlanType(enum.IntEnum):
    """How the convolutions of a MultiConv run."""

    Parallel = 0
    Serial = 1


class CommGroupType(enum.IntEnum):
    """How replicas are divided into groups."""

    All = 0
    Consecutive = 1
    Orthogonal = 2
    NoGrouping = 3


class VariableRetrievalMode(enum.IntEnum):
    """Which copies of a grouped parameter come back."""

    OnePerGroup = 0
    AllReplicas = 2


class MatMulSerializationMode(enum.Enum):
    """The dimension that serializedMatMul splits."""

    InputChannels = "input_channels"
    ReducingDim = "reducing_dim"
    OutputChannels = "output_channels"
    Disabled = "none"


class OverlapMode(enum.Enum):
    """What host transfers overlap with."""

    NoOverlap = "no_overlap"
    OverlapAccumulationLoop = "overlap_accumulation_loop"
    OverlapDeviceIterationLoop = "overlap_device_iteration_loop"


__all__ = [
    "AnchorMode", "AutoStage", "CommGroupType", "ConnectionType", "DataLoaderMode",
    "HalfFloatCastingBehavior", "Liveness", "MatMulSerializationMode", "MeanReductionStrategy",
    "MultiConvPlanType", "OutputMode", "OverlapMode", "ReductionType", "SharingStrategy",
    "SyncPattern", "VariableRetrievalMode",
]
