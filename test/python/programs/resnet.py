"""Training of a ResNet in the way of the vision applications: bytes go to the device and are normalised there, group norms, a loader
that rebatches in its own process, label smoothing, a model average on the host, validation with options of its own, checkpoints."""

import copy
import os
import tempfile

import torch
import torch.nn as nn

import poptorch


class Pictures(torch.utils.data.Dataset):
    def __len__(self):
        return 48

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        noise = torch.randint(0, 40, (3, 8, 8), generator=g)
        noise[i % 3] += 150
        return noise.to(torch.uint8), i % 3


class Normalize(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.48, 0.45, 0.4]).view(1, 3, 1, 1) * 255)
        self.register_buffer("scale", 1 / (torch.tensor([0.23, 0.22, 0.22]).view(1, 3, 1, 1) * 255))

    def forward(self, x):
        return (x.to(self.mean.dtype) - self.mean) * self.scale


class Residual(nn.Module):
    def __init__(self, width, stride=1):
        super().__init__()
        self.way = nn.Sequential(nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.GroupNorm(2, width), nn.ReLU(inplace=True),
                                 nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.GroupNorm(2, width))
        self.short = nn.Conv2d(width, width, 1, stride, bias=False) if stride > 1 else nn.Identity()

    def forward(self, x):
        return torch.relu(self.way(x) + self.short(x))


class ModelWithLoss(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model, self.loss = model, nn.CrossEntropyLoss(label_smoothing=0.1)

    def forward(self, x, labels=None):
        x = self.model(x)
        return x if labels is None else (x, self.loss(x, labels))


def options(training):
    opts = poptorch.Options()
    opts.deviceIterations(2 if training else 4)
    opts.replicationFactor(2 if training else 1)
    if training:
        opts.Training.gradientAccumulation(2)
        opts.Training.accumulationAndReplicationReductionType(poptorch.ReductionType.Mean)
        opts.Training.setMeanAccumulationAndReplicationReductionStrategy(poptorch.MeanReductionStrategy.Running)
    opts.outputMode(poptorch.OutputMode.Sum if training else poptorch.OutputMode.All)
    return opts


def main():
    torch.manual_seed(0)
    net = nn.Sequential(Normalize(), nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.GroupNorm(2, 8), nn.ReLU(), Residual(8), Residual(8, 2),
                        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3))
    model, opts = ModelWithLoss(net), options(True)
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9, weight_decay=1e-4, use_combined_accum=False, loss_scaling=8.0,
                                   velocity_accum_type=torch.float32)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    loader = poptorch.DataLoader(opts, Pictures(), batch_size=2, shuffle=True, num_workers=2, drop_last=False, persistent_workers=True,
                                 mode=poptorch.DataLoaderMode.AsyncRebatched, async_options={"load_indefinitely": True, "buffer_size": 3})
    trainer = poptorch.trainingModel(model.train(), opts, optimizer)
    average, losses = copy.deepcopy(net), []
    for _ in range(5):
        for x, labels in loader:
            _, loss = trainer(x, labels)
            losses.append(loss.mean().item())
        schedule.step()
        trainer.setOptimizer(optimizer)
        trainer.copyWeightsToHost()
        with torch.no_grad():
            for old, new in zip(average.parameters(), net.parameters()):
                old.lerp_(new.detach(), 0.8)
    loader.terminate()
    trainer.destroy()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "checkpoint.pt")
        torch.save({"model": average.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 5}, path)
        average.load_state_dict(torch.load(path)["model"])
    validation = poptorch.inferenceModel(average.eval(), options(False))
    found = [(validation(x).argmax(1) == y).float().mean().item()
             for x, y in poptorch.DataLoader(options(False), Pictures(), batch_size=4, drop_last=True)]
    return losses, sum(found) / len(found)
