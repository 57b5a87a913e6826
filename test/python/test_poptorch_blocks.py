"""Blocks, stages, phases and strategies: where each operation of a traced model is placed."""

import copy
import pickle

import pytest

torch = pytest.importorskip("torch")

from poptorch import blocks    # noqa: E402
from poptorch.blocks import (BeginBlock, Block, BlockFunction, ParallelPhasedExecution, Phase,    # noqa: E402
                             PipelinedExecution, Placement, SerialPhasedExecution, ShardedExecution, Stage,
                             removeBlocks)
from poptorch.enums import AutoStage, Liveness    # noqa: E402
from poptorch.errors import Error    # noqa: E402

STAGED = [PipelinedExecution, ShardedExecution]
PHASED = [ParallelPhasedExecution, SerialPhasedExecution]


def trace(strategy, body):
    """Run body(place) as the trace of a model; the placements it asked for, and the recorder."""
    found = []
    with blocks.recording(strategy) as recorder:
        body(lambda: found.append(recorder.place()))
    assert blocks.recorder() is None
    return found, recorder


# Stages and phases.

@pytest.mark.parametrize("ids", [(), ("a",), ("a", "b"), ("",)])
def test_stage(ids):
    stage = Stage(*ids)
    assert stage.blocks == list(ids)
    assert stage.ipu_id is None
    assert stage.ipu(3) is stage and stage.ipu_id == 3


@pytest.mark.parametrize("ids", [(1,), ("a", 2), (None,), (["a"],), (Stage("a"),)])
def test_stage_needs_strings(ids):
    with pytest.raises(AssertionError, match="strings"):
        Stage(*ids)


@pytest.mark.parametrize("ipu", ["0", 1.0, None, [0]])
def test_stage_needs_an_integer(ipu):
    with pytest.raises(AssertionError, match="integer"):
        Stage("a").ipu(ipu)


def test_phase():
    assert Phase("a", "b").stage(0).blocks == ["a", "b"]
    stages = Stage("a"), Stage("b")
    phase = Phase(*stages)
    assert (phase.stage(0), phase.stage(1)) == stages
    assert phase.ipus(2, 4) is phase
    assert [s.ipu_id for s in stages] == [2, 4]


@pytest.mark.parametrize("ipus", [(), (1,), (1, 2, 3)])
def test_phase_needs_an_ipu_per_stage(ipus):
    with pytest.raises(AssertionError, match="2 stages"):
        Phase(Stage("a"), Stage("b")).ipus(*ipus)


@pytest.mark.parametrize("args", [("a", Stage("b")), (1,), (None,), (["a"],)])
def test_phase_misuse(args):
    with pytest.raises(AssertionError, match="Phase"):
        Phase(*args)


# Strategies.

@pytest.mark.parametrize("cls", STAGED)
@pytest.mark.parametrize("args, auto", [((), AutoStage.SameAsIpu), ((AutoStage.SameAsIpu,), AutoStage.SameAsIpu),
                                        ((AutoStage.AutoIncrement,), AutoStage.AutoIncrement)])
def test_automatic_stages(cls, args, auto):
    assert cls(*args).auto_stage == auto
    with pytest.raises(AssertionError, match="Unknown Block"):
        cls(*args).stage("a")


LISTS = [
    (("B1", "B2", "B3", "B4"), {"B1": (0, 0), "B2": (1, 1), "B3": (2, 2), "B4": (3, 3)}),
    ((Stage("B1").ipu(0), Stage("B2").ipu(1), Stage("B3").ipu(2), Stage("B4").ipu(3)),
     {"B1": (0, 0), "B2": (1, 1), "B3": (2, 2), "B4": (3, 3)}),
    ((Stage("B1", "B2").ipu(0), Stage("B3", "B4").ipu(1)), {"B1": (0, 0), "B2": (0, 0), "B3": (1, 1), "B4": (1, 1)}),
    ((["a", "b"], "c"), {"a": (0, 0), "b": (0, 0), "c": (1, 1)}),
    ((("a", "b"), Stage("c").ipu(5), "d"), {"a": (0, 0), "c": (1, 5), "d": (2, 2)}),
    ((Stage("a").ipu(1), Stage("b").ipu(0), Stage("c").ipu(1)), {"a": (0, 1), "b": (1, 0), "c": (2, 1)}),
    (("only",), {"only": (0, 0)}),
]


