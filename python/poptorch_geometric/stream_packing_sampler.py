"""Batches of as many graphs as fit, in the order in which they come."""

from typing import Any, Iterator, List, Optional

import torch.utils.data
from torch.utils.data import SequentialSampler

from poptorch.errors import createPoptorchError


class StreamPackingSampler(torch.utils.data.Sampler):
    """Lists of indices whose graphs have at most so many graphs, nodes and edges together.

    :param data_source: the dataset.
    :param base_sampler: the order; by default that of the dataset.
    :param allow_skip_data: leave out a graph that alone is too large, instead of an Error.
    """

    def __init__(self, data_source: Any, max_num_graphs: int, max_num_nodes: Optional[int] = None,
                 max_num_edges: Optional[int] = None, base_sampler: Any = None, allow_skip_data: bool = False) -> None:
        self.data_source = data_source
        self.base_sampler = SequentialSampler(data_source) if base_sampler is None else base_sampler
        self.limits = (max_num_graphs, max_num_nodes, max_num_edges)
        self.allow_skip_data = allow_skip_data

    def __iter__(self) -> Iterator[List[int]]:
        batch: List[int] = []
        total = (0, 0, 0)
        for i in self.base_sampler:
            graph = self.data_source[i]
            size = (1, graph.num_nodes, graph.num_edges)
            if not self._fits(size):
                self._tooLarge(i, size)
                continue
            together = (total[0] + size[0], total[1] + size[1], total[2] + size[2])
            if batch and not self._fits(together):
                yield batch
                batch, together = [], size
            batch.append(int(i))
            total = together
        if batch:
            yield batch

    def _fits(self, size: Any) -> bool:
        return all(limit is None or n <= limit for n, limit in zip(size, self.limits))

    def _tooLarge(self, i: int, size: Any) -> None:
        if not self.allow_skip_data:
            raise createPoptorchError(f"Graph {int(i)} has {size[1]} nodes and {size[2]} edges, and a batch has room for "
                                      f"{self.limits[1]} and {self.limits[2]}. OverSizeStrategy.Skip leaves it out")

    def __len__(self) -> int:
        """Of the dataset's own order; another order packs another number."""
        if not isinstance(self.base_sampler, SequentialSampler):
            raise TypeError("How many batches are packed depends on the order, which is random")
        return sum(1 for _ in self)
