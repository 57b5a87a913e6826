"""Recurrent layers: one op whatever their length, with the results and gradients of PyTorch's."""

import copy

import pytest
import torch
import torch.nn as nn

import poptorch
from poptorch_helpers import inference, nothing_cached, options, training    # noqa: F401


class Net(nn.Module):
    """Uses the outputs and the last states."""

    def __init__(self, layer, **how):
        super().__init__()
        torch.manual_seed(1)
        self.rnn = layer(5, 7, **how)

    def forward(self, x):
        y, state = self.rnn(x)
        parts = state if isinstance(state, tuple) else (state,)
        loss = y.square().mean() + sum(s.square().mean() * (i + 2) for i, s in enumerate(parts))
        return y, poptorch.identity_loss(loss, "none")


def trains_alike(net, x, steps=2):
    other = copy.deepcopy(net)
    _, model = training(net)
    optimizer = torch.optim.SGD(other.parameters(), lr=0.5)
    for _ in range(steps):
        y, loss = model(x)
        optimizer.zero_grad()
        want, expected = other(x)
        expected.backward()
        optimizer.step()
        torch.testing.assert_close(y, want.detach(), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(loss, expected.detach(), rtol=1e-4, atol=1e-5)
    for p, q in zip(net.parameters(), other.parameters()):
        torch.testing.assert_close(p.detach(), q.detach(), rtol=1e-4, atol=1e-5)
    return model


@pytest.mark.parametrize("layer, how", [
    (nn.LSTM, {"num_layers": 2, "bidirectional": True}), (nn.LSTM, {"proj_size": 3}), (nn.GRU, {"batch_first": True, "bias": False}),
    (nn.RNN, {"nonlinearity": "relu", "bidirectional": True})], ids=["lstm", "projected", "gru", "relu"])
def test_training(layer, how):
    trains_alike(Net(layer, **how), torch.randn(4, 3, 5))


def test_a_long_sequence_is_as_small_a_program():
    nodes = []
    for steps in (3, 3000):
        model = inference(Net(nn.LSTM))
        x = torch.randn(steps, 2, 5)
        torch.testing.assert_close(model(x)[0], Net(nn.LSTM)(x)[0].detach(), rtol=1e-4, atol=1e-5)
        nodes.append(len(model.getTensorNames()))
    assert nodes[0] == nodes[1]


def test_doubles_are_computed_as_such():
    net, x = Net(nn.GRU).double(), torch.randn(3, 2, 5, dtype=torch.float64)
    got = inference(net)(x)[0]
    torch.testing.assert_close(got.double(), net(x)[0].detach().to(got.dtype).double(), rtol=1e-6, atol=1e-7)


def test_halves_are_rounded_between_layers_only():
    net, x = Net(nn.LSTM, num_layers=2), torch.randn(6, 2, 5)
    want = net(x)[0].detach()
    got = inference(copy.deepcopy(net).bfloat16())(x.bfloat16())[0]
    torch.testing.assert_close(got.float(), want, rtol=2e-2, atol=1e-2)


class Penalty(nn.Module):
    """A loss that depends on a gradient, which forward() asks autograd for."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.rnn, self.out = nn.GRU(5, 4), nn.Linear(4, 1)

    def forward(self, x):
        x = x.clone().requires_grad_()
        y = self.out(self.rnn(x)[0]).sum()
        slope, = torch.autograd.grad(y, x, create_graph=True)
        return y, poptorch.identity_loss(y + (slope.square().sum() - 1) ** 2, "none")


def test_gradients_that_forward_asks_for():
    trains_alike(Penalty(), torch.randn(3, 2, 5))


class Twice(torch.autograd.Function):
    """Whose gradient is the program's."""

    @staticmethod
    def forward(ctx, x):    # pylint: disable=arguments-differ
        return 2 * x

    @staticmethod
    def backward(ctx, g):    # pylint: disable=arguments-differ
        return 2 * g


class WithFunction(Net):
    def forward(self, x):
        return super().forward(Twice.apply(x * self.rnn.weight_ih_l0.sum()))


def test_beside_a_function_with_a_gradient_of_its_own():
    trains_alike(WithFunction(nn.LSTM), torch.randn(3, 2, 5))


def test_dropout_between_layers():
    net = Net(nn.LSTM, num_layers=2, dropout=0.5)
    x = torch.randn(3, 2, 5)
    _, model = training(net)
    torch.testing.assert_close(inference(copy.deepcopy(net))(x)[0], copy.deepcopy(net).eval()(x)[0].detach(), rtol=1e-4, atol=1e-5)
    assert not torch.equal(model(x)[0], model(x)[0])
