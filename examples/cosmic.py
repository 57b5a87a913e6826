#!/usr/bin/env python3
"""Pixels of cosmic rays and neutrinos in a detector's pictures, with poptorch.

    PYTHONPATH=build/python examples/cosmic.py --data cosmic_tagging_light.h5 --downsample 2 --half --devices 4
    PYTHONPATH=build/python examples/cosmic.py --data random --size 64 --iterations 20

The network is a U-Net of residual blocks that three planes of wires go through one by one; at the bottom it sees all of
them together. As on an accelerator, the loss is part of the model, compile() warms up before anything is timed, and what
is reported is iterations a second. An HDF5 file of larcv needs h5py; an .npz file has x and y.
"""

import argparse
import time

import numpy as np
import poptorch
import torch
from torch import nn
from torch.nn import functional as F

PLANES, CLASSES = 3, 3


# --- the network ---

class Residual(nn.Module):
    """x + two convolutions of x."""

    def __init__(self, filters, kernel=3):
        super().__init__()
        self.first = nn.Conv2d(filters, filters, kernel, padding=kernel // 2)
        self.second = nn.Conv2d(filters, filters, kernel, padding=kernel // 2)

    def forward(self, x):
        return F.leaky_relu(x + self.second(F.leaky_relu(self.first(x))))


class Level(nn.Module):
    """A level of the U: blocks, the levels below at half the size, what was skipped, blocks."""

    def __init__(self, depth, filters, growth, deepest):
        super().__init__()
        self.bottom = depth == 0
        if self.bottom:    # all planes together
            self.inner = nn.Sequential(nn.Conv2d(PLANES * filters, deepest, 1), nn.LeakyReLU(),
                                       Residual(deepest, 5), nn.Conv2d(deepest, PLANES * filters, 1), nn.LeakyReLU())
            return
        more = filters + growth
        self.down = nn.Sequential(Residual(filters), Residual(filters))
        self.shrink = nn.Conv2d(filters, more, 2, stride=2)
        self.below = Level(depth - 1, more, growth, deepest)
        self.grow = nn.ConvTranspose2d(more, filters, 2, stride=2)
        self.join = nn.Conv2d(2 * filters, filters, 1)
        self.up = nn.Sequential(Residual(filters), Residual(filters))

    def forward(self, planes):
        if self.bottom:
            return torch.chunk(self.inner(torch.cat(planes, 1)), PLANES, 1)
        skips = [self.down(x) for x in planes]
        lower = self.below([F.leaky_relu(self.shrink(x)) for x in skips])
        both = [torch.cat([F.leaky_relu(self.grow(x)), s], 1) for x, s in zip(lower, skips)]
        return [self.up(F.leaky_relu(self.join(x))) for x in both]


class UResNet(nn.Module):
    """Scores of classes x planes x pixels."""

    def __init__(self, depth=4, filters=16, deepest=128):
        super().__init__()
        self.begin = nn.Conv2d(1, filters, 7, padding=3)
        self.core = Level(depth, filters, filters, deepest)
        self.end = nn.Conv2d(filters, CLASSES, 1)

    def forward(self, x):
        planes = self.core([F.leaky_relu(self.begin(p)) for p in torch.chunk(x, PLANES, 1)])
        return torch.stack([self.end(p) for p in planes], 2)


class WithLoss(nn.Module):
    """The network with its loss, for the device computes both."""

    def __init__(self, net, weights):
        super().__init__()
        self.net = net
        self.register_buffer("weights", torch.tensor(weights))

    def forward(self, x, labels=None):
        scores = self.net(x)
        if labels is None:
            return scores
        loss = F.cross_entropy(scores.float(), labels.long(), self.weights.float())
        return scores, poptorch.identity_loss(loss, reduction="mean")


# --- the data ---

def larcv(path):
    """Pictures and labels of the first two sparse products: the one of whole numbers has the labels."""
    import h5py

    with h5py.File(path) as f:
        dense = [fill(g) for name, g in f["Data"].items() if name.startswith("sparse2d_")]
    labels = [d for d in dense if np.array_equal(d, np.rint(d))]
    pictures = [d for d in dense if not np.array_equal(d, np.rint(d))]
    return pictures[0], labels[0]


def fill(product):
    events, planes, meta, voxels = (product[k][:] for k in ("extents", "voxel_extents", "image_meta", "voxels"))
    width, height = (int(n) for n in meta["number_of_voxels"][0])
    out = np.zeros((len(events), PLANES, width * height), np.float32)
    for i, e in enumerate(events):
        for p in planes[e["first"]:e["first"] + e["N"]]:
            v = voxels[p["first"]:p["first"] + p["N"]]
            out[i, p["ID"], v["id"]] = v["value"]
    return out.reshape(len(events), PLANES, width, height).transpose(0, 1, 3, 2)


def made_up(size, n=5):
    """Lines on noise: those along the rows are class 1, along the columns class 2."""
    rng = np.random.default_rng(1)
    y = np.zeros((n, PLANES, size, 2 * size), np.int64)
    for at in np.ndindex(n, PLANES):
        y[at][rng.integers(size)] = 1
        y[at][:, rng.integers(2 * size)] = 2
    return rng.normal(0, 1, y.shape).astype(np.float32) + 5 * np.minimum(y, 1) + 10 * (y == 2), y


def load(args):
    if args.data == "random":
        x, y = made_up(args.size)
    elif args.data.endswith(".npz"):
        x, y = (np.load(args.data)[k] for k in "xy")
    else:
        x, y = larcv(args.data)
    n, shape = args.downsample, (*x.shape[:2], x.shape[2] // args.downsample, args.downsample, x.shape[3] // args.downsample,
                                 args.downsample)
    if n > 1:
        x, y = x.reshape(shape).mean((3, 5)), y.reshape(shape).max((3, 5))
    return torch.utils.data.TensorDataset(torch.tensor(x / args.scale, dtype=torch.float16 if args.half else torch.float32),
                                          torch.tensor(y, dtype=torch.int32))


# --- training ---

def read_arguments():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--data", default="random", help="an .h5 file of larcv, an .npz file, or 'random'")
    p.add_argument("--size", type=int, default=64, help="of random pictures")
    p.add_argument("--downsample", type=int, default=1)
    p.add_argument("--scale", type=float, default=20, help="pictures are divided by this")
    p.add_argument("--half", action="store_true", help="float16 in place of float32")
    p.add_argument("--devices", type=int, default=1)
    p.add_argument("--depth", type=int, default=4)
    p.add_argument("--filters", type=int, default=16)
    p.add_argument("--iterations", type=int, default=25)
    p.add_argument("--learning-rate", type=float, default=0.001)
    return p.parse_args()


def cut(net, devices):
    """Levels of the U on the way down, one device after the other; what comes back up stays with its level."""
    at = [net.net.begin]
    level = net.net.core
    while not level.bottom:
        at.append(level.shrink)
        level = level.below
    for d in range(1, min(devices, len(at))):
        poptorch.BeginBlock(at[d * len(at) // devices], f"B{d}", ipu_id=d)


def report(scores, labels):
    said = scores.float().argmax(1)
    for c, name in enumerate(("background", "cosmic", "neutrino")):
        both, either = ((said == c) & (labels == c)).sum(), ((said == c) | (labels == c)).sum()
        print(f"IoU {name}: {float(both) / max(1, float(either)):.4f}")


def main():
    args = read_arguments()
    torch.manual_seed(42)
    net = WithLoss(UResNet(args.depth, args.filters), [1.0, 2.0, 4.0])
    if args.devices > 1:
        cut(net, args.devices)
    if args.half:
        net.half()
    options = poptorch.Options().autoRoundNumIPUs(True)
    options.setExecutionStrategy(poptorch.ShardedExecution())    # one picture at a time: devices take turns
    data = poptorch.DataLoader(options, load(args), batch_size=1, shuffle=True)
    optimizer = poptorch.optim.Adam(net.parameters(), lr=args.learning_rate, loss_scaling=1024.0 if args.half else 1.0,
                                    accum_type=torch.float32, first_order_momentum_accum_type=torch.float32,
                                    second_order_momentum_accum_type=torch.float32)
    model = poptorch.trainingModel(net, options, optimizer)
    print("Compiling + warm-up ...")
    model.compile(*next(iter(data)))
    done, began = 0, time.perf_counter()
    while done < args.iterations:
        for x, labels in data:
            scores, loss = model(x, labels)
            done += 1
            if done == args.iterations:
                break
        print(f"iteration {done}: loss {float(loss):.4f}, {done / (time.perf_counter() - began):.3f} iterations/s")
    report(scores, labels)


if __name__ == "__main__":
    main()
