"""poptorch.Options, the enumerations, the errors and the log: names, defaults, checks, messages."""

import collections
import copy
import enum
import io
import json
import logging
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import poptorch    # noqa: E402
from poptorch import _logging, autocasting, blocks, enums, errors, options    # noqa: E402
from poptorch.enums import (AnchorMode, CommGroupType, ConnectionType, MeanReductionStrategy,    # noqa: E402
                            OutputMode, ReductionType, SyncPattern)
from poptorch.options import Options, TensorLocationSettings    # noqa: E402

ENVIRONMENT = ["POPTORCH_CACHE_DIR", "POPTORCH_DEFAULT_OPTIONS", "POPLAR_ENGINE_OPTIONS", "POPTORCH_IPU_MODEL",
               "POPTORCH_SMALL_IPU_MODEL", "POPTORCH_IPU_MODEL_VERSION", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"]


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch):
    for name in ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def log():
    """The messages logged during a test, as (level, text)."""
    records = []
    handler = logging.Handler()
    handler.emit = lambda r: records.append((r.levelname, r.getMessage()))
    level = _logging.logger.level
    _logging.logger.addHandler(handler)
    _logging.logger.setLevel(1)
    yield records
    _logging.logger.setLevel(level)
    _logging.logger.removeHandler(handler)


def group(opts, path):
    """group(opts, "Training") is opts.Training; "" is opts."""
    return getattr(opts, path) if path else opts


# Enumerations.

ENUMS = {
    "OutputMode": {"Final": 0, "EveryN": 1, "All": 2, "Sum": 3, "Default": 4},
    "AnchorMode": {"Final": 0, "EveryN": 1, "All": 2, "Sum": 3, "Default": 4},
    "ConnectionType": {"Always": 0, "OnDemand": 1, "Never": 2},
    "ReductionType": {"Sum": 0, "Mean": 1, "NoReduction": 2},
    "MeanReductionStrategy": {"Running": 0, "Post": 1, "PostAndLoss": 2},
    "SyncPattern": {"Full": 0, "SinglePipeline": 1, "ReplicaAndLadder": 2},
    "DataLoaderMode": {"Sync": 0, "Async": 1, "AsyncRebatched": 2},
    "SharingStrategy": {"SharedMemory": 0, "FileSystem": 1, "Fork": 2, "ForkServer": 3},
    "HalfFloatCastingBehavior": {"FloatDowncastToHalf": 0, "HalfUpcastToFloat": 1, "Default": 2},
    "Liveness": {"AlwaysLive": 0, "OffChipAfterFwd": 1, "OffChipAfterFwdNoOverlap": 2, "OffChipAfterEachPhase": 3},
    "AutoStage": {"SameAsIpu": 0, "AutoIncrement": 1},
    "MultiConvPlanType": {"Parallel": 0, "Serial": 1},
    "CommGroupType": {"All": 0, "Consecutive": 1, "Orthogonal": 2, "NoGrouping": 3},
    "VariableRetrievalMode": {"OnePerGroup": 0, "AllReplicas": 2},
    "MatMulSerializationMode": {"InputChannels": "input_channels", "ReducingDim": "reducing_dim",
                                "OutputChannels": "output_channels", "Disabled": "none"},
    "OverlapMode": {"NoOverlap": "no_overlap", "OverlapAccumulationLoop": "overlap_accumulation_loop",
                    "OverlapDeviceIterationLoop": "overlap_device_iteration_loop"},
}


@pytest.mark.parametrize("name, member, value",
                         [(n, m, v) for n, members in ENUMS.items() for m, v in members.items()])
def test_enum_value(name, member, value):
    assert getattr(enums, name)[member].value == value


@pytest.mark.parametrize("name", ENUMS)
def test_enum_is_complete(name):
    cls = getattr(enums, name)
    assert {m.name: m.value for m in cls} == ENUMS[name]
    is_int = name not in ("MatMulSerializationMode", "OverlapMode")
    assert issubclass(cls, enum.IntEnum) == is_int


def test_every_enum_is_listed():
    assert set(ENUMS) == set(enums.__all__)
    assert AnchorMode is OutputMode


# Defaults.

DEFAULTS = {
    "": {"replication_factor": 1, "input_group_size": 1, "input_cgt": CommGroupType.Consecutive,
         "broadcast_buffers": True, "device_iterations": 1, "log_dir": ".", "max_repeat_logs": 4,
         "auto_round_num_ipus": False, "anchored_tensors": {}, "output_mode": 4, "output_return_period": 1,
         "connection_type": 0, "sync_pattern": 0, "available_memory_proportion": {},
         "show_compilation_progress_bar": True, "relax_optimizer_checks": False,
         "module_namescope_enabled": True, "updatable_named_buffers": [],
         "source_location_excludes": ["install/poptorch", "site-packages/torch", "site-packages/poptorch"]},
    "Training": {"gradient_accumulation": 1, "accumulation_and_replication_reduction_type": ReductionType.Mean,
                 "meanAccumulationAndReplicationReductionStrategy": MeanReductionStrategy.Post},
    "Precision": {"autocast_enabled": True},
    "Distributed": {"num_distributed_processes": 1, "distributed_process_id": 0},
}


@pytest.mark.parametrize("where, name, value",
                         [(w, n, v) for w, values in DEFAULTS.items() for n, v in values.items()])
def test_default(where, name, value):
    target = group(Options(), where)
    assert getattr(target, name) == value
    assert target(name) == value
    assert target.exists(name)


@pytest.mark.parametrize("name", ["random_seed", "use_model", "ipu_id", "ipu_version", "model_name"])
def test_unset_until_set(name):
    opts = Options()
    assert not opts.exists(name)
    with pytest.raises(AttributeError, match="Invalid attribute"):
        getattr(opts, name)


@pytest.mark.parametrize("key, value", [("instrumentWithHardwareCycleCounter", False),
                                        ("rearrangeAnchorsOnHost", False)])
def test_popart_default(key, value):
    assert Options()._Popart.options[key] is value


# Setters: (group, method, arguments, what must then be stored). "!key" is a key of _Popart.

