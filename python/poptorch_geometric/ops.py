"""Neighbours of points, with results of a fixed size: where a point has fewer neighbours than asked for, both ends of the
edge are -1."""

import math
from typing import Any, Optional

import torch

from poptorch import fps, nearest  # noqa: F401
from poptorch.errors import createPoptorchError


def _distances(x: torch.Tensor, y: torch.Tensor, batch_x: Any, batch_y: Any, cosine: bool) -> torch.Tensor:
    """Of each point of y from each of x; infinite for points of another example."""
    if (batch_x is None) != (batch_y is None):
        raise createPoptorchError("Points of both need a batch, or of neither")
    x, y = (t.unsqueeze(1) if t.dim() == 1 else t for t in (x, y))
    if cosine:
        far = 1 - torch.nn.functional.normalize(y, dim=1) @ torch.nn.functional.normalize(x, dim=1).T
    else:
        far = (y.unsqueeze(1) - x.unsqueeze(0)).square().sum(-1)
    return far if batch_x is None else far.masked_fill(batch_y.unsqueeze(1) != batch_x.unsqueeze(0), math.inf)


def _edges(far: torch.Tensor, k: int, limit: float = math.inf) -> torch.Tensor:
    """The k nearest places of each row nearer than the limit, as [2, rows * k]."""
    rows, columns = far.shape
    least, place = far.topk(min(k, columns), dim=1, largest=False)
    if k > columns:
        least = torch.cat([least, least.new_full((rows, k - columns), math.inf)], 1)
        place = torch.cat([place, place.new_zeros((rows, k - columns))], 1)
    found = (least < math.inf) & (least <= limit)
    row = torch.arange(rows, device=far.device).unsqueeze(1).expand(rows, k)
    return torch.stack([row, place]).masked_fill(~found, -1).reshape(2, rows * k)


def _flow(edges: torch.Tensor, flow: str) -> torch.Tensor:
    if flow not in ("source_to_target", "target_to_source"):
        raise createPoptorchError(f"flow is source_to_target or target_to_source, got {flow!r}")
    return edges.flip(0) if flow == "source_to_target" else edges


def _withoutLoops(far: torch.Tensor) -> torch.Tensor:
    return far.masked_fill(torch.eye(len(far), dtype=torch.bool, device=far.device), math.inf)


def knn(x: torch.Tensor, y: torch.Tensor, k: int, batch_x: Optional[torch.Tensor] = None,
        batch_y: Optional[torch.Tensor] = None, cosine: bool = False) -> torch.Tensor:
    """For each point of y the k nearest of x: their places, (y, x), as [2, k * points of y]."""
    return _edges(_distances(x, y, batch_x, batch_y, cosine), k)


def knn_graph(x: torch.Tensor, k: int, batch: Optional[torch.Tensor] = None, loop: bool = False,
              flow: str = "source_to_target", cosine: bool = False) -> torch.Tensor:
    """Edges from the k nearest points to each point, as [2, k * points]; with `loop` it is one of them."""
    far = _distances(x, x, batch, batch, cosine)
    return _flow(_edges(far if loop else _withoutLoops(far), k), flow)


def radius(x: torch.Tensor, y: torch.Tensor, r: float, batch_x: Optional[torch.Tensor] = None,
           batch_y: Optional[torch.Tensor] = None, max_num_neighbors: int = 32) -> torch.Tensor:
    """For each point of y those of x at most r away, the nearest max_num_neighbors of them: (y, x), as
    [2, max_num_neighbors * points of y]."""
    return _edges(_distances(x, y, batch_x, batch_y, False), max_num_neighbors, r * r)


def radius_graph(x: torch.Tensor, r: float, batch: Optional[torch.Tensor] = None, loop: bool = False,
                 max_num_neighbors: int = 32, flow: str = "source_to_target") -> torch.Tensor:
    """Edges from the points at most r away to each point, as [2, max_num_neighbors * points]."""
    far = _distances(x, x, batch, batch, False)
    return _flow(_edges(far if loop else _withoutLoops(far), max_num_neighbors, r * r), flow)


def knn_interpolate(x: torch.Tensor, pos_x: torch.Tensor, pos_y: torch.Tensor, batch_x: Optional[torch.Tensor] = None,
                    batch_y: Optional[torch.Tensor] = None, k: int = 3) -> torch.Tensor:
    """Features of points from those of the k nearest that have some, weighted by the inverse of their squared distance."""
    far = _distances(pos_x, pos_y, batch_x, batch_y, False)
    least, place = far.detach().topk(min(k, far.shape[1]), dim=1, largest=False)
    weight = 1 / least.clamp(min=1e-16)    # 0 for a point of another example
    chosen = x.index_select(0, place.flatten()).reshape(*place.shape, *x.shape[1:])
    weight = weight.reshape(*weight.shape, *[1] * (x.dim() - 1))
    return (chosen * weight).sum(1) / weight.sum(1)


__all__ = ["fps", "knn", "knn_graph", "knn_interpolate", "nearest", "radius", "radius_graph"]
