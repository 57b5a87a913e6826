"""What a call consumes and returns: section by section of the arithmetic of D, A, R and the output modes."""

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import poptorch
from poptorch_helpers import MODES, Counting, Normalising, inference, nothing_cached, options, training  # noqa: F401

GROUPS = poptorch.CommGroupType


class Fixed(nn.Module):
    """Returns its input and a loss whose gradient is 1 for one weight; the rows say which came where."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.zeros(()))

    def forward(self, x):
        return x, poptorch.identity_loss(x[0, 0] + self.w * x.mean(), "sum")


def setting(d=1, a=1, r=1, mode=None, n=None):
    opts = options().deviceIterations(d).replicationFactor(r).autoRoundNumIPUs(True)
    opts.Training.gradientAccumulation(a)
    return opts if mode is None else opts.outputMode(mode, n)


def run(opts, b, width=10):
    k = opts.device_iterations * opts.Training.gradient_accumulation * opts.replication_factor
    x = torch.arange(float(k * b)).view(-1, 1).repeat(1, width)
    net = Fixed()
    out, loss = training(net, opts, torch.optim.SGD(net.parameters(), lr=0.0))[1](x)
    return x, out, loss


# The worked examples: setting, B, rows of out, shape of loss, rows of the input that come back.
EXAMPLES = [
    (setting(), 16, 16, (), range(16)),
    (setting(50, mode=MODES.All), 8, 400, (50,), range(400)),
    (setting(50), 8, 8, (), range(392, 400)),
    (setting(10, 10, mode=MODES.All), 40, 4000, (100,), range(4000)),
    (setting(10, 10), 40, 40, (), range(3960, 4000)),
    (setting(10, 10, mode=MODES.EveryN, n=5), 40, 800, (20,), [*range(1600, 2000), *range(3600, 4000)]),
    (setting(20, r=2), 16, 32, (2,), range(608, 640)),
    (setting(2, 3, 4, MODES.All), 5, 120, (24,), range(120)),
    (setting(1000, mode=MODES.All), 1, 1000, (1000,), range(1000)),
    (setting(1000, mode=MODES.EveryN, n=20), 1, 50, (50,), range(19, 1000, 20)),
    (setting(1000), 1, 1, (), [999]),
    (setting(2, 2, 2, MODES.EveryN, 2), 3, 12, (4,), range(12, 24)),
]


@pytest.mark.parametrize("opts, b, rows, loss_shape, which", EXAMPLES)
def test_worked_examples(opts, b, rows, loss_shape, which):
    x, out, loss = run(opts.clone(), b)
    assert out.shape == (rows, 10) and loss.shape == loss_shape
    assert torch.equal(out, x[list(which)])
    assert torch.equal(loss.flatten(), x[list(which)][::b, 0])


def test_sum():
    x, out, loss = run(setting(10, 10, mode=MODES.Sum), 40)
    assert out.shape == (40, 10) and loss.shape == ()
    torch.testing.assert_close(out, x.view(100, 40, 10).sum(0))
    x, out, loss = run(setting(2, 2, 2, MODES.Sum), 3)    # replicas are not summed
    torch.testing.assert_close(out, x.view(4, 2, 3, 10).sum(0).view(6, 10))
    torch.testing.assert_close(loss, x.view(4, 2, 3, 10).sum(0)[:, 0, 0])


def test_inference_examples():
    assert inference(lambda x: x + 0, setting(100))(torch.ones(800, 10)).shape == (800, 10)
    x = torch.arange(40.0).view(10, 4)
    out = inference(lambda x: x + 0, setting(10, mode=MODES.EveryN, n=5))(x)
    assert torch.equal(out, x[[4, 9]])


@pytest.mark.parametrize("mode, n, expected", [
    (MODES.All, None, range(12)), (MODES.Final, None, [9, 10, 11]), (MODES.EveryN, 2, [3, 4, 5, 9, 10, 11])])
def test_inference_replicas(mode, n, expected):
    x = torch.arange(12.0)
    assert inference(lambda x: x + 0, setting(4, r=3, mode=mode, n=n))(x).tolist() == list(expected)


def test_every_tensor_is_split():
    out = inference(lambda x, scale: (x * scale, scale), setting(3))(torch.ones(6, 2), torch.tensor([1.0, 2, 3]))
    assert out[0][:, 0].tolist() == [1, 1, 2, 2, 3, 3] and out[1].tolist() == [1, 2, 3]


@pytest.mark.parametrize("opts", [setting(3), setting(1, r=3), setting(2, r=2)])
def test_rows_that_do_not_divide(opts):
    with pytest.raises(AssertionError, match=r"Invalid batch dimension: .*\(5, 2\).*deviceIterations"):
        inference(lambda x: x, opts.clone())(torch.ones(5, 2))


def test_scalars_need_one_micro_batch():
    assert inference(lambda x: x + 1)(torch.tensor(1.0)).item() == 2
    with pytest.raises(AssertionError, match="Invalid batch dimension"):
        inference(lambda x: x + 1, setting(2))(torch.tensor(1.0))


@pytest.mark.parametrize("opts, match", [(setting(4, mode=MODES.EveryN, n=3), "EveryN"),
                                         (setting(2, mode=MODES.EveryN, n=4), "EveryN")])
def test_periods(opts, match):
    with pytest.raises(poptorch.Error):
        inference(lambda x: x, opts)(torch.ones(4))


# --- gradients ------------------------------------------------------------------------------------

@pytest.mark.parametrize("kind, factor", [(poptorch.ReductionType.Mean, 1.0), (poptorch.ReductionType.Sum, 6.0)])
@pytest.mark.parametrize("a, r", [(6, 1), (1, 6), (3, 2)])
def test_reduction(kind, factor, a, r):
    opts = setting(2, a, r)
    opts.Training.accumulationAndReplicationReductionType(kind)
    net = Fixed()
    x = torch.randn(2 * 6 * 4, 10)
    training(net, opts, torch.optim.SGD(net.parameters(), lr=1.0))[1](x)
    torch.testing.assert_close(net.w.detach(), -factor * x.view(2, -1).mean(1).sum())


def test_running_mean():
    found = []
    for strategy in (poptorch.MeanReductionStrategy.Post, poptorch.MeanReductionStrategy.Running):
        opts = setting(1, 4)
        opts.Training.setMeanAccumulationAndReplicationReductionStrategy(strategy)
        net = Fixed()
        torch.manual_seed(0)
        training(net, opts, torch.optim.SGD(net.parameters(), lr=1.0))[1](torch.randn(16, 10))
        found.append(net.w.item())
    assert found[0] == pytest.approx(found[1], rel=1e-5)


def test_replicas_train_like_accumulation():
    found = []
    for a, r in ((4, 1), (1, 4), (2, 2)):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.net = net

            def forward(self, x, t):
                return F.mse_loss(self.net(x), t)
        _, model = training(Net(), setting(2, a, r), torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9))
        for _ in range(3):
            model(torch.randn(16, 3), torch.randn(16, 2))
        found.append(net[0].weight.detach().clone())
    for other in found[1:]:    # added up in another order
        torch.testing.assert_close(other, found[0], rtol=1e-6, atol=1e-7)


# --- groups of replicas ---------------------------------------------------------------------------

@pytest.mark.parametrize("kind, expected", [(GROUPS.Consecutive, [0, 0, 1, 1]), (GROUPS.Orthogonal, [0, 1, 0, 1])])
def test_input_groups(kind, expected):
    opts = setting(2, r=4).inputReplicaGrouping(2, kind)
    out = inference(lambda x: x * 10, opts)(torch.arange(4.0))    # D * R / g
    assert out.tolist() == [10.0 * i for i in (*expected, *(e + 2 for e in expected))]
    with pytest.raises(AssertionError, match="inputReplicaGrouping"):
        inference(lambda x: x, setting(2, r=4).inputReplicaGrouping(2, kind))(torch.ones(6))


def test_input_groups_in_training():
    opts = setting(1, 2, 4).inputReplicaGrouping(4, GROUPS.Consecutive)
    net = Fixed()
    x = torch.randn(2 * 3, 10)
    out, _ = training(net, opts, torch.optim.SGD(net.parameters(), lr=1.0))[1](x)
    assert torch.equal(out, x[3:].repeat(4, 1))
    torch.testing.assert_close(net.w.detach(), -x.mean())


def test_input_groups_write_back():
    def forward(x):
        x.mul_(2)
        return x.sum()
    x = torch.arange(4.0)
    inference(forward, setting(1, r=4).inputReplicaGrouping(2, GROUPS.Orthogonal))(x)
    assert x.tolist() == [0, 2, 4, 6]


# --- buffers --------------------------------------------------------------------------------------

def test_buffers_of_replicas():
    with pytest.raises(poptorch.Error, match="broadcastBuffers"):
        inference(Counting(), setting(1, r=2))(torch.zeros(2))
    for d in (1, 2):    # each has its own
        model = inference(Counting(), setting(d, r=2).broadcastBuffers(False))
        assert model(torch.zeros(2 * d)).tolist() == [1, 1, 2, 2][:2 * d]
    same = setting(1, r=2).inputReplicaGrouping(2, GROUPS.Consecutive)    # all get the same rows
    assert inference(Counting(), same)(torch.zeros(1)).tolist() == [1, 1]


def test_batch_norm_sees_micro_batches():
    net = Normalising()
    opts = setting(1, 2, mode=MODES.All)
    x = torch.randn(8, 3)
    out, _ = training(net, opts)[1](x)
    bn = nn.BatchNorm1d(3, affine=False)
    torch.testing.assert_close(out, torch.cat([bn(x[:4]), bn(x[4:])]), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(net.bn.running_mean, bn.running_mean)


class OnBuffer(nn.Module):
    """Sums up its rows in a buffer, and in one of rank 0 how many there were."""

    def __init__(self):
        super().__init__()
        self.register_buffer("sum", torch.zeros(2))
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        self.sum.add_(x[0])
        self.count.add_(1)
        return (self.sum + self.count)[None]


def test_own_buffers_outlive_the_device():
    """Every replica goes on with what it had, unless the host says otherwise; the host has the first one's."""
    x = torch.tensor([[1.0, 2.0], [10.0, 20.0]])
    net = OnBuffer()
    model = inference(net, setting(1, r=2).broadcastBuffers(False))
    model(x)
    assert model(x).tolist() == [[4, 6], [22, 42]]
    model.copyWeightsToHost()
    assert net.sum.tolist() == [2, 4] and net.count.item() == 2
    model.detachFromDevice()
    assert model(x).tolist() == [[6, 9], [33, 63]]
    model.copyWeightsToHost()
    model.detachFromDevice()
    net.sum.fill_(5)
    assert model(x).tolist() == [[10, 11], [19, 29]]


