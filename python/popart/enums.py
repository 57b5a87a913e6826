"""The enumerations that Options._Popart.set() takes as numbers, and others that programs name.

One line each: what counts is that the numbers are those that PopTorch passes on.
"""

import enum


def _enum(name: str, members: str) -> enum.IntEnum:
    """Members that are numbered from 0."""
    return enum.IntEnum(name, members, start=0, module=__name__)    # type: ignore[return-value]


AccumulateOuterFragmentSchedule = _enum("AccumulateOuterFragmentSchedule",
                                        "Scheduler Serial OverlapCycleOptimized OverlapMemoryOptimized")
AutodiffStitchStrategy = _enum("AutodiffStitchStrategy", "RecomputeMinimal RecomputeAllNonInputs AddFwdOutputs "
                               "SafeAddFwdOutputs RecomputeAll")
BatchSerializationBatchSchedule = _enum("BatchSerializationBatchSchedule",
                                        "Scheduler Isomorphic OverlapOnIo OverlapOnCompute")
BatchSerializationMethod = _enum("BatchSerializationMethod", "UnrollDynamic UnrollStatic Loop")
BatchSerializationTransformContext = _enum("BatchSerializationTransformContext", "Fwd Bwd")
CommGroupType = _enum("CommGroupType", "All Consecutive Orthogonal Ungrouped")
DataType = _enum("DataType", "UINT8 INT8 UINT16 INT16 INT32 INT64 UINT32 UINT64 BOOL FLOAT FLOAT16 BFLOAT16 DOUBLE "
                 "COMPLEX64 COMPLEX128 STRING UNDEFINED")
DeviceConnectionType = _enum("DeviceConnectionType", "Always OnDemand Never")
ExecutionPhaseIOSchedule = _enum("ExecutionPhaseIOSchedule", "Preload OnDemand")
ExecutionPhaseSchedule = _enum("ExecutionPhaseSchedule", "Interleaving Batch BatchClusteredIO")
GradientTensorTrackingMethod = _enum("GradientTensorTrackingMethod", "AllNonViewChangingGradientTensors "
                                     "ConvAndMatmulGradients GradientsOfUserSpecifiedTensors")
Instrumentation = _enum("Instrumentation", "Outer Inner")
MeanReductionStrategy = _enum("MeanReductionStrategy", "Running Post PostAndLoss")
MergeVarUpdateType = _enum("MergeVarUpdateType", "Off All AutoLoose AutoTight")
PatternsLevel = _enum("PatternsLevel", "NoPatterns Minimal Default All")
RecomputationType = _enum("RecomputationType", "NoRecompute Standard NormOnly Pipeline RecomputeAll")
RecomputeType = _enum("RecomputeType", "Undefined Checkpoint Recompute Recomputed")
ReductionType = _enum("ReductionType", "Sum Mean NoReduction")
ReplicatedTensorSharding = _enum("ReplicatedTensorSharding", "Off On")
ScatterReduction = _enum("ScatterReduction", "Sum Max Min Mul NoReduction")
SubgraphCopyingStrategy = _enum("SubgraphCopyingStrategy", "OnEnterAndExit JustInTime")
SyncPattern = _enum("SyncPattern", "Full SinglePipeline ReplicaAndLadder")
SyntheticDataMode = _enum("SyntheticDataMode", "Off Zeros RandomNormal RandomUniform")
TensorStorage = _enum("TensorStorage", "OffChip OnChip")
TileSet = _enum("TileSet", "Compute IO")
VariableRetrievalMode = _enum("VariableRetrievalMode", "OnePerGroup AllReduceReplicas AllReplicas")
VirtualGraphMode = _enum("VirtualGraphMode", "Off Manual Auto ExecutionPhases Hybrid")

__all__ = [_name for _name, _value in list(globals().items()) if isinstance(_value, type) and issubclass(_value, enum.IntEnum)]
