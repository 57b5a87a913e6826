"""x[mask] with a mask that is computed: right for any number of elements where that does not matter, and refused where it does."""

import copy

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import poptorch
from poptorch_helpers import inference, nothing_cached, training    # noqa: F401


@pytest.fixture(autouse=True)
def no_compiler(monkeypatch):
    monkeypatch.setenv("TESSERA_CC", "/nowhere/cc")


def batches(count=4):
    """Rows and labels; in the last batch nothing is chosen."""
    for seed in range(count):
        torch.manual_seed(seed)
        x, labels = torch.randn(6, 4), torch.randint(-1, 4, (6,))
        yield (x, labels) if seed < count - 1 else (-x.abs(), torch.full((6,), -1))


def written(x, labels):
    y = torch.zeros(6, 4)
    y[x > 0] = x[x > 0].sqrt() * 2
    return y


def written_to_places(x, labels):
    y, i = torch.zeros(6, 4), torch.where(labels > 0)[0]
    y[i] = x[i].square()
    y[torch.where(x > 1)] = 3.0
    y[(labels == 0).nonzero()[:, 0] - 6, 1] = x[labels == 0][:, 0]
    return y, y.index_put((i,), x[i].exp(), accumulate=True), y.index_put(torch.where(x > 0), torch.ones(()), accumulate=True)


RIGHT = {
    "mean": lambda x, labels: (x[x > 0].mean(), x[labels > 0].mean(0), x.masked_select(x > 0).mean()),
    "sum": lambda x, labels: (x[x > 0].sum(), (x[labels > 0] * torch.arange(4.0) + x[0]).sum(), x[labels > 0].sum(1).prod()),
    "rows": lambda x, labels: (x[labels > 0].softmax(1).sum(0), F.normalize(x[labels > 0]).sum(), x[labels > 0][:, None, 1:].flatten(1).sum()),
    "by another": lambda x, labels: (x.view(2, 3, 4)[x.view(2, 3, 4)[..., 0] > 0].mean(0), x[x > 0].sum() / (x > 0).sum()),
    "places": lambda x, labels: (x[torch.where(x > 0)].mean(), x[(x[:, 0] > 0).nonzero().squeeze(1)].sum(0), (x > 0).nonzero().sum()),
    "spread": lambda x, labels: (x[x > 0].std(), x[labels > 0].var(1).sum(), x[labels > 0].std(0, unbiased=False), x[x > 0].var(unbiased=True)),
    "norms": lambda x, labels: (x[x > 0].norm(), x[labels > 0].norm(dim=0), x[labels > 0].norm(dim=1).sum(), torch.linalg.vector_norm(x[x > 0], 3)),
    "exponentials": lambda x, labels: (x[x > 0].logsumexp(0), x[labels > 0].logsumexp(1).sum()),
    "like": lambda x, labels: ((x[x > 0] + torch.ones_like(x[x > 0])).sum(), torch.full_like(x[labels > 0], 2).sum(), torch.zeros_like(x[x > 0]).sum()),
    "whether": lambda x, labels: ((x[labels > 0] > 1).any(), (x[labels > 0] > -9).all()), "written": written,
    "written to places": written_to_places,
    "the same mask of constants that are made twice": lambda x, labels: (x[torch.arange(6) < labels] * x[torch.arange(6) < labels]).sum(),
}
LOSSES = {
    "cross entropy": lambda y, x, labels: F.cross_entropy(y[labels >= 0], labels[labels >= 0]),
    "its sum": lambda y, x, labels: F.cross_entropy(F.layer_norm(y[labels >= 0].relu(), (4,)), labels[labels >= 0], reduction="sum"),
    "of each": lambda y, x, labels: F.cross_entropy(y, labels.clamp(min=0), reduction="none")[labels >= 0].sum(),
    "squares": lambda y, x, labels: F.mse_loss(y[labels > 0], x[labels > 0]),
    "what is out of range elsewhere": lambda y, x, labels: y[y > 0].log().sum() + y.relu()[y > 0].sqrt().sum(),
    "of zeros": lambda y, x, labels: F.mse_loss(y[labels > 0], torch.zeros_like(y[labels > 0])),
    "a norm": lambda y, x, labels: y[labels >= 0].norm() + y[labels >= 0].logsumexp(1).sum(),
    "places": lambda y, x, labels: x.index_put((torch.where(labels > 0)[0],), y[torch.where(labels > 0)[0]].tanh()).square().sum(),
    "a layer": lambda y, x, labels: F.linear(y[labels > 0], torch.ones(2, 4)).sigmoid().log().sum(),
}
REFUSED = {
    "shape": lambda x: x[x > 0].sum() / x[x > 0].shape[0], "len": lambda x: x[x > 0].sum() / len(x[x > 0]),
    "numel": lambda x: x[x > 0].sum() / x[x > 0].numel(), "returned": lambda x: x[x > 0], "sorted": lambda x: x[x > 0].sort()[0].sum(),
    "running": lambda x: x[x > 0].cumsum(0).sum(), "median": lambda x: x[x > 0].median(), "first": lambda x: x[x > 0][0],
    "product": lambda x: x[x > 0] @ x[x > 0], "norm": lambda x: torch.linalg.vector_norm(x[x > 0], -1), "others": lambda x: (x[x > 0] + x[x > 1]).sum(),
    "batchmean": lambda x: F.kl_div(x[x[:, 0] > 0], x[x[:, 0] > 0].softmax(1), reduction="batchmean"),
    "shares": lambda x: F.cross_entropy(x[x[:, 0] > 0], x[x[:, 0] > 0].softmax(1)), "second dim": lambda x: x[:, x[0] > 0].sum(),
    "one for each": lambda x: x.index_put((torch.where(x[:, 0] > 0)[0],), torch.ones(6, 4)),
    "turned": lambda x: (x[x[:, 0] > 0].t() @ x[x[:, 0] > 0]).sum(), "places": lambda x: x[x[:, 0] > 0].max(0)[1],
}


