"""Fine-tuning of a vision transformer: frozen patches, autocast, groups of parameters, warmup, overlapped input, counters."""

import torch
import torch.nn as nn
import torch.nn.functional as F

import poptorch


class Block(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width), nn.MultiheadAttention(width, 2, batch_first=True)
        self.norm2, self.mlp = nn.LayerNorm(width), nn.Sequential(nn.Linear(width, 32), nn.GELU(), nn.Linear(32, width))

    def forward(self, x):
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches, self.cls = nn.Conv2d(3, 16, 4, 4), nn.Parameter(torch.zeros(1, 1, 16))
        self.places, self.blocks = nn.Parameter(torch.randn(1, 5, 16) * 0.02), nn.Sequential(Block(), Block())
        self.head = nn.Linear(16, 3)

    def forward(self, x, labels=None):
        x = poptorch.set_overlap_for_input(x, poptorch.OverlapMode.NoOverlap)
        with poptorch.autocast():
            x = self.patches(x).flatten(2).transpose(1, 2)
            x = torch.cat([self.cls.expand(x.shape[0], -1, -1).to(x.dtype), x], 1) + self.places
            x = self.head(self.blocks(x)[:, 0])
        return x.float() if labels is None else (x.float(), F.cross_entropy(x.float(), labels))


def main():
    torch.manual_seed(0)
    model = ViT()
    model.patches.requires_grad_(False)
    opts = poptorch.Options().deviceIterations(2)
    opts.Training.gradientAccumulation(2)
    opts.showCompilationProgressBar(False)
    no_decay = [p for n, p in model.named_parameters() if p.requires_grad and p.dim() < 2]
    decay = [p for n, p in model.named_parameters() if p.requires_grad and p.dim() >= 2]
    optimizer = poptorch.optim.AdamW([{"params": decay, "weight_decay": 0.05}, {"params": no_decay, "weight_decay": 0.0}], lr=0.0)
    trainer = poptorch.trainingModel(model, opts, optimizer)
    x, y, losses = torch.randn(16, 3, 8, 8), torch.arange(16) % 3, []
    for step in range(20):
        for group in optimizer.param_groups:
            group["lr"] = 0.01 * min(1.0, (step + 1) / 5)
        trainer.setOptimizer(optimizer)
        losses.append(trainer(x, y)[1].item())
    counters = trainer.getPerfCounters()
    latency = trainer.getLatency()
    return losses, {"counters": sorted(counters), "latency": len(latency)}
