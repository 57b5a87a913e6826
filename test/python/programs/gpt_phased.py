"""A causal language model layer by layer in phases, with weights off the chip between them; then sharded, then text is made."""

import torch
import torch.nn as nn
import torch.nn.functional as F

import poptorch


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.qkv = nn.LayerNorm(width), nn.Linear(width, 3 * width)
        self.mlp = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.register_buffer("mask", torch.tril(torch.ones(8, 8)))

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).split(x.shape[-1], -1)
        scores = q @ k.transpose(1, 2) / x.shape[-1] ** 0.5
        x = x + torch.where(self.mask == 0, -1e4, scores).softmax(-1) @ v
        return x + self.mlp(x)


class GPT(nn.Module):
    def __init__(self, width=16, words=12):
        super().__init__()
        self.words, self.layers, self.norm = nn.Embedding(words, width), nn.ModuleList(Layer(width) for _ in range(2)), nn.LayerNorm(width)

    def forward(self, ids, labels=None):
        with poptorch.Block("embed", ipu_id=0):
            x = self.words(ids)
        for i, layer in enumerate(self.layers):
            with poptorch.Block(f"layer{i}", ipu_id=i):
                x = layer(x)
        with poptorch.Block("head", ipu_id=1):
            logits = F.linear(self.norm(x), self.words.weight)
            if labels is None:
                return logits
            return F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())


def text(n):
    return (torch.arange(n).view(-1, 1) * 5 + torch.arange(8) * 2) % 12


def strategies():
    phases = [poptorch.Phase(poptorch.Stage(name)) for name in ("embed", "layer0", "layer1", "head")]
    phased = poptorch.SerialPhasedExecution(phases)
    phased.setTensorsLiveness(poptorch.Liveness.OffChipAfterEachPhase)
    yield phased
    yield poptorch.ShardedExecution(poptorch.AutoStage.SameAsIpu)


def main():
    losses, made = [], None
    for strategy in strategies():
        torch.manual_seed(1)
        opts = poptorch.Options()
        opts.setExecutionStrategy(strategy)
        opts.TensorLocations.setWeightLocation(poptorch.TensorLocationSettings().useOnChipStorage(False))
        opts.TensorLocations.setActivationLocation(poptorch.TensorLocationSettings().useOnChipStorage(False))
        model = GPT()
        trainer = poptorch.trainingModel(model, opts, poptorch.optim.Adam(model.parameters(), lr=0.02))
        losses.append([trainer(text(12), text(12)).item() for _ in range(25)])
        trainer.destroy()
        opts = poptorch.Options()
        opts.setExecutionStrategy(poptorch.ShardedExecution(poptorch.AutoStage.SameAsIpu))
        runner = poptorch.inferenceModel(model.eval(), opts)
        ids = text(1)[:, :4]
        for _ in range(4):
            logits = runner(F.pad(ids, (0, 8 - ids.shape[1])))
            ids = torch.cat([ids, logits[:, ids.shape[1] - 1].argmax(-1, keepdim=True)], 1)
        made = ids
    both = [abs(a - b) for a, b in zip(*losses)]
    return losses[0], {"between": max(both), "right": torch.equal(made.long(), text(1))}
