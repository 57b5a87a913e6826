"""Several devices: where blocks run changes no number, replicas are a larger batch, and what cannot be is an error."""

import json
import os
import subprocess
import sys
import threading
import time

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import nets
import poptorch
from poptorch import BeginBlock, Block, Stage, _core
from poptorch_helpers import (MODES, Counting, Normalising, inference, log, nothing_cached, options, refused,    # noqa: F401
                              training)

NAMES = ("B1", "B2", "B3", "B4")
ROWS = 4
A, D = 8, 2


class Digits(nets.Pipeline):
    """Four blocks, the loss in the last of them."""

    def __init__(self):
        super().__init__()
        for name, layer in zip(NAMES, (self.layer1, self.layer2, self.layer3, self.layer4)):
            BeginBlock(layer, name)
        self.input = (1, 28, 28)

    def forward(self, x, t):
        x = self.layer2(self.layer1(x))
        x = F.dropout(F.relu(self.layer3(torch.flatten(x, 1))), 0.5, self.training)
        y = self.layer4(x)
        return y, F.cross_entropy(y, t)


class UNet(nn.Module):
    """Down and up again: skips over one stage and over two, and statistics that every micro-batch changes."""

    def __init__(self):
        super().__init__()
        self.down1, self.norm = nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.down2, self.bottom = nn.Conv2d(4, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.up2, self.up1 = nn.ConvTranspose2d(8, 8, 2, stride=2), nn.Conv2d(20, 2, 3, padding=1)
        self.out = nn.Linear(128, 10)
        self.input = (1, 8, 8)

    def forward(self, x, t):
        with Block("B1"):
            top = F.relu(self.norm(self.down1(x)))
        with Block("B2"):
            low = F.relu(self.down2(F.max_pool2d(top, 2)))
        with Block("B3"):
            x = torch.cat([self.up2(F.relu(self.bottom(F.max_pool2d(low, 2)))), low], 1)
        with Block("B4"):
            x = torch.cat([F.interpolate(x, scale_factor=2), top], 1)
            y = self.out(torch.flatten(F.relu(self.up1(x)), 1))
            return y, F.cross_entropy(y, t)


class Tied(nn.Module):
    """The first and the last layer share their weight."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(10, 20) / 4)
        self.fc2, self.fc3 = nn.Linear(20, 20), nn.Linear(20, 20)
        self.input = (10,)

    def forward(self, x, t):
        Block.start("B1")
        x = torch.tanh(x @ self.w)
        Block.start("B2")
        x = poptorch.recomputationCheckpoint(torch.tanh(self.fc2(x)))
        Block.start("B3")
        x = torch.tanh(self.fc3(x))
        Block.start("B4")
        y = x @ self.w.t()
        return y, F.cross_entropy(y, t)


def offloaded(*which):
    off = poptorch.TensorLocationSettings().useOnChipStorage(False)

    def change(opts):
        for name in which:
            getattr(opts.TensorLocations, f"set{name}Location")(off)
    return change


def run(make, strategy, change=None, a=A, r=1, adam=True):
    """Results, weights and buffers."""
    torch.manual_seed(1)
    net = make()
    opts = options().deviceIterations(D).replicationFactor(r).outputMode(MODES.All).randomSeed(7)
    opts.Training.gradientAccumulation(a)
    opts.setExecutionStrategy(strategy).autoRoundNumIPUs(True)
    if change is not None:
        change(opts)
    model = poptorch.trainingModel(net, opts, poptorch.optim.AdamW(net.parameters(), lr=0.01) if adam else
                                   poptorch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9))
    torch.manual_seed(2)
    out = []
    for _ in range(2):
        out += model(torch.randn(ROWS * D * a * r, *net.input), torch.randint(10, (ROWS * D * a * r,)))
    return out + [t.detach().clone() for t in net.state_dict().values()]


@pytest.fixture
def compiled(monkeypatch):
    """What the compiler was asked for: one dictionary for each time."""
    made, compile = [], _core.compile

    def spy(graph, options):
        made.append(options)
        made[-1] = {**options, "executable": compile(graph, options)}
        return made[-1]["executable"]
    monkeypatch.setattr(_core, "compile", spy)
    return made


def one_device():
    return poptorch.ShardedExecution(Stage(*NAMES).ipu(0))


def four():
    return poptorch.PipelinedExecution(*NAMES)


def in_turns():
    return poptorch.ShardedExecution(*NAMES)


def two():
    return poptorch.PipelinedExecution(Stage("B1", "B2").ipu(0), Stage("B3", "B4").ipu(1))


_plain, _larger = {}, {}    # results on one device


def assert_same_bits(make, strategy, change=None):
    """As on one device with the same accumulation."""
    if make not in _plain:
        _plain[make] = run(make, one_device())
    got = run(make, strategy, change)
    assert len(got) == len(_plain[make]) and all(torch.equal(x, y) for x, y in zip(got, _plain[make]))


def stages(ipus):
    """A stage for each block, on these devices."""
    return [Stage(b).ipu(i) for b, i in zip(NAMES, ipus)]


PLACES = {    # a net, a strategy, and the devices of the blocks
    "two stages": (Digits, two, "0011"),
    "three stages": (Tied, lambda: poptorch.PipelinedExecution("B1", ["B2", "B3"], "B4"), "0112"),
    "four stages": (Digits, four, "0123"),
    "backwards": (Tied, lambda: poptorch.PipelinedExecution(*stages([3, 2, 1, 0])), "3210"),
    "two devices in turns": (UNet, lambda: poptorch.PipelinedExecution(*stages([0, 1, 0, 1])), "0101"),
    "automatic": (Tied, lambda: poptorch.PipelinedExecution(poptorch.AutoStage.AutoIncrement), "1234"),    # from 1 on
    "sharded": (Digits, in_turns, "0123"),
    "serial phases": (Tied, lambda: poptorch.SerialPhasedExecution([Stage("B1"), Stage("B2")],
                                                                   [Stage("B3"), Stage("B4")]), "0101"),
    "parallel phases": (Digits, lambda: poptorch.ParallelPhasedExecution(*NAMES), "0101"),
}


@pytest.mark.parametrize("name", PLACES)
def test_places_change_no_number(name, compiled):
    make, strategy, ipus = PLACES[name]
    strategy = strategy()
    assert_same_bits(make, strategy)
    asked = compiled[-1]
    assert {b: ipu for ipu, _, blocks in asked["stages"] for b in blocks} == dict(zip(NAMES, map(int, ipus)))
    assert asked["schedule"] == strategy.execution_mode
    assert asked["recompute"] == isinstance(strategy, poptorch.PipelinedExecution)


@pytest.mark.parametrize("make, strategy, which, bits", [
    (Digits, two, ("Optimizer",), 1), (Tied, in_turns, ("Optimizer",), 1),
    (Tied, one_device, ("Weight", "Accumulator"), 6),
    (UNet, four, ("Optimizer", "Weight", "Accumulator", "Activation"), 15)])
def test_offloading_changes_no_number(make, strategy, which, bits, compiled):
    assert_same_bits(make, strategy(), offloaded(*which))
    assert compiled[-1]["offload"] == bits


def test_on_chip_is_not_offloaded(compiled):
    def change(opts):
        for setting, use in ((opts.TensorLocations.setWeightLocation, True),
                             (opts.TensorLocations.setOptimizerLocation, None)):
            setting(poptorch.TensorLocationSettings().useOnChipStorage(use).minElementsForOffChip(1))
    run(Tied, one_device(), change)
    assert compiled[-1]["offload"] == 0


class Wide(nn.Module):
    """Four layers alike, and a skip from the first to the last."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(BeginBlock(nn.Linear(64, 64), name) for name in NAMES)
        self.input = (64,)

    def forward(self, x, t):
        x = first = torch.tanh(self.layers[0](x))
        for layer in self.layers[1:]:
            x = torch.tanh(layer(x))
        return F.cross_entropy(x + first, t)


def phase_numbers(asked):
    return {b: phase for _, phase, blocks in asked["stages"] for b in blocks}


def test_a_device_needs_the_memory_of_the_largest_phase(compiled):
    assert_same_bits(Wide, poptorch.SerialPhasedExecution(*[poptorch.Phase(Stage(b).ipu(0)) for b in NAMES]))
    phases = compiled[1]
    assert phase_numbers(phases) == dict(zip(NAMES, range(4))) and phases["schedule"] == 2
    assert phases["offload"] == 15 and not phases["offload_by_pass"] and not phases["separate_backward"]
    stats = [c["executable"].stats() for c in compiled]
    each = 4 * 64 * 64 * 4    # weights, two moments, the sums
    assert stats[0]["state_bytes"] > 4 * each
    assert stats[1]["state_bytes"] < 1024 and each < stats[1]["peak_bytes"] < stats[0]["peak_bytes"] / 2


def test_phases_of_a_unet(compiled):
    strategy = poptorch.ParallelPhasedExecution("B1", "B2", ["B3"], [Stage("B4")]).useSeparateBackwardPhase()
    assert_same_bits(UNet, strategy)
    asked = compiled[-1]
    assert asked["stages"] == [(0, 0, ["B1"]), (1, 1, ["B2"]), (0, 2, ["B3"]), (1, 3, ["B4"])]
    assert asked["offload"] == 15 and asked["offload_by_pass"] and asked["separate_backward"]


def weights_on_chip(opts):
    settings = poptorch.TensorLocationSettings
    opts.TensorLocations.setWeightLocation(settings().useOnChipStorage(True))
    opts.TensorLocations.setOptimizerLocation(settings().minElementsForOffChip(100))


@pytest.mark.parametrize("change, liveness, offload, by_pass", [
    (None, poptorch.Liveness.AlwaysLive, 0, False),
    (None, poptorch.Liveness.OffChipAfterFwdNoOverlap, 15, True),
    (offloaded("Weight"), poptorch.Liveness.AlwaysLive, 2, False),
    (weights_on_chip, poptorch.Liveness.OffChipAfterEachPhase, 13, False)])
def test_what_stays_between_phases(change, liveness, offload, by_pass, compiled):
    strategy = poptorch.SerialPhasedExecution("B1", "B2", ["B3", "B4"]).setTensorsLiveness(liveness)
    assert_same_bits(Tied, strategy, change)
    assert compiled[-1]["offload"] == offload and compiled[-1]["offload_by_pass"] == by_pass
    assert compiled[-1]["offload_least"] == (100 if offload == 13 else 2, 2, 2, 2)


def test_phases_run_in_order():
    opts = options().setExecutionStrategy(poptorch.SerialPhasedExecution("B2", "B1", ["B3", "B4"]))
    with pytest.raises(poptorch.Error, match="block 'B2' of phase 0 reads what the block 'B1' makes in phase 1"):
        training(Tied(), opts)[1](torch.randn(2, 10), torch.randint(10, (2,)))


def sharded(which="Optimizer", least=16):
    """Options with what a location settings asks for."""
    def change(opts):
        settings = poptorch.TensorLocationSettings().useReplicatedTensorSharding(True)
        getattr(opts.TensorLocations, f"set{which}Location")(
            settings if least is None else settings.minElementsForReplicatedTensorSharding(least))
    return change


def test_sharding_changes_no_number(compiled):
    """Four replicas, each with its part of the optimizer's state or with all of it."""
    def train(change):
        torch.manual_seed(2)
        net = nn.Sequential(nn.Linear(6, 20), nn.Tanh(), nn.Linear(20, 3))
        opts = options().replicationFactor(4).deviceIterations(2).outputMode(MODES.All)
        change(opts)
        optimizer = poptorch.optim.AdamW(net.parameters(), lr=0.01)
        net, model = training(WithLoss(net), opts, optimizer)
        x = torch.randn(16, 6)
        for _ in range(2):
            model(x)
        model.detachFromDevice()    # the state goes to the host and back
        loss = model(x)[1]
        return loss, *net.state_dict().values(), *optimizer.state_dict()["ipu_state"].values()
    for a, b in zip(train(lambda opts: None), train(sharded())):
        assert a.shape == b.shape and torch.equal(a, b)
    assert [c.get("shard_least") for c in compiled[-2:]] == [None, 16]
    run(Tied, one_device(), sharded())    # one replica has all of it
    assert "shard_optimizer" not in compiled[-1]


class WithLoss(nn.Module):
    """A net and the sum of its squares."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        y = self.net(x)
        return y, poptorch.identity_loss((y ** 2).mean(), "sum")


def test_sharding_of_the_rest():
    for which in ("Weight", "Accumulator", "Activation"):
        opts = options().replicationFactor(2)
        sharded(which)(opts)
        with pytest.raises(poptorch.Error, match=f"is not supported for {which.lower()}: only the optimizer"):
            training(WithLoss(nn.Linear(2, 2)), opts)[1](torch.zeros(2, 2))


def test_least_sizes(compiled):
    def change(opts):
        for n, which in enumerate(("Optimizer", "Weight")):
            getattr(opts.TensorLocations, f"set{which}Location")(
                poptorch.TensorLocationSettings().useOnChipStorage(False).minElementsForOffChip(10 + n))
    assert_same_bits(Tied, one_device(), change)
    assert compiled[-1]["offload"] == 3 and compiled[-1]["offload_least"] == (10, 11, 2, 2)


@pytest.mark.parametrize("value, on", [(0, False), (3, True)])    # 3 is the default
def test_recomputing_changes_no_number(value, on, compiled):
    assert_same_bits(Tied, four(), lambda opts: opts._Popart.set("autoRecomputation", value))
    assert compiled[-1]["recompute"] == on

class Deep(nn.Module):
    """Many rows of a few features: activations are most of its memory. A checkpoint behind every second layer."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(8))
        self.fc = nn.Linear(32, 10)
        self.input = (512, 32)

    def forward(self, x, t):
        for i, layer in enumerate(self.layers):
            Block.start("B1" if i < 4 else "B2")
            x = F.dropout(torch.tanh(layer(x)), 0.1)
            if i % 2:
                x, _ = poptorch.recomputationCheckpoint(x, x.flatten(1))
        y = self.fc(x.mean(1))
        return y, F.cross_entropy(y, t)


def test_checkpoints_save_memory(compiled):
    pair = poptorch.PipelinedExecution(Stage("B1").ipu(0), Stage("B2").ipu(1))
    results, peaks = [], []
    for how, strategy, on in ((3, one_device(), False), (1, one_device(), True), (3, pair, True)):
        results.append(run(Deep, strategy, lambda opts, how=how: opts._Popart.set("autoRecomputation", how)))
        assert all(torch.equal(x, y) for x, y in zip(results[0], results[-1]))
        assert compiled[-1]["recompute"] == on
        peaks.append(compiled[-1]["executable"].stats()["peak_bytes"])
    assert peaks[1] < 0.8 * peaks[0]


@pytest.mark.parametrize("make", [UNet, Tied])
def test_skips_and_tied_weights(make):
    assert_same_bits(make, four())


def running(opts):
    opts.Training.setMeanAccumulationAndReplicationReductionStrategy(poptorch.MeanReductionStrategy.Running)


def summed(opts):
    opts.Training.accumulationAndReplicationReductionType(poptorch.ReductionType.Sum)


@pytest.mark.parametrize("reduction", [running, summed])
def test_reductions(reduction):
    one, several, replicas = (run(Tied, s(), reduction, a, r, adam=False)
                              for s, a, r in ((one_device, A, 1), (four, A, 1), (two, A // 2, 2)))
    assert all(torch.equal(x, y) for x, y in zip(one, several))
    for x, y in zip(one, replicas):
        torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-6)


def test_gradients_seen_in_a_pipeline():
    found = []
    for strategy in (one_device(), four()):
        torch.manual_seed(1)
        opts = options().setExecutionStrategy(strategy).outputMode(MODES.All)
        opts.anchorTensor("gradient", "Gradient___fc2.weight")
        opts.Training.gradientAccumulation(A)
        model = training(Tied(), opts)[1]
        model(torch.randn(2 * A, 10), torch.randint(10, (2 * A,)))
        found.append(model.getAnchoredTensor("gradient"))
    assert found[0].shape == (20 * A, 20)
    assert torch.equal(*found)


def placed(x, *ipus):
    """An operation on each of these devices."""
    for ipu in ipus:
        Block.start(f"on {ipu}", ipu)
        x = x * 2 + ipu
    return x


def test_inference_in_a_pipeline(compiled):
    x = torch.randn(12, 3)
    out = inference(lambda x: placed(x, 0, 1, 2, 3), options().deviceIterations(4))(x)
    assert len(compiled[0]["stages"]) == 4
    assert torch.equal(out, (((x * 2) * 2 + 1) * 2 + 2) * 2 + 3)


def test_what_precedes_the_first_block_is_on_device_0(compiled):
    x = torch.randn(2, 3)
    out = inference(lambda x: placed(x + 5, 1), options().deviceIterations(2))(x)
    assert torch.equal(out, (x + 5) * 2 + 1) and compiled[0]["stages"] == [(0, 0, []), (1, 0, ["on 1"])]


def test_a_block_on_two_devices(compiled):
    def forward(x):
        Block.start("same", 0)
        x = x * 2
        Block.start("same", 1)
        return x + 1
    x = torch.randn(2, 3)
    assert torch.equal(inference(forward, options().deviceIterations(2))(x), x * 2 + 1)
    assert compiled[0]["stages"] == [(0, 0, ["same"]), (1, 0, ["same on 1"])]


def test_prints_once_in_a_recomputed_pipeline(log):
    class Printing(Tied):
        def forward(self, x, t):
            Block.start("B1")
            return super().forward(torch.tanh(poptorch.ipu_print_tensor(torch.tanh(x), "seen")), t)
    run(Printing, two())
    assert log().count("seen") == 2 * A * D


def test_saved_and_loaded(tmp_path):
    model = training(Tied(), pipeline_of(4, 7))[1]
    x, t = torch.randn(14, 10), torch.randint(10, (14,))
    model.compileAndExport(str(tmp_path / "net"), x, t)
    wanted = model(x, t)
    assert all(torch.equal(a, b) for a, b in zip(poptorch.load(str(tmp_path / "net"))(x, t), wanted))


# Replicas.

@pytest.mark.parametrize("make, strategy, a, r", [(Tied, one_device, 1, 8), (Tied, two, 4, 2),
                                                  (Digits, one_device, 2, 4)])
def test_replicas_are_a_larger_batch(make, strategy, a, r, compiled):
    if make not in _larger:
        _larger[make] = run(make, one_device(), adam=False)
    one, several = _larger[make], run(make, strategy(), a=a, r=r, adam=False)
    assert compiled[-1]["replicas"] == r
    for x, y in zip(one, several):
        torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-6)


def test_replicas_of_groups(compiled):
    """Pairs of the four replicas see the same rows."""
    net, plain = Tied(), Tied()
    plain.load_state_dict(net.state_dict())
    x, t = torch.randn(8, 10), torch.randint(10, (8,))
    opts = options().replicationFactor(4).inputReplicaGrouping(2, poptorch.CommGroupType.Consecutive)
    opts.setExecutionStrategy(one_device())
    training(net, opts, torch.optim.SGD(net.parameters(), lr=0.1))[1](x, t)
    plain(x, t)[1].backward()
    torch.optim.SGD(plain.parameters(), lr=0.1).step()
    assert compiled[-1]["replicas"] == 4
    torch.testing.assert_close(net.w.detach(), plain.w.detach(), rtol=1e-5, atol=1e-6)


def test_batch_norm_of_replicas():
    """Each replica normalises its own rows and keeps its own statistics; the host gets the first one's."""
    net, x = Normalising(), torch.randn(16, 3)
    opts = options().deviceIterations(2).replicationFactor(2).outputMode(MODES.All).broadcastBuffers(False)
    out, _ = training(net, opts)[1](x)
    rows, first = x.view(2, 2, 4, 3), nn.BatchNorm1d(3, affine=False)
    wanted = torch.stack([torch.stack([F.batch_norm(y, None, None, training=True) for y in z]) for z in rows])
    torch.testing.assert_close(out, wanted.view(16, 3), rtol=1e-4, atol=1e-5)
    for z in rows[:, 0]:
        first(z)
    torch.testing.assert_close(net.bn.running_mean, first.running_mean)
    torch.testing.assert_close(net.bn.running_var, first.running_var)


def test_replicas_one_after_the_other(compiled):
    """What the engine's replicas cannot do is computed in turns, with the same results."""
    for net, optimizer in ((Tied(), lambda p: poptorch.optim.SGD(p, lr=0.1, momentum=0.9, use_combined_accum=True)),
                           (Tied(), lambda p: poptorch.optim.SGD(p, lr=0.1))):
        model = training(net, options().replicationFactor(2).setExecutionStrategy(one_device()),
                         optimizer(net.parameters()))[1]
        out, loss = model(torch.randn(8, 10), torch.randint(10, (8,)))
        assert out.shape == (8, 10) and loss.shape == (2,)
    assert [c["replicas"] for c in compiled] == [1, 2]


def test_times_of_replicas():
    model = inference(lambda x: x * 2, options().deviceIterations(3).replicationFactor(2))
    model(torch.ones(6))
    counters = model.getPerfCounters()
    assert [len(counters[k][0]) for k in ("input", "input_complete", "output", "output_complete")] == [6] * 4


# What cannot be.

def pipeline_of(n, accumulation=1, iterations=1):
    names = NAMES[:n - 1] + (list(NAMES[n - 1:]),)
    opts = options().setExecutionStrategy(poptorch.PipelinedExecution(*names)).deviceIterations(iterations)
    opts.autoRoundNumIPUs(True)
    opts.Training.gradientAccumulation(accumulation)
    return opts


@pytest.mark.parametrize("n, enough", [(2, 3), (3, 5), (4, 7)])
def test_a_pipeline_needs_micro_batches(n, enough):
    rows = torch.randn(enough, 10), torch.randint(10, (enough,))
    with pytest.raises(poptorch.Error, match=r"gradientAccumulation must be greater than or equal to the number of "
                                             rf"pipeline stages \({enough}\)"):
        training(Tied(), pipeline_of(n, enough - 1))[1](*(t[1:] for t in rows))
    training(Tied(), pipeline_of(n, enough))[1](*rows)


def test_a_pipeline_needs_iterations():
    with pytest.raises(poptorch.Error, match="deviceIterations must be greater than or equal to the number of "
                                             r"pipeline stages \(2\)"):
        inference(lambda x: placed(x, 0, 1))(torch.ones(1))
    with pytest.raises(poptorch.Error, match=r"pipeline stages \(3\)"):    # there and back again
        inference(lambda x: placed(x, 0, 1, 0), options().deviceIterations(2))(torch.ones(2))


def test_stages_on_one_device_are_no_pipeline(compiled):
    inference(lambda x: placed(x, 0, 0))(torch.ones(1))
    opts = options().setExecutionStrategy(poptorch.PipelinedExecution(*[Stage(b).ipu(0) for b in NAMES]))
    training(Tied(), opts)[1](torch.randn(2, 10), torch.randint(10, (2,)))
    assert [c["stages"] for c in compiled] == [[], []]


def test_sharded_needs_nothing():
    opts = options().setExecutionStrategy(poptorch.ShardedExecution(*NAMES))
    training(Tied(), opts)[1](torch.randn(2, 10), torch.randint(10, (2,)))


@pytest.mark.parametrize("ipus, replicas, used, reserved", [((0, 1, 2), 1, 3, 4), ((0,), 3, 3, 4), ((0, 1), 3, 6, 8),
                                                            ((0, 4), 1, 5, 8)])
def test_devices_are_a_power_of_two(ipus, replicas, used, reserved, log):
    x, opts = torch.ones(len(ipus) * replicas), options().deviceIterations(len(ipus)).replicationFactor(replicas)
    with pytest.raises(poptorch.Error, match=rf"use of {used} IPUs, .* minimum of {reserved} .*autoRoundNumIPUs"):
        inference(lambda x: placed(x, *ipus), opts.clone())(x)
    inference(lambda x: placed(x, *ipus), opts.clone().autoRoundNumIPUs(True))(x)
    assert f"Reserving {reserved} IPUs although the model uses {used}" in log()


@pytest.mark.parametrize("ipu, replicas", [(64, 1), (0, 128), (1, 64)])
def test_too_many_devices(ipu, replicas):
    opts = options().deviceIterations(2).replicationFactor(replicas).autoRoundNumIPUs(True)
    with pytest.raises(poptorch.Error, match="64 at most"):
        inference(lambda x: placed(x, 0, ipu), opts)(torch.ones(2 * replicas))


@pytest.mark.parametrize("strategy, match", [
    (lambda: poptorch.PipelinedExecution("B1", "B2", "B3"), "Unknown Block 'B4', list of expected Blocks"),
    (lambda: poptorch.PipelinedExecution(), "no IPU was specified for block 'B1'")])
def test_blocks_without_a_place(strategy, match):
    with pytest.raises(AssertionError, match=match):
        training(Tied(), options().setExecutionStrategy(strategy()))[1](torch.randn(2, 10), torch.randint(10, (2,)))


def test_operations_between_blocks():
    def forward(x):
        with Block("a", 0):
            x = x * 2
        return x + 1
    refused(forward, "No active Block, all the ops must belong to a Block")


def test_parallel_phases_take_turns():
    strategy = poptorch.ParallelPhasedExecution(*[poptorch.Phase(b) for b in NAMES])
    strategy.phase(1).ipus(2)
    with pytest.raises(poptorch.Error, match="even phases run on even IPUs and odd phases on odd ones"):
        training(Tied(), options().setExecutionStrategy(strategy))[1](torch.randn(2, 10), torch.randint(10, (2,)))


def test_a_buffer_of_two_stages():
    """What every micro-batch changes is read where it changes, or the stages take turns."""
    class Net(Counting):
        def forward(self, x):
            Block.start("a", 0)
            x = (x + self.n) @ torch.ones(3, 3, device=x.device)
            Block.start("b", 1)
            return super().forward(x)
    with pytest.raises(poptorch.Error, match="changes with every micro-batch in one stage of the pipeline"):
        inference(Net(), options().deviceIterations(2))(torch.ones(2, 3))
    opts = options().deviceIterations(2).setExecutionStrategy(poptorch.ShardedExecution())
    assert inference(Net(), opts)(torch.ones(2, 3))[:, 0].tolist() == [4, 8]


def test_buffers_of_replicas_that_the_engine_lacks():
    class Net(Counting):
        def forward(self, x):
            return super().forward(poptorch.ipu_print_tensor(x))
    with pytest.raises(poptorch.Error, match="calls the host are not supported yet"):
        inference(Net(), options().replicationFactor(2).broadcastBuffers(False))(torch.zeros(2))


# --- profiles ---

@pytest.mark.parametrize("strategy, ipus", [(four, 4), (one_device, 1)])
def test_a_profile_says_who_did_what_when(strategy, ipus, tmp_path):
    assert_same_bits(Tied, strategy(), lambda opts: opts.enableProfiling(str(tmp_path)))
    assert "memory" in (tmp_path / "training" / "plan.txt").read_text()
    assert (tmp_path / "training" / "trace.json").exists()
    with poptorch.profiling.openReport(tmp_path / "training") as report:
        assert report.fits and report.run["source"] == "measured" and len(report.devices) == ipus
        runs = [e for e in report.events if e.kernel is None and report.sections[e.section].phase == 0]
        assert {e.device for e in runs} == set(range(ipus)) and all(e.end > e.start for e in runs)
        assert {(e.call, e.micro) for e in runs} == {(c, m) for c in range(2) for m in range(A * D)}
        assert {k.id for k in report.kernels} == {e.kernel for e in report.events} - {None}
        assert {"copy_in", "copy_out", "call", "compile", "cc", "load"} <= {e.kind for e in report.hosts}


def test_a_profile_of_the_first_run(tmp_path, monkeypatch):
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", json.dumps({
        "autoReport.outputExecutionProfile": "true", "autoReport.directory": str(tmp_path),
        "autoReport.executionProfileProgramRunCount": "1"}))
    run(Tied, one_device(), lambda opts: opts.modelName("mine"))
    with poptorch.profiling.openReport(tmp_path / "mine" / "profile.db") as report:
        assert {e.call for e in report.events} == {0} and report.run["calls"] == "1"
    assert not (tmp_path / "mine" / "plan.txt").exists()


