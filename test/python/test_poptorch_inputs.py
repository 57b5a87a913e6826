"""Gradients of inputs, which forward asks for and returns, and arguments that later calls must repeat."""

import copy

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import poptorch
from poptorch_helpers import inference, nothing_cached, options, training  # noqa: F401

#: Functions of a [2, 2, 6, 6] tensor, weights and labels: every kind of backward operation once.
DIFFERENTIATED = {
    "products": lambda x, w, t: (x @ x.transpose(2, 3)) * x.sum(), "std": lambda x, w, t: x.std(1),
    "pieces": lambda x, w, t: torch.cat([x[:, 1:] ** 3, x[:, :1, [0, 2]].repeat(1, 1, 3, 1)]),
    "conv": lambda x, w, t: F.conv2d(x, w, stride=2, padding=1, dilation=(1, 2)), "norm": lambda x, w, t: x.norm(),
    "transposed": lambda x, w, t: F.conv_transpose2d(x, w[:2], stride=2, padding=1, output_padding=1),
    "grouped": lambda x, w, t: F.conv1d(x.flatten(2), w[:2, :1, 0], groups=2), "relu": lambda x, w, t: F.relu(x),
    "max": lambda x, w, t: F.max_pool2d(x, 3, 2, 1), "max3": lambda x, w, t: F.max_pool3d(x, 2),
    "avg": lambda x, w, t: F.avg_pool2d(x, 3, 2, 1, True, False), "elu": lambda x, w, t: F.elu(x),
    "avg1": lambda x, w, t: F.avg_pool1d(x.flatten(2), 4), "avg3": lambda x, w, t: F.avg_pool3d(x, 2),
    "adaptive": lambda x, w, t: F.adaptive_avg_pool2d(x, (3, 2)),
    "leaky": lambda x, w, t: F.leaky_relu(x),
    "gelu": lambda x, w, t: F.gelu(x), "silu": lambda x, w, t: F.silu(x), "tanh": lambda x, w, t: torch.tanh(x),
    "sigmoid": lambda x, w, t: torch.sigmoid(x), "softplus": lambda x, w, t: F.softplus(x),
    "hardtanh": lambda x, w, t: F.hardtanh(x), "softmax": lambda x, w, t: F.softmax(x, 1),
    "log_softmax": lambda x, w, t: F.log_softmax(x, -1), "layer": lambda x, w, t: F.layer_norm(x, x.shape[2:]),
    "group": lambda x, w, t: F.group_norm(x, 2), "instance": lambda x, w, t: F.instance_norm(x),
    "batch": lambda x, w, t: F.batch_norm(x, None, None, training=True), "max_of": lambda x, w, t: x.amax((1, 2)),
    "mse": lambda x, w, t: F.mse_loss(x, x.detach() * 2), "l1": lambda x, w, t: F.l1_loss(x, x.detach() * 2),
    "smooth": lambda x, w, t: F.smooth_l1_loss(x, x.detach() * 2, beta=0.5),
    "nll": lambda x, w, t: F.cross_entropy(x.flatten(1), t),
    "weighted": lambda x, w, t: F.nll_loss(F.log_softmax(x[:, :, 0, 0], 1), t, w[0, 0, 0, :2]),
    "spatial": lambda x, w, t: F.cross_entropy(x[:, :, 0], t.view(2, 1).repeat(1, 6), ignore_index=0, reduction="sum"),
    "bce": lambda x, w, t: F.binary_cross_entropy_with_logits(x, x.detach()),
    "kl": lambda x, w, t: F.kl_div(x, x.detach().softmax(1), reduction="sum"),
}


def _square(x):
    return x[..., :3, :3] + 3 * torch.eye(3)


def _ctc(x, targets, steps, lengths, normal=True, **how):
    x = x.sum(1).transpose(0, 1)    # 6 steps of 2 samples, 6 classes
    return F.ctc_loss(x.log_softmax(2) if normal else x, targets, steps, lengths, **how)


