"""poptorch_geometric: padded batches have the sizes that were asked for, and training on them is that of PyTorch on the
graphs alone. Debian has no torch_geometric: there this is skipped."""

import pickle

import pytest
import torch

import poptorch

geometric = pytest.importorskip("torch_geometric", reason="torch_geometric is not installed")

import poptorch_geometric as ptg    # noqa: E402
from poptorch_geometric import ops, pyg_cluster_loader, pyg_dataloader    # noqa: E402
from poptorch_helpers import inference, nothing_cached, options    # noqa: E402,F401
from torch_geometric.data import Batch, Data, HeteroData    # noqa: E402
from torch_geometric.nn import GCNConv, global_add_pool    # noqa: E402
from torch_geometric.sampler import BaseSampler, SamplerOutput    # noqa: E402


def graph(nodes, edges, label=1.0):
    g = torch.Generator().manual_seed(nodes * 100 + edges)
    return Data(x=torch.randn(nodes, 3, generator=g), edge_index=torch.randint(nodes, (2, edges), generator=g),
                edge_attr=torch.randn(edges, 2, generator=g), y=torch.tensor([label]), size_of=nodes)


GRAPHS = [graph(3, 4, 0.5), graph(5, 9, 1.0), graph(2, 1, -1.0), graph(4, 4, 2.0), graph(6, 7, 0.0), graph(1, 1, 3.0)]
SIZES = ptg.FixedSizeOptions(num_nodes=13, num_edges=20, num_graphs=4)


def test_a_batch_has_its_size():
    batch = ptg.FixedSizeCollater(SIZES, add_masks_to_batch=True)(GRAPHS[:2])
    assert (batch.num_graphs, batch.num_nodes, batch.num_edges) == (4, 13, 20)
    assert batch.x.shape == (13, 3) and batch.edge_attr.shape == (20, 2) and batch.y.tolist() == [0.5, 1.0, 0, 0]
    assert batch.batch.tolist() == [0] * 3 + [1] * 5 + [2] * 5 and batch.ptr.tolist() == [0, 3, 8, 13, 13]
    assert batch.graphs_mask.tolist() == [True, True, False, False]
    assert (int(batch.nodes_mask.sum()), int(batch.edges_mask.sum())) == (8, 13)
    real = Batch.from_data_list(GRAPHS[:2])
    assert torch.equal(batch.x[:8], real.x) and torch.equal(batch.edge_index[:, :13], real.edge_index)
    assert set(batch.edge_index[:, 13:].flatten().tolist()) == {8}    # loops in the padding


def test_padding_holds_what_it_should():
    sizes = ptg.FixedSizeOptions(6, 8, 2, node_pad_value={"x": 7.0}, edge_pad_value=-1.0, graph_pad_value=9.0)
    batch = ptg.FixedSizeCollater(sizes)(GRAPHS[0])
    assert batch.x[3:].unique().tolist() == [7] and batch.edge_attr[4:].unique().tolist() == [-1]
    assert batch.y.tolist() == [0.5, 9.0] and batch.size_of.tolist() == [3, 9] and "nodes_mask" not in batch
    sizes = ptg.FixedSizeOptions(6, 8, 2, pad_graph_defaults={"y": torch.tensor([5.0])})
    assert ptg.FixedSizeCollater(sizes, exclude_keys=["edge_attr"])(GRAPHS[0]).y.tolist() == [0.5, 5.0]


@pytest.mark.parametrize("sizes, words", [((8, 20, 4), "8 nodes, and there is room for 7"),
                                          ((13, 12, 4), "13 edges, and there is room for 12"),
                                          ((13, 20, 2), "2 graphs, and there is room for 1")])
def test_what_does_not_fit_is_an_error(sizes, words):
    with pytest.raises(poptorch.Error, match=words):
        ptg.FixedSizeCollater(ptg.FixedSizeOptions(*sizes))(GRAPHS[:2])


def test_trimming_and_skipping():
    sizes = ptg.FixedSizeOptions(6, 6, 3)
    batch = ptg.FixedSizeCollater(sizes, True, trim_nodes=True, trim_edges=True)(GRAPHS[:2])
    assert batch.num_nodes == 6 and 0 < int(batch.nodes_mask.sum()) < 6 and int(batch.edges_mask.sum()) <= 6
    assert int(batch.edge_index.max()) < 6
    batch = ptg.FixedSizeCollater(sizes, True, skip=True)(GRAPHS[:3])    # the second one has five nodes
    assert batch.y.tolist() == [0.5, -1.0, 0.0] and int(batch.nodes_mask.sum()) == 5