def test_a_profile_without_times(tmp_path, monkeypatch):
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", json.dumps({
        "autoReport.outputGraphProfile": "true", "autoReport.directory": str(tmp_path)}))
    run(Tied, one_device())
    with poptorch.profiling.openReport(tmp_path / "training") as report:
        assert report.kernels and not report.events and report.run["source"] == "plan"


def test_a_profile_of_what_does_not_fit(tmp_path):
    with pytest.raises(poptorch.Error, match="profile.db shows what is where"):
        model = torch.nn.Linear(20000, 20000)
        opts = options().useIpuModel(True).enableProfiling(str(tmp_path))
        inference(model, opts)(torch.zeros(1, 20000))
    with poptorch.profiling.openReport(tmp_path / "inference") as report:
        assert not report.fits and "weight" in report.refused and report.devices[0].peak > report.devices[0].bytes > 0


def test_a_profile_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(poptorch.Error, match="(?s)file.*writing the profile"):
        run(Tied, one_device(), lambda opts: opts.enableProfiling(str(tmp_path / "file")))


@pytest.mark.parametrize("content", [b"", b"no database at all"])
def test_a_report_that_is_none(tmp_path, content):
    with pytest.raises(poptorch.Error, match="There is no profile"):
        poptorch.profiling.openReport(tmp_path)
    (tmp_path / "profile.db").write_bytes(content)
    with pytest.raises(poptorch.Error, match="is no profile"):
        poptorch.profiling.openReport(tmp_path)


