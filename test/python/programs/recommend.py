"""Recommendation: large tables of which a batch reads few rows, features that interact, tables on their own device, inference in a
pipeline with a result from each stage."""

import torch
import torch.nn as nn
import torch.nn.functional as F

import poptorch


class DLRM(nn.Module):
    def __init__(self, sizes=(50, 30, 20), width=8):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(n, width) for n in sizes)
        self.bottom = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, width))
        self.top = nn.Sequential(nn.Linear(width + 6, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, dense, sparse, clicks=None):
        poptorch.Block.useAutoId()
        with poptorch.Block(ipu_id=0):
            rows = [table(sparse[:, i]) for i, table in enumerate(self.tables)]
        with poptorch.Block(ipu_id=1):
            x = self.bottom(dense)
            every = torch.stack([x, *rows], 1)
            i, j = torch.tril_indices(4, 4, -1)
            pairs = (every @ every.transpose(1, 2))[:, i, j]
            y = self.top(torch.cat([x, pairs], 1)).squeeze(1)
            return (y, F.binary_cross_entropy_with_logits(y, clicks)) if clicks is not None else torch.sigmoid(y)


def main():
    torch.manual_seed(0)
    dense, sparse = torch.randn(64, 4), torch.stack([torch.randint(n, (64,)) for n in (50, 30, 20)], 1)
    clicks = (sparse[:, 0] % 2).float()
    opts = poptorch.Options()
    opts.Training.gradientAccumulation(4)
    model = DLRM()
    trainer = poptorch.trainingModel(model, opts, poptorch.optim.Adam(model.parameters(), lr=0.02))
    losses = [trainer(dense, sparse, clicks)[1].item() for _ in range(30)]
    trainer.destroy()
    runner = poptorch.inferenceModel(model.eval(), poptorch.Options().deviceIterations(4))
    return losses, {"right": ((runner(dense, sparse) > 0.5) == (clicks > 0.5)).float().mean().item()}
