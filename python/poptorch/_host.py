"""What a graph calls while it runs: poptorch.CPU, ipu_print_tensor and anchors of gradients."""

import ctypes
from typing import Any, Callable, List, Optional, Sequence, Tuple

import torch

Spec = Tuple[torch.dtype, Tuple[int, ...]]


def _tensor(address: int, spec: Spec) -> torch.Tensor:
    """The engine's memory as a tensor."""
    dtype, shape = spec
    size = torch.Size(shape).numel() * torch.empty((), dtype=dtype).element_size()
    return torch.frombuffer((ctypes.c_char * size).from_address(address), dtype=dtype).view(shape)


def _tensors(addresses: int, specs: Sequence[Spec]) -> List[torch.Tensor]:
    found = (ctypes.c_void_p * len(specs)).from_address(addresses)
    return [_tensor(a, spec) for a, spec in zip(found, specs)]


class Host:
    """The functions of a compiled model, by id. The engine calls it in the middle of a run."""

    def __init__(self) -> None:
        self._calls: List[Tuple[Optional[Callable], List[Spec], List[Spec]]] = []

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, function: Optional[Callable], takes: Sequence[Spec], gives: Sequence[Spec] = ()) -> int:
        """The id of function(*tensors), which returns a list of tensors if it gives any. None does nothing."""
        self._calls.append((function, list(takes), list(gives)))
        return len(self._calls) - 1

    def __call__(self, which: int, inputs: int, results: int) -> None:
        function, takes, gives = self._calls[which]
        if function is None:
            return
        out = function(*[t.clone() for t in _tensors(inputs, takes)])    # they may be kept
        if gives:
            for to, t in zip(_tensors(results, gives), out):
                to.copy_(t)


class Series:
    """Keeps the values of a tensor over the micro-batches of a run."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.values: List[torch.Tensor] = []

    def __call__(self, t: torch.Tensor) -> None:
        self.values.append(t)

    def take(self) -> Any:
        """All of them, one after the other, and forget them."""
        values, self.values = self.values, []
        return torch.stack(values) if values else None
