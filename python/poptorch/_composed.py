"""ATen ops that are made of others, in Python: what they become is in the trace as if forward() had called it.

Most are words of the library; here is what is left.
"""

import functools
from typing import Callable, Dict, Tuple

import torch

from ._record import needsValue

_T = torch.Tensor


@functools.lru_cache(None)
def _solveTurns() -> bool:
    """Whether this release's solve() factors the transpose of a matrix that lies row after row: 2.15 does not."""
    return not torch._linalg_solve_ex(torch.eye(2).cumsum(1), torch.eye(2))[1][0, 1]    # type: ignore[attr-defined]


#: Words with an argument more than PyTorch's: whether PyTorch's gradient expects the factors of the transpose.
TURNED: Dict[str, Callable[[_T], bool]] = {
    "aten::_linalg_solve_ex": lambda a: _solveTurns() and a.is_contiguous(),
    "aten::_linalg_det": lambda a: a.is_contiguous(),
    "aten::_linalg_slogdet": lambda a: a.is_contiguous(),
}


def _packed(x: _T, lengths: _T, batch_first: bool) -> Tuple[_T, _T]:
    """Step by step the rows that have not ended, of lengths that are known: and how many those are."""
    from . import _trace    # which imports this
    if _trace.tracer().isTraced(lengths):    # type: ignore[union-attr]
        raise needsValue("A length of a packed sequence")
    x = x.transpose(0, 1) if batch_first else x
    known = lengths.tolist()
    sizes = [sum(n > t for n in known) for t in range(max(known))]
    return torch.cat([x[t, :n] for t, n in enumerate(sizes)]), torch.tensor(sizes)


COMPOSED: Dict[str, Callable] = {
    "aten::_linalg_check_errors": lambda info, name, is_matrix: None,
    "aten::_pack_padded_sequence": _packed,
}
