"""Which tensor a training model minimises, and the gradients that follow from it."""

import copy
import dataclasses

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import poptorch
from poptorch_helpers import inference, log, nothing_cached, options, training  # noqa: F401



@dataclasses.dataclass
class Output:
    """What a model returns."""
    loss: torch.Tensor
    y: torch.Tensor


WARNING = "is computed from the loss"


class Weights(nn.Module):
    """Functions of a parameter each, in one model: the loss is the sum of theirs."""

    def __init__(self, functions):
        super().__init__()
        self.functions = functions
        self.w = nn.ParameterList([nn.Parameter(torch.linspace(-0.9, 1, 12).view(4, 3)) for _ in functions])

    def forward(self, *args):
        losses = [f(w, *args) for w, f in zip(self.w, self.functions.values())]
        return losses, poptorch.identity_loss(sum(loss.sum() for loss in losses), "sum")


def gradients(functions, *args):
    """{name: (value, gradient)} of a training model, and the same of PyTorch."""
    net = Weights(functions)
    theirs = copy.deepcopy(net)
    _, model = training(net)
    values, _ = model(*args)
    expected, total = theirs(*args)
    total.backward()
    ours = {n: (v, (t - w).detach() / 0.5) for n, v, w, t in zip(functions, values, net.w, theirs.w)}
    return ours, {n: (v.detach(), w.grad) for n, v, w in zip(functions, expected, theirs.w)}


def one(function, *args):
    """(result, gradient of the parameter): the model is this function alone."""
    net = Weights({"f": function})
    net.forward = lambda *args: function(net.w[0], *args)
    before = net.w[0].detach().clone()
    _, model = training(net)
    return model(*args), (before - net.w[0].detach()) / 0.5


X = torch.linspace(0.05, 0.95, 12).view(4, 3)
LABELS, SIGNS = torch.tensor([0, 2, 1, 0]), torch.tensor([1.0, -1, 1, -1])

#: {name: function(w, x, labels, signs, reduction)}
LOSSES = {
    "nll_loss": lambda w, x, t, s, r: F.nll_loss(w.log_softmax(1), t, reduction=r),
    "nll_loss 2d": lambda w, x, t, s, r: F.nll_loss(w.view(2, 3, 2).log_softmax(1), t.view(2, 2), reduction=r),
    "cross_entropy": lambda w, x, t, s, r: F.cross_entropy(w, t, reduction=r),
    "ignore_index": lambda w, x, t, s, r: F.cross_entropy(w, t, reduction=r, ignore_index=2),
    "l1_loss": lambda w, x, t, s, r: F.l1_loss(w, x, reduction=r),
    "mse_loss": lambda w, x, t, s, r: F.mse_loss(w, x, reduction=r),
    "smooth_l1_loss": lambda w, x, t, s, r: F.smooth_l1_loss(w, x, reduction=r),
    "binary_cross_entropy": lambda w, x, t, s, r: F.binary_cross_entropy(w.sigmoid(), x, weight=x[0], reduction=r),
    "binary_cross_entropy_with_logits":
        lambda w, x, t, s, r: F.binary_cross_entropy_with_logits(w, x, x[0], reduction=r, pos_weight=x[1]),
    "kl_div": lambda w, x, t, s, r: F.kl_div(w.log_softmax(1), x, reduction="batchmean" if r == "mean" else r),
    "poisson_nll_loss": lambda w, x, t, s, r: F.poisson_nll_loss(w, x, reduction=r),
    "hinge_embedding_loss": lambda w, x, t, s, r: F.hinge_embedding_loss(w.sum(1), s, reduction=r),
    "soft_margin_loss": lambda w, x, t, s, r: F.soft_margin_loss(w.sum(1), s, reduction=r),
    "margin_ranking_loss": lambda w, x, t, s, r: F.margin_ranking_loss(w.sum(1), x.sum(1), s, reduction=r),
    "cosine_embedding_loss": lambda w, x, t, s, r: F.cosine_embedding_loss(w, x, s, reduction=r),
    "triplet_margin_loss": lambda w, x, t, s, r: F.triplet_margin_loss(w, x, x + 1, reduction=r),
    "identity_loss": lambda w, x, t, s, r: poptorch.identity_loss(w * w * x, r),
}


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_losses_and_their_reductions(reduction):
    functions = {name: lambda *args, f=f: f(*args, reduction) for name, f in LOSSES.items()}
    ours, theirs = gradients(functions, X, LABELS, SIGNS)
    for name, (value, gradient) in theirs.items():
        assert ours[name][0].numel() == value.numel(), name
        torch.testing.assert_close(ours[name][0].view(value.shape), value, rtol=1e-4, atol=1e-6, msg=name)
        torch.testing.assert_close(ours[name][1], gradient, rtol=1e-4, atol=1e-6, msg=name)


