"""The networks of test/models/nets.h as PyTorch modules, and batches to train them on."""

import gzip
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