@pytest.mark.parametrize("cls", STAGED)
@pytest.mark.parametrize("args, places", LISTS)
def test_listed_stages(cls, args, places):
    strategy = cls(*args)
    assert strategy.auto_stage is None
    for block, (stage, ipu) in places.items():
        assert block in strategy.stage(block).blocks
        assert strategy.place(block, None) == Placement(block, stage, 0, ipu)


@pytest.mark.parametrize("cls", STAGED)
@pytest.mark.parametrize("stage_ipu, block_ipu, ipu", [(None, None, 1), (None, 4, 4), (7, None, 7), (7, 4, 7)])
def test_device_of_a_block(cls, stage_ipu, block_ipu, ipu):
    stage = Stage("b") if stage_ipu is None else Stage("b").ipu(stage_ipu)
    found, _ = trace(cls("a", stage), lambda place: (Block.start("b", block_ipu), place()))
    assert found == [Placement("b", 1, 0, ipu)]


@pytest.mark.parametrize("cls", STAGED)
@pytest.mark.parametrize("args", [("a", "a"), (Stage("a", "a"),), (Stage("a"), Stage("b", "a")), (["a"], "a")])
def test_a_block_has_one_stage(cls, args):
    with pytest.raises(AssertionError, match="associated with more than one stage"):
        cls(*args)


@pytest.mark.parametrize("cls", STAGED)
@pytest.mark.parametrize("args", [(1,), (None,), ("a", AutoStage.AutoIncrement), (Phase("a"),), ([1],)])
def test_staged_misuse(cls, args):
    with pytest.raises(AssertionError):
        cls(*args)


@pytest.mark.parametrize("cls, mode", [(PipelinedExecution, 0), (ShardedExecution, 1)])
def test_execution_mode(cls, mode):
    assert cls().backendOptions() == {"execution_mode": mode}


@pytest.mark.parametrize("cls", PHASED)
def test_phased_backend_options(cls):
    strategy = cls("a")
    assert strategy.backendOptions()["execution_mode"] == 2
    assert strategy.backendOptions()["separate_backward_phase"] is False
    assert strategy.useSeparateBackwardPhase() is strategy
    assert strategy.backendOptions()["separate_backward_phase"] is True
    assert strategy.useSeparateBackwardPhase(False).backendOptions()["separate_backward_phase"] is False
    with pytest.raises(AssertionError, match="bool"):
        strategy.useSeparateBackwardPhase(1)


PHASES = [
    (("a", "b"), {"a": 0, "b": 1}),
    ((["a", "b"], "c"), {"a": 0, "b": 0, "c": 1}),
    ((Phase("a"), Phase(Stage("b"), Stage("c"))), {"a": 0, "b": 1, "c": 1}),
    (([Stage("a"), Stage("b")], [Stage("c")]), {"a": 0, "b": 0, "c": 1}),
    (([Phase("a"), Phase("b")],), {"a": 0, "b": 1}),
    (([["a", "b"], ["c"]],), {"a": 0, "b": 0, "c": 1}),
    ((["a", "b"],), {"a": 0, "b": 0}),
]


@pytest.mark.parametrize("cls", PHASED)
@pytest.mark.parametrize("args, phases", PHASES)
def test_phases(cls, args, phases):
    strategy = cls(*args)
    assert strategy.num_phases == max(phases.values()) + 1
    for block, phase in phases.items():
        assert strategy.place(block, None).phase == phase
        assert any(block in s.blocks for s in strategy.phase(phase).stages)
        assert block in strategy.stage(block).blocks


@pytest.mark.parametrize("cls", PHASED)
@pytest.mark.parametrize("args", [(), ([],), (1,), (AutoStage.SameAsIpu,), ("a", "a"), (["a", Stage("b")],)])
def test_phased_misuse(cls, args):
    with pytest.raises(AssertionError):
        cls(*args)


@pytest.mark.parametrize("cls", PHASED)
@pytest.mark.parametrize("phase", [-1, 2, "0"])
def test_no_such_phase(cls, phase):
    with pytest.raises(AssertionError, match="does not exist"):
        cls("a", "b").phase(phase)


@pytest.mark.parametrize("cls", PHASED)
@pytest.mark.parametrize("separate, backward", [(False, [4, 3, 2]), (True, [6, 5, 4])])
def test_backward_phases(cls, separate, backward):
    strategy = cls("a", "b", "c").useSeparateBackwardPhase(separate)
    assert [strategy.backwardPhase(i) for i in range(3)] == backward