SETTERS = [
    ("", "deviceIterations", (50,), {"device_iterations": 50}),
    ("", "replicationFactor", (4,), {"replication_factor": 4}),
    ("", "inputReplicaGrouping", (1, CommGroupType.Orthogonal), {"input_cgt": CommGroupType.Orthogonal}),
    ("", "inputReplicaGrouping", (7, CommGroupType.NoGrouping),
     {"input_group_size": 1, "input_cgt": CommGroupType.Consecutive}),
    ("", "broadcastBuffers", (), {"broadcast_buffers": True}),
    ("", "broadcastBuffers", (False,), {"broadcast_buffers": False}),
    ("", "outputMode", (OutputMode.Final,), {"output_mode": 0, "output_return_period": 1}),
    ("", "outputMode", (OutputMode.EveryN, 20), {"output_mode": 1, "output_return_period": 20}),
    ("", "outputMode", (OutputMode.All,), {"output_mode": 2}),
    ("", "outputMode", (OutputMode.Sum,), {"output_mode": 3}),
    ("", "outputMode", (OutputMode.All, 5), {"output_mode": 2, "output_return_period": 1}),
    ("", "anchorMode", (AnchorMode.All,), {"output_mode": 2}),
    ("", "anchorMode", (AnchorMode.EveryN, 3), {"output_mode": 1, "output_return_period": 3}),
    ("", "autoRoundNumIPUs", (), {"auto_round_num_ipus": True}),
    ("", "autoRoundNumIPUs", (False,), {"auto_round_num_ipus": False}),
    ("", "setAvailableMemoryProportion", ({"IPU0": 0.5, "IPU11": 0.1},),
     {"available_memory_proportion": {0: 0.5, 11: 0.1}}),
    ("", "randomSeed", (42,), {"random_seed": 42}),
    ("", "useIpuModel", (True,), {"use_model": True}),
    ("", "useIpuModel", (False,), {"use_model": False}),
    ("", "useIpuId", (3,), {"ipu_id": 3}),
    ("", "useOfflineIpuTarget", (), {"ipu_version": 2, "connection_type": 2}),
    ("", "useOfflineIpuTarget", (1,), {"ipu_version": 1, "connection_type": 2}),
    ("", "useOfflineIpuTarget", (21,), {"ipu_version": 21, "connection_type": 2}),
    ("", "connectionType", (ConnectionType.Always,), {"connection_type": 0}),
    ("", "connectionType", (ConnectionType.OnDemand,), {"connection_type": 1}),
    ("", "connectionType", (ConnectionType.Never,), {"connection_type": 2}),
    ("", "syncPattern", (SyncPattern.Full,), {"sync_pattern": 0}),
    ("", "syncPattern", (SyncPattern.SinglePipeline,), {"sync_pattern": 1}),
    ("", "syncPattern", (SyncPattern.ReplicaAndLadder,), {"sync_pattern": 2}),
    ("", "enableExecutableCaching", ("cache",), {"!enableEngineCaching": True, "!cachePath": "cache"}),
    ("", "enableExecutableCaching", (None,), {"!enableEngineCaching": False}),
    ("", "enableProfiling", (), {"!engineOptions": {"debug.allowOutOfMemory": "true",
                                                    "autoReport.directory": ".", "autoReport.all": "true"}}),
    ("", "enableProfiling", ("p",), {"!engineOptions": {"debug.allowOutOfMemory": "true",
                                                        "autoReport.directory": "p", "autoReport.all": "true"}}),
    ("", "modelName", ("net",), {"model_name": "net"}),
    ("", "logCycleCount", (True,), {"!instrumentWithHardwareCycleCounter": True}),
    ("", "logDir", ("logs",), {"log_dir": "logs"}),
    ("", "maxRepeatLogs", (7,), {"max_repeat_logs": 7}),
    ("", "maxRepeatLogs", (None,), {"max_repeat_logs": 2**64 - 1}),
    ("", "enableStableNorm", (True,), {"!enableStableNorm": True}),
    ("", "enableSyntheticData", (True,), {"!syntheticDataMode": 2}),
    ("", "enableSyntheticData", (False,), {"!syntheticDataMode": 0}),
    ("", "disableModuleNamescope", (), {"module_namescope_enabled": False}),
    ("", "updatableNamedBuffers", (["a", "b"],), {"updatable_named_buffers": ["a", "b"]}),
    ("", "showCompilationProgressBar", (), {"show_compilation_progress_bar": True}),
    ("", "showCompilationProgressBar", (False,), {"show_compilation_progress_bar": False}),
    ("", "relaxOptimizerAttributesChecks", (), {"relax_optimizer_checks": True}),
    ("", "relaxOptimizerAttributesChecks", (False,), {"relax_optimizer_checks": False}),
    ("", "sourceLocationExcludes", (["x"],), {"source_location_excludes": ["x"]}),
    ("", "appendToLocationExcludes", ("x", "y"),
     {"source_location_excludes": options.SOURCE_EXCLUDES + ["x", "y"]}),
    ("Training", "gradientAccumulation", (10,), {"gradient_accumulation": 10}),
    ("Training", "accumulationAndReplicationReductionType", (ReductionType.Sum,),
     {"accumulation_and_replication_reduction_type": ReductionType.Sum}),
    ("Training", "accumulationAndReplicationReductionType", (ReductionType.Mean,),
     {"accumulation_and_replication_reduction_type": ReductionType.Mean}),
    ("Training", "setMeanAccumulationAndReplicationReductionStrategy", (MeanReductionStrategy.Running,),
     {"meanAccumulationAndReplicationReductionStrategy": MeanReductionStrategy.Running}),
    ("Training", "setAutomaticLossScaling", (True,), {"!automaticLossScalingSettings.enabled": True}),
    ("Training", "setAutomaticLossScaling", (False,), {"!automaticLossScalingSettings.enabled": False}),
    ("Training", "setConvolutionDithering", (True,), {"!convolutionOptions": {"enableConvDithering": "true"}}),
    ("Precision", "enableFloatingPointExceptions", (True,), {"!enableFloatingPointChecks": True}),
    ("Precision", "enableFloatingPointExceptions", (False,), {"!enableFloatingPointChecks": False}),
    ("Precision", "enableStochasticRounding", (True,), {"!enableStochasticRounding": True}),
    ("Precision", "enableStochasticRounding", (False,), {"!enableStochasticRounding": False}),
    ("Precision", "setPartialsType", (torch.half,),
     {"!partialsTypeMatMuls": "half", "!convolutionOptions": {"partialsType": "half"}}),
    ("Precision", "setPartialsType", (torch.float,),
     {"!partialsTypeMatMuls": "float", "!convolutionOptions": {"partialsType": "float"}}),
    ("Precision", "halfFloatCasting", (enums.HalfFloatCastingBehavior.Default,), {}),
    ("Precision", "runningStatisticsAlwaysFloat", (True,), {}),
    ("Precision", "autocastEnabled", (False,), {"autocast_enabled": False}),
    ("Jit", "traceModel", (False,), {}),
    ("TensorLocations", "setActivationLocation", (TensorLocationSettings().useOnChipStorage(),),
     {"location_activation": {"onChip": 1}}),
    ("TensorLocations", "setWeightLocation", (TensorLocationSettings().useReplicatedTensorSharding(),),
     {"location_weight": {"useReplicatedTensorSharding": 1}}),
    ("TensorLocations", "setOptimizerLocation", (TensorLocationSettings().useOnChipStorage(False),),
     {"location_optimizer": {"onChip": 0}}),
    ("TensorLocations", "setAccumulatorLocation", (TensorLocationSettings().minElementsForOffChip(9),),
     {"location_accumulator": {"minElementsForOffChip": 9}}),
    ("TensorLocations", "numIOTiles", (32,), {"num_io_tiles": 32}),
    ("TensorLocations", "numIOTiles", (192,), {"num_io_tiles": 192}),
    ("Distributed", "configureProcessId", (2, 4), {"num_distributed_processes": 4, "distributed_process_id": 2}),
    ("Distributed", "disable", (), {"num_distributed_processes": 1, "distributed_process_id": 0}),
    ("Distributed", "setEnvVarNames", ("NOT_SET_A", "NOT_SET_B"),
     {"num_distributed_processes": 1, "distributed_process_id": 0}),
    ("_Popart", "set", ("k", 1), {"!k": 1}),
    ("_Popart", "set", ("defaultPrefetchBufferingDepth", 3), {"!defaultPrefetchBufferingDepth": 3}),
    ("_Popart", "setEngineOptions", ({"a": "b"},), {"!engineOptions": {"a": "b"}}),
    ("_Popart", "setPatterns", ({"P": True},), {"!patterns": {"P": True}, "!patterns_level": 2}),
    ("_Popart", "setPatterns", ({"P": False}, 0), {"!patterns": {"P": False}, "!patterns_level": 0}),
    ("", "setExecutionStrategy", (blocks.ShardedExecution(),), {}),
]
SETTER_IDS = [f"{w}.{m}{i}" for i, (w, m, _, _) in enumerate(SETTERS)]


