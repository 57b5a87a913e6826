"""A variational autoencoder: numbers are drawn on the device, two losses are one, a result of every micro-batch comes back."""

import torch
import torch.nn as nn
import torch.nn.functional as F

import poptorch


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(1, 4, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(64, 8))
        self.decoder = nn.Sequential(nn.Linear(4, 64), nn.Unflatten(1, (4, 4, 4)), nn.ReLU(), nn.ConvTranspose2d(4, 1, 4, 2, 1))

    def forward(self, x):
        mean, log_variance = self.encoder(x).chunk(2, 1)
        z = mean + torch.exp(0.5 * log_variance) * torch.randn_like(mean) if self.training else mean
        y = self.decoder(z)
        apart = F.binary_cross_entropy_with_logits(y, x, reduction="sum") / x.shape[0]
        kl = -0.5 * torch.mean(torch.sum(1 + log_variance - mean.pow(2) - log_variance.exp(), 1))
        return y.sigmoid(), poptorch.identity_loss(apart + 0.1 * kl, reduction="none"), kl


def main():
    torch.manual_seed(0)
    x = torch.zeros(16, 1, 8, 8)
    for i in range(16):
        x[i, 0, i % 8] = 1
    opts = poptorch.Options().deviceIterations(2).outputMode(poptorch.OutputMode.All).randomSeed(3)
    opts.Training.gradientAccumulation(2)
    model = VAE()
    trainer = poptorch.trainingModel(model, opts, poptorch.optim.RMSprop(model.parameters(), lr=0.01))
    losses = [trainer(x)[1].mean().item() for _ in range(40)]
    trainer.detachFromDevice()
    made = poptorch.inferenceModel(model.eval(), poptorch.Options())(x)[0]
    return losses, {"shape": tuple(made.shape), "apart": (made - x).abs().mean().item()}
