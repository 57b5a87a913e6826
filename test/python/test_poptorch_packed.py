"""Packed sequences, of lengths that are constants and of lengths that every batch has of its own, as in PyTorch."""

import pytest
import torch
import torch.nn as nn
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence

import poptorch
from poptorch_helpers import inference, nothing_cached, training    # noqa: F401

LENGTHS = torch.tensor([3, 5, 1])


@pytest.fixture(autouse=True)
def no_compiler(monkeypatch):
    """What is compiled is tested elsewhere."""
    monkeypatch.setenv("TESSERA_CC", "/nowhere/cc")


class Net(nn.Module):
    def __init__(self, layer, lengths, **how):
        super().__init__()
        torch.manual_seed(2)
        self.rnn, self.out = layer(3, 4, batch_first=how.get("batch_first", False), num_layers=2, bidirectional=True), nn.Linear(8, 2)
        self.lengths, self.how = lengths, how

    def forward(self, x):
        packed, _ = self.rnn(pack_padded_sequence(x, self.lengths, **self.how))
        y, lengths = pad_packed_sequence(packed, batch_first=self.how.get("batch_first", False), padding_value=0.5)
        y = self.out(y)
        return y, poptorch.identity_loss(y.square(), "mean")


@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("lengths, how", [(LENGTHS.sort(descending=True)[0], {}), ([5, 5, 2], {"batch_first": True}),
                                          (LENGTHS, {"batch_first": True, "enforce_sorted": False})])
def test_layers_over_packed_sequences(layer, lengths, how):
    net, other = Net(layer, lengths, **how), Net(layer, lengths, **how)
    x = torch.randn(3, 5, 3) if how.get("batch_first") else torch.randn(5, 3, 3)
    torch.testing.assert_close(inference(other)(x)[0], other(x)[0].detach(), rtol=1e-4, atol=1e-5)
    _, model = training(net)
    optimizer = torch.optim.SGD(other.parameters(), lr=0.5)
    for _ in range(2):
        loss = model(x)[1]
        optimizer.zero_grad()
        expected = other(x)[1]
        expected.backward()
        optimizer.step()
        torch.testing.assert_close(loss, expected.detach(), rtol=1e-4, atol=1e-5)
    for p, q in zip(net.parameters(), other.parameters()):
        torch.testing.assert_close(p.detach(), q.detach(), rtol=1e-4, atol=1e-5)


def test_a_list_of_sequences():
    def packed(a, b):
        return pad_packed_sequence(pack_sequence([a, b]))[0] * 2
    a, b = torch.randn(4, 3), torch.randn(2, 3)
    torch.testing.assert_close(inference(packed)(a, b), packed(a, b))


class Lengths(nn.Module):
    """Lengths are an argument. Every result that packed sequences have."""

    def __init__(self, layer, layers=1, bidirectional=False, batch_first=True, total=True, **how):
        super().__init__()
        torch.manual_seed(2)
        self.rnn = layer(3, 4, layers, batch_first=batch_first, bidirectional=bidirectional, **how)
        self.out, self.drop = nn.Linear((how.get("proj_size") or 4) * (1 + bidirectional), 2), nn.Dropout(0.0)
        self.batch_first, self.total = batch_first, total

    def forward(self, x, lengths):
        steps = x.size(1 if self.batch_first else 0)
        packed = pack_padded_sequence(x, lengths, self.batch_first, enforce_sorted=False)
        packed, last = self.rnn(packed._replace(data=self.drop(packed.data * 2)))
        y, lengths = pad_packed_sequence(packed, self.batch_first, 0.5, steps if self.total else None)
        last = last[0] + last[1][..., :1] if isinstance(last, tuple) else last
        y = self.out(y)
        return y, last, lengths, poptorch.identity_loss(y.square().mean() + last.square().sum() + packed.data.tanh().mean(), "sum")


def batches(batch_first=True, longest=5):
    for lengths in ([3, 5, 1], [5, 5, 5], [1, 2, 5], [4, 5, 4]):
        x = torch.randn(3, longest, 3) if batch_first else torch.randn(longest, 3, 3)
        yield x, torch.tensor(lengths)