@pytest.mark.parametrize("where, method, args, stored", SETTERS, ids=SETTER_IDS)
def test_setter_stores_and_chains(where, method, args, stored):
    opts = Options()
    target = group(opts, where)
    assert getattr(target, method)(*args) is target
    for name, value in stored.items():
        found = opts._Popart.options[name[1:]] if name[0] == "!" else target(name)
        assert found == value
    assert isinstance(repr(opts), str)


@pytest.mark.parametrize("where, method, args, stored", SETTERS, ids=SETTER_IDS)
def test_setter_refused_when_frozen(where, method, args, stored):
    opts = Options()
    opts._freeze()
    before = repr(opts)
    with pytest.raises(AttributeError, match="Can't modify frozen Options"):
        getattr(group(opts, where), method)(*args)
    assert repr(opts) == before


@pytest.mark.parametrize("where, method, args, stored", SETTERS, ids=SETTER_IDS)
def test_clone_of_frozen_can_be_set_and_leaves_the_original(where, method, args, stored):
    opts = Options()
    opts._freeze()
    before = repr(opts)
    clone = opts.clone()
    getattr(group(clone, where), method)(*args)
    assert repr(opts) == before
    assert group(clone, where) is not group(opts, where)


@pytest.mark.parametrize("where, method, args, stored", SETTERS, ids=SETTER_IDS)
def test_pickle_keeps_what_was_set(where, method, args, stored):
    opts = Options()
    getattr(group(opts, where), method)(*args)
    again = pickle.loads(pickle.dumps(opts))
    for name, value in stored.items():
        found = again._Popart.options[name[1:]] if name[0] == "!" else group(again, where)(name)
        assert found == value
    assert group(again, "Training")._popart is again._Popart


# Misuse: (group, method, arguments, exception, words of the message).

def grouped(opts, size, kind):
    return opts.replicationFactor(4).inputReplicaGrouping(size, kind)


MISUSE = [
    ("", "deviceIterations", ("4",), AssertionError, "Unexpected type str for option device_iterations. Expected int"),
    ("", "deviceIterations", (4.0,), AssertionError, "Unexpected type float"),
    ("", "deviceIterations", (None,), AssertionError, "Unexpected type NoneType"),
    ("", "replicationFactor", ([1],), AssertionError, "Unexpected type list for option replication_factor"),
    ("", "inputReplicaGrouping", (1, CommGroupType.All), ValueError, "CommGroupType.All"),
    ("", "inputReplicaGrouping", (2, CommGroupType.Consecutive), ValueError, "greater than the replication factor"),
    ("", "inputReplicaGrouping", (0, CommGroupType.Consecutive), ValueError, "not a factor"),
    ("", "broadcastBuffers", (1,), AssertionError, "Unexpected type int"),
    ("", "outputMode", (2,), AssertionError, "OutputMode"),
    ("", "outputMode", ("All",), AssertionError, "OutputMode"),
    ("", "outputMode", (ConnectionType.Always,), AssertionError, "OutputMode"),
    ("", "outputMode", (OutputMode.EveryN,), AssertionError, "output_return_period"),
    ("", "outputMode", (OutputMode.EveryN, 0), AssertionError, "positive"),
    ("", "outputMode", (OutputMode.EveryN, -2), AssertionError, "positive"),
    ("", "anchorMode", (2,), AssertionError, "OutputMode"),
    ("", "anchorTensor", ("s", "l", 2), AssertionError, "OutputMode"),
    ("", "anchorTensor", ("s", "l", OutputMode.EveryN, 0), AssertionError, "positive"),
    ("", "setExecutionStrategy", ("pipelined",), AssertionError, "execution strategy"),
    ("", "setExecutionStrategy", (blocks.PipelinedExecution,), AssertionError, "execution strategy"),
    ("", "autoRoundNumIPUs", ("yes",), AssertionError, "Unexpected type str"),
    ("", "setAvailableMemoryProportion", ({"GPU0": 0.5},), AssertionError, "IPU0"),
    ("", "setAvailableMemoryProportion", ({"IPUx": 0.5},), AssertionError, "IPUx"),
    ("", "setAvailableMemoryProportion", ({0: 0.5},), AssertionError, "IPU0"),
    ("", "setAvailableMemoryProportion", ([0.5],), AssertionError, "dict"),
    ("", "randomSeed", ("1",), AssertionError, "integer"),
    ("", "randomSeed", (1.5,), AssertionError, "integer"),
    ("", "useIpuModel", (1,), AssertionError, "Unexpected type int"),
    ("", "useIpuId", ("0",), AssertionError, "Unexpected type str"),
    ("", "useOfflineIpuTarget", (3,), AssertionError, "1, 2 or 21"),
    ("", "connectionType", (0,), AssertionError, "ConnectionType"),
    ("", "connectionType", ("Never",), AssertionError, "ConnectionType"),
    ("", "syncPattern", (1,), AssertionError, "SyncPattern"),
    ("", "modelName", (3,), AssertionError, "Unexpected type int"),
    ("", "logCycleCount", (1,), AssertionError, "bool"),
    ("", "logDir", (1,), AssertionError, "Unexpected type int"),
    ("", "maxRepeatLogs", ("4",), AssertionError, "Unexpected type str"),
    ("", "enableStableNorm", (1,), AssertionError, "bool"),
    ("", "enableSyntheticData", ("x",), AssertionError, "bool"),
    ("", "updatableNamedBuffers", ("a",), AssertionError, "Expected list"),
    ("", "showCompilationProgressBar", (1,), AssertionError, "Expected bool"),
    ("", "relaxOptimizerAttributesChecks", (1,), AssertionError, "Expected bool"),
    ("", "sourceLocationExcludes", ("a",), AssertionError, "Expected list"),
    ("", "appendToLocationExcludes", (1,), AssertionError, "strings"),
    ("Training", "gradientAccumulation", ("2",), AssertionError, "Unexpected type str"),
    ("Training", "gradientAccumulation", (2.0,), AssertionError, "Unexpected type float"),
    ("Training", "accumulationAndReplicationReductionType", (ReductionType.NoReduction,), ValueError, "Sum"),
    ("Training", "accumulationAndReplicationReductionType", ("mean",), ValueError, "Mean"),
    ("Training", "setMeanAccumulationAndReplicationReductionStrategy", (1,), AssertionError, "MeanReductionStrategy"),
    ("Training", "setAutomaticLossScaling", (1,), AssertionError, "bool"),
    ("Training", "setConvolutionDithering", ("on",), AssertionError, "bool"),
    ("Precision", "enableFloatingPointExceptions", (1,), AssertionError, "bool"),
    ("Precision", "enableFloatingPointExceptions", (None,), AssertionError, "bool"),
    ("Precision", "enableStochasticRounding", (0,), AssertionError, "bool"),
    ("Precision", "setPartialsType", (torch.int32,), ValueError, "torch.float or torch.half"),
    ("Precision", "setPartialsType", ("half",), ValueError, "torch.float or torch.half"),
    ("Precision", "runningStatisticsAlwaysFloat", (1,), ValueError, "bool"),
    ("Precision", "autocastEnabled", (1,), AssertionError, "Expected bool"),
    ("Precision", "autocastPolicy", ({},), AssertionError, "Expected Policy"),
    ("Jit", "traceModel", (True,), ValueError, "no longer supported"),
    ("TensorLocations", "setActivationLocation", ({},), AssertionError, "TensorLocationSettings"),
    ("TensorLocations", "setWeightLocation", (None,), AssertionError, "TensorLocationSettings"),
    ("TensorLocations", "setOptimizerLocation", ("host",), AssertionError, "TensorLocationSettings"),
    ("TensorLocations", "setAccumulatorLocation", (0,), AssertionError, "TensorLocationSettings"),
    ("TensorLocations", "numIOTiles", (30,), AssertionError, "between 32 and 192"),
    ("TensorLocations", "numIOTiles", (194,), AssertionError, "between 32 and 192"),
    ("TensorLocations", "numIOTiles", (33,), AssertionError, "even"),
    ("TensorLocations", "numIOTiles", ("32",), AssertionError, "integer"),
    ("Distributed", "configureProcessId", ("0", 1), AssertionError, "distributed_process_id"),
    ("Distributed", "configureProcessId", (0, None), AssertionError, "num_distributed_processes"),
    ("_Popart", "set", (1, 2), AssertionError, "string"),
    ("_Popart", "setEngineOptions", ("a=b",), AssertionError, "dict"),
    ("_Popart", "setPatterns", (["P"],), AssertionError, "dict"),
    ("_Popart", "setPatterns", ({}, "2"), AssertionError, "integer"),
]


