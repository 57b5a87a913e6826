"""Neighbourhoods of a large graph's nodes as padded batches. torch_geometric's own loader draws them."""

from typing import Any, Dict, List, Optional, Union

from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler
from torch_geometric.loader import NeighborLoader

import poptorch

from .collate import FixedSizeCollater
from .fixed_size_options import FixedSizeOptions
from .pyg_dataloader import OverSizeStrategy


class NeighborCollater:
    """Nodes by their numbers to one padded graph of what lies around them."""

    def __init__(self, loader: NeighborLoader, collate: FixedSizeCollater) -> None:
        self._loader, self._collate = loader, collate

    def __call__(self, nodes: Any) -> Any:
        return self._collate(self._loader(list(nodes)))


class FixedSizeNeighborLoader(poptorch.DataLoader):
    """A graph of `batch_size` nodes and neighbours of theirs, and padding. The nodes come first in it.

    :param num_neighbors: how many neighbours of each node are drawn, in every step outwards.
    :param fixed_size_options: the sizes; by default they hold the batches of one epoch.
    :param over_size_strategy: what to do when there are more nodes or edges than that.
    :param add_pad_masks: add graphs_mask, nodes_mask and edges_mask to batches.
    :param collater_args: more arguments of FixedSizeCollater.
    :param options: of the model.
    :param kwargs: of NeighborLoader (input_nodes, replace, ...), and of poptorch.DataLoader.
    """

    _OF_LOADER = ("num_workers", "persistent_workers", "mode", "async_options", "auto_distributed_partitioning",
                  "worker_init_fn", "prefetch_factor")

    def __init__(self, data: Any, num_neighbors: Union[List[int], Dict[Any, List[int]]],
                 fixed_size_options: Optional[FixedSizeOptions] = None, batch_size: int = 1,
                 over_size_strategy: OverSizeStrategy = OverSizeStrategy.Error, add_pad_masks: bool = True,
                 collater_args: Optional[Dict[str, Any]] = None, options: Optional[poptorch.Options] = None,
                 shuffle: bool = False, drop_last: bool = True, **kwargs: Any) -> None:
        ours = {k: kwargs.pop(k) for k in self._OF_LOADER if k in kwargs}
        drawn = NeighborLoader(data, num_neighbors, batch_size=batch_size, **kwargs)
        sizes = fixed_size_options or FixedSizeOptions.from_loader(drawn)
        nodes = drawn.dataset
        order = RandomSampler(nodes) if shuffle else SequentialSampler(nodes)
        collate = FixedSizeCollater(sizes, add_pad_masks, **over_size_strategy.trims, **(collater_args or {}))
        super().__init__(options or poptorch.Options(), nodes, batch_sampler=BatchSampler(order, batch_size, drop_last),
                         collate_fn=NeighborCollater(drawn, collate), drop_last=drop_last, **ours)
