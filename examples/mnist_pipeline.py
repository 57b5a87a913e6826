#!/usr/bin/env python3
"""Handwritten digits on four devices, with poptorch.

    PYTHONPATH=build/python examples/mnist_pipeline.py --data FOLDER
    PYTHONPATH=build/python examples/mnist_pipeline.py --strategy sharded --offload-optimiser

The network is cut into four blocks. Pipelined, the devices work on different micro-batches at the same time; sharded,
they take turns. The data is torchvision's MNIST in FOLDER, or FashionMNIST with --fashion.
"""

import argparse

import poptorch
import torch
import torchvision
from torch import nn


class Layer(nn.Module):
    """Convolution, pooling, ReLU."""

    def __init__(self, channels, filters, kernel):
        super().__init__()
        self.conv = nn.Conv2d(channels, filters, kernel)

    def forward(self, x):
        return torch.relu(torch.max_pool2d(self.conv(x), 2))


class Network(nn.Module):
    """Four blocks; with labels, the loss comes along."""

    def __init__(self):
        super().__init__()
        self.layer1 = Layer(1, 10, 5)
        self.layer2 = Layer(10, 20, 5)
        self.layer3 = nn.Linear(320, 256)
        self.layer4 = nn.Linear(256, 10)
        self.loss = nn.CrossEntropyLoss()

    def forward(self, x, labels=None):
        with poptorch.Block("B1"):
            x = self.layer1(x)
        with poptorch.Block("B2"):
            x = self.layer2(x)
        with poptorch.Block("B3"):
            x = torch.relu(self.layer3(torch.flatten(x, 1)))
        with poptorch.Block("B4"):
            x = self.layer4(x)
            return x if labels is None else (x, self.loss(x, labels))


def read_arguments():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--data", default="data", help="folder of torchvision's datasets")
    p.add_argument("--fashion", action="store_true", help="clothes instead of digits")
    p.add_argument("--download", action="store_true", help="fetch the data when it is not there")
    p.add_argument("--batch-size", type=int, default=40)
    p.add_argument("--device-iterations", type=int, default=10)
    p.add_argument("--test-batch-size", type=int, default=8)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--learning-rate", type=float, default=0.001)
    p.add_argument("--strategy", choices=["pipelined", "sharded"], default="pipelined")
    p.add_argument("--offload-optimiser", action="store_true", help="keep the optimiser's state in the host's memory")
    p.add_argument("--profile", action="store_true")
    p.add_argument("--profile-dir", default="./profile")
    p.add_argument("--debug", action="store_true", help="print what the library does")
    return p.parse_args()


def make_options(args, iterations, accumulation):
    kind = poptorch.PipelinedExecution if args.strategy == "pipelined" else poptorch.ShardedExecution
    options = poptorch.Options().deviceIterations(iterations)
    options.Training.gradientAccumulation(accumulation)
    options.setExecutionStrategy(kind("B1", "B2", "B3", "B4"))
    if args.offload_optimiser and accumulation > 1:
        off = poptorch.TensorLocationSettings().useOnChipStorage(False)
        options.TensorLocations.setOptimizerLocation(off)
    if args.profile:
        options.enableProfiling(args.profile_dir)
    return options


def main():
    args = read_arguments()
    if args.debug:
        poptorch.setLogLevel("DEBUG")
    prepare = torchvision.transforms.Compose([torchvision.transforms.ToTensor(),
                                              torchvision.transforms.Normalize((0.1307,), (0.3081,))])
    kind = torchvision.datasets.FashionMNIST if args.fashion else torchvision.datasets.MNIST
    sets = [kind(args.data, train=train, download=args.download, transform=prepare) for train in (True, False)]

    torch.manual_seed(42)
    network = Network()
    optimizer = poptorch.optim.AdamW(network.parameters(), lr=args.learning_rate)
    options = make_options(args, args.device_iterations, 10)
    options.outputMode(poptorch.OutputMode.All)
    loader = poptorch.DataLoader(options, sets[0], batch_size=args.batch_size, shuffle=True)
    training = poptorch.trainingModel(network.train(), options, optimizer)
    for epoch in range(args.epochs):
        total = steps = 0
        for images, labels in loader:
            total += training(images, labels)[1].mean().item()
            steps += 1
        print(f"epoch {epoch + 1}/{args.epochs}  loss {total / steps:.4f}")
    training.detachFromDevice()

    options = make_options(args, 100, 1)
    loader = poptorch.DataLoader(options, sets[1], batch_size=args.test_batch_size)
    inference = poptorch.inferenceModel(network.eval(), options)
    right = count = 0
    for images, labels in loader:
        right += (inference(images).argmax(1) == labels).sum().item()
        count += len(labels)
    print(f"Accuracy on test set: {100 * right / count:.2f}%")


if __name__ == "__main__":
    main()