@pytest.mark.parametrize("where, method, args, error, words", MISUSE,
                         ids=[f"{w}.{m}{i}" for i, (w, m, *_) in enumerate(MISUSE)])
def test_misuse(where, method, args, error, words):
    opts = Options()
    before = repr(opts)
    with pytest.raises(error, match=re.escape(words)):
        getattr(group(opts, where), method)(*args)
    assert repr(opts) == before


@pytest.mark.parametrize("size, ok", [(1, True), (2, True), (4, True), (3, False), (5, False), (8, False)])
def test_input_groups_divide_the_replicas(size, ok):
    if ok:
        assert grouped(Options(), size, CommGroupType.Consecutive).input_group_size == size
    else:
        with pytest.raises(ValueError, match=f"Input group size {size}"):
            grouped(Options(), size, CommGroupType.Orthogonal)


# Attributes.

WRITABLE = [("", "device_iterations", 3), ("", "replication_factor", 2), ("", "log_dir", "x"),
            ("", "random_seed", 7), ("", "output_mode", OutputMode.All), ("", "use_model", True),
            ("Training", "gradient_accumulation", 5), ("Distributed", "distributed_process_id", 1),
            ("TensorLocations", "location_weight", {"onChip": 0}), ("Precision", "autocast_enabled", False)]


@pytest.mark.parametrize("where, name, value", WRITABLE)
def test_attribute_can_be_written(where, name, value):
    target = group(Options(), where)
    setattr(target, name, value)
    assert getattr(target, name) == value
    target._freeze()
    with pytest.raises(AttributeError, match="Can't modify frozen Options"):
        setattr(target, name, value)


@pytest.mark.parametrize("where", ["", "Training", "Precision", "Distributed", "TensorLocations", "Jit"])
def test_unknown_names(where):
    target = group(Options(), where)
    with pytest.raises(AssertionError, match="Invalid option"):
        target.no_such_thing = 1
    with pytest.raises(AssertionError, match="Invalid option"):
        target("no_such_thing")
    with pytest.raises(AttributeError, match="Invalid attribute"):
        target.no_such_thing    # pylint: disable=pointless-statement
    assert not target.exists("no_such_thing")


@pytest.mark.parametrize("where", ["Training", "Precision", "Distributed", "TensorLocations", "Jit", "_Popart"])
def test_groups_are_read_only(where):
    opts = Options()
    if where != "_Popart":
        with pytest.raises(AssertionError, match="Invalid option"):
            setattr(opts, where, 1)
    assert group(opts, where) is group(opts, where)


# Behaviour.

def test_chain_of_the_basics_tutorial():
    opts = Options().deviceIterations(20).replicationFactor(2).randomSeed(123).useIpuModel(True)
    assert (opts.device_iterations, opts.replication_factor, opts.random_seed, opts.use_model) == (20, 2, 123, True)


def test_random_seed_seeds_torch():
    Options().randomSeed(99)
    assert torch.initial_seed() == 99
    frozen = Options()
    frozen._freeze()
    with pytest.raises(AttributeError):
        frozen.randomSeed(5)
    assert torch.initial_seed() == 99


@pytest.mark.parametrize("mode", list(OutputMode))
def test_default_output_mode(mode):
    opts = Options()
    assert opts.defaultOutputMode() and opts.defaultAnchorMode()
    opts.outputMode(mode, 1 if mode == OutputMode.EveryN else None)
    assert opts.defaultOutputMode() == (mode == OutputMode.Default)


def test_period_of_another_mode_is_ignored_with_a_message(log):
    Options().outputMode(OutputMode.All, 5)
    assert [level for level, text in log if "ignored" in text] == ["INFO"]


ANCHORS = [
    ({}, ["long", True]),
    ({"output_mode": OutputMode.All}, ["long", False, 2, 1]),
    ({"output_mode": OutputMode.All, "output_return_period": 9}, ["long", False, 2, 1]),
    ({"output_mode": OutputMode.EveryN, "output_return_period": 9}, ["long", False, 1, 9]),
    ({"output_mode": OutputMode.EveryN}, ["long", False, 1, 1]),
    ({"anchor_mode": AnchorMode.Sum}, ["long", False, 3, 1]),
    ({"anchor_mode": AnchorMode.EveryN, "anchor_return_period": 4}, ["long", False, 1, 4]),
]


@pytest.mark.parametrize("kwargs, stored", ANCHORS)
def test_anchor_tensor(kwargs, stored):
    opts = Options()
    assert opts.anchorTensor("short", "long", **kwargs) is None
    assert opts.anchored_tensors == {"short": stored}
    opts._freeze()
    with pytest.raises(AttributeError, match="frozen"):
        opts.anchorTensor("other", "long")
    assert Options().anchored_tensors == {}


@pytest.mark.parametrize("call, words", [
    (lambda o: o.anchorMode(AnchorMode.All), "deprecated since version 2.4"),
    (lambda o: o.defaultAnchorMode(), "deprecated since version 2.4"),
    (lambda o: o.Jit.traceModel(False), "deprecated"),
    (lambda o: o.Precision.halfFloatCasting(1), "deprecated"),
    (lambda o: o.Precision.runningStatisticsAlwaysFloat(False), "deprecated")])
def test_legacy_calls_warn_once(log, call, words):
    opts = Options()
    call(opts)
    call(opts)
    assert [level for level, text in log if words in text] == ["WARNING"]


def test_freezing_reaches_every_group():
    opts = Options()
    opts._freeze()
    for name in ("Training", "Precision", "Distributed", "TensorLocations", "Jit", "_Popart"):
        assert group(opts, name)._is_frozen
        assert not group(opts.clone(), name)._is_frozen


def test_clone_is_deep():
    opts = Options()
    opts.anchorTensor("a", "b")
    clone = opts.clone()
    clone.anchorTensor("c", "d")
    clone.Training.gradientAccumulation(3)
    assert set(opts.anchored_tensors) == {"a"}
    assert opts.Training.gradient_accumulation == 1
    assert clone.Training._popart is clone._Popart
    assert copy.deepcopy(opts).anchored_tensors == opts.anchored_tensors


