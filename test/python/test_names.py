"""Names that published PopTorch programs and tests import or call: each is there, and does what it says or says why not."""

import importlib
import logging
import re
from pathlib import Path

import pytest
import torch

import popart
import popdist
import poptorch
from poptorch import _logging, _torch_ops, signatures
from poptorch_helpers import inference, log, nothing_cached, options, refused, step, training    # noqa: F401

#: Below what they are looked for, and the names.
NAMES = {
    "poptorch": """
        PoptorchData _impl _impl._restoreWrapperIfNecessary _impl.isDispatchTracing _logging.setPopartLogLevel
        _poplar_executor _poplar_executor.PoplarExecutor.setOptimizer _utils custom_ops poptorch_core poptorch_core.Error
        poptorch_core.TestErrorType.PoplarLinkError poptorch_core.TestErrorType.PoplarRecoverableFullReset
        poptorch_core.TestErrorType.PoplarUnrecoverable poptorch_core.TestErrorType.__members__.values
        poptorch_core._throwTestError poptorch_core._validateOptions poptorch_core.isCompilingWithDispatcher signatures
    """,
    "poptorch_geometric": """
        FixedSizeClusterLoader FixedSizeNeighborLoader FixedSizeOptions FixedSizeStrategy.PadToMax OverSizeStrategy.Error
        OverSizeStrategy.TrimNodesAndEdges __version__ cluster_loader collate common create_dataloader dataloader
        fixed_size_options fixed_size_options.FixedSizeOptions neighbor_loader ops.knn ops.knn_graph ops.knn_interpolate
        ops.radius pyg_cluster_loader pyg_collate pyg_dataloader stream_packing_sampler types
    """,
    "popart": """
        AccumulateOuterFragmentSchedule.OverlapMemoryOptimized AnchorReturnType BatchSerializationBatchSchedule.Isomorphic
        Builder DataFlow DeviceInfo DeviceManager InferenceSession PyStepIO RecomputationType.Pipeline
        RecomputationType.RecomputeAll RecomputationType.Standard ReplicatedTensorSharding.On SGD SessionOptions
        SubgraphCopyingStrategy.JustInTime SyntheticDataMode SyntheticDataMode.RandomNormal TensorInfo TensorLocation
        TensorStorage.OffChip TrainingSession VirtualGraphMode.Manual _internal.ir versionString
    """,
    "torch.ops.poptorch": """
        begin_ipu_block begin_multi_conv call_cpu_op clear_attribute ctc_beam_search_decoder custom_operation dynamic_slice
        dynamic_update end_cpu_op end_for_loop end_if_block end_ipu_block end_multi_conv fps identity_loss internal_cast
        ipu_print_tensor nearest nearest_batch_list nop optimizer_group pop_name_scope push_name_scope
        recomputation_checkpoint set_attribute set_available_memory set_matmul_serialization set_overlap_for_input
        set_overlap_for_output start_else_block start_for_loop start_if_block
    """,
    "popdist": """
        rank
    """,
}

LISTED = [f"{root}.{name}" for root, names in NAMES.items() for name in names.split()]


def found(name):
    """The object that a dotted name stands for."""
    parts = name.split(".")
    at = importlib.import_module(parts[0])
    for i, part in enumerate(parts[1:], 2):
        if not hasattr(at, part):
            importlib.import_module(".".join(parts[:i]))
        at = getattr(at, part)
    return at


@pytest.mark.parametrize("name", LISTED)
def test_name_is_there(name):
    if name.startswith("poptorch_geometric"):
        pytest.importorskip("torch_geometric")
    assert found(name) is not None


def test_the_list_is_the_whole_list():
    """The reference is not part of every checkout."""
    reference = Path(__file__).resolve().parents[3] / "shared/reference/missing-names.md"
    if not reference.exists():
        pytest.skip("../shared/reference/missing-names.md is not there")
    names = re.findall(r"^\| \d+ \| `([^`]+)`", reference.read_text(), re.M)
    assert len(names) > 100 and sorted(names) == sorted(LISTED)


# popart


@pytest.mark.parametrize("key, value, number", [
    ("accumulateOuterFragmentSettings.schedule", popart.AccumulateOuterFragmentSchedule.OverlapMemoryOptimized, 3),
    ("subgraphCopyingStrategy", popart.SubgraphCopyingStrategy.JustInTime, 1),
    ("batchSerializationSettings.batchSchedule", popart.BatchSerializationBatchSchedule.Isomorphic, 1),
    ("virtualGraphMode", popart.VirtualGraphMode.Manual, 1),
    ("autoRecomputation", popart.RecomputationType.RecomputeAll, 4)])
def test_enumerations_are_numbers_for_the_session_options(key, value, number):
    assert int(value) == number
    opts = options()
    opts._Popart.set(key, int(value))
    model = inference(lambda x: x + 1, opts)
    assert model(torch.ones(2)).tolist() == [2, 2]


