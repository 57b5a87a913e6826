"""Fashion-MNIST as `tessera train` does it, written in PyTorch: the net of `tessera models fashion-cnn`, flips, one cycle.

    python3 fashion.py DIR EPOCHS SEED [LIMIT]   prints seconds and accuracy
"""
import gzip
import sys
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def load(folder, part, limit):
    with gzip.open(f"{folder}/{part}-images-idx3-ubyte.gz") as f:
        x = np.frombuffer(f.read(), np.uint8, offset=16).reshape(-1, 1, 28, 28)[:limit]
    with gzip.open(f"{folder}/{part}-labels-idx1-ubyte.gz") as f:
        y = np.frombuffer(f.read(), np.uint8, offset=8)[:limit]
    return (torch.from_numpy(x.copy()).float() / 255 - 0.5) / 0.5, torch.from_numpy(y.copy()).long()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        sizes = [(1, 32), (32, 64), (64, 128)]
        self.convs = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1, bias=False) for a, b in sizes)
        self.norms = nn.ModuleList(nn.BatchNorm2d(b) for _, b in sizes)
        self.fc = nn.Linear(1152, 10)

    def forward(self, x):
        for conv, norm in zip(self.convs, self.norms):
            x = F.max_pool2d(F.relu(norm(conv(x))), 2)
        return self.fc(F.dropout(x.flatten(1), 0.3, self.training))


def flipped(x):
    return torch.where(torch.rand(len(x), 1, 1, 1) < 0.5, x.flip(3), x)


def main(folder, epochs, seed, limit=None, batch=64, lr=0.004):
    torch.manual_seed(seed)
    x, y = load(folder, "train", limit)
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=lr)
    steps = len(x) // batch
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, lr, total_steps=epochs * steps + 1)
    start = time.time()
    for _ in range(epochs):
        for rows in torch.randperm(len(x))[:steps * batch].view(steps, batch):
            loss = F.cross_entropy(net(flipped(x[rows])), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    seconds = time.time() - start
    net.eval()
    x, y = load(folder, "t10k", limit)
    with torch.no_grad():
        right = sum((net(a).argmax(1) == b).sum().item() for a, b in zip(x.split(500), y.split(500)))
    print(f"{seconds:.1f} {right / len(x):.4f}")


main(sys.argv[1], *map(int, sys.argv[2:]))
