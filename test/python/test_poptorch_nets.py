"""Whole networks through poptorch, against PyTorch: recurrent, attention, U-Net, torchvision's."""

import copy
import os

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import poptorch


@pytest.fixture(autouse=True)
def nothing_cached(monkeypatch):
    """No test finds what another run compiled."""
    monkeypatch.setenv("TESSERA_CACHE_DIR", "")


def options():
    return poptorch.Options().showCompilationProgressBar(False)


class Recurrent(nn.Module):
    def __init__(self, kind, **more):
        super().__init__()
        self.rnn = kind(5, 4, batch_first=True, **more)
        self.fc = nn.LazyLinear(2)

    def forward(self, x, t):
        y = self.fc(self.rnn(x)[0][:, -1])
        return y, F.mse_loss(y, t)


class Translator(nn.Module):
    """Embedding, two encoder layers with a causal mask, scores of words."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(20, 8, padding_idx=0)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.fc = nn.Linear(8, 20)

    def forward(self, x, t):
        mask = torch.triu(torch.full((x.shape[1], x.shape[1]), float("-inf")), 1)
        y = self.fc(self.encoder(self.words(x), mask=mask))
        return y, F.cross_entropy(y.transpose(1, 2), t)


class UNet(nn.Module):
    """Two steps down and two up; `up` makes a picture twice as large."""

    def __init__(self, up):
        super().__init__()
        self.a, self.b, self.c = self.block(1, 4), self.block(4, 8), self.block(8, 8)
        self.up1, self.up2 = up(8), up(8)
        self.d, self.e = self.block(16, 8), self.block(12, 4)
        self.last = nn.Conv2d(4, 1, 1)

    @staticmethod
    def block(n, m):
        return nn.Sequential(nn.Conv2d(n, m, 3, padding=1), nn.BatchNorm2d(m), nn.ReLU(inplace=True))

    def forward(self, x, t):
        a = self.a(x)
        b = self.b(F.max_pool2d(a, 2))
        d = self.d(torch.cat([b, self.up1(self.c(F.max_pool2d(b, 2)))], 1))
        y = self.last(self.e(torch.cat([a, self.up2(d)], 1)))
        return y, F.binary_cross_entropy_with_logits(y, t)


def transposed(n):
    return nn.ConvTranspose2d(n, n, 2, 2)


def bilinear(n):
    return nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)


def words():
    return torch.randint(0, 20, (3, 7)), torch.randint(0, 20, (3, 7))


def sequence():
    return torch.randn(3, 6, 5), torch.randn(3, 2)


def picture():
    return torch.randn(2, 1, 16, 16), torch.rand(2, 1, 16, 16).round()


@pytest.mark.parametrize("make, data", [
    (lambda: Recurrent(nn.LSTM), sequence), (lambda: Recurrent(nn.GRU), sequence),
    (lambda: Recurrent(nn.LSTM, num_layers=2, bidirectional=True), sequence),
    (Translator, words), (lambda: UNet(transposed), picture), (lambda: UNet(bilinear), picture)],
    ids=["lstm", "gru", "deep_lstm", "transformer", "unet", "unet_bilinear"])
def test_trains_like_pytorch(make, data):
    torch.manual_seed(0)
    net = make()
    with torch.no_grad():
        net(*data())    # lazy sizes
    reference = copy.deepcopy(net)
    model = poptorch.trainingModel(net, options(), torch.optim.SGD(net.parameters(), lr=0.1))
    theirs = torch.optim.SGD(reference.parameters(), lr=0.1)
    for _ in range(5):
        x, t = data()
        loss = model(x, t)[1]
        theirs.zero_grad()
        expected = reference(x, t)[1]
        expected.backward()
        theirs.step()
        assert abs(loss.item() - expected.item()) < 1e-4


@pytest.mark.parametrize("norm_first", [False, True], ids=["after", "first"])
@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
def test_transformer_encoder_infers(norm_first, padded):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 4, 32, activation="gelu", batch_first=True, norm_first=norm_first)
    net = nn.TransformerEncoder(layer, 2, nn.LayerNorm(16)).eval()
    x = torch.randn(3, 7, 16)
    mask = torch.arange(7)[None] >= torch.tensor([7, 4, 6])[:, None] if padded else None
    expected = net(x, src_key_padding_mask=mask).detach()
    arguments = {"src_key_padding_mask": mask} if padded else {}
    with torch.no_grad():    # PyTorch has fused ways for it, which are not what is traced
        y = poptorch.inferenceModel(net, options())(x, **arguments)
    kept = slice(None) if mask is None else ~mask
    torch.testing.assert_close(y[kept], expected[kept], rtol=1e-4, atol=1e-5)


# --- torchvision's, with random weights ---

class Classifier(nn.Module):
    """The net and its loss. Without dropout, whose numbers would differ."""

    def __init__(self, net):
        super().__init__()
        self.net = net
        for m in net.modules():
            if isinstance(m, nn.Dropout):
                m.p = 0.0
        if hasattr(net, "heads"):
            nn.init.normal_(net.heads[-1].weight, std=0.05)    # starts as zeros, which would compare nothing

    def forward(self, x, t=None):
        y = self.net(x)
        y = y["out"] if isinstance(y, dict) else y
        return y if t is None else (y, F.cross_entropy(y, t))


def mobilenet_piece(models):
    settings = [[1, 8, 1, 1], [6, 16, 2, 2], [6, 24, 1, 2]]
    return models.MobileNetV2(num_classes=10, inverted_residual_setting=settings)


# name: how it is made, size of the pictures, batch. Smaller pictures end as one pixel each, and a norm over few
# values magnifies any rounding: PyTorch's too.
SMALL = {
    "resnet18": (lambda m: m.resnet18(num_classes=10), 64, 4),
    "mobilenet_piece": (mobilenet_piece, 32, 4),
}
WHOLE = {
    "resnet50": (lambda m: m.resnet50(num_classes=10), 96, 4),
    "mobilenet_v2": (lambda m: m.mobilenet_v2(num_classes=10), 96, 4),
    "vgg11_bn": (lambda m: m.vgg11_bn(num_classes=10), 96, 4),
    "densenet121": (lambda m: m.densenet121(num_classes=10), 96, 4),
    "vit_b_16": (lambda m: m.vit_b_16(num_classes=10, image_size=96), 96, 2),
    "deeplabv3_resnet50": (lambda m: m.segmentation.deeplabv3_resnet50(
        weights=None, weights_backbone=None, num_classes=5), 96, 4),
}
NETS = {**SMALL, **WHOLE}
soak = pytest.mark.skipif(not os.environ.get("TS_SOAK"), reason="whole nets take minutes: set TS_SOAK")
nets = pytest.mark.parametrize("name", [*SMALL, *(pytest.param(n, marks=soak) for n in WHOLE)])


def build(name):
    """The net and a batch for it."""
    models = pytest.importorskip("torchvision").models
    # With seed 0 an element before resnet18's last ReLU is 4e-6 in double precision, where PyTorch's floats are 3e-5 off:
    # rounding decides whether it has a gradient, and that is a hundredth of every layer's. With 6 and 8 PyTorch is 1e-3
    # from double precision; with 5 it and we are within 1e-6 for three steps.
    torch.manual_seed(5 if name == "resnet18" else 0)
    make, size, batch = NETS[name]
    net = Classifier(make(models))
    pixels = (size, size) if "deeplab" in name else ()
    return net, torch.randn(batch, 3, size, size), torch.randint(0, 5, (batch, *pixels))


def apart(a, b):
    """Relative to the length of b."""
    return ((a.double() - b.double()).norm() / b.double().norm()).item()


def flat(tensors):
    return torch.cat([t.detach().flatten() for t in tensors])


@nets
def test_whole_net_infers(name):
    net, x, _ = build(name)
    net.eval()
    with torch.no_grad():
        expected = net(x)
    assert apart(poptorch.inferenceModel(net, options())(x), expected) < 1e-3


def train(net, x, t, steps):
    """By PyTorch: each step's result and loss."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for _ in range(steps):
        y, loss = net(x, t)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield y.detach(), loss.detach()


