"""A layer too wide for one matrix product: serialised products, groups of convolutions, memory shares, replicas with sharded state,
hooks, cycles, and a state that is anchored."""

import torch
import torch.nn as nn

import poptorch


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv1d(2, 4, 3, padding=1), nn.Conv1d(2, 4, 3, padding=1)
        self.weight, self.out = nn.Parameter(torch.randn(32, 16) * 0.1), nn.Linear(16, 1)

    def forward(self, x, y):
        with poptorch.MultiConv().availableMemoryProportions((0.3, 0.3)).planType(poptorch.MultiConvPlanType.Parallel):
            a, b = self.a(x), self.b(x)
        x = torch.cat([a, b], 1).flatten(1).tanh()
        x = poptorch.serializedMatMul(x, self.weight, poptorch.MatMulSerializationMode.OutputChannels, factor=4,
                                      keep_precision=True)
        x = poptorch.set_available_memory(x, 0.4)
        return nn.functional.smooth_l1_loss(self.out(x.relu()), y)


def main():
    torch.manual_seed(0)
    opts = poptorch.Options().replicationFactor(2)
    opts.Training.gradientAccumulation(2)
    opts.TensorLocations.setOptimizerLocation(poptorch.TensorLocationSettings().useReplicatedTensorSharding(True)
                                              .minElementsForReplicatedTensorSharding(2))
    opts.anchorTensor("step of the weight", "Gradient___weight")
    opts.logCycleCount(True)
    model = Net()
    trainer = poptorch.trainingModel(model, opts, poptorch.optim.AdamW(model.parameters(), lr=0.01))
    x = torch.randn(16, 2, 4)
    y = x.sum((1, 2)).view(-1, 1)
    losses = [trainer(x, y).mean().item() for _ in range(30)]
    return losses, {"cycles": trainer.cycleCount() > 0}
