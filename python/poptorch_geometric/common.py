"""What programs share: the type of a batch, and sizes for aggregation."""

import functools
from typing import Any

import torch
from torch_geometric.data import Batch, Data
from torch_geometric.nn.aggr import Aggregation

#: The class of a batch of Data.
DataBatch = type(Batch(_base_cls=Data))


def set_aggregation_dim_size(module: torch.nn.Module, dim_size: int) -> torch.nn.Module:
    """Let every aggregation in the module have `dim_size` rows unless it is told another number: without one it looks at the
    largest index, whose value is not known when a model is compiled."""
    for m in module.modules():
        if isinstance(m, Aggregation):
            m._dim_size = dim_size
            m.__class__ = _sized(type(m))
    return module


@functools.lru_cache(None)
def _sized(kind: type) -> type:
    """The class with a number of rows of its own. A hook would be too late: __call__ looks at the index before."""
    if hasattr(kind, "_sized_of"):
        return kind

    def call(self: Any, x: Any, index: Any = None, ptr: Any = None, dim_size: Any = None, *args: Any, **kwargs: Any) -> Any:
        return kind.__call__(self, x, index, ptr, self._dim_size if dim_size is None else dim_size, *args, **kwargs)

    def reduce(self: Any, protocol: Any) -> Any:
        return _remade, (kind, self.__dict__)
    return type(kind.__name__, (kind,), {"__call__": call, "__reduce_ex__": reduce, "_sized_of": kind,
                                         "__module__": kind.__module__})


def _remade(kind: type, state: Any) -> Any:
    made = kind.__new__(kind)
    made.__dict__.update(state)
    made.__class__ = _sized(kind)
    return made