@nets
def test_whole_net_trains(name):
    net, x, t = build(name)
    steps = 3 if name in SMALL else 1
    reference, exact = copy.deepcopy(net), copy.deepcopy(net).double()
    before = flat(net.parameters()).double()
    model = poptorch.trainingModel(net, options(), torch.optim.SGD(net.parameters(), lr=0.01))
    for expected, expected_loss in train(reference, x, t, steps):
        y, loss = model(x, t)
        assert apart(loss, expected_loss) < 1e-4
        assert apart(y, expected) < 1e-3
    list(train(exact, x.double(), t, steps))
    assert apart(flat(net.parameters()), flat(reference.parameters())) < 1e-3
    buffers = [[b for b in n.buffers() if b.is_floating_point()] for n in (net, reference)]    # the others are constants
    if buffers[0]:    # all of them together: some means are zero but for rounding
        assert apart(*map(flat, buffers)) < 1e-3
    # What was learnt. One ReLU or maximum near a tie that rounding decides the other way changes it by some
    # 1e-3, and there may be many: PyTorch is up to 2e-2 from what it is in double precision.
    mine, theirs, truth = (flat(m.parameters()).double() - before for m in (net, reference, exact))
    assert apart(mine, truth) < max(1e-3 if name in SMALL else 1e-2, 4 * apart(theirs, truth))


TINY = {
    "mobilenet_v3_small": lambda m: m.mobilenet_v3_small(num_classes=10),
    "shufflenet": lambda m: m.shufflenet_v2_x0_5(num_classes=10),
    "swin": lambda m: m.SwinTransformer([4, 4], 8, [2, 2], [2, 2], [4, 4], num_classes=10),
    "vit": lambda m: m.VisionTransformer(32, 8, 2, 2, 16, 32, num_classes=10),
}


@pytest.mark.parametrize("name", TINY)
def test_torchvision_inference(name):
    models = pytest.importorskip("torchvision").models
    torch.manual_seed(0)
    net = TINY[name](models).eval()
    if name == "vit":
        nn.init.normal_(net.heads.head.weight)    # starts as zeros, which would compare nothing
    x = torch.randn(1, 3, 32, 32)
    with torch.no_grad():
        expected = net(x)
    model = poptorch.inferenceModel(net, options())
    model.compile(torch.zeros_like(x))
    torch.testing.assert_close(model(x), expected, rtol=1e-3, atol=1e-5)
