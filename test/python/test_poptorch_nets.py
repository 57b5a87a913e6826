"""Whole networks through poptorch, against PyTorch: recurrent, attention, U-Net, torchvision's."""

import copy

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
    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.up = nn.ConvTranspose2d(4, 4, 2, 2)
        self.last = nn.Conv2d(8, 1, 1)

    def forward(self, x, t):
        a = F.relu_(self.norm(self.down(x)))
        y = self.last(torch.cat([a, self.up(F.max_pool2d(a, 2))], 1))
        return y, F.binary_cross_entropy_with_logits(y, t)


def words():
    return torch.randint(0, 20, (3, 7)), torch.randint(0, 20, (3, 7))


def sequence():
    return torch.randn(3, 6, 5), torch.randn(3, 2)


def picture():
    return torch.randn(2, 1, 8, 8), torch.rand(2, 1, 8, 8).round()


@pytest.mark.parametrize("make, data", [
    (lambda: Recurrent(nn.LSTM), sequence), (lambda: Recurrent(nn.GRU), sequence),
    (lambda: Recurrent(nn.LSTM, num_layers=2, bidirectional=True), sequence),
    (Translator, words), (UNet, picture)], ids=["lstm", "gru", "deep_lstm", "transformer", "unet"])
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


def test_resnet18_trains_like_pytorch():
    torchvision = pytest.importorskip("torchvision")
    torch.manual_seed(0)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = torchvision.models.resnet18(num_classes=10)

        def forward(self, x, t):
            y = self.net(x)
            return y, F.cross_entropy(y, t)

    net = Net()
    reference = copy.deepcopy(net)
    model = poptorch.trainingModel(net, options(), torch.optim.SGD(net.parameters(), lr=0.001))
    theirs = torch.optim.SGD(reference.parameters(), lr=0.001)
    for _ in range(3):
        # smaller pictures end as one pixel each, and a norm over four values magnifies any rounding: PyTorch's too
        x, t = torch.randn(4, 3, 64, 64), torch.randint(0, 10, (4,))
        loss = model(x, t)[1]
        theirs.zero_grad()
        expected = reference(x, t)[1]
        expected.backward()
        theirs.step()
        assert abs(loss.item() - expected.item()) < 1e-4
    torch.testing.assert_close(net.net.bn1.running_var, reference.net.bn1.running_var)


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