def test_the_versions_are_one():
    assert popart.versionString() == poptorch.__version__
    assert ".".join(map(str, popart.versionNumber())) == poptorch.__version__.split("+")[0]


@pytest.mark.parametrize("name", ["Builder", "TrainingSession", "InferenceSession", "DataFlow", "DeviceManager", "PyStepIO",
                                  "SessionOptions", "SGD"])
def test_models_are_not_built_with_popart(name):
    with pytest.raises(popart.popart_exception, match=f"popart.{name} is not supported.*poptorch.trainingModel"):
        getattr(popart, name)()
    with pytest.raises(poptorch.Error):
        getattr(popart, name)({}, 1, opts=2)


def test_what_popart_lacks_says_so():
    with pytest.raises(AttributeError, match="popart.Frobnicator is not supported"):
        popart.Frobnicator
    import popart._internal.ir as ir
    with pytest.raises(AttributeError, match="_internal.ir.Graph is not supported"):
        ir.Graph


def test_descriptions_of_tensors():
    info = popart.TensorInfo("FLOAT16", [2, 3])
    assert (info.shape(), info.nelms(), info.nbytes(), info.data_type()) == ([2, 3], 6, 12, popart.DataType.FLOAT16)
    assert info == popart.TensorInfo(torch.zeros(2, 3).half().numpy()) and info.data_type_lcase() == "float16"
    with pytest.raises(popart.popart_exception, match="no type 'QUAD'"):
        popart.TensorInfo("QUAD", [1])
    where = popart.TensorLocation(popart.TensorStorage.OffChip, popart.ReplicatedTensorSharding.On)
    assert where.storage == 0 and where.replicatedTensorSharding == 1
    assert popart.TensorLocationSettings(where).location == where
    assert popart.AnchorReturnType("EveryN", 4).rp() == 4 and popart.AnchorReturnType("ALL").id() == 2


def test_the_rank_is_the_instance(monkeypatch):
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "3")
    assert popdist.rank() == popdist.getInstanceIndex() == 3


# torch.ops.poptorch


def test_every_op_has_a_signature_that_torch_can_read():
    assert sorted(signatures.OPS) == sorted(_torch_ops.functions())
    assert sorted(signatures.OPS) == sorted(NAMES["torch.ops.poptorch"].split())
    for name in signatures.OPS:
        assert signatures.schema(name).name == f"poptorch::{name}"
        assert getattr(torch.ops.poptorch, name).__name__ == name


def test_names_of_operations_begin_with_the_scope():
    def net(x):
        torch.ops.poptorch.push_name_scope("outer")
        x = x.tanh()
        torch.ops.poptorch.pop_name_scope()
        return x.exp()
    model = inference(net)
    model.compile(torch.ones(2))
    assert any("outer/tanh" in n for n in model.getTensorNames())
    assert not any("outer/exp" in n for n in model.getTensorNames())


def test_ops_that_compute():
    x = torch.randn(4, 6)

    def net(x, i):
        p = torch.ops.poptorch
        y = p.internal_cast(p.nop(x), "FLOAT16")
        y = p.set_matmul_serialization(p.internal_cast(y, "FLOAT") @ x.T, "none", 0, False)
        y = p.recomputation_checkpoint(p.set_available_memory(y, 0.5))
        cut = p.dynamic_slice(x, 1, i, 2, 1)
        return y, cut, p.dynamic_update(x, torch.zeros(4, 2), 1, i, 2), p.nearest(x, x), p.fps(x, [0, 4], 0.5, False)
    y, cut, updated, near, far = inference(net)(x, torch.tensor([2]))
    torch.testing.assert_close(y, x.half().float() @ x.T)
    assert torch.equal(cut, x[:, 2:4]) and updated[:, 2:4].abs().sum() == 0
    assert near.tolist() == [0, 1, 2, 3] and len(far) == 2
    assert torch.ops.poptorch.internal_cast(x, "INT32").dtype == torch.int32
    refused(lambda x: torch.ops.poptorch.internal_cast(x, "QUAD"), "no type 'QUAD'")


@pytest.mark.parametrize("reduction, scale", [(0, 1), (1, 0.25), (2, 1)])
def test_the_loss_by_its_number(reduction, scale):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.zeros(4))

        def forward(self, x):
            return torch.ops.poptorch.identity_loss(self.w * x, reduction)
    net, model = training(Net())
    x = torch.arange(4.0)
    model(x)
    torch.testing.assert_close(net.w.detach(), -0.5 * scale * x)
    with pytest.raises(AssertionError, match="0 .sum."):
        torch.ops.poptorch.identity_loss(x, 3)