def test_strategy():
    opts = Options()
    assert isinstance(opts.execution_strategy, blocks.PipelinedExecution)
    strategy = blocks.ShardedExecution("a", "b")
    assert opts.setExecutionStrategy(strategy).execution_strategy is strategy
    assert opts.clone().execution_strategy.blocks() == ["a", "b"]


# Printing.

def test_repr_of_options():
    text = repr(Options().deviceIterations(10))
    assert text.startswith("Options(replication_factor=1, input_group_size=1, ")
    assert ", device_iterations=10, log_dir='.', " in text
    places = [text.index(f", {name}=") for name in
              ("Distributed", "Jit", "Precision", "TensorLocations", "Training", "_Popart")]
    assert places == sorted(places)
    assert text.endswith("_Popart=_PopartOptions(instrumentWithHardwareCycleCounter=False, "
                         "rearrangeAnchorsOnHost=False))")
    assert "show_compilation_progress_bar" not in text


def test_repr_of_groups_as_in_the_pipelining_tutorial():
    opts = Options()
    assert repr(opts.TensorLocations.setOptimizerLocation(TensorLocationSettings().useOnChipStorage(False))) == (
        "_TensorLocationOptions(location_optimizer={'onChip': 0}, _warnings={}, _warnings_disabled=set(), "
        "_is_frozen=False)")
    assert repr(opts.Training.gradientAccumulation(10)).startswith(
        "_TrainingOptions(gradient_accumulation=10, "
        "accumulation_and_replication_reduction_type=<ReductionType.Mean: 1>, "
        "meanAccumulationAndReplicationReductionStrategy=<MeanReductionStrategy.Post: 1>, ")


# Tensor locations.

LOCATIONS = [
    ("minElementsForOffChip", (5,), {"minElementsForOffChip": 5}),
    ("minElementsForReplicatedTensorSharding", (8192,), {"minElementsForReplicatedTensorSharding": 8192}),
    ("useOnChipStorage", (), {"onChip": 1}),
    ("useOnChipStorage", (False,), {"onChip": 0}),
    ("useOnChipStorage", (None,), {}),
    ("useReplicatedTensorSharding", (), {"useReplicatedTensorSharding": 1}),
    ("useReplicatedTensorSharding", (False,), {"useReplicatedTensorSharding": 0}),
    ("useIOTilesToLoad", (), {"useIOTilesToLoad": 1}),
    ("useIOTilesToLoad", (False,), {"useIOTilesToLoad": 0}),
    ("useIOTilesToStore", (), {"useIOTilesToStore": 1}),
    ("useIOTilesToStore", (False,), {"useIOTilesToStore": 0}),
]


@pytest.mark.parametrize("method, args, stored", LOCATIONS)
def test_location_setting(method, args, stored):
    settings = TensorLocationSettings()
    assert getattr(settings, method)(*args) is settings
    assert settings.toDict() == stored


@pytest.mark.parametrize("method, value", [
    ("minElementsForOffChip", "5"), ("minElementsForOffChip", 5.0), ("minElementsForOffChip", True),
    ("minElementsForReplicatedTensorSharding", None), ("useOnChipStorage", 1), ("useOnChipStorage", "no"),
    ("useReplicatedTensorSharding", 0), ("useIOTilesToLoad", None), ("useIOTilesToStore", "x")])
def test_location_misuse(method, value):
    with pytest.raises(AssertionError, match="needs a"):
        getattr(TensorLocationSettings(), method)(value)


def test_location_is_a_snapshot():
    settings = TensorLocationSettings().useOnChipStorage(False)
    opts = Options()
    opts.TensorLocations.setWeightLocation(settings)
    settings.useOnChipStorage(True)
    assert opts.TensorLocations.location_weight == {"onChip": 0}
    assert settings.useOnChipStorage(None).toDict() == {}


# Several processes.

def test_distributed_reads_mpi(monkeypatch):
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "8")
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "3")
    opts = Options()
    assert (opts.Distributed.numProcesses, opts.Distributed.processId) == (8, 3)
    opts.Distributed.disable()
    assert (opts.Distributed.numProcesses, opts.Distributed.processId) == (1, 0)


def test_distributed_own_variables(monkeypatch):
    monkeypatch.setenv("MY_SIZE", "2")
    monkeypatch.setenv("MY_RANK", "1")
    distributed = Options().Distributed.setEnvVarNames("MY_SIZE", "MY_RANK")
    assert (distributed.numProcesses, distributed.processId) == (2, 1)


# The environment.

def test_cache_directory(monkeypatch):
    assert Options().cache_path is None
    monkeypatch.setenv("POPTORCH_CACHE_DIR", "./cache")
    assert Options().cache_path == "./cache"
    assert Options().enableExecutableCaching("other").cache_path == "other"
    assert Options().enableExecutableCaching(None).cache_path is None
    assert Options().enableExecutableCaching(Path("p")).cache_path == "p"


@pytest.mark.parametrize("variables, call, expected", [
    ({}, None, False), ({"POPTORCH_IPU_MODEL": "1"}, None, True), ({"POPTORCH_IPU_MODEL": "0"}, None, False),
    ({"POPTORCH_SMALL_IPU_MODEL": "1"}, None, True), ({"POPTORCH_IPU_MODEL": "1"}, False, False), ({}, True, True)])
def test_simulated_device(monkeypatch, variables, call, expected):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    opts = Options()
    if call is not None:
        opts.useIpuModel(call)
    assert opts.uses_ipu_model is expected


@pytest.mark.parametrize("variables, calls, expected", [
    ({}, {}, (0, 0)), ({}, {"useIpuModel": True}, (1, 0)), ({"POPTORCH_IPU_MODEL": "1"}, {}, (1, 0)),
    ({"POPTORCH_IPU_MODEL": "1", "POPTORCH_IPU_MODEL_VERSION": "ipu1"}, {}, (2, 0)),
    ({"POPTORCH_IPU_MODEL_VERSION": "ipu21"}, {"useIpuModel": True}, (1, 0)),
    ({"POPTORCH_IPU_MODEL_VERSION": "ipu1"}, {}, (0, 0)), ({"POPTORCH_IPU_MODEL_VERSION": "x"}, {}, (0, 0)),
    ({"POPTORCH_SMALL_IPU_MODEL": "1"}, {}, (1, 0)),
    ({"POPTORCH_SMALL_IPU_MODEL": "1", "POPTORCH_IPU_MODEL_VERSION": "ipu1"}, {}, (2, 0)),
    ({"POPTORCH_SMALL_IPU_MODEL": "1"}, {"useIpuModel": False}, (0, 0)),
    ({}, {"useOfflineIpuTarget": 1}, (2, 0)), ({}, {"useOfflineIpuTarget": 2}, (1, 0))])
