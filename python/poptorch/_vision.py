"""Operations of torchvision that are written in C++ there."""

import math
from typing import Any, Tuple

import torch

_T = torch.Tensor


def _sampled(start: _T, size: _T, cells: int, samples: int, pixels: int) -> _T:
    """[boxes, cells, pixels]: how much each pixel counts in each cell of boxes that begin at `start`. A cell is the mean of samples
    side by side, of `samples` or, if that is 0, of as many as it has pixels; one lies between two pixels, one beside the picture is 0."""
    cell = size / cells
    if samples > 0:
        most, count = samples, torch.full_like(cell, float(samples))
    else:
        most, count = pixels // cells + 2, cell.ceil()
        count = torch.where(count > most, float("nan"), count)    # of a box that is larger than the picture
    at = (torch.arange(most, dtype=start.dtype) + 0.5).view(1, 1, -1, 1)
    begin = (start.unsqueeze(1) + torch.arange(cells, dtype=start.dtype) * cell.unsqueeze(1)).view(-1, cells, 1, 1)
    place = begin + at * (cell / count).view(-1, 1, 1, 1)
    near = 1 - (place.clamp(0, pixels - 1) - torch.arange(pixels, dtype=start.dtype)).abs()
    counts = (place >= -1) & (place <= pixels) & (at < count.view(-1, 1, 1, 1))
    return torch.where(counts, near.clamp(min=0), 0.0).sum(2) / count.view(-1, 1, 1)


def roiAlign(x: _T, boxes: _T, *more: Any, **named: Any) -> _T:
    """Of boxes that a mask has chosen, what they make is chosen too."""
    from . import _trace    # which imports this
    t: Any = _trace.tracer()
    rows = t.rowsOf(boxes)
    if rows is None:
        return _roiAlign(x, boxes, *more, **named)
    with t.choosing():
        return t.markRows(_roiAlign(x, boxes, *more, **named), rows)


def _roiAlign(x: _T, boxes: _T, scale: float, rows: int, columns: int, samples: int = -1, aligned: bool = False) -> _T:
    """The mean of each cell of a box is a product of weights of rows and of columns. Boxes have no gradient."""
    boxes = boxes.detach().to(x.dtype)
    left, top, right, bottom = (boxes[:, i] * scale - (0.5 if aligned else 0.0) for i in range(1, 5))
    width, height = right - left, bottom - top
    if not aligned:
        width, height = width.clamp(min=1), height.clamp(min=1)
    of_rows = _sampled(top, height, rows, samples, x.shape[2])
    of_columns = _sampled(left, width, columns, samples, x.shape[3])
    mine = x.index_select(0, boxes[:, 0].long())
    return of_rows.unsqueeze(1) @ mine @ of_columns.transpose(1, 2).unsqueeze(1)


def _kept(boxes: _T, scores: _T, threshold: _T) -> Tuple[_T, _T]:
    """On the host: the places of what is kept, the best first, and which of them there are."""
    found = torch.ops.torchvision.nms(boxes, scores, threshold.item())
    places, there = torch.zeros(len(boxes), dtype=torch.int32), torch.zeros(len(boxes), dtype=torch.bool)
    places[:len(found)], there[:len(found)] = found.int(), True
    return places, there


def nms(boxes: _T, scores: _T, threshold: float) -> Any:
    """The host finds what is kept, in the middle of a run. How many those are is known then only: they are rows that a mask
    chooses (_chosen.py)."""
    from . import _chosen, _trace    # which import this
    t: Any = _trace.tracer()
    count = len(boxes)
    results = [torch.zeros(count, dtype=torch.int32), torch.zeros(count, dtype=torch.bool)]
    limit = t.claim(torch.full((1,), threshold, dtype=torch.float64))
    places, there = t.callHost(lambda *given: list(_kept(*given)), [boxes.detach(), scores.detach(), limit], results)
    if t.sized:
        t._note("torchvision::nms: a result whose size depends on values; take sums or means of what it keeps, or call it on what the model returns")
        return places.long()
    with t.choosing():
        return _chosen.choose(t, places.long(), there)