@pytest.mark.parametrize("name", RIGHT)
def test_any_number_of_elements(name):
    model = inference(RIGHT[name])
    for x, labels in batches():
        torch.testing.assert_close(model(x, labels), RIGHT[name](x, labels), equal_nan=True, check_dtype=False)    # int64 comes back as int32


@pytest.mark.parametrize("name", LOSSES)
def test_losses_and_their_gradients(name):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(9)
            self.fc = nn.Linear(4, 4)

        def forward(self, x, labels):
            y = self.fc(x)
            return poptorch.identity_loss(LOSSES[name](y, x, labels) + y.mean(), "none")
    for k, (x, labels) in enumerate(batches()):
        if k == 0:
            net = Net()
            _, model = training(net)
        other = copy.deepcopy(net)
        loss = other(x, labels)
        loss.backward()
        torch.testing.assert_close(model(x, labels), loss.detach(), equal_nan=True)
        for p, q in zip(net.parameters(), other.parameters()):
            torch.testing.assert_close(p.detach(), (q - 0.5 * q.grad).detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", REFUSED)
def test_where_the_number_matters_it_is_refused(name):
    with pytest.raises(poptorch.Error, match="size depends on"):
        inference(REFUSED[name])(torch.randn(6, 4))


def test_gradients_of_pytorch_are_refused():
    def forward(x):
        x.requires_grad_()
        return torch.autograd.grad(x[x > 0].square().sum(), x)[0]
    with pytest.raises(poptorch.Error, match="size depends on"):
        inference(forward)(torch.randn(6))


def test_whole_numbers_among_the_arguments_say_how_many():
    model = inference(lambda x, labels: x[labels > 0].sum() / len(x[labels > 0]))
    x = torch.ones(3)
    assert model(x, torch.tensor([1, 0, 1])) == 1
    with pytest.raises(poptorch.Error, match="was compiled for 2; in this batch it is 3"):
        model(x, torch.ones(3, dtype=torch.int64))
