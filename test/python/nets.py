"""The networks of test/models/nets.h as PyTorch modules, and batches to train them on."""

import gzip
from collections import OrderedDict
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

ROOT = Path(__file__).resolve().parents[2]
FASHION = Path("/usr/share/datasets/fashion-mnist")
MNIST = ROOT.parent / "shared" / "data" / "mnist"


class Fashion(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 5, 3)
        self.conv2 = nn.Conv2d(5, 12, 5)
        self.norm = nn.GroupNorm(3, 12)
        self.fc1 = nn.Linear(972, 100)
        self.fc2 = nn.Linear(100, 10)

    def forward(self, x, t):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = self.norm(F.relu(self.conv2(x)))
        x = F.relu(self.fc1(torch.flatten(x, 1)))
        return F.nll_loss(F.log_softmax(self.fc2(x), 1), t)


class Layer(nn.Module):
    def __init__(self, channels, filters, kernel):
        super().__init__()
        self.conv = nn.Conv2d(channels, filters, kernel)

    def forward(self, x):
        return F.relu(F.max_pool2d(self.conv(x), 2))


class Digits(nn.Module):
    def __init__(self, dropout=False):
        super().__init__()
        self.layer1 = Layer(1, 32, 3)
        self.layer2 = Layer(32, 64, 3)
        self.layer3 = nn.Linear(1600, 128)
        self.layer4 = nn.Linear(128, 10)
        self.dropout = dropout

    def forward(self, x, t):
        x = self.layer2(self.layer1(x))
        x = F.relu(self.layer3(torch.flatten(x, 1)))
        return F.cross_entropy(self.layer4(F.dropout(x, 0.5, self.dropout)), t)