def test_kinds_of_devices(monkeypatch, variables, calls, expected):
    """The kind by its number in tessera.h, and the memory when it is not the kind's."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    opts = Options()
    for name, value in calls.items():
        getattr(opts, name)(value)
    assert opts.device_kind == expected
    opts._Popart.set("deviceMemory", 1000)
    assert opts.device_kind == (expected[0], 1000)


def test_wrong_kinds_of_devices(monkeypatch):
    monkeypatch.setenv("POPTORCH_IPU_MODEL_VERSION", "ipu3")
    with pytest.raises(errors.Error, match="POPTORCH_IPU_MODEL_VERSION is ipu1, ipu2 or ipu21, got 'ipu3'"):
        Options().useIpuModel(True).device_kind
    opts = Options()
    opts._Popart.set("deviceMemory", -1)
    with pytest.raises(errors.Error, match="deviceMemory is a number of bytes, got -1"):
        opts.device_kind


def test_engine_options_of_the_environment_win(monkeypatch, log):
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", '{"autoReport.directory":"./theirs"}')
    opts = Options().enableProfiling("ours")
    assert opts.engine_options == {"autoReport.directory": "./theirs", "autoReport.all": "true",
                                   "debug.allowOutOfMemory": "true"}
    assert [level for level, text in log if "autoReport.directory" in text] == ["WARNING"]


@pytest.mark.parametrize("text", ["{", "[1]", "nonsense"])
def test_bad_engine_options(monkeypatch, text):
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", text)
    with pytest.raises(errors.Error, match="POPLAR_ENGINE_OPTIONS"):
        Options().enableProfiling()


def test_default_options_of_the_environment(monkeypatch):
    monkeypatch.setenv("POPTORCH_DEFAULT_OPTIONS", '{"deviceIterations": 7}')
    assert Options().device_iterations == 7
    monkeypatch.setenv("POPTORCH_DEFAULT_OPTIONS", '{"nonsense": 7}')
    with pytest.raises(AttributeError, match="nonsense"):
        Options()


# JSON.

JSON = [
    ('{"deviceIterations": 4}', lambda o: o.device_iterations == 4),
    ('{"Training.gradientAccumulation": 3}', lambda o: o.Training.gradient_accumulation == 3),
    ('{"Precision.enableFloatingPointExceptions": true}',
     lambda o: o._Popart.options["enableFloatingPointChecks"] is True),
    ('{"_Popart.set": ["k", 1]}', lambda o: o._Popart.options["k"] == 1),
    ('{"outputMode": "OutputMode.All"}', lambda o: o.output_mode == 2),
    ('{"outputMode": ["OutputMode.EveryN", 5]}', lambda o: o.output_return_period == 5),
    ('{"connectionType": "ConnectionType.Never"}', lambda o: o.connection_type == 2),
    ('{"logDir": "a.b"}', lambda o: o.log_dir == "a.b"),
    ('{"disableModuleNamescope": []}', lambda o: not o.module_namescope_enabled),
    ('{"setAvailableMemoryProportion": {"IPU0": 0.5}}', lambda o: o.available_memory_proportion == {0: 0.5}),
    ('{"deviceIterations": 4, "replicationFactor": 2}', lambda o: o.device_iterations * o.replication_factor == 8),
    ('{}', lambda o: True),
]


@pytest.mark.parametrize("text, holds", JSON, ids=[t for t, _ in JSON])
def test_from_json(text, holds):
    opts = Options()
    assert opts.from_json(text) is opts
    assert holds(opts)


@pytest.mark.parametrize("text, error", [
    ("{", ValueError), ("[1]", AssertionError), ('{"nope": 1}', AttributeError), ('{"log_dir": "x"}', AttributeError),
    ('{"outputMode": "OutputMode.Nope"}', AttributeError), ('{"deviceIterations": "4"}', AssertionError),
    ('{"__class__.__init__": 1}', AttributeError), ('{"_freeze": []}', AttributeError),
    ('{"Training.nope": 1}', AttributeError), ('{"deviceIterations": [1, 2]}', TypeError)])
def test_bad_json(text, error):
    with pytest.raises(error):
        Options().from_json(text)


# Files.

def from_file(tmp_path, text, opts=None):
    path = tmp_path / "my.conf"
    path.write_text(text)
    return (opts or Options()).loadFromFile(str(path))


FILES = [
    ("deviceIterations(4)", lambda o: o.device_iterations == 4),
    ("deviceIterations(device_iterations=4)", lambda o: o.device_iterations == 4),
    ("  deviceIterations(4)   # of the loop", lambda o: o.device_iterations == 4),
    ("# deviceIterations(4)", lambda o: o.device_iterations == 1),
    ("", lambda o: o.device_iterations == 1),
    ("\n\n\ndeviceIterations(4)\n\n", lambda o: o.device_iterations == 4),
    ("deviceIterations(4)\ndeviceIterations(5)", lambda o: o.device_iterations == 5),
    ("deviceIterations(4).replicationFactor(2)", lambda o: o.replication_factor == 2),
    ("Training.gradientAccumulation(2)", lambda o: o.Training.gradient_accumulation == 2),
    ("setExecutionStrategy(poptorch.ShardedExecution())",
     lambda o: isinstance(o.execution_strategy, blocks.ShardedExecution)),
    ("setExecutionStrategy(poptorch.PipelinedExecution(poptorch.Stage('a', 'b').ipu(1), 'c'))",
     lambda o: o.execution_strategy.stage("b").ipu_id == 1 and o.execution_strategy.blocks() == ["a", "b", "c"]),
    ("setExecutionStrategy(poptorch.ShardedExecution(poptorch.AutoStage.AutoIncrement))",
     lambda o: o.execution_strategy.auto_stage == enums.AutoStage.AutoIncrement),
    ("outputMode(poptorch.OutputMode.EveryN, 3)", lambda o: o.output_return_period == 3),
    ("anchorMode(poptorch.AnchorMode.All)", lambda o: o.output_mode == 2),
    ("setAvailableMemoryProportion({'IPU0': 0.25})", lambda o: o.available_memory_proportion == {0: 0.25}),
    ("TensorLocations.setWeightLocation(poptorch.TensorLocationSettings().useOnChipStorage(False))",
     lambda o: o.TensorLocations.location_weight == {"onChip": 0}),
    ("Precision.setPartialsType(torch.half)", lambda o: o._Popart.options["partialsTypeMatMuls"] == "half"),
    ("_Popart.set('k', [1, (2, -3)])", lambda o: o._Popart.options["k"] == [1, (2, -3)]),
    ("maxRepeatLogs(None)", lambda o: o.max_repeat_logs == 2**64 - 1),
    ("broadcastBuffers(False)", lambda o: o.broadcast_buffers is False),
]


@pytest.mark.parametrize("text, holds", FILES, ids=range(len(FILES)))
def test_file(tmp_path, text, holds):
    opts = Options()
    assert from_file(tmp_path, text, opts) is opts
    assert holds(opts)


def test_a_second_file_overrides_what_it_mentions(tmp_path):
    opts = from_file(tmp_path, "deviceIterations(4)\nreplicationFactor(2)")
    from_file(tmp_path, "deviceIterations(5)", opts)
    assert (opts.device_iterations, opts.replication_factor) == (5, 2)


BAD_LINES = ["deviceIterations(", "deviceIterations", "4", "x = 3", "import os", "deviceIterations(4) x",
             "deviceIterations(lambda: 4)", "deviceIterations(__import__('os'))", "Training.__class__('x')",
             "deviceIterations([i for i in (1,)])", "logDir(f'{1}')", "logDir('a'.upper())", "logDir(*['a'])",
             "logDir(**{})", "_set(device_iterations=3)", "deviceIterations(2 + 2)", "deviceIterations(4); x()",
             "('a')('b') if 1 else 2", "\x00"]


@pytest.mark.parametrize("line", BAD_LINES)
def test_bad_line(tmp_path, line):
    with pytest.raises(errors.ConfigFileError) as e:
        from_file(tmp_path, "# one\n\ndeviceIterations(2)\n" + line)
    assert "line 4 of my.conf" in str(e.value)
    assert line.strip() in str(e.value)


def test_syntax_error_names_its_class(tmp_path):
    with pytest.raises(options.ConfigFileError, match="SyntaxError at line 1 of my.conf"):
        from_file(tmp_path, "deviceIterations(")


@pytest.mark.parametrize("line, error", [
    ("nope(1)", AttributeError), ("Training.nope(1)", AttributeError), ("deviceIterations('4')", AssertionError),
    ("outputMode(poptorch.Nope.All)", AttributeError), ("outputMode(nope)", NameError),
    ("outputMode(poptorch.OutputMode.Nope)", AttributeError), ("deviceIterations(1, 2)", TypeError),
    ("setExecutionStrategy(poptorch.DataLoader())", AttributeError), ("logDir(-'a')", TypeError),
    ("Precision.setPartialsType(torch.load('x'))", AttributeError)])
def test_other_errors_of_a_line_propagate(tmp_path, line, error):
    with pytest.raises(error):
        from_file(tmp_path, line)


def test_missing_file():
    with pytest.raises(FileNotFoundError):
        Options().loadFromFile("/no/such/file")


def test_deeply_nested_line_is_an_error_not_a_crash(tmp_path):
    with pytest.raises((errors.ConfigFileError, RecursionError)):
        from_file(tmp_path, "logDir(" + "(" * 5000 + ")" * 5000 + ")")


# For the executor.

def test_to_dict():
    opts = Options().deviceIterations(3)
    with pytest.raises(AssertionError, match="output mode"):
        opts.toDict()
    opts.outputMode(OutputMode.All)
    opts.Training.gradientAccumulation(2)
    opts._Popart.set("autoRecomputation", 1)
    found = opts.toDict()
    assert {k: found[k] for k in ("device_iterations", "gradient_accumulation", "autoRecomputation", "execution_mode",
                                  "output_mode", "num_distributed_processes")} == {
        "device_iterations": 3, "gradient_accumulation": 2, "autoRecomputation": 1, "execution_mode": 0,
        "output_mode": 2, "num_distributed_processes": 1}


@pytest.mark.parametrize("change, words", [
    (lambda o: o.deviceIterations(0), "deviceIterations"), (lambda o: o.deviceIterations(-1), "greater than 0"),
    (lambda o: o.replicationFactor(0), "replicationFactor"),
    (lambda o: o.Training.gradientAccumulation(0), "gradientAccumulation"),
    (lambda o: o.deviceIterations(4).outputMode(OutputMode.EveryN, 3), "divide"),
    (lambda o: o.deviceIterations(4).outputMode(OutputMode.EveryN, 8), "divide"),
    (lambda o: o.anchorTensor("a", "b", OutputMode.EveryN, 2), "divide"),
    (lambda o: o.Training.setMeanAccumulationAndReplicationReductionStrategy(MeanReductionStrategy.PostAndLoss),
     "PostAndLoss")])
def test_ranges_are_checked_when_compiling(change, words):
    opts = Options().outputMode(OutputMode.All)
    opts.checkRanges()
    change(opts)
    with pytest.raises(errors.Error, match=words):
        opts.toDict()


@pytest.mark.parametrize("key", [
    "autoRecomputation", "defaultPrefetchBufferingDepth", "defaultBufferingDepth", "syntheticDataMode",
    "enableOutlining", "outlineThreshold", "enableEngineCaching", "cachePath", "engineOptions", "reportOptions",
    "convolutionOptions", "matmulOptions", "lstmOptions", "gclOptions", "partialsTypeMatMuls",
    "automaticLossScalingSettings.binEdgeLocation", "batchSerializationSettings.factor",
    "accumulateOuterFragmentSettings.schedule", "explicitRecomputation", "enableGradientAccumulation",
    "virtualGraphMode", "saveInitializersToFile", "customCodelets", "numIOTiles", "compilationProgressTotal"])
def test_known_popart_key(key):
    opts = Options()
    opts._Popart.set(key, 1).checkKeys()


@pytest.mark.parametrize("key", ["nope", "autoRecomputation.x", "accumulateOuterFragmentSettings", ""])
def test_unknown_popart_key(key):
    with pytest.raises(errors.Error, match="Unknown .* option"):
        Options()._Popart.set(key, 1).checkKeys()


def test_engine_options_add_up():
    popart = Options()._Popart.setEngineOptions({"a": "1"}).setEngineOptions({"b": "2"})
    assert popart.options["engineOptions"] == {"a": "1", "b": "2"}


# Errors.

def test_python_error():
    e = errors.createPoptorchError("it broke")
    assert isinstance(e, errors.Error) and isinstance(e, Exception)
    assert str(e) == "'poptorch_py_error': it broke"
    assert (e.type, e.message, e.location) == ("poptorch_py_error", "it broke", "")


def test_native_error():
    e = errors.createNativeError("popart_exception", "bad", "run.c:12", ["inner", "outer"])
    assert str(e) == "In run.c:12: 'popart_exception': bad\nError raised in:\n  [0] inner\n  [1] outer"
    assert (e.type, e.message, e.location) == ("popart_exception", "bad", "run.c:12")


@pytest.mark.parametrize("action", errors.RECOVERY_ACTIONS)
def test_recoverable_error(action):
    e = errors.createNativeError("poplar_recoverable", "bad", recovery_action=action)
    assert isinstance(e, errors.RecoverableError) and e.recovery_action == action
    assert f"Recovery action required: {action}" in str(e)


@pytest.mark.parametrize("lines, written", [(80, False), (81, True)])
def test_long_message_goes_to_a_file(tmp_path, monkeypatch, lines, written):
    monkeypatch.chdir(tmp_path)
    text = "\n".join(f"line {i}" for i in range(lines))
    e = errors.createNativeError("std::exception", text)
    assert (tmp_path / "poptorch_error.log").exists() == written
    assert ("poptorch_error.log" in str(e)) == written
    assert e.message == text


@pytest.mark.parametrize("cls", [errors.RecoverableError, errors.UnrecoverableError])
def test_error_classes(cls):
    assert issubclass(cls, errors.Error)


def test_checks_survive_python_o(build_dir):
    code = ("import sys; sys.path.insert(0, 'python')\n"
            "from poptorch.options import Options\n"
            "try: Options().deviceIterations('x')\n"
            "except AssertionError: print('checked')")
    out = subprocess.run([sys.executable, "-O", "-c", code], cwd=build_dir, capture_output=True, text=True, timeout=60)
    assert out.stdout == "checked\n", out.stderr


# Log.

@pytest.fixture
def keep_level():
    level = _logging.getLogLevel()
    yield
    _logging.setLogLevel(level)


@pytest.mark.parametrize("level, shown", [
    ("TRACE", 10), ("TRACE_ALL", 10), ("DEBUG", 10), ("DEBUG_IR", 10), ("INFO", 20), ("WARN", 30), ("ERR", 40),
    ("OFF", None), (0, 10), (1, 10), (2, 20), (3, 30), (4, 40), (6, None)])
def test_log_level(keep_level, level, shown):
    _logging.setLogLevel(level)
    enabled = [n for n in (10, 20, 30, 40, 50) if _logging.logger.isEnabledFor(n)]
    assert (enabled[0] if enabled else None) == shown


@pytest.mark.parametrize("level", ["", "warn", "NOPE", 5, 7, -1, None])
def test_bad_log_level(keep_level, level):
    before = _logging.getLogLevel()
    with pytest.raises(ValueError, match="TRACE_ALL, TRACE, DEBUG_IR, DEBUG, INFO, WARN, ERR, OFF"):
        _logging.setLogLevel(level)
    assert _logging.getLogLevel() == before


@pytest.mark.parametrize("level", ["debug", "info", "warning", "error", "critical"])
def test_log_format(keep_level, monkeypatch, level):
    _logging.setLogLevel("DEBUG")
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    getattr(_logging.logger, level)("a %s", "message")
    pattern = r"\[\d\d:\d\d:\d\d\.\d{3}\] \[poptorch::python\] \[" + level + r"\] a message\n"
    assert re.fullmatch(pattern, stream.getvalue())


@pytest.mark.parametrize("level, colour", [("debug", "\033[36m"), ("info", ""), ("warning", "\033[1;33m"),
                                           ("error", "\033[1;31m"), ("critical", "\033[1;31m")])
def test_log_colours(level, colour):
    record = logging.LogRecord("poptorch::python", getattr(logging, level.upper()), "f", 1, "m", (), None)
    text = _logging._Formatter(True).format(record)
    assert (f"[{colour}{level}\033[0m]" if colour else f"[{level}]") in text


@pytest.mark.parametrize("variable, level", [("INFO", "INFO"), ("OFF", "OFF"), ("nonsense", "WARN"), (None, "WARN")])
def test_log_level_of_the_environment(root, variable, level):
    environment = {**os.environ, "PYTHONPATH": "python"}
    environment.pop("POPTORCH_LOG_LEVEL", None)
    if variable is not None:
        environment["POPTORCH_LOG_LEVEL"] = variable
    code = ("import importlib.util as u; s = u.spec_from_file_location('l', 'python/poptorch/_logging.py'); "
            "m = u.module_from_spec(s); s.loader.exec_module(m); print(m.getLogLevel())")
    out = subprocess.run([sys.executable, "-c", code], cwd=root, env=environment, capture_output=True, text=True,
                         timeout=60)
    assert out.stdout == level + "\n"
    assert ("nonsense" in out.stderr) == (variable == "nonsense")


def test_uncaught_exceptions_are_logged(log):
    _logging.logUncaught(ValueError, ValueError("oops"), None)
    assert log == [("CRITICAL", "ValueError: oops")]


# Legacy autocast.

def test_autocast_regions():
    assert not autocasting.isEnabled()
    with autocasting.autocast():
        assert autocasting.isEnabled()
        with autocasting.autocast(enabled=False):
            assert not autocasting.isEnabled()
        assert autocasting.isEnabled()
    assert not autocasting.isEnabled()
    assert autocasting.autocast()(autocasting.isEnabled)() is True


class Asks(torch.nn.Module):
    def forward(self, x, twice=False):
        return x, autocasting.isEnabled()


@pytest.mark.parametrize("enabled", [True, False])
def test_autocast_module(enabled):
    module = Asks()
    assert module(1) == (1, False)
    assert module.autocast(enabled) is module
    assert module(1) == (1, enabled)
    assert copy.deepcopy(module)(2) == (2, enabled)
    assert pickle.loads(pickle.dumps(module))(2) == (2, enabled)


def test_autocast_policy():
    policy = autocasting.Policy(fp16=["mm"])
    assert policy.toDict()["fp16"] == ["mm"]
    assert "cat" in policy.toDict()["promote"] and policy.toDict()["demote"] == []
    opts = Options()
    assert opts.Precision.autocastPolicy(policy).autocast_policy is policy


# --- what the environment asks for ----------------------------------------------------------------

SCRIPT = """
import pickle, torch, poptorch
opts = poptorch.Options().showCompilationProgressBar(False).logDir("logs")
class Rows(torch.utils.data.Dataset):
    def __len__(self): return 4
    def __getitem__(self, i): return torch.full((3,), float(i))
