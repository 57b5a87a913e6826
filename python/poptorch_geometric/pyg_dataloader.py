"""Loaders of padded batches on top of torch's own loader. dataloader.py has those for a model's Options."""

import enum
from typing import Any, Dict, Optional, Sequence

import torch.utils.data
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler

from poptorch.errors import createPoptorchError

from .collate import FixedSizeCollater
from .fixed_size_options import FixedSizeOptions
from .stream_packing_sampler import StreamPackingSampler


#: Graphs of a dataset that are looked at to tell attributes of nodes from those of the graph.
_LOOKED_AT = 100


class FixedSizeStrategy(enum.Enum):
    """How batches get their size."""

    PadToMax = 0      #: batch_size - 1 graphs, and padding
    StreamPack = 1    #: as many graphs as fit, and padding


class OverSizeStrategy(enum.Enum):
    """What to do with graphs that do not fit."""

    Error = 0
    Skip = 1                 #: leave out graphs
    TrimNodes = 2            #: leave out nodes, and their edges
    TrimEdges = 3            #: leave out edges
    TrimNodesAndEdges = 4    #: both

    @property
    def trims(self) -> Dict[str, bool]:
        """For a FixedSizeCollater."""
        return {"trim_nodes": self in (OverSizeStrategy.TrimNodes, OverSizeStrategy.TrimNodesAndEdges),
                "trim_edges": self in (OverSizeStrategy.TrimEdges, OverSizeStrategy.TrimNodesAndEdges),
                "skip": self is OverSizeStrategy.Skip}


def plan(dataset: Any, batch_size: int, shuffle: bool, fixed_size_options: Optional[FixedSizeOptions],
         fixed_size_strategy: FixedSizeStrategy, over_size_strategy: OverSizeStrategy, add_pad_masks: bool,
         follow_batch: Optional[Sequence[str]], exclude_keys: Optional[Sequence[str]], drop_last: bool,
         batch_sampler: Any = None) -> Dict[str, Any]:
    """The batch_sampler and collate_fn of a loader; a batch_size counts the padding graph."""
    sizes = fixed_size_options
    if sizes is None:
        sizes = FixedSizeOptions.from_dataset(dataset, max(batch_size, 2))
    if batch_sampler is None:
        graphs = (batch_size if batch_size > 1 else sizes.num_graphs) - 1
        if graphs > sizes.num_graphs - 1:
            raise createPoptorchError(f"batch_size={batch_size} counts one graph of padding, as "
                                      f"FixedSizeOptions.num_graphs={sizes.num_graphs} does, and must not be greater")
        order = RandomSampler(dataset) if shuffle else SequentialSampler(dataset)
        if fixed_size_strategy is FixedSizeStrategy.StreamPack:
            batch_sampler = StreamPackingSampler(dataset, graphs, sizes.num_nodes - 1, sizes.num_edges, order,
                                                 over_size_strategy is OverSizeStrategy.Skip)
        else:
            batch_sampler = BatchSampler(order, graphs, drop_last)
    collate = FixedSizeCollater(sizes, add_pad_masks, follow_batch=follow_batch, exclude_keys=exclude_keys,
                                **over_size_strategy.trims)
    collate.learn(dataset[i] for i in range(min(len(dataset), _LOOKED_AT)))
    return {"batch_sampler": batch_sampler, "collate_fn": collate}


class FixedSizeDataLoader(torch.utils.data.DataLoader):
    """Padded batches of a dataset; the arguments are those of dataloader.FixedSizeDataLoader without options."""

    def __init__(self, dataset: Any, batch_size: int = 1, shuffle: bool = False,
                 fixed_size_options: Optional[FixedSizeOptions] = None,
                 fixed_size_strategy: FixedSizeStrategy = FixedSizeStrategy.PadToMax,
                 over_size_strategy: OverSizeStrategy = OverSizeStrategy.Error, add_pad_masks: bool = True,
                 follow_batch: Optional[Sequence[str]] = None, exclude_keys: Optional[Sequence[str]] = None,
                 drop_last: bool = False, **kwargs: Any) -> None:
        planned = plan(dataset, batch_size, shuffle, fixed_size_options, fixed_size_strategy, over_size_strategy, add_pad_masks,
                       follow_batch, exclude_keys, drop_last, kwargs.pop("batch_sampler", None))
        super().__init__(dataset, **planned, **kwargs)


#: With a batch_sampler of one's own.
CustomFixedSizeDataLoader = FixedSizeDataLoader
