"""What releases of PyTorch do differently, and poptorch does not: kernels of their own for whole layers."""

import copy

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import poptorch
from poptorch_helpers import Lambda, inference, log, nothing_cached, options, refused  # noqa: F401

RELEASE = tuple(int(n) for n in torch.__version__.split(".")[:2])


class Attention(nn.Module):
    def __init__(self, **how):
        super().__init__()
        self.project = nn.Linear(8, 24)
        self.register_buffer("mask", how.pop("attn_mask", None))
        self.how = how

    def forward(self, x, t):
        q, k, v = self.project(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, self.mask, **self.how)
        return y, F.mse_loss(y, t)


@pytest.mark.skipif(not hasattr(F, "scaled_dot_product_attention"), reason="needs torch 2")
@pytest.mark.parametrize("how", [
    {}, {"is_causal": True}, {"attn_mask": torch.eye(5) - 1}, {"attn_mask": torch.ones(5, 5).tril().bool()},
    pytest.param({"attn_mask": torch.ones(5, 5).tril(-1).bool()}, marks=pytest.mark.skipif(
        RELEASE < (2, 5), reason="a row without any key is NaN in this release"))],
    ids=["plain", "causal", "mask", "bools", "nothing_to_see"])
def test_attention_trains_like_pytorch(how):
    torch.manual_seed(0)
    net = Attention(**dict(how))
    reference = copy.deepcopy(net)
    model = poptorch.trainingModel(net, options(), torch.optim.SGD(net.parameters(), lr=0.1))
    theirs = torch.optim.SGD(reference.parameters(), lr=0.1)
    for _ in range(3):
        x, t = torch.randn(3, 5, 8), torch.randn(3, 2, 5, 4)
        y, loss = model(x, t)
        theirs.zero_grad()
        expected, their_loss = reference(x, t)
        their_loss.backward()
        theirs.step()
        torch.testing.assert_close(y, expected.detach(), rtol=1e-4, atol=1e-5)
        assert abs(loss.item() - their_loss.item()) < 1e-5
    torch.testing.assert_close(net.project.weight.detach(), reference.project.weight.detach(), rtol=1e-4, atol=1e-5)


class Encoder(nn.Module):
    def __init__(self, mask):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.register_buffer("mask", mask)

    def forward(self, x, *mask):
        return self.layers(x, *mask) if mask else self.layers(x, self.mask)


CAUSAL = torch.full((5, 5), float("-inf")).triu(1)


@pytest.mark.parametrize("own, given", [(None, ()), (CAUSAL, ()), (None, (CAUSAL,)), (None, (CAUSAL.t().contiguous(),))],
                         ids=["no_mask", "own_mask", "given_mask", "given_mask_of_the_past"])
def test_encoder_in_eval_mode(own, given):
    """Where PyTorch has a kernel for a whole layer, and looks whether the mask is the causal one."""
    torch.manual_seed(0)
    net = Encoder(own).eval()
    x = torch.randn(3, 5, 8)
    with torch.no_grad():
        expected = net(x, *given)
    torch.testing.assert_close(poptorch.inferenceModel(net, options())(x, *given), expected, rtol=1e-4, atol=1e-5)


def kernels():
    return (torch._C._get_mkldnn_enabled(),
            getattr(torch.backends.cuda, "flash_sdp_enabled", bool)())


@pytest.mark.parametrize("fails", [False, True])
def test_tracing_leaves_pytorch_s_kernels_as_they_were(fails):
    seen = []

    class Net(nn.Module):
        def forward(self, x):
            seen.append(kernels())
            return x.nonzero() if fails else x + 1
    before = kernels()
    model = poptorch.inferenceModel(Net(), options())
    if fails:
        with pytest.raises(poptorch.Error):
            model(torch.ones(2))
    else:
        model(torch.ones(2))
    assert set(seen) == {(False, False)} and kernels() == before and before[0]


class Functional(nn.Module):
    """Functions of torch.func, each of its own weight."""

    def __init__(self, functions):
        super().__init__()
        self.functions = functions
        self.weights = nn.ParameterDict({name: nn.Parameter(torch.linspace(-1, 1, 9).view(3, 3)) for name in functions})

    def forward(self, x):
        out = {name: f(self.weights[name], x) for name, f in self.functions.items()}
        return out, poptorch.identity_loss(sum((y * y).sum() for y in out.values()), reduction="none")