#: Losses that are found without identity_loss: one of each kind of call.
FOUND = [lambda w, x: nn.MSELoss()(w, x), lambda w, x: F.l1_loss(w, x), lambda w, x: torch.kl_div(w.log_softmax(1), x),
         lambda w, x: torch.binary_cross_entropy_with_logits(w, x), lambda w, x: torch._C._nn.smooth_l1_loss(w, x),
         lambda w, x: F.ctc_loss(w.log_softmax(1).view(4, 1, 3), torch.tensor([[1, 2]]), torch.tensor([4]),
                                 torch.tensor([2]))]


@pytest.mark.parametrize("function", FOUND)
def test_losses_are_found(function):
    value, gradient = one(function, X)
    w = torch.linspace(-0.9, 1, 12).view(4, 3).requires_grad_()
    expected = function(w, X)
    expected.sum().backward()
    torch.testing.assert_close(value, expected.detach())
    torch.testing.assert_close(gradient, w.grad, rtol=1e-4, atol=1e-6)


def mse_gradient(scale=1.0):
    return scale * 2 * (torch.linspace(-0.9, 1, 12).view(4, 3) - X) / 12


@pytest.mark.parametrize("function, scale, warns", [
    (lambda w, x: {"a": [F.mse_loss(w, x).sqrt()]}, 1, True),    # what is done to a loss later does not count
    (lambda w, x: (w * 3, [F.mse_loss(w, x) * 10]), 1, True),
    (lambda w, x: F.mse_loss(w, x) * 10, 10, False),    # but what forward() returns as the loss does
    (lambda w, x: (w * 3, F.mse_loss(w, x) * 10), 10, False),
    (lambda w, x: {"y": w, "loss": F.mse_loss(w, x) * 10}, 10, False),
    (lambda w, x: Output(F.mse_loss(w, x) * 10, w), 10, False),
    (lambda w, x: F.mse_loss(w, x) + F.mse_loss(w, x, reduction="sum"), 13, False),    # a sum of all
    (lambda w, x: (F.mse_loss(w, x) + (w - x).square().sum(), w), 13, False),
    (lambda w, x: (w - x).square().mean(), 1, False),    # without any that is known as one
    (lambda w, x: {"loss": (w - x).square().sum()}, 12, False),
    (lambda w, x: (poptorch.identity_loss(F.mse_loss(w, x), "sum") * 2, w), 1, True),    # what was asked for counts more
    (lambda w, x: (F.mse_loss(w, x), w * 3), 1, False),    # nor where it is in the results
    (lambda w, x: (w * 3, [F.mse_loss(w, x)]), 1, False),
    (lambda w, x: (F.mse_loss(w, x), w)[1], 1, False),    # nor whether it is there
    (lambda w, x: poptorch.identity_loss(F.mse_loss(w, x) * 10, "none"), 10, False),
    (lambda w, x: poptorch.identity_loss(F.mse_loss(w, x) + F.mse_loss(w, x, reduction="sum"), "mean"), 13, False),
    (lambda w, x: F.l1_loss(F.mse_loss(w, x), torch.zeros(())), 1, False),    # a loss that feeds another is none
    (lambda w, x: poptorch.identity_loss(poptorch.identity_loss(F.mse_loss(w, x), "sum") * 2, "sum"), 2, False),
    (lambda w, x: poptorch.identity_loss(F.mse_loss(w, x, reduction="none"), "sum"), 12, False),
    (lambda w, x: poptorch.identity_loss(F.mse_loss(w, x, reduction="none"), "none"), 12, False)])
