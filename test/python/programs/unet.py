"""Segmentation: a U-Net whose halves lie on two devices with skips between them, recomputed activations, and the weights of a class."""

import torch
import torch.nn as nn

import poptorch


def twice(a, b):
    return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.InstanceNorm2d(b, affine=True), nn.LeakyReLU(0.1),
                         nn.Conv2d(b, b, 3, padding=1), nn.ReLU())


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.bottom, self.up = twice(1, 4), twice(4, 8), nn.ConvTranspose2d(8, 4, 2, 2)
        self.last, self.out = twice(8, 4), nn.Conv2d(4, 2, 1)
        self.loss = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 3.0]))

    def forward(self, x, mask):
        with poptorch.Block("contracting", ipu_id=0):
            a = self.down(x)
            b = poptorch.recomputationCheckpoint(self.bottom(nn.functional.max_pool2d(a, 2)))
        with poptorch.Block("expanding", ipu_id=1):
            y = self.out(self.last(torch.cat([a, self.up(b)], 1)))
            predicted = y.argmax(1)
            both = ((predicted == 1) & (mask == 1)).sum().float()
            dice = 2 * both / ((predicted == 1).sum() + (mask == 1).sum() + 1e-6)
            return dice, self.loss(y, mask)


def main():
    torch.manual_seed(0)
    x = torch.randn(12, 1, 8, 8) * 0.2
    mask = torch.zeros(12, 8, 8, dtype=torch.long)
    for i in range(12):
        x[i, 0, i % 4:i % 4 + 3, 2:6] += 1
        mask[i, i % 4:i % 4 + 3, 2:6] = 1
    opts = poptorch.Options()
    opts.Training.gradientAccumulation(4)
    opts.setExecutionStrategy(poptorch.PipelinedExecution(poptorch.AutoStage.AutoIncrement))
    opts.Training.setAutomaticLossScaling(False)
    opts._Popart.set("autoRecomputation", 3)
    model = UNet()
    trainer = poptorch.trainingModel(model, opts, poptorch.optim.Adam(model.parameters(), lr=0.02, max_grad_norm=1.0))
    out = [trainer(x, mask) for _ in range(25)]
    return [loss.item() for _, loss in out], {"dice": out[-1][0].item()}
