"""What a call consumes and returns: section by section of the arithmetic of D, A, R and the output modes."""

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import poptorch
from poptorch_helpers import MODES, Counting, inference, nothing_cached, options, training  # noqa: F401

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
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.bn = nn.BatchNorm1d(3, affine=False)
            self.w = nn.Parameter(torch.ones(1))

        def forward(self, x):
            y = self.bn(x)
            return y, poptorch.identity_loss((y * self.w).sum(), "sum")
    net = Net()
    opts = setting(1, 2, mode=MODES.All)
    x = torch.randn(8, 3)
    out, _ = training(net, opts)[1](x)
    bn = nn.BatchNorm1d(3, affine=False)
    torch.testing.assert_close(out, torch.cat([bn(x[:4]), bn(x[4:])]), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(net.bn.running_mean, bn.running_mean)


def test_groups_of_parameters():
    net, _ = training(Fixed())
    grouping = GROUPS.Consecutive, 2, poptorch.VariableRetrievalMode.OnePerGroup
    with pytest.raises(poptorch.Error, match="rank 0"):
        net.w.replicaGrouping(*grouping)
    net, model = training()
    with pytest.raises(poptorch.Error, match="not supported yet"):
        model.fc.weight.replicaGrouping(*grouping)
    model.fc.weight.replicaGrouping(GROUPS.All, 1, grouping[2])    # as it is anyway
    with pytest.raises(AssertionError):
        model.fc.weight.replicaGrouping(3, 1, grouping[2])
