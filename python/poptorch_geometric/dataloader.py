"""Loaders of padded batches for a model with poptorch.Options.

Each micro-batch is a batch of graphs by itself. One call's micro-batches lie one after the other along dim 0 of every
tensor: edge_index of four has the shape (8, edges), and forward() sees (2, edges).
"""

from typing import Any, Optional, Sequence

from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler

import poptorch

from .fixed_size_options import FixedSizeOptions
from .pyg_collate import Collater
from .pyg_dataloader import FixedSizeStrategy, OverSizeStrategy, plan


class DataLoader(poptorch.DataLoader):
    """Batches without padding: for graphs that have the same size."""

    def __init__(self, dataset: Any, batch_size: int = 1, shuffle: bool = False,
                 follow_batch: Optional[Sequence[str]] = None, exclude_keys: Optional[Sequence[str]] = None,
                 options: Optional[poptorch.Options] = None, drop_last: bool = True, **kwargs: Any) -> None:
        order = RandomSampler(dataset) if shuffle else SequentialSampler(dataset)
        super().__init__(options or poptorch.Options(), dataset, batch_sampler=BatchSampler(order, batch_size, drop_last),
                         collate_fn=Collater(follow_batch, exclude_keys), drop_last=drop_last, **kwargs)


class FixedSizeDataLoader(poptorch.DataLoader):
    """Padded batches of a dataset.

    :param batch_size: graphs of a micro-batch, one of padding among them; 1: those of fixed_size_options.
    :param shuffle: in another order every epoch.
    :param fixed_size_options: the sizes; by default they hold the largest graphs of the dataset.
    :param fixed_size_strategy: a number of graphs, or as many as fit.
    :param over_size_strategy: what to do with graphs that do not fit.
    :param add_pad_masks: add graphs_mask, nodes_mask and edges_mask to batches.
    :param follow_batch: as torch_geometric's.
    :param exclude_keys: attributes to leave out.
    :param options: of the model; by default one micro-batch a call.
    :param kwargs: of poptorch.DataLoader.
    """

    def __init__(self, dataset: Any, batch_size: int = 1, shuffle: bool = False,
                 fixed_size_options: Optional[FixedSizeOptions] = None,
                 fixed_size_strategy: FixedSizeStrategy = FixedSizeStrategy.PadToMax,
                 over_size_strategy: OverSizeStrategy = OverSizeStrategy.Error, add_pad_masks: bool = True,
                 follow_batch: Optional[Sequence[str]] = None, exclude_keys: Optional[Sequence[str]] = None,
                 options: Optional[poptorch.Options] = None, drop_last: bool = True, **kwargs: Any) -> None:
        planned = plan(dataset, batch_size, shuffle, fixed_size_options, fixed_size_strategy, over_size_strategy, add_pad_masks,
                       follow_batch, exclude_keys, False, kwargs.pop("batch_sampler", None))
        super().__init__(options or poptorch.Options(), dataset, drop_last=drop_last, **planned, **kwargs)


#: With a batch_sampler of one's own.
CustomFixedSizeDataLoader = FixedSizeDataLoader


def create_dataloader(dataset: Any, options: Optional[poptorch.Options] = None, batch_size: int = 2,
                      fixed_size_options: Optional[FixedSizeOptions] = None, **kwargs: Any) -> FixedSizeDataLoader:
    """A FixedSizeDataLoader for a model with these options."""
    return FixedSizeDataLoader(dataset, batch_size, fixed_size_options=fixed_size_options, options=options, **kwargs)