#: The same, of those that gather from windows, edges and pairs. What there is to go wrong is which operations they
#: become, so they run without a compiler, which would take most of the time.
GATHERED = {
    "uneven": lambda x, w, t: F.adaptive_avg_pool2d(x, (4, 5)),
    "uneven1": lambda x, w, t: F.adaptive_avg_pool1d(x.flatten(2), 7),
    "area": lambda x, w, t: F.interpolate(x, size=5, mode="area"),
    "uneven3": lambda x, w, t: F.adaptive_avg_pool3d(x, (2, 4, 3)),
    "even3": lambda x, w, t: F.adaptive_avg_pool3d(x, (1, 3, 2)),
    "adaptive_max": lambda x, w, t: F.adaptive_max_pool2d(x, (4, 3)),
    "adaptive_max1": lambda x, w, t: F.adaptive_max_pool1d(x[0], 4),
    "reflected1": lambda x, w, t: F.pad(x[0], (1, 2), mode="reflect"),
    "replicated1": lambda x, w, t: F.pad(x[0], (1, 2), mode="replicate"),
    "nearest1": lambda x, w, t: F.interpolate(x[0], size=10),
    "exact": lambda x, w, t: F.interpolate(x, size=(10, 4), mode="nearest-exact"),
    "factor": lambda x, w, t: F.interpolate(x, scale_factor=1.7, mode="bilinear", recompute_scale_factor=False),
    "adaptive_max3": lambda x, w, t: F.adaptive_max_pool3d(x, (1, 4, 5)),
    "reflected": lambda x, w, t: F.pad(x, (2, 5, 3, 0), mode="reflect"),
    "reflected3": lambda x, w, t: F.pad(x, (1, 2, 0, 3, 1, 1), mode="reflect"),
    "replicated": lambda x, w, t: F.pad(x, (2, 7, 3, 0), mode="replicate"),
    "replicated3": lambda x, w, t: F.pad(x, (1, 2, 0, 3, 1, 1), mode="replicate"),
    "cdist": lambda x, w, t: torch.cdist(x, x.flip(2) * 2),
    "cdist1": lambda x, w, t: torch.cdist(x, x.flip(2) * 2, p=1),
    "cdist3": lambda x, w, t: torch.cdist(x[0], x[1], p=3),
    "farthest": lambda x, w, t: torch.cdist(x[0], x[1], p=float("inf")),
    "pdist": lambda x, w, t: F.pdist(x.flatten(2)[0].view(6, 12)),
    "same": lambda x, w, t: torch.cdist(x[0, :, 0], x[0, :, 0]) + x.sum(),
    "margin": lambda x, w, t: F.multi_margin_loss(x.flatten(1), t), "margin2": lambda x, w, t: F.multi_margin_loss(
        x[:, :, 0, 0], t, p=2, margin=2.0, weight=w[0, 0, 0, :2].abs(), reduction="none"),
    **{f"sampled {mode} {padding} {corners}": lambda x, w, t, how=(mode, padding, corners): F.grid_sample(
        x, x[:, 0, :, :2].unsqueeze(1) * 1.3, *how) for mode, padding, corners in (
        ("bilinear", "zeros", False), ("bilinear", "border", True), ("bilinear", "reflection", False),
        ("bilinear", "reflection", True), ("nearest", "zeros", False))},
    "windows": lambda x, w, t: x.unfold(2, 3, 2).unfold(-2, 2, 1), "taken": lambda x, w, t: x.take(t * 5 - 3),
    "nearest": lambda x, w, t: F.interpolate(x, scale_factor=2),
    "bilinear": lambda x, w, t: F.interpolate(x, size=(9, 11), mode="bilinear"),
    "corners": lambda x, w, t: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True),
    "cubic": lambda x, w, t: F.interpolate(x, scale_factor=2, mode="bicubic"),
    "linear": lambda x, w, t: F.interpolate(x[0], scale_factor=3, mode="linear"),
    "trilinear": lambda x, w, t: F.interpolate(x[:, None], scale_factor=2, mode="trilinear"),
    "sums": lambda x, w, t: x.cumsum(1),
    "products_so_far": lambda x, w, t: x.cumprod(2), "largest": lambda x, w, t: x.cummax(3)[0],
    "log_sums": lambda x, w, t: x.logcumsumexp(3),
    "smoothed": lambda x, w, t: F.interpolate(x, size=(4, 9), mode="bilinear", antialias=True),
    "smoothed_cubic": lambda x, w, t: F.interpolate(x, scale_factor=0.6, mode="bicubic", antialias=True),
    "gamma": lambda x, w, t: x.lgamma() + x.digamma() + (x / 9).erfinv() + x.erfc() + (x.abs() + 1.1).mvlgamma(2),
    "inverses": lambda x, w, t: torch.linalg.inv(_square(x)) + torch.linalg.solve(_square(x), x[..., :3, 3:]),
    "determinants": lambda x, w, t: torch.det(_square(x)) + torch.slogdet(_square(x))[1],
    "cholesky": lambda x, w, t: torch.linalg.cholesky(_square(x) @ _square(x).mT),
    "quantized": lambda x, w, t: torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -8, 7),
    "ctc": lambda x, w, t: _ctc(x, torch.tensor([[1, 1, 3], [4, 5, 0]]), (6, 4), (3, 2), reduction="none"),
    "ctc_flat": lambda x, w, t: _ctc(x, torch.tensor([1, 1, 3, 4, 5]), (5, 6), (3, 2), reduction="sum", normal=False),
    "ctc_blank": lambda x, w, t: _ctc(x, torch.stack([t, t + 2], 1) + 1, (5, 4), (2, 1), blank=5),
    "ctc_lost": lambda x, w, t: _ctc(x, torch.tensor([[1, 1, 3], [4, 5, 0]]), (3, 4), (3, 2), zero_infinity=True,
                                     reduction="none"),
}