@pytest.mark.parametrize("phase, stage, ipu", [(0, 0, 0), (0, 1, 2), (1, 0, 1), (1, 1, 3)])
def test_parallel_phases_alternate_devices(phase, stage, ipu):
    strategy = ParallelPhasedExecution(Phase(Stage("00"), Stage("01")), Phase(Stage("10"), Stage("11")))
    assert strategy.place(f"{phase}{stage}", None) == Placement(f"{phase}{stage}", stage, phase, ipu)


@pytest.mark.parametrize("phase, ipu, ok", [(0, 0, True), (0, 2, True), (0, 1, False), (1, 1, True), (1, 0, False)])
def test_parallel_phases_need_their_devices(phase, ipu, ok):
    strategy = ParallelPhasedExecution("a", "b")
    block = "ab"[phase]
    if ok:
        assert strategy.place(block, ipu).ipu == ipu
    else:
        with pytest.raises(Error, match="even phases run on even IPUs"):
            strategy.place(block, ipu)


@pytest.mark.parametrize("call, liveness", [
    (lambda s: s, Liveness.OffChipAfterFwd), (lambda s: s.sendTensorsOffChipAfterFwd(), Liveness.OffChipAfterFwd),
    (lambda s: s.sendTensorsOffChipAfterFwd(False), Liveness.AlwaysLive)])
def test_parallel_liveness(call, liveness):
    assert call(ParallelPhasedExecution("a")).backendOptions()["tensors_liveness"] == liveness


@pytest.mark.parametrize("liveness", list(Liveness))
def test_serial_liveness(liveness):
    strategy = SerialPhasedExecution("a")
    assert strategy.setTensorsLiveness(liveness) is strategy
    assert strategy.backendOptions()["tensors_liveness"] == liveness
    with pytest.raises(AssertionError, match="Liveness"):
        strategy.setTensorsLiveness(0)


@pytest.mark.parametrize("strategy", [PipelinedExecution(), ShardedExecution("a", Stage("b").ipu(2)),
                                      SerialPhasedExecution("a", "b"), ParallelPhasedExecution(Phase("a"))],
                         ids=repr)
def test_strategies_copy(strategy):
    for again in (copy.deepcopy(strategy), pickle.loads(pickle.dumps(strategy))):
        assert again.blocks() == strategy.blocks()
        assert again.backendOptions() == strategy.backendOptions()
        assert repr(again) == repr(strategy)


# Placing operations.

def test_without_blocks_all_is_on_the_first_device():
    found, _ = trace(PipelinedExecution(), lambda place: (place(), place()))
    assert found == [Placement(None, 0, 0, 0)] * 2


def test_before_the_first_block():
    found, _ = trace(PipelinedExecution("a"), lambda place: (place(), Block.start("a", 1), place()))
    assert found == [Placement(None, 0, 0, 0), Placement("a", 0, 0, 1)]


def test_after_a_closed_block():
    def body(place):
        with Block("a", ipu_id=0):
            place()
        place()
    with pytest.raises(Error, match="No active Block, all the ops must belong to a Block"):
        trace(PipelinedExecution(), body)


def test_a_block_of_the_pipelining_tutorial_is_used_twice():
    def body(place):
        for name in ("B1", "B2", "B3", "B4"):
            with Block(name):
                place()
        with Block("B4"):
            place()
    found, recorder = trace(PipelinedExecution("B1", "B2", "B3", "B4"), body)
    assert [(p.block, p.stage, p.ipu) for p in found] == [
        ("B1", 0, 0), ("B2", 1, 1), ("B3", 2, 2), ("B4", 3, 3), ("B4", 3, 3)]
    assert recorder.numPipelineStages() == 4


def test_nested_blocks_end_early():
    def body(place):
        with Block("a"):
            with Block("b"):
                pass
            place()
    with pytest.raises(Error, match="No active Block"):
        trace(PipelinedExecution("a", "b"), body)


def test_unknown_block():
    with pytest.raises(AssertionError, match=r"Unknown Block 'x', list of expected Blocks: \['a', 'b'\]"):
        trace(ShardedExecution("a", "b"), lambda place: Block.start("x"))


def test_same_as_ipu_needs_one():
    with pytest.raises(AssertionError, match="no IPU was specified"):
        trace(PipelinedExecution(), lambda place: Block.start("x"))


def test_same_as_ipu():
    def body(place):
        for name, ipu in (("a", 2), ("b", 0), ("a", None)):
            Block.start(name, ipu)
            place()
    found, _ = trace(PipelinedExecution(), body)
    assert [(p.stage, p.ipu) for p in found] == [(2, 2), (0, 0), (2, 2)]


