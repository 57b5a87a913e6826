"""What releases of PyTorch do differently, and poptorch does not: kernels of their own for whole layers."""

import copy

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import poptorch

RELEASE = tuple(int(n) for n in torch.__version__.split(".")[:2])


@pytest.fixture(autouse=True)
def nothing_cached(monkeypatch):
    """No test finds what another run compiled."""
    monkeypatch.setenv("TESSERA_CACHE_DIR", "")


def options():
    return poptorch.Options().showCompilationProgressBar(False)


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
    assert seen == [(False, False)] and kernels() == before and before[0]
