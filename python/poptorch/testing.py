"""Comparing results in tests."""

from typing import Any

import torch


def allclose(reference_output: Any, ipuOutput: Any) -> bool:
    """torch.allclose over nested tuples and lists; False where the structures differ."""
    if isinstance(reference_output, (tuple, list)):
        return isinstance(ipuOutput, (tuple, list)) and len(reference_output) == len(ipuOutput) and all(
            allclose(a, b) for a, b in zip(reference_output, ipuOutput))
    if not isinstance(reference_output, torch.Tensor) or not isinstance(ipuOutput, torch.Tensor):
        return False
    return torch.allclose(reference_output, ipuOutput)
