"""How ipu_print_tensor writes a tensor: `title: ` and bracketed values, one row per line."""

import sys
from typing import Any, List

import torch

_FORMATS = {"auto": "g", "fixed": "f", "scientific": "e", "none": "g"}


class Print:
    """One call of ipu_print_tensor: its title and its layout."""

    def __init__(self, title: str, summarise_threshold: int, edge_items: int, max_line_width: int, digits: int,
                 float_format: str, separator: str, open_bracket: str, close_bracket: str) -> None:
        self.title = title
        self.threshold = summarise_threshold
        self.edge = edge_items
        self.width = max_line_width
        self.format = f".{digits}{_FORMATS[float_format]}"    # KeyError: as documented
        self.separator = separator
        self.brackets = open_bracket, close_bracket

    def __call__(self, t: torch.Tensor) -> None:
        """Write a tensor to stderr."""
        name = f"{self.title}: " if self.title else ""
        sys.stderr.write(f"{name}{self.text(t)}\n")

    def text(self, t: torch.Tensor) -> str:
        """The values alone."""
        summarise = self.threshold > 0 and t.numel() > self.threshold
        return self._rows(t.tolist(), summarise, 0)

    def _number(self, v: Any) -> str:
        return format(v, self.format) if isinstance(v, float) else str(v)

    def _cut(self, items: List, summarise: bool) -> List:
        if not summarise or len(items) <= 2 * self.edge:
            return items
        return [*items[:self.edge], ..., *items[len(items) - self.edge:]]

    def _rows(self, value: Any, summarise: bool, depth: int) -> str:
        if not isinstance(value, list):
            return self._number(value)
        items = ["..." if v is ... else self._rows(v, summarise, depth + 1) for v in self._cut(value, summarise)]
        inner = bool(value) and isinstance(value[0], list)
        joint = self.separator.rstrip() + "\n" + " " * (depth + 1) if inner else self.separator
        text = self.brackets[0] + joint.join(items) + self.brackets[1]
        return text if inner or len(text) <= self.width else self._wrapped(items, depth)

    def _wrapped(self, items: List[str], depth: int) -> str:
        lines, line = [], " " * depth + self.brackets[0]
        for i, item in enumerate(items):
            item += self.separator if i + 1 < len(items) else self.brackets[1]
            if len(line) + len(item) > self.width and line.strip():
                lines.append(line.rstrip())
                line = " " * (depth + 1)
            line += item
        return "\n".join([*lines, line]).lstrip()
