"""How large a batch of graphs is, padding included, and what the padding holds."""

from typing import Any, Dict, Iterable, Optional, Union

from poptorch.errors import createPoptorchError

PadValues = Union[float, Dict[str, float]]


class FixedSizeOptions:
    """The sizes of every batch.

    :param num_nodes: nodes, at least one of them padding.
    :param num_edges: edges; by default those of a complete graph, num_nodes * (num_nodes - 1).
    :param num_graphs: graphs, at least one of them padding.
    :param node_pad_value: what attributes of padding nodes hold: one number, or one by the attribute's name.
    :param edge_pad_value: the same of edges.
    :param graph_pad_value: the same of graphs.
    :param pad_graph_defaults: whole values for attributes of a padding graph, by name; they win over graph_pad_value.
    """

    def __init__(self, num_nodes: int, num_edges: Optional[int] = None, num_graphs: int = 2,
                 node_pad_value: Optional[PadValues] = None, edge_pad_value: Optional[PadValues] = None,
                 graph_pad_value: Optional[PadValues] = None, pad_graph_defaults: Optional[Dict[str, Any]] = None) -> None:
        if isinstance(num_nodes, dict) or isinstance(num_edges, dict):
            raise createPoptorchError("FixedSizeOptions by type of node or edge: graphs of several types (HeteroData) are not "
                                      "supported")
        self.num_nodes = num_nodes
        self.num_edges = num_nodes * (num_nodes - 1) if num_edges is None else num_edges
        self.num_graphs = num_graphs
        for name, least in (("num_nodes", 1), ("num_edges", 0), ("num_graphs", 2)):
            value = getattr(self, name)
            if not isinstance(value, int) or value < least:
                raise createPoptorchError(f"FixedSizeOptions: {name} is a whole number of at least {least}, got {value!r}")
        self.node_pad_value = 0.0 if node_pad_value is None else node_pad_value
        self.edge_pad_value = 0.0 if edge_pad_value is None else edge_pad_value
        self.graph_pad_value = 0.0 if graph_pad_value is None else graph_pad_value
        self.pad_graph_defaults = dict(pad_graph_defaults or {})

    @property
    def total_num_nodes(self) -> int:
        """num_nodes: there is one type."""
        return self.num_nodes

    @property
    def total_num_edges(self) -> int:
        """num_edges: there is one type."""
        return self.num_edges

    @classmethod
    def from_dataset(cls, dataset: Any, batch_size: int, sample_limit: Optional[int] = None,
                     progress_bar: Optional[bool] = None) -> "FixedSizeOptions":
        """Sizes that hold any batch_size - 1 graphs of the dataset, or of its first `sample_limit`."""
        del progress_bar
        count = len(dataset) if sample_limit is None else min(sample_limit, len(dataset))
        return cls._largest((dataset[i] for i in range(count)), batch_size - 1, batch_size)

    @classmethod
    def from_loader(cls, loader: Iterable, sample_limit: Optional[int] = None,
                    progress_bar: Optional[bool] = None) -> "FixedSizeOptions":
        """Sizes that hold every batch of a loader, or of its first `sample_limit`, as one graph."""
        del progress_bar
        return cls._largest((b for i, b in enumerate(loader) if sample_limit is None or i < sample_limit), 1, 2)

    @classmethod
    def _largest(cls, graphs: Iterable, times: int, num_graphs: int) -> "FixedSizeOptions":
        sizes = [(g.num_nodes, g.num_edges) for g in graphs]
        if not sizes:
            raise createPoptorchError("FixedSizeOptions: there are no graphs to take sizes from")
        return cls(times * max(n for n, _ in sizes) + 1, times * max(e for _, e in sizes), num_graphs)

    def __repr__(self) -> str:
        return f"FixedSizeOptions({', '.join(f'{k}={v!r}' for k, v in vars(self).items())})"


def padValue(values: PadValues, key: str) -> float:
    """The number for an attribute."""
    return values.get(key, 0.0) if isinstance(values, dict) else values
