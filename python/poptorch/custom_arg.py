"""Types of the user that hold tensors: how to take the tensors out, and how to put others in."""

import sys
from typing import Any, Dict, Iterator, Optional

import torch

from .errors import createPoptorchError


class ICustomArgParser:
    """Derive from this and register an instance with registerCustomArgParser."""

    def yieldTensors(self, struct: Any) -> Iterator[torch.Tensor]:
        """Every tensor of the structure, always in the same order."""
        raise NotImplementedError(f"{type(self).__name__} has no yieldTensors()")

    def reconstruct(self, original_structure: Any, tensor_iterator: Iterator[torch.Tensor]) -> Any:
        """A structure like `original_structure` with the next tensors of `tensor_iterator` in it."""
        raise NotImplementedError(f"{type(self).__name__} has no reconstruct()")


parsers: Dict[type, ICustomArgParser] = {}


def registerCustomArgParser(type: type, parser: Optional[ICustomArgParser]) -> None:
    """Use this parser for this type; with None, no longer."""
    if parser is None:
        parsers.pop(type, None)
        return
    if not isinstance(parser, ICustomArgParser):
        raise createPoptorchError(f"{parser!r} is not an instance of ICustomArgParser")
    parsers[type] = parser


def findParser(value: Any) -> Optional[ICustomArgParser]:
    """The parser of this value's own type, or of a type it is an instance of, or None."""
    if type(value) in parsers:
        return parsers[type(value)]
    if type(value).__module__.startswith("torch_geometric.data") and "poptorch_geometric" not in sys.modules:
        from poptorch_geometric.types import registerParsers    # graphs need no import of the program's
        registerParsers()
    return next((p for t, p in parsers.items() if isinstance(value, t)), None)


__all__ = ["ICustomArgParser", "registerCustomArgParser"]