def test_auto_increment():
    def body(place):
        for name, ipu in (("a", 0), ("b", 1), ("c", 0), ("a", 0), ("d", None)):
            Block.start(name, ipu)
            place()
    found, _ = trace(PipelinedExecution(AutoStage.AutoIncrement), body)
    assert [(p.stage, p.ipu) for p in found] == [(1, 0), (2, 1), (3, 0), (1, 0), (4, 4)]


def test_automatic_ids():
    def body(place):
        Block.useAutoId()
        for ipu in (0, 1):
            with Block(ipu_id=ipu):
                place()
        Block.start(ipu_id=0)
        place()
        Block.useAutoId()
        Block.start("", 0)
        place()
    found, _ = trace(PipelinedExecution(), body)
    assert [p.block for p in found] == ["0", "1", "2", "0"]


def test_block_function():
    @BlockFunction("f", ipu_id=1)
    def f(x, y=1):
        """Adds."""
        place()
        return x + y
    found = []
    place = lambda: None    # noqa: E731
    assert f(1, y=2) == 3 and f.__doc__ == "Adds."
    with blocks.recording(PipelinedExecution()) as recorder:
        place = lambda: found.append(recorder.place())    # noqa: E731
        assert f(1) == 2
        with pytest.raises(Error, match="No active Block"):
            recorder.place()
    assert found == [Placement("f", 1, 0, 1)]


@pytest.mark.parametrize("kwargs", [{"user_id": 1.5}, {"user_id": ["a"]}, {"ipu_id": "0"}, {"ipu_id": 1.0}])
@pytest.mark.parametrize("mark", [Block, Block.start, BlockFunction, lambda **k: BeginBlock(torch.nn.ReLU(), **k)],
                         ids=["Block", "start", "BlockFunction", "BeginBlock"])
def test_ids_are_checked(mark, kwargs):
    with pytest.raises(AssertionError, match="A block's"):
        mark(**kwargs)


def test_on_the_cpu_blocks_do_nothing():
    with Block("a") as block:
        Block.start("b")
        Block.useAutoId()
        with Block("c"):
            pass
    assert isinstance(block, torch.nn.Module)
    assert blocks.recorder() is None
    layer = BeginBlock(torch.nn.Linear(2, 2), "x")
    layer(torch.zeros(1, 2))
    assert blocks.blockHook(layer).user_id == "x"


# BeginBlock.

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(2, 2)
        self.b = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
        self.c = torch.nn.Linear(2, 2)
        self.log = None

    def forward(self, x):
        for layer in (self.a, self.b, self.c):
            x = layer(x)
            if self.log:
                self.log()
        return x


def traced(net, strategy):
    found = []
    with blocks.recording(strategy) as recorder:
        net.log = lambda: found.append(recorder.place())
        net(torch.zeros(1, 2))
    net.log = None
    return found


def test_begin_block():
    net = Net()
    assert BeginBlock(net.a, "A", 0) is net.a
    net.c = BeginBlock(net.c, "C", ipu_id=1)
    assert [(p.block, p.ipu) for p in traced(net, PipelinedExecution())] == [("A", 0), ("A", 0), ("C", 1)]


def test_begin_block_ids_are_assigned_once():
    net = Net()
    BeginBlock(net.a, ipu_id=0)
    BeginBlock(net.b, ipu_id=1)
    first = traced(net, PipelinedExecution())
    assert [p.block for p in first] == ["0", "1", "1"]
    assert traced(net, PipelinedExecution()) == first
    assert blocks.blockHook(net.b).user_id == "1"


def test_begin_block_twice():
    net = Net()
    BeginBlock(net.a, "A")
    with pytest.raises(Error, match="already"):
        BeginBlock(net.a, "B")


def test_begin_block_of_a_function():
    layer = BeginBlock(torch.relu, "R", 1)
    assert isinstance(layer, torch.nn.Module)
    assert layer(torch.tensor([-1.0, 1.0])).tolist() == [0.0, 1.0]
    assert repr(blocks.blockHook(layer)) == "BeginBlock(user_id=R, ipu_id=1)"


@pytest.mark.parametrize("thing", [3, None, "a", torch.zeros(1)])
def test_begin_block_misuse(thing):
    with pytest.raises(Error, match="torch.nn.Module or function"):
        BeginBlock(thing)


