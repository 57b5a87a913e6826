"""Clusters of a large graph as padded batches, for a model with poptorch.Options."""

from typing import Any, Dict, Optional

import poptorch

from .fixed_size_options import FixedSizeOptions
from .pyg_cluster_loader import planClusters
from .pyg_dataloader import OverSizeStrategy


class FixedSizeClusterLoader(poptorch.DataLoader):
    """`batch_size` clusters of a torch_geometric.loader.ClusterData as one graph, and padding.

    :param fixed_size_options: the sizes; by default they hold the batches of one epoch in order.
    :param over_size_strategy: what to do when shuffled clusters have more nodes or edges than that.
    :param add_pad_masks: add graphs_mask, nodes_mask and edges_mask to batches.
    :param collater_args: more arguments of FixedSizeCollater.
    :param options: of the model.
    """

    def __init__(self, cluster_data: Any, fixed_size_options: Optional[FixedSizeOptions] = None, batch_size: int = 1,
                 over_size_strategy: OverSizeStrategy = OverSizeStrategy.TrimNodesAndEdges, add_pad_masks: bool = True,
                 collater_args: Optional[Dict[str, Any]] = None, options: Optional[poptorch.Options] = None,
                 shuffle: bool = False, drop_last: bool = True, **kwargs: Any) -> None:
        planned = planClusters(cluster_data, batch_size, shuffle, fixed_size_options, over_size_strategy, add_pad_masks,
                               drop_last, collater_args)
        super().__init__(options or poptorch.Options(), drop_last=drop_last, **planned, **kwargs)
