"""Half precision in all the ways programs ask for it: weights, sums, a scale that finds itself, norms in float32."""

import torch
import torch.nn as nn
import torch.nn.functional as F

import poptorch


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.norm, self.two = nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 2)

    def forward(self, x, y):
        x = self.two(torch.relu(self.norm(self.one(x))))
        return x, F.cross_entropy(x.float(), y)


def main():
    torch.manual_seed(0)
    x, y = torch.randn(32, 8), torch.arange(32) % 2
    x[:, 0] += y * 4
    result = {}
    for name in ("plain", "automatic", "bfloat"):
        model = Net().half() if name != "bfloat" else Net().bfloat16()
        if name == "plain":
            model.norm.float()
        opts = poptorch.Options()
        opts.Precision.setPartialsType(torch.half)
        opts.Precision.runningStatisticsAlwaysFloat(True)
        opts.Training.gradientAccumulation(2)
        opts.Training.setAutomaticLossScaling(name == "automatic")
        scale = {} if name == "automatic" else {"loss_scaling": 64.0}
        optimizer = poptorch.optim.AdamW(model.parameters(), lr=0.02, accum_type=torch.float32, **scale,
                                         first_order_momentum_accum_type=torch.float32, second_order_momentum_accum_type=torch.float32)
        trainer = poptorch.trainingModel(model, opts, optimizer)
        given = x.half() if name != "bfloat" else x.bfloat16()
        result[name] = [trainer(given, y)[1].float().item() for _ in range(25)]
        assert next(model.parameters()).dtype == given.dtype
    return result["plain"], {name: (v[0], v[-1]) for name, v in result.items()}
