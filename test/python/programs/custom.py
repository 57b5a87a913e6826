"""An operation of one's own, in C: a leaky ReLU with an attribute and a gradient, as the tutorial on custom operations has it."""

import os
import tempfile

import torch
import torch.nn as nn

import poptorch
from poptorch import custom_ops

SOURCE = open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "leaky.c"), encoding="utf-8").read()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(4, 8), nn.Linear(8, 1)

    def forward(self, x, y):
        x = self.one(x)
        x, = poptorch.custom_op([x], "LeakyRelu", "com.acme", 1, example_outputs=[x], attributes={"alpha": 0.02})
        return nn.functional.mse_loss(self.two(x), y)


def main():
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "leaky.c")
        with open(file, "w", encoding="utf-8") as f:
            f.write(SOURCE)
        custom_ops.load(file)
        model = Net()
        trainer = poptorch.trainingModel(model, poptorch.Options(), torch.optim.SGD(model.parameters(), lr=0.1))
        x = torch.randn(16, 4)
        losses = [trainer(x, x.abs().sum(1, keepdim=True)).item() for _ in range(20)]
    leaky = poptorch.custom_op([x], "LeakyRelu", "com.acme", 1, example_outputs=[x], attributes={"alpha": 0.02})[0]
    return losses, {"same": torch.allclose(leaky, nn.functional.leaky_relu(x, 0.02))}
