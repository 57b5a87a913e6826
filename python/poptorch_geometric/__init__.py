"""Graphs of fixed size for torch_geometric: a compiled model takes tensors of one shape, and graphs have any number of nodes.

    import poptorch_geometric as ptg

    opts = poptorch.Options().deviceIterations(4)
    sizes = ptg.FixedSizeOptions(num_nodes=300, num_edges=1000, num_graphs=10)    # nine graphs, and one of padding
    for batch in ptg.FixedSizeDataLoader(dataset, batch_size=10, fixed_size_options=sizes, options=opts):
        out, loss = model(batch)

Batches have masks of what is no padding. Importing this package lets models take torch_geometric's Data and Batch as
arguments. Graphs of several types (HeteroData) are refused.
"""

try:
    import torch_geometric as _torch_geometric  # noqa: F401
except ImportError as e:
    raise ImportError("poptorch_geometric needs the package torch_geometric, which is not installed") from e

import poptorch as _poptorch

from . import common, ops, types  # noqa: F401
from .cluster_loader import FixedSizeClusterLoader
from .collate import FixedSizeCollater, make_exclude_keys
from .common import DataBatch, set_aggregation_dim_size
from .dataloader import CustomFixedSizeDataLoader, DataLoader, FixedSizeDataLoader, create_dataloader
from .fixed_size_options import FixedSizeOptions
from .neighbor_loader import FixedSizeNeighborLoader
from .pyg_cluster_loader import FixedSizeClusterLoader as PyGFixedSizeClusterLoader  # noqa: F401
from .pyg_collate import Collater, CombinedBatchingCollater
from .pyg_dataloader import FixedSizeStrategy, OverSizeStrategy
from .stream_packing_sampler import StreamPackingSampler

__version__ = _poptorch.__version__

__all__ = [
    "Collater", "CombinedBatchingCollater", "CustomFixedSizeDataLoader", "DataBatch", "DataLoader", "FixedSizeClusterLoader",
    "FixedSizeCollater", "FixedSizeDataLoader", "FixedSizeNeighborLoader", "FixedSizeOptions", "FixedSizeStrategy",
    "OverSizeStrategy", "StreamPackingSampler", "create_dataloader", "make_exclude_keys", "set_aggregation_dim_size",
]

types.registerParsers()
