"""Collating without padding, for loaders that make several micro-batches of one list."""

from typing import Any, Callable, List, Optional, Sequence

from torch_geometric.data import Batch

from poptorch.data import combine
from poptorch.errors import createPoptorchError


class Collater:
    """Graphs to a batch, as torch_geometric has it."""

    def __init__(self, follow_batch: Optional[Sequence[str]] = None, exclude_keys: Optional[Sequence[str]] = None) -> None:
        self._follow, self._exclude = list(follow_batch or ()), list(exclude_keys or ())

    def __call__(self, data_list: List[Any]) -> Batch:
        return Batch.from_data_list(list(data_list), self._follow, self._exclude)


class CombinedBatchingCollater:
    """Every `mini_batch_size` graphs by themselves with `collater`, and the batches one after the other along dim 0."""

    def __init__(self, mini_batch_size: int, collater: Optional[Callable] = None) -> None:
        self.mini_batch_size = mini_batch_size
        self._collater = collater or Collater()

    def __call__(self, data_list: List[Any]) -> Any:
        size = self.mini_batch_size
        if len(data_list) % size:
            raise createPoptorchError(f"{len(data_list)} graphs are no whole number of micro-batches of {size}")
        return combine([self._collater(data_list[i:i + size]) for i in range(0, len(data_list), size)])