def test_one_loss_is_minimised(function, scale, warns, log):
    _, gradient = one(function, X)
    torch.testing.assert_close(gradient, mse_gradient(scale), rtol=1e-4, atol=1e-6)
    assert (WARNING in log()) == warns


@pytest.mark.parametrize("function, match", [
    (lambda w, x: (w * 2, (w - x).square().mean()), "Couldn't find a loss in graph!"),
    (lambda w, x: (w - x).square().mean().detach(), "Couldn't find a loss in graph!"),
    (lambda w, x: (w - x).square(), "Couldn't find a loss in graph!"),
    (lambda w, x: (F.mse_loss(w, x) * 2, F.l1_loss(w, x)), "Multiple independent losses found in graph"),
    (lambda w, x: (F.mse_loss(w, x), F.l1_loss(w, x)), "Multiple independent losses found in graph.*identity_loss"),
    (lambda w, x: [poptorch.identity_loss(w * x, "sum") for _ in range(2)], "Multiple independent losses")])
def test_there_must_be_one_loss(function, match):
    with pytest.raises(poptorch.Error, match=match):
        one(function, X)


def test_a_dataclass_comes_back_as_such():
    out = one(lambda w, x: Output(F.mse_loss(w, x), w * x), X)[0]
    w = torch.linspace(-0.9, 1, 12).view(4, 3)
    assert type(out) is Output
    torch.testing.assert_close((out.loss, out.y), (F.mse_loss(w, X), w * X))
    assert inference(lambda o: o.y - o.loss)(Output(X, X * 2)).equal(X)


def test_inference_knows_no_losses():
    w, x = X + 1, X
    a, b, c = inference(lambda w, x: (F.mse_loss(w, x), F.l1_loss(w, x), poptorch.identity_loss(w, "mean")))(w, x)
    assert [t.item() for t in (a, b, c)] == pytest.approx([1, 1, w.mean().item()])


def test_identity_loss_on_the_cpu():
    x = torch.tensor([1.0, 2, 6], requires_grad=True)
    for reduction, value, slope in (("sum", 9, 1), ("mean", 3, 1 / 3), ("none", [1, 2, 6], 1)):
        out = poptorch.identity_loss(x, reduction)
        assert out.tolist() == value and out is not x
        assert torch.autograd.grad(out.sum(), x)[0].tolist() == pytest.approx([slope] * 3)
    for reduction in ("Sum", None, "batchmean"):
        with pytest.raises(AssertionError):
            poptorch.identity_loss(x, reduction)


def test_the_returned_loss_is_not_scaled():
    net = Weights({"mse": F.mse_loss})
    before = net.w[0].detach().clone()
    model = poptorch.trainingModel(net, options(), poptorch.optim.SGD(net.parameters(), lr=0.5, loss_scaling=1024.0))
    _, loss = model(X)
    torch.testing.assert_close(loss, F.mse_loss(before, X))
    torch.testing.assert_close((before - net.w[0].detach()) / 0.5, mse_gradient(), rtol=1e-4, atol=1e-6)


def test_where_gradients_end():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2), requires_grad=False)
            self.c, self.d = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))

        def forward(self, x):
            with torch.no_grad():
                c = self.c * x
            return poptorch.identity_loss(self.a * self.b * x + c + (self.d * x).detach(), "sum")
    net = Net()
    _, model = training(net, optimizer=torch.optim.SGD([net.a, net.b, net.c, net.d], lr=0.5))
    assert model(torch.tensor([1.0, 2])).item() == 9
    assert net.a.tolist() == [0.5, 0] and all(p.tolist() == [1, 1] for p in (net.b, net.c, net.d))