def test_remove_blocks():
    net = Net()
    calls = []
    net.a.register_forward_pre_hook(lambda *a: calls.append(1))
    for layer in (net, net.a, net.b[0]):
        BeginBlock(layer, "x")
    removeBlocks(net)
    assert all(blocks.blockHook(m) is None for m in net.modules())
    net(torch.zeros(1, 2))
    assert calls == [1]
    BeginBlock(net.a, "again")
    with pytest.raises(AssertionError, match="torch.nn.Module"):
        removeBlocks([net])


def test_begin_block_survives_copies():
    net = Net()
    BeginBlock(net.a, "A", 0)
    for again in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert blocks.blockHook(again.a).user_id == "A"
        removeBlocks(again)
    assert blocks.blockHook(net.a) is not None


def test_module_repr():
    net = Net()
    assert blocks.module_repr(net) == repr(net)
    BeginBlock(net.b, "B", 3)
    assert "(b): BeginBlock(user_id=B, ipu_id=3) Sequential(\n" in blocks.module_repr(net)
    assert blocks.module_repr(net).replace("BeginBlock(user_id=B, ipu_id=3) ", "") == repr(net)


def test_recordings_nest():
    with blocks.recording(PipelinedExecution("a")) as outer:
        Block.start("a")
        with blocks.recording(PipelinedExecution("b")) as inner:
            Block.start("b")
            assert inner.place().block == "b"
        assert blocks.recorder() is outer and outer.place().block == "a"
    assert blocks.recorder() is None


# Pipelines and devices.

@pytest.mark.parametrize("ipus, stages", [([0], 1), ([0, 0], 1), ([0, 1], 2), ([0, 1, 0], 3), ([0, 0, 1, 1], 2),
                                          ([0, 1, 2, 3], 4), ([], 1)])
def test_number_of_pipeline_stages(ipus, stages):
    _, recorder = trace(PipelinedExecution(), lambda place: [Block.start(str(i), ipu) for i, ipu in enumerate(ipus)])
    assert recorder.numPipelineStages() == stages
    assert recorder.numPipelineStages([Placement("x", 0, 0, i) for i in ipus]) == stages


@pytest.mark.parametrize("stages, accumulation, ok", [(1, 1, True), (2, 2, False), (2, 3, True), (4, 6, False),
                                                      (4, 7, True), (4, 10, True)])
def test_training_pipeline_is_filled(stages, accumulation, ok):
    if ok:
        blocks.checkPipeline(stages, True, accumulation, 1)
    else:
        with pytest.raises(Error, match=r"gradientAccumulation must be greater than or equal to the number of "
                                        rf"pipeline stages \({2 * stages - 1}\)"):
            blocks.checkPipeline(stages, True, accumulation, 100)


@pytest.mark.parametrize("stages, iterations, ok", [(1, 1, True), (2, 1, False), (2, 2, True), (4, 3, False), (4, 4, True)])
def test_inference_pipeline_is_filled(stages, iterations, ok):
    if ok:
        blocks.checkPipeline(stages, False, 1, iterations)
    else:
        with pytest.raises(Error, match="deviceIterations must be greater than or equal to the number of pipeline"):
            blocks.checkPipeline(stages, False, 1, iterations)


@pytest.mark.parametrize("ipus, replicas, rounding, count", [
    ([], 2, False, 0), ([0], 1, False, 1), ([0, 0], 1, False, 1), ([0, 1], 1, False, 2), ([1], 1, False, 2),
    ([0, 1, 2, 3], 1, False, 4), ([0], 2, False, 2), ([0, 1], 4, False, 8), ([0, 1, 2], 1, True, 4), ([0], 3, True, 4),
    ([2], 1, True, 4), ([63], 1, False, 64)])
def test_device_count(ipus, replicas, rounding, count):
    assert blocks.countDevices(ipus, replicas, rounding) == count


@pytest.mark.parametrize("ipus, replicas, used, reserve", [([0, 1, 2], 1, 3, 4), ([0], 3, 3, 4), ([4], 1, 5, 8)])
def test_device_count_is_a_power_of_two(ipus, replicas, used, reserve):
    with pytest.raises(Error, match=rf"use of {used} IPUs, however .* {reserve} .*autoRoundNumIPUs\(True\)"):
        blocks.countDevices(ipus, replicas, False)


@pytest.mark.parametrize("ipus, replicas", [([64], 1), ([0], 128), ([0, 1], 64)])
def test_too_many_devices(ipus, replicas):
    with pytest.raises(Error, match="64"):
        blocks.countDevices(ipus, replicas, True)