@pytest.mark.parametrize("functions, compiler", [(DIFFERENTIATED, None), (GATHERED, "/nowhere/cc")],
                         ids=["compiled", "reference"])
def test_gradients_of_inputs(functions, compiler, monkeypatch):
    def forward(x, w, t):
        x.requires_grad_()
        out = {}
        for name, function in functions.items():
            y = function(x, w, t)
            out[name], = torch.autograd.grad((y * y).sum(), x)
        return out
    if compiler:
        monkeypatch.setenv("TESSERA_CC", compiler)
    torch.manual_seed(0)
    args = torch.randn(2, 2, 6, 6), torch.linspace(-1, 1, 54).view(3, 2, 3, 3), torch.tensor([1, 0])
    out = inference(forward)(*args)
    assert not args[0].requires_grad
    for name, gradient in forward(*args).items():
        torch.testing.assert_close(out[name], gradient, rtol=1e-4, atol=1e-5, msg=name)


#: Functions of several tensors, the second made of the first: the gradient by each is its own.
ENTANGLED = {
    "conv2d": lambda x: F.conv2d(x, x[:, :, :3, :3] * 2),
    "conv_transpose2d": lambda x: F.conv_transpose2d(x, x[:, :, 1:4, :3].sin()),
    "matmul": lambda x: x @ x.mT,
    "cdist": lambda x: torch.cdist(x, x + x.flip(2)),
    "bilinear": lambda x: F.grid_sample(x, x[:, 0, :, :2].tanh().unsqueeze(1) * 0.9, align_corners=True),
    "smooth_l1": lambda x: F.smooth_l1_loss(x, x.flip(3), reduction="none"),
    "kl": lambda x: F.kl_div(F.log_softmax(x, 3), F.softmax(x * 2, 3), reduction="none"),
    "bce": lambda x: F.binary_cross_entropy(x.sigmoid(), (x * 2).sigmoid(), reduction="none"),
    "norm": lambda x: F.layer_norm(x, (6,), x[0, 0, 0] + 1, x[0, 0, 1]),
    "batch_norm": lambda x: F.batch_norm(x, None, None, x[0, 0, 0, :2] + 1, x[0, 0, 1, :2], training=True),
    "prelu": lambda x: F.prelu(x, x[0, :, 0, 0]),
    "attention": lambda x: torch.softmax(x @ (x * 2).mT, -1) @ x.sin(),
    "solve": lambda x: torch.linalg.solve(x @ x.mT + 3 * torch.eye(6), x),
}


