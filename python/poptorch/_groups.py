"""Parameters with a value for each group of replicas, and buffers with one for each replica.

The host's tensor of such a parameter has the groups as its first dimension; forward is traced with the first of
them. Without broadcastBuffers each replica has its own buffers; the host's have the first one's.
"""

import contextlib
from typing import Any, Dict, Iterator, NamedTuple, Optional

import torch

from .enums import CommGroupType, VariableRetrievalMode
from .errors import check, createPoptorchError


class Grouping(NamedTuple):
    """What replicaGrouping() asked for."""

    kind: CommGroupType
    size: int    # replicas in a group
    read_all: bool

    def groups(self, replicas: int) -> int:
        """How many values there are."""
        return replicas // self.size

    def rows(self, replicas: int) -> int:
        """How many come back."""
        return replicas if self.read_all else self.groups(replicas)


def grouping(t: torch.Tensor, kind: Any, shards: Any, mode: Any, replicas: int) -> Optional[Grouping]:
    """The arguments of replicaGrouping(), checked. None: one value for all."""
    check(isinstance(kind, CommGroupType), f"Expected a CommGroupType, got {kind!r}")
    check(isinstance(shards, int) and not isinstance(shards, bool), f"shards must be an integer, got {shards!r}")
    check(isinstance(mode, VariableRetrievalMode), f"Expected a VariableRetrievalMode, got {mode!r}")
    if t.dim() == 0:
        raise createPoptorchError("A parameter of rank 0 cannot be grouped")
    if kind == CommGroupType.All:
        return None
    size = 1 if kind == CommGroupType.NoGrouping else shards
    if size < 1 or replicas % size:
        raise createPoptorchError(f"replicaGrouping: {replicas} replicas (replicationFactor) cannot be divided into "
                                  f"groups of {size}")
    return Grouping(kind, size, mode == VariableRetrievalMode.AllReplicas)


def checkShape(name: str, t: torch.Tensor, group: Grouping, replicas: int) -> None:
    """An Error unless the first dimension of t is that of its groups."""
    allowed = {group.groups(replicas), group.rows(replicas)}
    if t.dim() == 0 or t.shape[0] not in allowed:
        raise createPoptorchError(f"replicaGrouping: {name} has shape {tuple(t.shape)}; its first dimension must be "
                                  f"{' or '.join(map(str, sorted(allowed)))}, the groups that {replicas} replicas are "
                                  "divided into")


@contextlib.contextmanager
def firstRows(tensors: Dict[str, torch.Tensor]) -> Iterator[None]:
    """A context in which these have the value of their first group only."""
    whole = [(t, t.data) for t in tensors.values()]
    for t, data in whole:
        t.data = data[0]
    try:
        yield
    finally:
        for t, data in whole:
            t.data = data
