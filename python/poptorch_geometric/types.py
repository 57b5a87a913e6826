"""Graphs as arguments of a model: which tensors a Data has, and how it is made again."""

import copy
from typing import Any, Iterator, List

import torch
from torch_geometric.data import Data, HeteroData

import poptorch
from poptorch.errors import createPoptorchError

from .collate import keysOf


class PyGArgsParser(poptorch.ICustomArgParser):
    """Of Data, and of a Batch of them: the tensors by name."""

    @staticmethod
    def sortedTensorKeys(struct: Any) -> List[str]:
        """The names of the attributes that are tensors."""
        return sorted(key for key in keysOf(struct) if isinstance(struct[key], torch.Tensor))

    def yieldTensors(self, struct: Any) -> Iterator[torch.Tensor]:
        """Those tensors."""
        for key in self.sortedTensorKeys(struct):
            yield struct[key]

    def reconstruct(self, original_structure: Any, tensor_iterator: Iterator[torch.Tensor]) -> Any:
        """A graph like the original one."""
        other = copy.copy(original_structure)
        for key in self.sortedTensorKeys(original_structure):
            other[key] = next(tensor_iterator)
        return other


class _Refusing(poptorch.ICustomArgParser):
    """Of graphs of several types."""

    def yieldTensors(self, struct: Any) -> Iterator[torch.Tensor]:
        raise createPoptorchError("Graphs of several types (HeteroData) are not supported as arguments: pass their tensors")


def registerParsers() -> None:
    """Let models take graphs."""
    poptorch.registerCustomArgParser(Data, PyGArgsParser())
    poptorch.registerCustomArgParser(HeteroData, _Refusing())
