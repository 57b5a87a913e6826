"""torch.autograd.Function in training: the net trains as in PyTorch."""

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import poptorch
from poptorch_helpers import nothing_cached, options, training    # noqa: F401


class Rounded(torch.autograd.Function):
    """A straight-through estimator, with an argument that is no tensor."""

    @staticmethod
    def forward(ctx, x, steps):
        return (x * steps).round() / steps

    @staticmethod
    def backward(ctx, g):
        return g, None


class Clipped(torch.autograd.Function):
    """Keeps its argument and its result; the gradient is another one than that of the formula."""

    @staticmethod
    def forward(ctx, x):
        y = x.tanh()
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return torch.where(x.abs() > 0.5, g * 2 * (1 - y * y), torch.zeros_like(g))


class Parts(torch.autograd.Function):
    """Two results, of which one has no gradient, and a weight."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        largest = x.argmax(1)
        ctx.mark_non_differentiable(largest)
        return x @ w, largest

    @staticmethod
    def backward(ctx, g, _):
        x, w = ctx.saved_tensors
        return (g @ w.T if ctx.needs_input_grad[0] else None), 0.5 * x.T @ g


class Net(nn.Module):
    """Every kind of layer around them: gradients of all of these are PyTorch's too."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.conv, self.bn, self.fc = nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4), nn.Linear(16, 6)
        self.norm, self.w = nn.LayerNorm(6), nn.Parameter(torch.randn(6, 3))
        self.unused = nn.Parameter(torch.ones(2))

    def forward(self, x, t):
        x = F.max_pool2d(F.relu(self.bn(self.conv(Rounded.apply(x * 1.0, 8)))), 2).flatten(1)
        x = Clipped.apply(self.norm(self.fc(x)))
        x, _ = Parts.apply(x, self.w)
        return x, F.cross_entropy(x, t, label_smoothing=0.1)


@pytest.mark.parametrize("make, iterations, accumulation", [
    (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), 1, 1), (lambda p: poptorch.optim.AdamW(p, lr=0.01), 2, 2)])
def test_nets_train_as_in_pytorch(make, iterations, accumulation):
    net, other = Net(), Net()
    opts = options().deviceIterations(iterations).outputMode(poptorch.OutputMode.All)
    opts.Training.gradientAccumulation(accumulation)
    _, model = training(net, opts, make(net.parameters()))
    optimizer = make(other.parameters()) if accumulation == 1 else torch.optim.AdamW(other.parameters(), lr=0.01)
    for step in range(3):
        x, t = torch.randn(4 * iterations * accumulation, 1, 6, 6), torch.randint(3, (4 * iterations * accumulation,))
        losses = model(x, t)[1].reshape(-1)
        expected = []
        for i in range(iterations):
            optimizer.zero_grad()
            for a in range(accumulation):
                at = slice(4 * (i * accumulation + a), 4 * (i * accumulation + a + 1))
                loss = other(x[at], t[at])[1]
                (loss / accumulation).backward()
                expected.append(loss.item())
            optimizer.step()
        torch.testing.assert_close(losses, torch.tensor(expected), rtol=1e-3, atol=1e-4)
    for (name, p), q in zip(net.named_parameters(), other.parameters()):
        torch.testing.assert_close(p.detach(), q.detach(), rtol=1e-3, atol=1e-3, msg=name)
    torch.testing.assert_close(net.bn.running_var, other.bn.running_var, rtol=1e-4, atol=1e-5)


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return -g


class One(nn.Module):
    def __init__(self, forward):
        super().__init__()
        self.w, self.function = nn.Parameter(torch.ones(3)), forward

    def forward(self, x):
        return poptorch.identity_loss(self.function(Reversed.apply(self.w * x)), "none")


def test_a_loss_that_is_no_number_counts_with_its_sum():
    net, model = training(One(lambda x: x * x))
    loss = model(torch.tensor([1.0, 2.0, 3.0]))
    assert loss.tolist() == [1, 4, 9]
    assert net.w.tolist() == [1 + 0.5 * 2 * x * x for x in (1, 2, 3)]


def test_what_a_block_ended_is_no_obstacle():
    class Inside(One):
        def forward(self, x):
            with poptorch.Block("only", ipu_id=0):
                return super().forward(x)
    net, model = training(Inside(lambda x: x * 2))
    model(torch.ones(3))
    assert net.w.tolist() == [2, 2, 2]


def test_what_else_has_gradients_of_its_own_is_refused():
    with pytest.raises(poptorch.Error, match="custom_op or print gradients"):
        training(One(lambda x: poptorch.ipu_print_tensor(x, "x")))[1](torch.ones(3))


class Staged(Net):
    def forward(self, x, t):
        with poptorch.Block("a", ipu_id=0):
            x = F.max_pool2d(F.relu(self.bn(self.conv(Rounded.apply(x * 1.0, 8)))), 2).flatten(1)
        with poptorch.Block("b", ipu_id=1):
            x = Clipped.apply(self.norm(self.fc(x)))
        with poptorch.Block("c", ipu_id=2):
            x, _ = Parts.apply(x, self.w)
        with poptorch.Block("d", ipu_id=3):
            return x, F.cross_entropy(x, t, label_smoothing=0.1)


STAGES = [poptorch.Stage(name).ipu(i) for i, name in enumerate("abcd")]


@pytest.mark.parametrize("strategy", [
    lambda: poptorch.PipelinedExecution(*STAGES), lambda: poptorch.ShardedExecution(*STAGES),
    lambda: poptorch.SerialPhasedExecution([poptorch.Phase(name) for name in "abcd"])])
def test_on_several_devices(strategy):
    """The backward pass is the last one's."""
    net, other, micro_batches = Staged(), Net(), 8
    opts = options()
    opts.setExecutionStrategy(strategy())
    opts.Training.gradientAccumulation(micro_batches)
    model = poptorch.trainingModel(net, opts, torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9))
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1, momentum=0.9)
    for _ in range(3):
        x, t = torch.randn(micro_batches * 3, 1, 6, 6), torch.randint(3, (micro_batches * 3,))
        optimizer.zero_grad()
        for part in zip(x.split(3), t.split(3)):
            expected = other(*part)[1]
            (expected / micro_batches).backward()
        optimizer.step()
        torch.testing.assert_close(model(x, t)[1], expected.detach())
    for (name, p), q in zip(net.named_parameters(), other.parameters()):
        torch.testing.assert_close(p.detach(), q.detach(), rtol=1e-4, atol=1e-5, msg=name)
