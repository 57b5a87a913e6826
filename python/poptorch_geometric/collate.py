"""FixedSizeCollater: graphs to a batch whose tensors have the shapes of FixedSizeOptions.

    graph 0 | graph 1 | ... | padding graph: the nodes and edges that are left | empty padding graphs

Edges of the padding are loops at its first node, so they change nothing that belongs to another graph.
"""

from typing import Any, Iterable, List, Optional, Sequence, Set

import torch
from torch_geometric.data import Batch, Data

from poptorch.errors import createPoptorchError

from .fixed_size_options import FixedSizeOptions, padValue


def make_exclude_keys(include_keys: Iterable[str], data: Any) -> List[str]:
    """The attributes of a graph that are not in include_keys."""
    return [key for key in keysOf(data) if key not in set(include_keys)]


def keysOf(data: Any) -> List[str]:
    """The names of a graph's attributes; a property in older releases."""
    return list(data.keys() if callable(data.keys) else data.keys)


class FixedSizeCollater:
    """Makes one batch of a list of graphs, or of one.

    :param fixed_size_options: the sizes.
    :param add_masks_to_batch: add graphs_mask, nodes_mask and edges_mask: False for padding.
    :param trim_nodes: leave out nodes, the last of each graph, when there are too many.
    :param trim_edges: the same of edges.
    :param skip: leave out graphs that do not fit.
    :param follow_batch: as torch_geometric's.
    :param exclude_keys: attributes to leave out.
    """

    def __init__(self, fixed_size_options: FixedSizeOptions, add_masks_to_batch: bool = False, trim_nodes: bool = False,
                 trim_edges: bool = False, follow_batch: Optional[Sequence[str]] = None,
                 exclude_keys: Optional[Sequence[str]] = None, skip: bool = False) -> None:
        if not isinstance(fixed_size_options, FixedSizeOptions):
            raise createPoptorchError(f"Expected FixedSizeOptions but got {type(fixed_size_options).__name__}")
        self.fixed_size_options = fixed_size_options
        self._masks = add_masks_to_batch
        self._trim_nodes, self._trim_edges, self._skip = trim_nodes, trim_edges, skip
        self._follow, self._exclude = list(follow_batch or ()), list(exclude_keys or ())
        self._no_nodes: Set[str] = set()    # attributes that had another size than the nodes in some graph
        self._no_edges: Set[str] = set()

    def learn(self, graphs: Iterable[Data]) -> "FixedSizeCollater":
        """Look at which attributes belong to nodes and which to edges. In a graph of three nodes three labels of the graph
        look like one of each node; in others they do not."""
        for g in graphs:
            for key in keysOf(g):
                if not g.is_node_attr(key):
                    self._no_nodes.add(key)
                if not g.is_edge_attr(key) and g.num_nodes != g.num_edges:    # else PyTorch Geometric goes by the name
                    self._no_edges.add(key)
        return self

    def __call__(self, data_list: Any) -> Batch:
        graphs = [data_list] if isinstance(data_list, Data) else list(data_list)
        for g in graphs:
            if not isinstance(g, Data):
                raise createPoptorchError(f"FixedSizeCollater takes graphs of type Data, got {type(g).__name__}")
        graphs = self._fitting(graphs)
        self._check(graphs)
        self.learn(graphs)
        sizes = self.fixed_size_options
        nodes, edges = sum(g.num_nodes for g in graphs), sum(g.num_edges for g in graphs)
        padding = [self._padding(graphs, sizes.num_nodes - nodes, sizes.num_edges - edges)]
        padding += [self._padding(graphs, 0, 0) for _ in range(sizes.num_graphs - len(graphs) - 1)]
        batch = Batch.from_data_list(graphs + padding, self._follow, self._exclude)
        if self._masks:
            batch.graphs_mask = _mask(sizes.num_graphs, len(graphs))
            batch.nodes_mask = _mask(sizes.num_nodes, nodes)
            batch.edges_mask = _mask(sizes.num_edges, edges)
        return batch

    def _fitting(self, graphs: List[Data]) -> List[Data]:
        """The graphs with what had to be left out."""
        sizes = self.fixed_size_options
        if self._skip:
            graphs = _thatFit(graphs, sizes)
        if self._trim_nodes:
            graphs = [_firstNodes(g, n) for g, n in zip(graphs, _shares([g.num_nodes for g in graphs], sizes.num_nodes - 1))]
        if self._trim_edges:
            graphs = [_firstEdges(g, n) for g, n in zip(graphs, _shares([g.num_edges for g in graphs], sizes.num_edges))]
        return graphs

    def _check(self, graphs: List[Data]) -> None:
        if not graphs:
            raise createPoptorchError("FixedSizeCollater: no graph of the batch fits in its size")
        sizes = self.fixed_size_options
        for what, found, room in (("graphs", len(graphs), sizes.num_graphs - 1),
                                  ("nodes", sum(g.num_nodes for g in graphs), sizes.num_nodes - 1),
                                  ("edges", sum(g.num_edges for g in graphs), sizes.num_edges)):
            if found > room:
                padding = "" if what == "edges" else f" beside one of padding (num_{what}={room + 1})"
                raise createPoptorchError(f"FixedSizeCollater: a batch has {found} {what}, and there is room for {room}"
                                          f"{padding}. Larger FixedSizeOptions or another OverSizeStrategy would help")

    def _padding(self, graphs: List[Data], nodes: int, edges: int) -> Data:
        like, sizes = graphs[0], self.fixed_size_options
        padding = Data()
        for key in keysOf(like):
            if key in self._exclude:
                continue
            value = like[key]
            if key == "num_nodes":
                padding.num_nodes = nodes
            elif key == "edge_index":
                padding.edge_index = value.new_zeros((2, edges))
            elif key not in self._no_nodes:
                padding[key] = _filled(like, key, nodes, padValue(sizes.node_pad_value, key))
            elif key not in self._no_edges and like.is_edge_attr(key):
                padding[key] = _filled(like, key, edges, padValue(sizes.edge_pad_value, key))
            else:
                padding[key] = self._ofGraph(key, value)
        if "num_nodes" not in keysOf(like) and padding.num_nodes != nodes:    # nothing of the graph tells
            padding.num_nodes = nodes
        return padding

    def _ofGraph(self, key: str, value: Any) -> Any:
        defaults, number = self.fixed_size_options.pad_graph_defaults, padValue(self.fixed_size_options.graph_pad_value, key)
        if key in defaults:
            return defaults[key]
        if isinstance(value, torch.Tensor):
            return torch.full_like(value, number)
        return type(value)(number) if isinstance(value, (bool, int, float)) else value


def _mask(size: int, real: int) -> torch.Tensor:
    return torch.arange(size) < real


def _filled(like: Data, key: str, count: int, number: float) -> torch.Tensor:
    shape = list(like[key].shape)
    shape[like.__cat_dim__(key, like[key])] = count
    return like[key].new_full(shape, number)


def _thatFit(graphs: List[Data], sizes: FixedSizeOptions) -> List[Data]:
    kept: List[Data] = []
    nodes, edges = sizes.num_nodes - 1, sizes.num_edges
    for g in graphs:
        if g.num_nodes <= nodes and g.num_edges <= edges and len(kept) < sizes.num_graphs - 1:
            kept.append(g)
            nodes, edges = nodes - g.num_nodes, edges - g.num_edges
    return kept


def _shares(counts: List[int], room: int) -> List[int]:
    """How much of each is kept, in proportion."""
    total = sum(counts)
    return counts if total <= room else [n * room // total for n in counts]


def _firstNodes(g: Data, count: int) -> Data:
    return g if count >= g.num_nodes else g.subgraph(torch.arange(count))


def _firstEdges(g: Data, count: int) -> Data:
    return g if count >= g.num_edges else g.edge_subgraph(torch.arange(count))