class Net(torch.nn.Linear):
    def forward(self, x): return poptorch.identity_loss(super().forward(x).square(), "mean")
net = Net(3, 2)
model = poptorch.trainingModel(net, opts)
with poptorch.profiling.Channel("mine").tracepoint("training"):
    for x in poptorch.DataLoader(opts, Rows(), batch_size=2):
        model(x)
model.setOptimizer(torch.optim.SGD(net.parameters(), lr=0.1))
other = poptorch.profiling.Channel("mine").instrument(torch.nn.Linear(3, 2), "forward", "extra_repr")
poptorch.inferenceModel(other, opts)(x)
assert "in_features=3" in repr(other) and isinstance(other, torch.nn.Linear)
net.state_dict()
model.destroy()
assert pickle.loads(pickle.dumps(other)).state_dict().keys() == other.state_dict().keys()
"""


def run_script(tmp_path, **environment):
    env = {**os.environ, "PYTHONPATH": str(Path(poptorch.__file__).parents[1]), **environment}
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=tmp_path, capture_output=True, text=True, timeout=120,
                          env=env)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_traces_of_the_host_and_graphs_in_files(tmp_path):
    log = run_script(tmp_path, PVTI_OPTIONS='{"enable":"true","directory":"traces/x"}', POPTORCH_LOG_LEVEL="DEBUG_IR",
                     POPTORCH_EXPORT_PROTO_FILE="graphs/net.ir", POPTORCH_MAX_GRAPH_LEN="2")
    assert re.search(r"\[debug\] The graph:\n.*\n.*\n\.\.\. and \d+ lines more \(POPTORCH_MAX_GRAPH_LEN\)", log), log
    text = (tmp_path / "logs" / "graphs" / "net.ir").read_text()
    assert "weight" in text and len(text.splitlines()) > 2
    if poptorch._core.profiles:    # the same files as of every other way to ask for a profile
        assert {f.relative_to(tmp_path / "traces" / "x").as_posix() for f in (tmp_path / "traces" / "x").glob("*/*")} == {
            f"{kind}/{name}" for kind in ("training", "inference") for name in ("profile.db", "trace.json")}
        with poptorch.profiling.openReport(tmp_path / "traces" / "x" / "training") as report:
            assert ("loader", "__next__") in {(e.kind, e.name) for e in report.hosts} and {e.call for e in report.events} == {0, 1}
    trace, = (tmp_path / "traces" / "x").glob("*.json")
    events = json.loads(trace.read_text())["traceEvents"]
    assert re.fullmatch(r"host-\d+\.json", trace.name) and all(e["dur"] >= 0 and e["ph"] == "X" for e in events)
    counts = collections.Counter((e["cat"], e["name"]) for e in events)
    train, infer = "poptorch.trainingModel", "poptorch.inferenceModel"
    assert counts == {
        (train, "modelExecution"): 2, (train, "graphPreprocessing"): 1, (train, "modelCompilation"): 1,
        (train, "setOptimizer"): 1, (train, "copyWeightsToHost"): 1, (train, "destroy"): 1,
        (infer, "modelExecution"): 1, (infer, "graphPreprocessing"): 1, (infer, "modelCompilation"): 1,
        ("poptorch.DataLoader", "__next__"): 3, ("dataset", "__getitem__"): 4,
        ("mine", "training"): 1, ("mine", "forward"): 1, ("mine", "extra_repr"): 1}
    whole, = [e for e in events if e["name"] == "training"]
    first = [e for e in events if e["name"] == "graphPreprocessing"][0]
    assert whole["ts"] <= first["ts"] and first["ts"] + first["dur"] <= whole["ts"] + whole["dur"]


def test_nothing_is_traced_unless_asked_for(tmp_path):
    assert run_script(tmp_path, PVTI_OPTIONS='{"enable":"false","directory":"traces"}') == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["enable", "[1]", "{"])
def test_trace_options_that_are_no_options(text, monkeypatch, capsys):
    monkeypatch.setenv("PVTI_OPTIONS", text)
    assert poptorch.profiling._recorderAskedFor() is None and "PVTI_OPTIONS is JSON" in capsys.readouterr().err
