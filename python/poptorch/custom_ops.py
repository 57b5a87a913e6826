"""Operations that users write in C."""

from typing import Any, List

import torch

from .errors import createPoptorchError


def customOperation(inputs: List[torch.Tensor], name: str, domain: str, domain_version: int, num_outputs: int,
                    example_outputs: List[torch.Tensor], attributes_map_id: str = "") -> List[torch.Tensor]:
    """torch.ops.poptorch.custom_operation: without attributes, which only poptorch.custom_op has."""
    from . import ops
    if attributes_map_id:
        raise createPoptorchError("torch.ops.poptorch.custom_operation takes no attributes: use poptorch.custom_op")
    if num_outputs != len(example_outputs):
        raise createPoptorchError(f"custom_operation: {num_outputs} outputs, but {len(example_outputs)} examples of them")
    return ops.custom_op(inputs, name, domain, domain_version, example_outputs)