@pytest.mark.parametrize("layer, how", [
    (nn.LSTM, dict(layers=2, bidirectional=True)), (nn.GRU, dict(layers=2, bidirectional=True, batch_first=False)),
    (nn.RNN, dict(nonlinearity="relu", bias=False)), (nn.RNN, dict(total=False)), (nn.LSTM, dict(proj_size=2, layers=2)),
    (nn.GRU, dict(total=False, batch_first=False)), (nn.LSTM, dict(bias=False, bidirectional=True))])
def test_lengths_that_every_batch_has_of_its_own(layer, how):
    net, other = Lengths(layer, **how), Lengths(layer, **how)
    run, (_, model) = inference(Lengths(layer, **how)), training(net)
    optimizer = torch.optim.SGD(other.parameters(), lr=0.5)
    for x, lengths in batches(net.batch_first):
        expected = Lengths(layer, **how)(x, lengths)
        for found, wanted in zip(run(x, lengths), expected):
            torch.testing.assert_close(found, wanted.detach().to(found.dtype), rtol=1e-4, atol=1e-5)
        optimizer.zero_grad()
        other(x, lengths)[-1].backward()
        optimizer.step()
        model(x, lengths)
        for p, q in zip(net.parameters(), other.parameters()):
            torch.testing.assert_close(p.detach(), q.detach(), rtol=1e-4, atol=1e-5)


def test_a_loss_over_packed_sequences():
    def forward(x, t, n):
        x, t = (pack_padded_sequence(v, n, batch_first=True, enforce_sorted=False) for v in (x, t))
        return torch.nn.functional.cross_entropy(x.data, t.data)
    model = inference(forward)
    for n in ([4, 2, 1], [1, 3, 4]):
        given = torch.randn(3, 4, 5), torch.randint(5, (3, 4)), torch.tensor(n)
        torch.testing.assert_close(model(*given), forward(*given))


def test_the_longest_sequence_has_the_length_of_the_first_batch():
    model = inference(Lengths(nn.GRU, total=False))
    x = torch.randn(3, 5, 3)
    assert model(x, torch.tensor([2, 4, 1]))[0].shape == (3, 4, 2)
    with pytest.raises(poptorch.Error, match="was compiled for 4; in this batch it is 5"):
        model(x, torch.tensor([2, 5, 1]))


@pytest.mark.parametrize("lengths", [[1, 2, 5], [5, 2, 0], [6, 2, 1]])
def test_lengths_that_pytorch_refuses(lengths):
    model = inference(lambda x, n: pack_padded_sequence(x, n).data.sum())
    model(torch.randn(5, 3, 3), torch.tensor([5, 3, 1]))
    with pytest.raises(poptorch.Error, match="was compiled for True; in this batch it is False"):
        model(torch.randn(5, 3, 3), torch.tensor(lengths))
    with pytest.raises(RuntimeError, match="lengths must be between 1 and the number of steps"):
        inference(lambda x, n: pack_padded_sequence(x, n).data.sum())(torch.randn(5, 3, 3), torch.tensor(lengths))


def test_where_the_size_matters_lengths_are_those_of_the_first_batch():
    model = inference(lambda x, n: pack_padded_sequence(x, n).data)
    x, n = torch.randn(5, 3, 3), torch.tensor([5, 3, 1])
    torch.testing.assert_close(model(x, n), pack_padded_sequence(x, n).data)
    with pytest.raises(poptorch.Error, match=r"compiled for \[5, 3, 1\]; in this batch it is \[5, 2, 1\]"):
        model(x, torch.tensor([5, 2, 1]))


def test_lengths_that_are_computed_need_a_length():
    def forward(x, total=None):
        n = (x[0, :, 0].abs() * 0).long() + 2
        return pad_packed_sequence(pack_padded_sequence(x, n, enforce_sorted=False), total_length=total)[0]
    with pytest.raises(poptorch.Error, match="not known while the model is traced"):
        inference(forward)(torch.randn(5, 3, 3))
