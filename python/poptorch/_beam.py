"""The search behind poptorch.ctc_beam_search_decoder."""

import math
from typing import Dict, List, Tuple

import torch

Path = Tuple[int, ...]
_NONE = -math.inf


def _add(a: float, b: float) -> float:
    """log(exp(a) + exp(b))"""
    high, low = max(a, b), min(a, b)
    return high if low == _NONE else high + math.log1p(math.exp(low - high))


class Decoder:
    """Keeps, step by step, the `width` labellings that are most probable so far. Of each it knows the probability that
    it ends in a blank and that it ends in its last label: only the former can have the same label once more."""

    def __init__(self, blank: int, width: int, top: int) -> None:
        self.blank = blank
        self.width = width
        self.top = top

    def __call__(self, logs: torch.Tensor, lengths: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        steps, batch, _ = logs.shape
        probabilities = torch.zeros(batch, self.top)
        counts = torch.zeros(batch, self.top, dtype=torch.int32)
        labels = torch.full((batch, self.top, steps), self.blank, dtype=torch.int32)
        for b in range(batch):
            for i, (path, log) in enumerate(self._search(logs[:int(lengths[b]), b].double().tolist())):
                probabilities[b, i] = math.exp(log)
                counts[b, i] = len(path)
                labels[b, i, :len(path)] = torch.tensor(path, dtype=torch.int32)
        return probabilities, counts, labels

    def _search(self, logs: List[List[float]]) -> List[Tuple[Path, float]]:
        beams: Dict[Path, Tuple[float, float]] = {(): (0.0, _NONE)}
        for step in logs:
            found: Dict[Path, Tuple[float, float]] = {}
            for path, ends in beams.items():
                self._extend(path, ends, step, found)
            best = sorted(found, key=lambda p: -_add(*found[p]))[:self.width]
            beams = {p: found[p] for p in best}
        return [(p, _add(*ends)) for p, ends in beams.items()][:self.top]

    def _extend(self, path: Path, ends: Tuple[float, float], step: List[float],
                found: Dict[Path, Tuple[float, float]]) -> None:
        blank, label = ends
        both = _add(blank, label)
        for c, log in enumerate(step):
            if c == self.blank:
                self._put(found, path, both + log, _NONE)
            elif path and c == path[-1]:
                self._put(found, path, _NONE, label + log)
                self._put(found, path + (c,), _NONE, blank + log)
            else:
                self._put(found, path + (c,), _NONE, both + log)

    @staticmethod
    def _put(found: Dict[Path, Tuple[float, float]], path: Path, blank: float, label: float) -> None:
        old = found.get(path, (_NONE, _NONE))
        found[path] = _add(old[0], blank), _add(old[1], label)