mapped = getattr(torch, "vmap", None)

FUNCTIONAL = {
    "vmap": lambda w, x: mapped(lambda row: torch.tanh(row @ w) * row.sum())(x),
    "ensemble": lambda w, x: mapped(lambda v: F.linear(x, v).relu())(torch.stack([w, w * 2])),
    "grad": lambda w, x: torch.func.grad(lambda v: F.mse_loss(torch.tanh(v @ w), x))(x),
    "per_sample": lambda w, x: mapped(torch.func.grad(lambda v, row: (v @ row).pow(3).sum()), (None, 0))(w, x),
    "jacrev": lambda w, x: mapped(torch.func.jacrev(lambda row: torch.tanh(row @ w)))(x),
    "write": lambda w, x: mapped(lambda row: row.clone().mul_(row).add_(1))(x @ w),
}


@pytest.mark.skipif(not hasattr(torch, "func"), reason="needs torch 2")
def test_torch_func_trains_like_pytorch():
    torch.manual_seed(0)
    net, x = Functional(FUNCTIONAL), torch.randn(4, 3)
    reference = copy.deepcopy(net)
    model = poptorch.trainingModel(net, options(), torch.optim.SGD(net.parameters(), lr=0.01))
    ours, _ = model(x)
    theirs, loss = reference(x)
    loss.backward()
    model.copyWeightsToHost()
    for name, weight in reference.weights.items():
        torch.testing.assert_close(ours[name], theirs[name].detach(), rtol=1e-4, atol=1e-5, msg=name)
        torch.testing.assert_close(net.weights[name].detach(), weight.detach() - 0.01 * weight.grad, rtol=1e-4, atol=1e-5,
                                   msg=name)


@pytest.mark.skipif(not hasattr(torch, "func"), reason="needs torch 2")
def test_forward_mode_is_for_inference():
    def forward(x):
        return (mapped(torch.func.hessian(lambda row: torch.tanh(row @ x).sum()))(x),
                torch.func.jvp(lambda v: F.layer_norm(v @ x, (3,)) * x, (x,), (x.cos(),))[1])
    x = torch.linspace(-1, 1, 9).view(3, 3)
    for ours, theirs in zip(inference(forward)(x), forward(x)):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    net = Functional({"w": lambda w, x: torch.func.jvp(lambda v: F.layer_norm(v @ w, (3,)), (x,), (x,))[1]})
    with pytest.raises(poptorch.Error, match="forward mode .* inference only .*test_poptorch_releases.py"):
        poptorch.trainingModel(net, options(), torch.optim.SGD(net.parameters(), lr=0.1))(x)


@pytest.mark.parametrize("function", [
    lambda x: torch.sparse.mm(torch.eye(3).to_sparse(), x), lambda x: x.to_sparse().to_dense()])
def test_sparse_tensors_are_refused(function):
    refused(function, "without memory of its own.*test_poptorch_releases.py", torch.ones(3, 3))


@pytest.mark.skipif(RELEASE < (2, 1), reason="torch.compile() of this release does not know Python 3.11")
def test_what_torch_compile_has_wrapped_is_traced():
    net, x = nn.Linear(3, 2), torch.randn(4, 3)
    expected = net(x).detach()
    parts = nn.Sequential(torch.compile(net), Lambda(torch.compile(lambda y: y.square() + 1)))
    torch.testing.assert_close(inference(parts)(x), expected.square() + 1)
    torch.testing.assert_close(inference(torch.compile(net))(x), expected)


@pytest.mark.skipif(not hasattr(torch.Tensor, "register_post_accumulate_grad_hook"), reason="needs torch 2.1")
def test_hooks_on_gradients_of_weights_are_told_of(log):    # noqa: F811
    net = Functional({"w": lambda w, x: x @ w})
    net.weights["w"].register_post_accumulate_grad_hook(lambda weight: None)
    poptorch.trainingModel(net, options(), torch.optim.SGD(net.parameters(), lr=0.1))(torch.ones(2, 3))
    assert "hooks on gradients, which are not called" in log()