def test_blocks_by_their_numbers():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = torch.nn.Linear(3, 3), torch.nn.Linear(3, 2)

        def forward(self, x):
            torch.ops.poptorch.begin_ipu_block(0, 0, 0)
            x = self.a(x)
            torch.ops.poptorch.end_ipu_block()
            torch.ops.poptorch.begin_ipu_block(1, 0, 1)
            return self.b(x)
    net = Net()
    opts = options().deviceIterations(2)
    model = poptorch.inferenceModel(net, opts)
    x = torch.randn(4, 3)
    torch.testing.assert_close(model(x), net.b(net.a(x)).detach())
    assert model._program.ipus == 2


@pytest.mark.parametrize("name, instead", [("start_for_loop", "for_loop"), ("end_if_block", "cond"), ("call_cpu_op", "CPU"),
                                           ("optimizer_group", "parameter groups")])
def test_halves_of_something_name_the_whole(name, instead):
    with pytest.raises(poptorch.Error, match=f"torch.ops.poptorch.{name} is not supported: use .*{instead}"):
        getattr(torch.ops.poptorch, name)([torch.ones(1)])


def test_several_convolutions_by_their_ops():
    def net(x, w):
        torch.ops.poptorch.begin_multi_conv()
        y = torch.conv2d(x, w) + torch.conv2d(x, 2 * w)
        torch.ops.poptorch.end_multi_conv([0.5], None, 0)
        return y
    x, w = torch.randn(1, 1, 4, 4), torch.randn(1, 1, 2, 2)
    torch.testing.assert_close(inference(net)(x, w), 3 * torch.conv2d(x, w), rtol=1e-4, atol=1e-5)
    with pytest.raises(poptorch.Error, match="no begin_multi_conv"):
        torch.ops.poptorch.end_multi_conv()


# Private names of poptorch.


def test_the_executor_has_its_old_module():
    assert poptorch._poplar_executor.PoplarExecutor is poptorch.PoplarExecutor


def test_the_level_of_the_layers_below(monkeypatch, log):    # noqa: F811
    monkeypatch.setattr(_logging, "_engine_level", None)
    _logging.setPopartLogLevel("ERR")
    _logging.engineWarning("first")
    assert log() == "" and _logging.logger.isEnabledFor(logging.WARNING)
    _logging.setPopartLogLevel(3)
    _logging.engineWarning("second")
    assert "second" in log()
    with pytest.raises(ValueError, match="Invalid log level"):
        _logging.setPopartLogLevel("LOUD")


def test_a_trace_can_be_asked_for():
    assert not poptorch._impl.isDispatchTracing()
    seen = []

    def net(x):
        seen.append((poptorch._impl.isDispatchTracing(), poptorch._utils.isOnIpu(x), poptorch._utils.isOnCpu(torch.ones(1))))
        return x + 1
    inference(net)(torch.ones(2))
    assert seen == [(True, True, True)] and not poptorch._utils.isOnIpu(torch.ones(1))


def test_structures_of_tensors():
    x = {"a": [torch.ones(1), torch.zeros(1)], "b": (torch.full((1,), 2.0), 5)}
    assert [float(t) for t in poptorch._utils.flattenTensorStructure(x)] == [1, 0, 2]
    other = poptorch._utils.reconstructTensorStructure(x, iter([torch.full((1,), 9.0)]), lambda t: float(t) == 0)
    assert [float(t) for t in poptorch._utils.flattenTensorStructure(other)] == [1, 9, 2] and other["b"][1] == 5


def test_a_wrapper_comes_back_and_goes():
    net, model = training()
    step(model)
    weight = net.fc.weight
    weight.__class__ = torch.nn.Parameter
    assert type(poptorch._impl._restoreWrapperIfNecessary(weight)).__name__ == "PoptorchParameter"
    bare = poptorch._impl.unwrapIfWrapped(weight)
    assert type(bare) is torch.nn.Parameter and torch.equal(bare, weight)
    assert poptorch._impl._restoreWrapperIfNecessary(torch.ones(1)).sum() == 1


def test_the_record_of_a_saved_model(tmp_path):
    net, model = training()
    step(model)
    model.save(tmp_path / "m.poptorch")
    record = poptorch.PoptorchData.fromFile(tmp_path / "m.poptorch")
    assert record.training and record.version == poptorch.__version__
    assert torch.equal(record.model.fc.weight, net.fc.weight) and record.options.device_iterations == 1
    args, kwargs = record.executable_inputs
    assert [tuple(t.shape) for t in (*args, *kwargs.values())] == [(4, 3), (4, 2)]


def test_options_can_be_checked():
    opts = options().outputMode(poptorch.OutputMode.All)
    opts._Popart.set("outlineThreshold", 10.0).set("automaticLossScalingSettings.enabled", False)
    poptorch.poptorch_core._validateOptions(opts.toDict())
    with pytest.raises(poptorch.Error, match="Unknown session option: frobnicate"):
        poptorch.poptorch_core._validateOptions({**opts.toDict(), "frobnicate": 1})
    with pytest.raises(poptorch.Error, match="Unexpected type str for option device_iterations"):
        poptorch.poptorch_core._validateOptions({**opts.toDict(), "device_iterations": "four"})
