"""Packed sequences: of lengths that are known when the model is compiled, as in PyTorch; of others they are refused."""

import pytest
import torch
import torch.nn as nn
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence

import poptorch
from poptorch_helpers import inference, nothing_cached, options, refused, training    # noqa: F401

LENGTHS = torch.tensor([3, 5, 1])


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


def test_lengths_that_are_not_known_are_refused():
    with pytest.raises(poptorch.Error, match="not known while the model is traced"):
        inference(lambda x, n: pack_padded_sequence(x, n).data)(torch.randn(5, 3, 3), torch.tensor([5, 3, 1]))