def test_labels_of_a_graph_are_not_taken_for_those_of_nodes():
    """Three of a graph with three nodes, in a batch of nothing else."""
    few = [Data(x=torch.ones(n, 1), edge_index=torch.zeros(2, 4, dtype=torch.int64), y=torch.arange(3.0)) for n in (3, 2)]
    loader = ptg.FixedSizeDataLoader(few, 2, fixed_size_options=ptg.FixedSizeOptions(6, 5, 2))
    assert [b.y.tolist() for b in loader] == [[0, 1, 2, 0, 0, 0]] * 2


def test_options_are_checked():
    assert ptg.FixedSizeOptions(4).num_edges == 12 and ptg.FixedSizeOptions(4).num_graphs == 2
    with pytest.raises(poptorch.Error, match="num_graphs is a whole number of at least 2"):
        ptg.FixedSizeOptions(4, num_graphs=1)
    with pytest.raises(poptorch.Error, match="HeteroData"):
        ptg.FixedSizeOptions({"paper": 4})
    found = ptg.FixedSizeOptions.from_dataset(GRAPHS, 3)
    assert (found.num_nodes, found.num_edges, found.num_graphs) == (2 * 6 + 1, 2 * 9, 3)


def test_the_padding_strategy():
    loader = ptg.FixedSizeDataLoader(GRAPHS, batch_size=3, fixed_size_options=SIZES)
    batches = list(loader)
    assert len(loader) == len(batches) == 3
    assert [b.y[b.graphs_mask].tolist() for b in batches] == [[0.5, 1.0], [-1.0, 2.0], [0.0, 3.0]]
    with pytest.raises(poptorch.Error, match="must not be greater"):
        ptg.FixedSizeDataLoader(GRAPHS, batch_size=5, fixed_size_options=SIZES)


def test_the_packing_strategy():
    sizes = ptg.FixedSizeOptions(9, 14, 4)
    loader = ptg.FixedSizeDataLoader(GRAPHS, fixed_size_options=sizes, fixed_size_strategy=ptg.FixedSizeStrategy.StreamPack)
    assert [b.y[b.graphs_mask].tolist() for b in loader] == [[0.5, 1.0], [-1.0, 2.0], [0.0, 3.0]] and len(loader) == 3
    small = dict(fixed_size_options=ptg.FixedSizeOptions(5, 14, 4), fixed_size_strategy=ptg.FixedSizeStrategy.StreamPack)
    with pytest.raises(poptorch.Error, match="Graph 1 has 5 nodes and 9 edges"):
        list(ptg.FixedSizeDataLoader(GRAPHS, **small))
    found = list(ptg.FixedSizeDataLoader(GRAPHS, over_size_strategy=ptg.OverSizeStrategy.Skip, **small))
    assert sorted(y for b in found for y in b.y[b.graphs_mask].tolist()) == [-1.0, 0.5, 2.0, 3.0]
    with pytest.raises(TypeError, match="random"):
        len(ptg.StreamPackingSampler(GRAPHS, 3, base_sampler=torch.utils.data.RandomSampler(GRAPHS)))


def test_loaders_without_options_and_without_padding():
    loader = pyg_dataloader.FixedSizeDataLoader(GRAPHS, 3, fixed_size_options=SIZES, add_pad_masks=False)
    assert [b.num_nodes for b in loader] == [13] * 3
    same = [graph(3, 4, i) for i in range(4)]
    batch = next(iter(ptg.DataLoader(same, batch_size=2, options=poptorch.Options().deviceIterations(2))))
    assert batch.x.shape == (12, 3) and batch.edge_index.shape == (4, 8)
    assert int(batch.edge_index[2:].max()) < 6    # the second micro-batch counts from 0
    assert ptg.create_dataloader(GRAPHS, poptorch.Options(), 3).combinedBatchSize == 2
    with pytest.raises(poptorch.Error, match="no whole number"):
        ptg.CombinedBatchingCollater(3)(same)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.out = GCNConv(3, 8, add_self_loops=False), torch.nn.Linear(8, 1)

    def forward(self, batch):
        size = batch.y.shape[0]
        h = self.conv(batch.x, batch.edge_index).relu()
        y = self.out(global_add_pool(h, batch.batch, size)).squeeze(1)
        mask = batch.graphs_mask if "graphs_mask" in batch else torch.ones(size, dtype=torch.bool)
        loss = ((y - batch.y).square() * mask).sum() / mask.sum()
        return y, poptorch.identity_loss(loss, "none")


