"""Pretraining of an encoder in the way of the BERT applications: halves, a pipeline of named layers, LAMB with groups and a loss
scale, a schedule, checkpoints of what is kept, optimizer state off the chip, and the embedding's weight used twice."""

import torch
import torch.nn as nn

import poptorch

WORDS, LENGTH, WIDTH = 24, 8, 16


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.ff = nn.Sequential(nn.Linear(WIDTH, 32), nn.GELU(), nn.Linear(32, WIDTH))
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))

    def forward(self, x, mask):
        q, k, v = (t.view(*t.shape[:2], 2, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        scores = (q @ k.transpose(-1, -2) / 8 ** 0.5 + mask).softmax(-1)
        x = self.norms[0](x + self.out((scores @ v).transpose(1, 2).flatten(2)))
        x = self.norms[1](x + self.ff(x))
        return poptorch.recomputationCheckpoint(x)


class Pretraining(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(2))
        self.bias = nn.Parameter(torch.zeros(WORDS))
        self.loss = nn.CrossEntropyLoss(ignore_index=-1)

    def parallelize(self):
        self.words = poptorch.BeginBlock(self.words, "Embedding", ipu_id=0)
        for i, layer in enumerate(self.layers):
            self.layers[i] = poptorch.BeginBlock(layer, f"Encoder{i}", ipu_id=i)
        self.loss = poptorch.BeginBlock(self.loss, "Classifier", ipu_id=1)
        return self

    def forward(self, ids, attention_mask, labels):
        x = self.words(ids) + self.places(torch.arange(LENGTH, device=ids.device))
        mask = (1.0 - attention_mask[:, None, None, :].to(x.dtype)) * -1e4
        for layer in self.layers:
            x = layer(x, mask)
        logits = nn.functional.linear(x, self.words.weight, self.bias).float()
        loss = self.loss(logits.view(-1, WORDS), labels.view(-1))
        accuracy = ((logits.argmax(-1) == labels) & (labels != -1)).float().sum() / (labels != -1).float().sum()
        return poptorch.identity_loss(loss, reduction="none"), accuracy


def batch(n):
    ids = torch.arange(n).view(-1, 1).remainder(8) + torch.arange(LENGTH)
    labels = torch.where(torch.arange(LENGTH) % 3 == 0, ids, -1)
    return torch.where(labels >= 0, 0, ids), torch.ones(n, LENGTH, dtype=torch.long), labels


def optimizer_of(model):
    plain = [p for n, p in model.named_parameters() if "bias" in n or "norms" in n]
    decayed = [p for n, p in model.named_parameters() if not ("bias" in n or "norms" in n)]
    optimizer = poptorch.optim.LAMB([{"params": decayed, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0}],
                                    lr=0.02, loss_scaling=128.0, accum_type=torch.float16, bias_correction=False,
                                    first_order_momentum_accum_type=torch.float32, second_order_momentum_accum_type=torch.float32)
    optimizer.variable_attrs.markAsConstant("max_weight_norm")
    return optimizer


def main():
    torch.manual_seed(0)
    opts = poptorch.Options().deviceIterations(1).randomSeed(42).autoRoundNumIPUs(True)
    opts.Training.gradientAccumulation(4).accumulationAndReplicationReductionType(poptorch.ReductionType.Mean)
    opts.outputMode(poptorch.OutputMode.All)
    opts.Precision.enableStochasticRounding(True)
    opts.setExecutionStrategy(poptorch.PipelinedExecution(poptorch.Stage("Embedding", "Encoder0").ipu(0),
                                                          poptorch.Stage("Encoder1", "Classifier").ipu(1)))
    opts.TensorLocations.setOptimizerLocation(
        poptorch.TensorLocationSettings().useOnChipStorage(False).minElementsForOffChip(4))
    opts._Popart.set("disableGradAccumulationTensorStreams", True)
    opts._Popart.set("outlineThreshold", 10.0)
    opts.setAvailableMemoryProportion({"IPU0": 0.2, "IPU1": 0.2})
    model = Pretraining().half().train().parallelize()
    optimizer = optimizer_of(model)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 4))
    trainer = poptorch.trainingModel(model, opts, optimizer=optimizer)
    trainer.compile(*batch(16))
    losses = []
    for step in range(12):
        loss, accuracy = trainer(*batch(16))
        losses.append(loss.float().mean().item())
        schedule.step()
        trainer.setOptimizer(optimizer)
    trainer.detachFromDevice()
    return losses, {"lr": schedule.get_last_lr()[0], "accuracy": accuracy.float().mean().item()}
