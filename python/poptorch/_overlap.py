"""poptorch.set_overlap_for_input and set_overlap_for_output: a hint to transfer data while the device computes.

Our devices read inputs and write outputs where the host has them, so there is nothing to overlap; what a program
must not ask for is an error all the same, as it would be elsewhere.
"""

from typing import Any, List

import torch

from . import blocks
from .enums import OutputMode
from .errors import createPoptorchError

_INPUT, _OUTPUT = "set_overlap_for_input", "set_overlap_for_output"


class Overlap:
    """What a trace has asked for."""

    def __init__(self, options: Any) -> None:
        self._options = options
        self._used = ""
        self._outputs: List[torch.Tensor] = []
        self.read: set = set()    # ids of the values that operations have read

    def _start(self, name: str) -> None:
        tiles = self._options.TensorLocations.exists("num_io_tiles") or "numIOTiles" in self._options._Popart.options
        if not tiles:
            raise createPoptorchError(f"{name} needs tiles for transfers: set "
                                      "Options.TensorLocations.numIOTiles(n), with n from 32 to 192")
        self._used = name

    def input(self, t: torch.Tensor, values: List[Any], value: Any) -> torch.Tensor:
        """A tensor with this value is an input of the model, and nothing was done to it before."""
        self._start(_INPUT)
        if not any(value is v for v in values):
            raise createPoptorchError(f"{_INPUT} was applied to a tensor that is not an input of the model")
        if id(value) in self.read:
            raise createPoptorchError(f"{_INPUT} must be the first operation on an input")
        return t

    def output(self, t: torch.Tensor) -> torch.Tensor:
        """A new tensor, which forward must return."""
        self._start(_OUTPUT)
        mode = OutputMode(self._options.output_mode)
        if mode not in (OutputMode.All, OutputMode.Sum):
            raise createPoptorchError(f"{_OUTPUT} needs OutputMode.All or OutputMode.Sum; the model has {mode.name}")
        self._outputs.append(torch.ops.aten.alias(t))
        return self._outputs[-1]

    def checkReturned(self, leaves: List[torch.Tensor], valueOf: Any) -> None:
        """These are the tensors that forward returned."""
        for t in self._outputs:
            times = sum(leaf is t for leaf in leaves)
            if times != 1 or id(valueOf(t)) in self.read:
                raise createPoptorchError(f"What {_OUTPUT} returns must be returned by forward(), once, and used for "
                                          f"nothing else; it is returned {times} times")

    def checkStages(self, strategy: Any, devices: int) -> None:
        """Pipelines cannot have it."""
        if self._used and devices > 1 and isinstance(strategy, blocks.PipelinedExecution):
            raise createPoptorchError(f"{self._used} is not supported with poptorch.PipelinedExecution")