@pytest.mark.parametrize("mode", [poptorch.DataLoaderMode.Sync, poptorch.DataLoaderMode.Async])
def test_training_is_that_of_the_graphs_alone(mode):
    net, other = Net(), Net()
    opts = options().deviceIterations(3).outputMode(poptorch.OutputMode.All)
    model = poptorch.trainingModel(net, opts, torch.optim.SGD(net.parameters(), lr=0.05))
    loader = ptg.FixedSizeDataLoader(GRAPHS, 3, fixed_size_options=SIZES, options=opts, mode=mode)
    optimizer = torch.optim.SGD(other.parameters(), lr=0.05)
    for _ in range(3):
        losses = [loss for batch in loader for loss in model(batch)[1].tolist()]
        expected = []
        for i in range(0, 6, 2):
            optimizer.zero_grad()
            loss = other(Batch.from_data_list(GRAPHS[i:i + 2]))[1]
            loss.backward()
            optimizer.step()
            expected.append(loss.item())
        assert losses == pytest.approx(expected, rel=1e-4)
    loader.terminate()
    for a, b in zip(net.parameters(), other.parameters()):
        torch.testing.assert_close(a.detach(), b.detach(), rtol=1e-4, atol=1e-5)


def test_a_graph_is_an_argument_and_a_result():
    def net(g):
        g.x = g.x * 2
        return g
    out = inference(net)(GRAPHS[0])
    assert isinstance(out, Data) and torch.equal(out.x, 2 * GRAPHS[0].x) and out.size_of == 3
    with pytest.raises(poptorch.Error, match="HeteroData"):
        inference(lambda g: g["a"].x + 1)(HeteroData(a={"x": torch.ones(2, 1)}))


def test_aggregation_has_its_rows():
    from torch_geometric.nn.aggr import SumAggregation
    net = torch.nn.ModuleList([SumAggregation()])
    ptg.set_aggregation_dim_size(net, 4)
    out = poptorch.inferenceModel(Of(net[0]), options())(torch.ones(5, 2), torch.tensor([0, 0, 1, 1, 2]))
    assert out[:, 0].tolist() == [2, 2, 1, 0]
    assert net[0](torch.ones(1, 2), torch.tensor([0]), dim_size=2).shape == (2, 2)
    again = pickle.loads(pickle.dumps(net))
    assert again[0](torch.ones(1, 2), torch.tensor([0])).shape == (4, 2) and isinstance(again[0], SumAggregation)


class Of(torch.nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, *args):
        return self.layer(*args)




def test_clusters(monkeypatch):
    from torch_geometric.loader import ClusterData
    monkeypatch.setattr(ClusterData, "_metis", lambda self, edges, nodes: torch.arange(nodes) % 4)    # without METIS
    data = ClusterData(graph(12, 40), num_parts=4, log=False)
    loader = ptg.FixedSizeClusterLoader(data, batch_size=2, options=poptorch.Options())
    batches = list(loader)
    assert len({tuple(b.x.shape) for b in batches}) == 1
    assert sum(int(b.nodes_mask.sum()) for b in batches) == 12
    plain = pyg_cluster_loader.FixedSizeClusterLoader(data, batch_size=2)
    assert torch.equal(next(iter(plain)).x, batches[0].x)
    small = ptg.FixedSizeClusterLoader(data, ptg.FixedSizeOptions(4, 3), batch_size=2)    # trims
    assert all(b.x.shape == (4, 3) and b.edge_index.shape == (2, 3) for b in small)


class Neighbours(BaseSampler):
    """All edges into the nodes; torch_geometric's own need a package more."""

    def __init__(self, data):
        self.edge_index, self.num_nodes = data.edge_index, data.num_nodes

    def sample_from_edges(self, inputs, **kwargs):
        raise NotImplementedError

    def sample_from_nodes(self, inputs, **kwargs):
        edge = torch.isin(self.edge_index[1], inputs.node).nonzero().flatten()
        around = [n for n in self.edge_index[0][edge].unique().tolist() if n not in inputs.node.tolist()]
        node = torch.cat([inputs.node, torch.tensor(around, dtype=torch.int64)])
        place = torch.zeros(self.num_nodes, dtype=torch.int64)
        place[node] = torch.arange(len(node))
        row, col = place[self.edge_index[:, edge]]
        return SamplerOutput(node, row, col, edge, metadata=(inputs.input_id, None))


