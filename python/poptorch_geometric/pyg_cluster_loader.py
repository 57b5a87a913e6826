"""Clusters of a large graph as padded batches, on top of torch's own loader."""

from typing import Any, Dict, Optional

import torch.utils.data
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler
from torch_geometric.loader import ClusterLoader

from .collate import FixedSizeCollater
from .fixed_size_options import FixedSizeOptions
from .pyg_dataloader import OverSizeStrategy


class ClusterCollater:
    """Clusters by their numbers to one padded graph."""

    def __init__(self, cluster_data: Any, collate: FixedSizeCollater) -> None:
        self._clusters, self._collate = ClusterLoader(cluster_data), collate

    def __call__(self, numbers: Any) -> Any:
        return self._collate(self._clusters.collate_fn(list(numbers)))


def planClusters(cluster_data: Any, batch_size: int, shuffle: bool, fixed_size_options: Optional[FixedSizeOptions],
                 over_size_strategy: OverSizeStrategy, add_pad_masks: bool, drop_last: bool,
                 collater_args: Optional[Dict[str, Any]]) -> Dict[str, Any]:
    """The dataset, batch_sampler and collate_fn of a loader of clusters."""
    numbers = range(len(cluster_data))
    sizes = fixed_size_options or FixedSizeOptions.from_loader(ClusterLoader(cluster_data, batch_size=batch_size))
    collate = FixedSizeCollater(sizes, add_pad_masks, **over_size_strategy.trims, **(collater_args or {}))
    order = RandomSampler(numbers) if shuffle else SequentialSampler(numbers)    # type: ignore[arg-type]
    return {"dataset": numbers, "batch_sampler": BatchSampler(order, batch_size, drop_last),
            "collate_fn": ClusterCollater(cluster_data, collate)}


class FixedSizeClusterLoader(torch.utils.data.DataLoader):
    """The arguments are those of cluster_loader.FixedSizeClusterLoader without options."""

    def __init__(self, cluster_data: Any, fixed_size_options: Optional[FixedSizeOptions] = None, batch_size: int = 1,
                 over_size_strategy: OverSizeStrategy = OverSizeStrategy.TrimNodesAndEdges, add_pad_masks: bool = True,
                 collater_args: Optional[Dict[str, Any]] = None, shuffle: bool = False, drop_last: bool = False,
                 **kwargs: Any) -> None:
        super().__init__(**planClusters(cluster_data, batch_size, shuffle, fixed_size_options, over_size_strategy,
                                        add_pad_masks, drop_last, collater_args), **kwargs)
