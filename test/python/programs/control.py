"""Loops and branches on the device, slices at a tensor's place, an operation of the host in the middle, names and prints."""

import torch
import torch.nn as nn

import poptorch


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.step = nn.Linear(4, 4)
        self.cpu = poptorch.CPU(self.on_host, "host")

    def on_host(self, x):
        return x.sort(descending=True)[0]

    def forward(self, x, at):
        torch.ops.poptorch.push_name_scope("loop")
        x, = poptorch.for_loop(3, lambda t: [torch.tanh(self.step(t))], [x])
        torch.ops.poptorch.pop_name_scope()
        with poptorch.NameScope("choose"):
            x, = poptorch.cond(x.sum() > 0, lambda t: [t * 2], [x], lambda t: [t - 1], [x])
        part = poptorch.dynamic_slice(x, 1, at, 2, 1)
        x = poptorch.dynamic_update(x, part * 0, 1, at, 2)
        return poptorch.nop(x), part, self.cpu(part), poptorch.ipu_print_tensor(x.mean(), "mean of x")


def main():
    torch.manual_seed(0)
    net = Net()
    model = poptorch.inferenceModel(net, poptorch.Options())
    worst = 0.0
    for k in (0, 2):
        x = torch.randn(2, 4) * (1 - k)
        found = model(x, torch.tensor([k]))
        y = x
        for _ in range(3):
            y = torch.tanh(net.step(y))
        y = y * 2 if y.sum() > 0 else y - 1
        part, whole = y[:, k:k + 2].clone(), y.clone()
        whole[:, k:k + 2] = 0
        for a, b in zip(found, (whole, part, part.sort(descending=True)[0], whole.mean())):
            worst = max(worst, (a - b).abs().max().item())
    names = [n for n in model.getTensorNames() if "loop/" in n or "choose/" in n]
    return [worst], {"names": len(names)}