# --- which devices ---

HOLD = """
import sys, time
from poptorch import _core
held = _core.attach(5, 2, 0.0, sys.argv[1] == "exclusive")
print("held", flush=True)
sys.stdin.readline()
"""


@pytest.fixture(params=["exclusive"])
def held(build_dir, tmp_path, monkeypatch, request):
    """Another process that has the devices 5 and 6 until it is told."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    other = subprocess.Popen([sys.executable, "-c", HOLD, request.param], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                             env={**os.environ, "PYTHONPATH": str(build_dir / "python")})
    assert other.stdout.readline() == "held\n"
    yield other
    other.kill()
    other.wait()


def test_a_device_by_its_id(held, monkeypatch):
    where = []
    monkeypatch.setattr(_core, "attach", lambda *args, attach=_core.attach: where.append(args) or attach(*args))
    assert_same_bits(Tied, four(), lambda opts: opts.useIpuId(1))
    assert where == [(1, 4, 0.0, True)]
    with pytest.raises(poptorch.Error, match=r"Failed to acquire 2 IPU\(s\): device 5 is in use by another process"):
        run(Tied, two(), lambda opts: opts.useIpuId(4))


@pytest.mark.parametrize("held", ["shared"], indirect=True)
def test_a_launcher_shares_devices(held, monkeypatch):
    with pytest.raises(poptorch.Error, match="device 5 is in use by another process"):
        run(Tied, two(), lambda opts: opts.useIpuId(4))
    monkeypatch.setenv("POPDIST_NUM_TOTAL_REPLICAS", "1")
    run(Tied, two(), lambda opts: opts.useIpuId(4))


def test_waiting_for_a_device(held, monkeypatch):
    monkeypatch.setenv("POPTORCH_WAIT_FOR_IPU", "1")
    threading.Timer(0.5, held.stdin.close).start()
    started = time.monotonic()
    run(Tied, two(), lambda opts: opts.useIpuId(5))
    assert time.monotonic() - started > 0.4


def test_options_go_by_name():
    graph = _core.Graph("net")
    graph.output(graph.full("f32", (), 1.0), "y")
    with pytest.raises(Exception, match="ts_options has no option 'recompte'"):
        _core.compile(graph, {"recompte": True})
    with pytest.raises(Exception, match="ts_optimizer has no option 'learning_rate'"):
        _core.compile(graph, {"optimizer": {"learning_rate": 1.0}})
    with pytest.raises(Exception, match="ts_hyper has no option 'betas'"):
        _core.compile(graph, {"optimizer": {"hyper": {"betas": 1.0}}})
    with pytest.raises(Exception, match="replicas is 1025; it can be at most 1024"):
        _core.compile(graph, {"replicas": 1025})
    with pytest.raises(TypeError):
        _core.compile(graph, {"replicas": 1.5j})
    with pytest.raises(TypeError):
        _core.compile(graph, {"stages": 3})
    assert _core.compile(graph, {"cache_dir": "", "device_iterations": 2, "isa": None}).tensors(1)


def test_on_a_gpu_by_option():
    torch.manual_seed(0)
    net, x = torch.nn.Linear(5, 3), torch.randn(4, 5)
    model = poptorch.inferenceModel(net, poptorch.Options().useGpu("opencl").showCompilationProgressBar(False))
    try:
        got = model(x)
    except poptorch.Error as e:
        if "there is no OpenCL here" not in str(e) and "finds no device" not in str(e):
            raise
        pytest.skip(str(e).splitlines()[0])
    torch.testing.assert_close(got, net(x).detach(), rtol=1e-5, atol=1e-6)
    with pytest.raises(poptorch.Error, match="useGpu takes 'gpu' or 'opencl', got 'cuda'"):
        poptorch.Options().useGpu("cuda")