def test_neighbours():
    big = graph(12, 40)
    loader = ptg.FixedSizeNeighborLoader(big, [-1], batch_size=4, neighbor_sampler=Neighbours(big),
                                         options=poptorch.Options().deviceIterations(3))
    (batch,) = loader
    sizes = loader.collate_fn._collate.fixed_size_options
    assert batch.x.shape == (3 * sizes.num_nodes, 3) and batch.edge_index.shape == (6, sizes.num_edges)
    assert int(batch.edges_mask.sum()) == 40    # each goes into one of the nodes
    for i in range(3):
        assert torch.equal(batch.x[i * sizes.num_nodes:][:4], big.x[4 * i:4 * i + 4])
    tight = ptg.FixedSizeOptions(5, 50)
    with pytest.raises(poptorch.Error, match="nodes, and there is room for 4"):
        list(ptg.FixedSizeNeighborLoader(big, [-1], tight, 4, neighbor_sampler=Neighbours(big)))
    trimmed = ptg.FixedSizeNeighborLoader(big, [-1], tight, 4, ptg.OverSizeStrategy.TrimNodes, neighbor_sampler=Neighbours(big))
    assert [b.x.shape for b in trimmed] == [(5, 3)] * 3


# Neighbours of points.


def near(x, y, k, batch_x=None, batch_y=None):
    """The same in plain Python."""
    rows = []
    for i, p in enumerate(y):
        far = [(float((p - q).square().sum()), j) for j, q in enumerate(x)
               if batch_x is None or batch_x[j] == batch_y[i]]
        found = [j for _, j in sorted(far)[:k]]
        rows += [(i, j) for j in found] + [(-1, -1)] * (k - len(found))
    return rows


def pairs(edges):
    return list(map(tuple, edges.T.tolist()))


@pytest.mark.parametrize("k", [1, 3, 9])
def test_nearest_neighbours(k):
    torch.manual_seed(1)
    x, y = torch.randn(7, 3), torch.randn(4, 3)
    bx, by = torch.tensor([0, 0, 0, 0, 1, 1, 1]), torch.tensor([0, 1, 1, 0])
    assert pairs(inference(lambda x, y: ops.knn(x, y, k))(x, y)) == near(x, y, k)
    assert pairs(inference(lambda x, y, a, b: ops.knn(x, y, k, a, b))(x, y, bx, by)) == near(x, y, k, bx, by)


def test_graphs_of_points():
    x = torch.tensor([[0.0], [1.0], [3.0], [10.0]])
    assert pairs(inference(lambda x: ops.knn_graph(x, 1))(x)) == [(1, 0), (0, 1), (1, 2), (2, 3)]
    assert pairs(ops.knn_graph(x, 1, loop=True, flow="target_to_source")) == [(i, i) for i in range(4)]
    assert pairs(inference(lambda x: ops.radius(x, x, 2.0, max_num_neighbors=2))(x)) == \
        [(0, 0), (0, 1), (1, 1), (1, 0), (2, 2), (2, 1), (3, 3), (-1, -1)]
    assert pairs(ops.radius_graph(x, 2.0, max_num_neighbors=1)) == [(1, 0), (0, 1), (1, 2), (-1, -1)]
    assert pairs(ops.knn(torch.tensor([[1.0, 0], [0, 1]]), torch.tensor([[0.1, 5.0]]), 1, cosine=True)) == [(0, 1)]


def test_interpolation():
    x, px = torch.tensor([[1.0], [3.0], [100.0]]), torch.tensor([[0.0], [2.0], [50.0]])
    out = inference(lambda x, px, py: ops.knn_interpolate(x, px, py, k=2))(x, px, torch.tensor([[1.0], [0.0], [0.5]]))
    torch.testing.assert_close(out, torch.tensor([[2.0], [1.0], [(4 + 3 / 2.25) / (4 + 1 / 2.25)]]), rtol=1e-4, atol=1e-5)
