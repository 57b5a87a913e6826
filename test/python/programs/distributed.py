"""As poprun starts it, or alone: what popdist says makes the options, each instance loads its share, the first one writes."""

import torch
import torch.nn as nn
import torch.nn.functional as F

import popdist
import popdist.poptorch
import poptorch


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 1)

    def forward(self, x, y):
        return F.mse_loss(self.fc(x), y)


def main():
    popdist.init()
    opts = popdist.poptorch.Options(ipus_per_replica=1) if popdist.isPopdistEnvSet() else poptorch.Options().replicationFactor(2)
    opts.deviceIterations(2).randomSeed(1)
    opts.Training.gradientAccumulation(2)
    torch.manual_seed(0)
    x = torch.randn(64, 4)
    data = torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True))
    loader = poptorch.DataLoader(opts, data, batch_size=2, shuffle=True, drop_last=True)
    model = Net()
    trainer = poptorch.trainingModel(model, opts, torch.optim.SGD(model.parameters(), lr=0.1))
    losses = [trainer(*batch).mean().item() for _ in range(5) for batch in loader]
    if popdist.getInstanceIndex() == 0:
        trainer.copyWeightsToHost()
    return losses, {"instances": popdist.getNumInstances(), "replicas": popdist.getNumTotalReplicas()}
