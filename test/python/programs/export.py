"""Compile on one machine, run on another: an executable in a file, the cache, weights that are exchanged under way."""

import os
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F

import poptorch


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)
        self.register_buffer("scale", torch.ones(1))

    def forward(self, x, y=None):
        x = self.fc(x) * self.scale
        return x if y is None else (x, F.mse_loss(x, y))


def main():
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        opts = poptorch.Options().enableExecutableCaching(os.path.join(folder, "cache"))
        opts.useOfflineIpuTarget()
        model = Net()
        trainer = poptorch.trainingModel(model, opts, poptorch.optim.SGD(model.parameters(), lr=0.1))
        x, y = torch.randn(4, 3), torch.randn(4, 2)
        trainer.compileAndExport(os.path.join(folder, "model.poptorch"), x, y)
        loaded = poptorch.load(os.path.join(folder, "model.poptorch"), edit_opts_fn=lambda o: o.useIpuModel(False) and None)
        losses = [loaded(x, y)[1].item() for _ in range(15)]
        state = loaded.state_dict()
    runner = poptorch.inferenceModel(Net(), poptorch.Options().updatableNamedBuffers(["scale"]))
    runner(x)
    runner.load_state_dict(state)
    first = runner(x)
    runner.model.scale.fill_(2.0) if hasattr(runner, "model") else None
    runner.updateBuffers() if hasattr(runner, "updateBuffers") else runner.copyNamedBuffersToDevice()
    return losses, {"doubled": torch.allclose(runner(x), first * 2, atol=1e-5), "close": F.mse_loss(first, y).item()}