def test_arguments_that_depend_on_each_other():
    def forward(x):
        x.requires_grad_()
        return {name: torch.autograd.grad((function(x) * torch.linspace(0, 1, function(x).shape[-1])).sum(), x)[0]
                for name, function in ENTANGLED.items()}
    torch.manual_seed(0)
    x = torch.randn(2, 2, 6, 6)
    out = inference(forward)(x)
    wrong = []
    for name, gradient in forward(x).items():
        if not torch.allclose(out[name], gradient, rtol=1e-3, atol=1e-4):
            wrong.append(f"{name}: {(out[name] - gradient).abs().max()}")
    assert not wrong, "\n".join(wrong)


def test_put():
    x, at, source = torch.arange(6.0).view(2, 3), torch.tensor([[1, -1]]), torch.tensor([[10.0, 20.0]])
    model = inference(lambda x, at, source: (x.put(at, source), x.put(at, source, accumulate=True),
                                                 x.clone().put_(at, source)))
    for accumulate, found in zip((False, True, False), model(x, at, source)):
        assert torch.equal(found, x.put(at, source, accumulate=accumulate))


class Attacked(nn.Module):
    """Returns the gradient of its loss with respect to its input."""

    def __init__(self, how):
        super().__init__()
        self.fc, self.conv, self.how = nn.Linear(6, 3), nn.Conv1d(2, 4, 3, groups=2), how

    def forward(self, x, t):
        x.requires_grad_()
        loss = F.cross_entropy(self.fc(torch.tanh(self.conv(x)).mean(1)), t)
        if self.how == "backward":
            loss.backward()
            return loss, x.grad
        return loss, torch.autograd.grad(loss, x)[0]


@pytest.mark.parametrize("how", ["grad", "backward"])
def test_gradients_of_inputs_in_training(how):
    torch.manual_seed(0)
    net = Attacked(how)
    reference = copy.deepcopy(net)
    _, model = training(net)
    x, t = torch.randn(4, 2, 8), torch.tensor([0, 1, 2, 0])
    loss, gradient = model(x, t)
    expected = reference(x.clone(), t)
    torch.testing.assert_close(gradient, expected[1])
    torch.testing.assert_close(loss, expected[0].detach())
    reference.zero_grad()
    F.cross_entropy(reference.fc(torch.tanh(reference.conv(x)).mean(1)), t).backward()
    for ours, wanted in zip(net.parameters(), reference.parameters()):
        torch.testing.assert_close(ours.detach(), (wanted - 0.5 * wanted.grad).detach())
        assert ours.grad is None    # forward ran on the host once, which leaves nothing behind


def test_the_number_of_arguments_stays():
    model = inference(lambda *xs: sum(xs))
    x = torch.ones(2)
    assert model(x, x).tolist() == [2, 2]
    with pytest.raises(poptorch.Error, match="mismatch for args.*2 but got 3(.|\n)*destroy"):
        model(x, x, x)
    model = poptorch.inferenceModel(lambda x, y=None: x if y is None else x + y, options())
    model(x)
    with pytest.raises(poptorch.Error, match=r"Number of positional arguments mismatch: expected 1 \(x\) but got 2"):
        model(x, x)
    model.destroy()
    assert model(x, x).tolist() == [2, 2]    # compiled for these now


def test_a_registered_type_comes_before_its_bases():
    class Base:
        def __init__(self, t):
            self.t = t

    class Derived(Base):
        pass

    class Parser(poptorch.ICustomArgParser):
        def __init__(self, factor):
            self.factor = factor

        def yieldTensors(self, struct):
            yield struct.t * self.factor

        def reconstruct(self, original_structure, tensor_iterator):
            return type(original_structure)(next(tensor_iterator))

    try:
        for kind, factor in ((Base, 2), (Derived, 3)):
            poptorch.registerCustomArgParser(kind, Parser(factor))
        model = inference(lambda a, b: (a.t, b.t))
        assert [t.item() for t in model(Base(torch.ones(1)), Derived(torch.ones(1)))] == [2, 3]
    finally:
        for kind in (Base, Derived):
            poptorch.registerCustomArgParser(kind, None)


