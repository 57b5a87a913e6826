"""Graphs in batches of one size, by poptorch_geometric: a convolution over edges, a pool over graphs, masks of padding."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, global_add_pool
from torch_geometric.utils import scatter

import poptorch
from poptorch_geometric import FixedSizeOptions, OverSizeStrategy
from poptorch_geometric.dataloader import FixedSizeDataLoader


def graphs(count=24):
    made = []
    for i in range(count):
        g = torch.Generator().manual_seed(i)
        nodes = 3 + i % 4
        edges = torch.randint(nodes, (2, 2 * nodes), generator=g)
        x = torch.full((nodes, 2), float(i % 2)) + torch.randn(nodes, 2, generator=g) * 0.1
        made.append(Data(x=x, edge_index=edges, y=torch.tensor([i % 2])))
    return made


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two, self.head = GCNConv(2, 8, add_self_loops=False), GCNConv(8, 8, add_self_loops=False), nn.Linear(8, 2)

    def forward(self, x, edge_index, batch, graphs_mask, y=None):
        x = self.two(self.one(x, edge_index).relu(), edge_index)
        spread = scatter(x, batch, 0, dim_size=graphs_mask.shape[0], reduce="sum")
        x = self.head(global_add_pool(x, batch, size=graphs_mask.shape[0]) + 0 * spread)
        if y is None:
            return x
        return x, F.cross_entropy(x, torch.where(graphs_mask, y, -100))


def main():
    torch.manual_seed(0)
    opts = poptorch.Options().deviceIterations(2)
    sizes = FixedSizeOptions(num_nodes=32, num_edges=64, num_graphs=5)
    loader = FixedSizeDataLoader(graphs(), batch_size=5, fixed_size_options=sizes, options=opts, add_pad_masks=True, drop_last=True,
                                 over_size_strategy=OverSizeStrategy.TrimNodesAndEdges)
    model = Net().train()
    trainer = poptorch.trainingModel(model, opts, poptorch.optim.Adam(model.parameters(), lr=0.02))
    losses = []
    for _ in range(12):
        for batch in loader:
            losses.append(trainer(batch.x, batch.edge_index, batch.batch, batch.graphs_mask, batch.y)[1].item())
    return losses, None