# --- parameters of groups of replicas -------------------------------------------------------------

ONE, ALL_OF_THEM = poptorch.VariableRetrievalMode.OnePerGroup, poptorch.VariableRetrievalMode.AllReplicas
# type, shards, the group of each of four replicas
LAYOUTS = [(GROUPS.All, 0, [0, 0, 0, 0]), (GROUPS.Consecutive, 2, [0, 0, 1, 1]),
           (GROUPS.Orthogonal, 2, [0, 1, 0, 1]), (GROUPS.NoGrouping, 0, [0, 1, 2, 3]),
           (GROUPS.Consecutive, 4, [0, 0, 0, 0])]


class Grouped(nn.Module):
    """One grouped weight of a shape, and a bias that all share."""

    def __init__(self, *rows):
        super().__init__()
        torch.manual_seed(3)
        self.w = nn.Parameter(torch.randn(3, 2).expand(*rows, 3, 2).clone())
        self.b = nn.Parameter(torch.zeros(2))

    def forward(self, x):
        y = x @ self.w + self.b
        return y, poptorch.identity_loss((y ** 2).sum(), "sum")


@pytest.mark.parametrize("mode", [ONE, ALL_OF_THEM])
@pytest.mark.parametrize("kind, shards, of", LAYOUTS)
def test_groups_of_parameters(kind, shards, of, mode):
    """Each group adds up the gradients of its own replicas; the mean is over all, as for what all share."""
    groups = max(of) + 1
    net = Grouped(*([] if kind == GROUPS.All else [groups]))
    opts = setting(1, 2, 4)
    optimizer = poptorch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, use_combined_accum=False)
    net, model = training(net, opts, optimizer)
    model.w.replicaGrouping(kind, shards, mode)
    x = torch.randn(2, 4, 5, 3)    # [A][R][B]
    ws, b = [Grouped().w.detach() for _ in range(groups)], torch.zeros(2)
    vs, vb = [torch.zeros(3, 2) for _ in range(groups)], torch.zeros(2)
    for _ in range(3):
        model(x.view(-1, 3))
        d = [[2 * (x[a, r] @ ws[of[r]] + b) for r in range(4)] for a in range(2)]
        gb = sum(d[a][r].sum(0) for a in range(2) for r in range(4)) / 8
        for g in range(groups):
            mine = [x[a, r].T @ d[a][r] for a in range(2) for r in range(4) if of[r] == g]
            vs[g] = 0.9 * vs[g] + sum(mine) / 8
            ws[g] = ws[g] - 0.01 * vs[g]
        vb = 0.9 * vb + gb
        b = b - 0.01 * vb
    want = torch.stack(ws)
    state = optimizer.state_dict()["ipu_state"]["Accl1___w"]
    torch.testing.assert_close(state, vs[0] if kind == GROUPS.All else torch.stack(vs), rtol=1e-4, atol=1e-5)
    if mode == ALL_OF_THEM and kind != GROUPS.All:
        want = want[of]
    torch.testing.assert_close(net.w.detach(), want if kind != GROUPS.All else want[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(net.b.detach(), b, rtol=1e-4, atol=1e-5)
    assert net.state_dict()["w"].shape == net.w.shape


def test_groups_go_on(tmp_path):
    """Saved and loaded, detached, from a state dict: the same bits as without a break."""
    def make():
        net = Grouped(2)
        optimizer = poptorch.optim.Adam(net.parameters(), lr=0.1)
        net, model = training(net, setting(1, 1, 4), optimizer)
        model.w.replicaGrouping(GROUPS.Orthogonal, 2, ALL_OF_THEM)
        return net, model, optimizer
    x = torch.randn(4, 3)
    net, model, optimizer = make()
    model(x)
    model.save(str(tmp_path / "saved"))
    saved = {k: v.clone() for k, v in net.state_dict().items()}, optimizer.state_dict()
    model.detachFromDevice()
    model(x)
    want = net.w.detach().clone()
    assert want.shape == (4, 3, 2) and torch.equal(want[0], want[2]) and not torch.equal(want[0], want[1])
    loaded = poptorch.load(str(tmp_path / "saved"))
    loaded(x)
    assert torch.equal(loaded.model.w, want)
    other, model, optimizer = make()
    other.w.data = torch.zeros(4, 3, 2)    # as it comes back
    other.load_state_dict(saved[0])
    optimizer.load_state_dict(saved[1])
    model(x)
    assert torch.equal(other.w, want)
    third, model, _ = make()
    with pytest.raises(poptorch.Error, match="made from another model"):
        third.w.data = torch.zeros(2, 3, 2)
        model.w.replicaGrouping(GROUPS.Orthogonal, 2, ONE)
        model.loadExecutable(str(tmp_path / "saved"))


def test_groups_in_inference():
    for kind, shards, of in LAYOUTS[1:]:
        net = Grouped(max(of) + 1)
        net.w.data.copy_(torch.arange(float(max(of) + 1)).view(-1, 1, 1).expand_as(net.w))
        for get in (lambda m: m.w, lambda m: m.get_parameter("w")):
            model = inference(net, setting(2, r=4))
            get(model).replicaGrouping(kind, shards, ONE)
            assert get(model).data_ptr() == net.w.data_ptr() and isinstance(model.w, nn.Parameter)
            assert model(torch.ones(8, 3))[0][:, 0].tolist() == [3.0 * g for g in of] * 2
        with torch.no_grad():
            net.w.neg_()
        model.copyWeightsToDevice()
        assert model(torch.ones(8, 3))[0][:, 0].tolist() == [-3.0 * g for g in of] * 2


def test_groups_that_cannot_be():
    grouping = GROUPS.Consecutive, 2, ONE
    net, model = training(Fixed(), setting(1, r=2))
    with pytest.raises(poptorch.Error, match="rank 0"):
        net.w.replicaGrouping(*grouping)
    net, model = training(None, setting(1, r=4))
    with pytest.raises(poptorch.Error, match="4 replicas .* groups of 3"):
        model.fc.weight.replicaGrouping(GROUPS.Consecutive, 3, ONE)
    with pytest.raises(poptorch.Error, match="groups of 0"):
        model.fc.weight.replicaGrouping(GROUPS.Orthogonal, 0, ONE)
    for wrong in ((3, 1, ONE), (GROUPS.Consecutive, 2.0, ONE), (GROUPS.Consecutive, 2, 0)):
        with pytest.raises(AssertionError):
            model.fc.weight.replicaGrouping(*wrong)
    net, model = training(Grouped(3), setting(1, r=4))
    model.w.replicaGrouping(*grouping)
    with pytest.raises(poptorch.Error, match=r"w has shape \(3, 3, 2\); its first dimension must be 2"):
        model(torch.ones(4, 3))
    model.w.replicaGrouping(GROUPS.All, 0, ONE)
    with pytest.raises(Exception):    # and now forward gets a matrix too many
        model(torch.ones(4, 4, 4))
    net = Grouped(2)
    net, model = training(net, setting(1, r=4), poptorch.optim.Adam(net.parameters(), max_grad_norm=1.0))
    model.w.replicaGrouping(*grouping)
    with pytest.raises(poptorch.Error, match="max_grad_norm is not supported"):
        model(torch.ones(4, 3))
    net = Grouped(2)
    net, model = training(net, setting(1, r=4),
                          poptorch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, use_combined_accum=True))
    model.w.replicaGrouping(*grouping)
    with pytest.raises(poptorch.Error, match="combined velocity"):
        model(torch.ones(4, 3))
    opts = setting(1, r=4)
    opts.Distributed.configureProcessId(0, 2)
    model = inference(Grouped(2), opts)
    model.w.replicaGrouping(*grouping)
    with pytest.raises(poptorch.Error, match="replicaGrouping of w in several processes is not supported"):
        model(torch.ones(4, 3))
    net, model = training(Grouped(2), setting(1, r=4))
    model.w.replicaGrouping(*grouping)
    model(torch.ones(4, 3))
    with pytest.raises(poptorch.Error, match="compiled already"):
        model.w.replicaGrouping(*grouping)
    model.destroy()
    assert type(net.w) is nn.Parameter and not hasattr(net.w, "replicaGrouping")