# --- long indices ---------------------------------------------------------------------------------

LONG = {
    "embedding": lambda w, i: F.embedding(i, w), "padded": lambda w, i: F.embedding(i, w, padding_idx=7),
    "select": lambda w, i: w.index_select(0, i[0]), "inner": lambda w, i: w.t()[:, i],
    "index_add": lambda w, i: torch.zeros(300, 20).index_add(0, i[1], w[:50]) + w,
    "index_add 1": lambda w, i: torch.zeros(20, 300).index_add(1, i[1], w[:50].t()),
    "scatter_add": lambda w, i: torch.zeros(300, 20).scatter_add(0, i[2][:, None].expand(-1, 20), w[50:100]),
    "scatter_add 1-d": lambda w, i: torch.zeros(300).scatter_add(0, i.flatten(), w.flatten()[:200]),
    "gather": lambda w, i: w.gather(0, i.view(10, 20)[:4].repeat(12, 1)), "sort": lambda w, i: w.sort(0)[0],
    "batches": lambda w, i: w.view(3, 100, 20).gather(1, (i[:3] % 100)[:, :, None].expand(-1, -1, 20)),
    "mean": lambda w, i: w.scatter_reduce(0, i[0][:, None].expand(-1, 20), w[:50], "mean"),
}


class Indexing(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.w = nn.Parameter(torch.randn(300, 20))
        self.function = function

    def forward(self, index, weight):
        y = self.function(self.w, index)
        return y, poptorch.identity_loss((y * weight).sum(), "sum")


@pytest.mark.parametrize("name", LONG)
def test_long_indices(name):
    """So long that they are sorted (pass/runs.c): some elements get several terms, some none."""
    torch.manual_seed(1)
    net, index = Indexing(LONG[name]), torch.randint(300, (4, 50))
    expected = copy.deepcopy(net)
    weight = torch.randn(LONG[name](net.w, index).shape)
    y, loss = expected(index, weight)
    loss.backward()
    before = net.w.detach().clone()
    found, _ = training(net, optimizer=torch.optim.SGD(net.parameters(), lr=1.0))[1](index, weight)
    torch.testing.assert_close(found, y.detach())
    torch.testing.assert_close(before - net.w.detach(), expected.w.grad, atol=2e-6, rtol=1e-5)


def test_many_pieces():
    """As many as a recurrent layer has steps."""
    def function(x):
        return torch.stack([t * 2 for t in x.unbind(1)], 1) + torch.cat(x.split(1, 1)[::-1], 1)

    x = torch.randn(2, 130)
    torch.testing.assert_close(inference(function)(x), function(x))


@pytest.mark.parametrize("made", [lambda x, w: x * w[:, :6].sum(0), lambda x, w: x @ w], ids=["elements", "products"])
def test_more_results_of_one_shape_than_a_kernel_stores(made):
    """As a recurrence over the elements has, whose steps are all kept for the backward pass."""
    def function(x, w):
        h, out = made(x, w), []
        for i in range(150):
            h = torch.tanh(h) * (1 + i / 100)
            out.append(h)
        return out
    x, w = torch.randn(8, 6), torch.randn(6, 6)
    for a, b in zip(inference(function)(x, w), function(x, w), strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)


def test_distances_of_many_points():
    x, y = torch.randn(2, 40, 3), torch.randn(2, 30, 3)
    for function in (torch.cdist, lambda x, y: torch.cdist(x1=x, x2=y, p=2.0),
                     lambda x, y: torch.cdist(x, y, 1.0, "use_mm_for_euclid_dist")):
        torch.testing.assert_close(inference(function)(x, y), function(x.double(), y.double()).float())