class Pipeline(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1 = Layer(1, 10, 5)
        self.layer2 = Layer(10, 20, 5)
        self.layer3 = nn.Linear(320, 256)
        self.layer4 = nn.Linear(256, 10)

    def forward(self, x, t):
        x = self.layer2(self.layer1(x))
        x = F.relu(self.layer3(torch.flatten(x, 1)))
        return F.cross_entropy(self.layer4(x), t)


class Residual(nn.Module):
    def __init__(self, channels=32):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm2 = nn.BatchNorm2d(channels)

    def forward(self, x, t=None):
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(x + self.norm2(self.conv2(y))).square().mean()


# --- CosmicTagger's network ---

class Convolution(nn.Module):
    def __init__(self, config, a, b, kernel=3, activation=True):
        super().__init__()
        self.conv = nn.Conv2d(a, b, kernel, padding=kernel // 2)
        if config["norm"]:
            self.norm = nn.BatchNorm2d(b)
        self.after = F.leaky_relu if activation else lambda x: x

    def forward(self, x):
        x = self.conv(x)
        return self.after(self.norm(x) if hasattr(self, "norm") else x)


class ResidualConvolutions(nn.Module):
    def __init__(self, config, n, kernel=3):
        super().__init__()
        self.convolution_1 = Convolution(config, n, n, kernel)
        self.convolution_2 = Convolution(config, n, n, kernel, activation=False)

    def forward(self, x):
        return F.leaky_relu(self.convolution_2(self.convolution_1(x)) + x)


def series(config, blocks, n, kernel=3):
    return nn.Sequential(OrderedDict((f"block_{i}", ResidualConvolutions(config, n, kernel)) for i in range(blocks)))


class Resampled(nn.Module):
    """Half or twice the size, by a convolution, or by a pool or the nearest pixel and a convolution of one."""

    def __init__(self, config, a, b, up):
        super().__init__()
        self.up = up
        if config["convolution"]:
            self.conv = (nn.ConvTranspose2d if up else nn.Conv2d)(a, b, 2, stride=2)
            self.norm = nn.BatchNorm2d(b) if config["norm"] else nn.Identity()
        else:
            self.bottleneck = Convolution(config, a, b, 1)

    def forward(self, x):
        if hasattr(self, "conv"):
            return F.leaky_relu(self.norm(self.conv(x)))
        return self.bottleneck(F.interpolate(x, scale_factor=2, mode="nearest") if self.up else F.max_pool2d(x, 2))


class Bottom(nn.Module):
    """All planes together."""

    def __init__(self, config, n):
        super().__init__()
        inside = config.get("bottleneck", 256)
        self.bottleneck = Convolution(config, 3 * n, inside, 1)
        self.blocks = series(config, config.get("deepest", 5), inside, 5)
        self.unbottleneck = Convolution(config, inside, 3 * n, 1)

    def forward(self, planes):
        return self.unbottleneck(self.blocks(self.bottleneck(torch.cat(planes, 1)))).chunk(3, 1)


class Connection(nn.Module):
    def __init__(self, config, n):
        super().__init__()
        if config["concat"]:
            self.bottleneck = Convolution(config, 2 * n, n, 1)

    def forward(self, x, skip):
        return self.bottleneck(torch.cat([x, skip], 1)) if hasattr(self, "bottleneck") else x + skip


class Level(nn.Module):
    def __init__(self, config, depth, n):
        super().__init__()
        if not depth:
            self.main_module = Bottom(config, n)
            return
        more = 2 * n if config["double"] else n + 16
        self.down_blocks = series(config, 2, n)
        self.downsample = Resampled(config, n, more, up=False)
        self.main_module = Level(config, depth - 1, more)
        self.upsample = Resampled(config, more, n, up=True)
        self.connection = Connection(config, n)
        self.up_blocks = series(config, 2, n)

    def forward(self, planes):
        if not hasattr(self, "upsample"):
            return self.main_module(planes)
        skips = [self.down_blocks(x) for x in planes]
        planes = self.main_module([self.downsample(x) for x in skips])
        return [self.up_blocks(self.connection(self.upsample(x), s)) for x, s in zip(planes, skips)]


LARGE = {"norm": True, "convolution": True, "concat": False, "double": True}
A21 = {"norm": False, "convolution": False, "concat": True, "double": False}


class UResNet(nn.Module):
    """CosmicTagger's network: three planes through the same layers, which meet at the bottom."""

    def __init__(self, **config):
        super().__init__()
        self.initial_convolution = Convolution(config, 1, 16, 7)
        self.net_core = Level(config, config.get("depth", 6), 16)
        self.final_layer = series(config, config.get("last", 5), 16)
        self.bottleneck = nn.Conv2d(16, 3, 1)

    def forward(self, x):
        planes = self.net_core([self.initial_convolution(p) for p in x.chunk(3, 1)])
        return torch.stack([self.bottleneck(self.final_layer(p)) for p in planes], 2)


class Cosmic(UResNet):
    """With its loss: a class for each pixel of each plane."""

    def __init__(self):
        super().__init__(**A21)

    def forward(self, x, t):
        return F.cross_entropy(super().forward(x), t)


def samples(folder, n, mean, deviation):
    """The first n training images and labels of a folder of IDX files; where it is absent, noise around a
    pattern for each label."""
    if not folder or not folder.exists():
        rng = np.random.default_rng(0)
        labels, patterns = rng.integers(0, 10, n), rng.standard_normal((10, 1, 28, 28))
        return ((patterns[labels] + rng.standard_normal((n, 1, 28, 28))).astype(np.float32),
                labels.astype(np.int32))
    with gzip.open(folder / "train-images-idx3-ubyte.gz") as f:
        f.read(16)
        pixels = np.frombuffer(f.read(n * 784), np.uint8).reshape(n, 1, 28, 28)
    with gzip.open(folder / "train-labels-idx1-ubyte.gz") as f:
        f.read(8)
        labels = np.frombuffer(f.read(n), np.uint8)
    return (((pixels / 255.0 - mean) / deviation).astype(np.float32), labels.astype(np.int32))
