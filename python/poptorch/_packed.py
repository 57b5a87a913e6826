"""Packed sequences of lengths that are arguments of forward(), other ones in every run.

PyTorch packs a padded batch step by step, of each step the sequences that are not over:

    lengths 3 2 1     a a a        data   a b c a b a
                      b b .        batch_sizes  3 2 1
                      c . .

So data is x[mask] of a mask that is computed, and here it is that (_chosen.py): all places, of which the mask chooses some. What is
done to each of them, and a loss over them, goes on as in PyTorch. A recurrent layer keeps a sequence's state where the mask has none
of its steps, in either direction; it is written out, a step after the other. batch_sizes has all steps, those of nobody too.

How long the padded result is without total_length is a question of values, so that every run looks whether the longest
sequence is as long as in the first batch.
"""

from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Tuple

import torch
import torch.nn.functional as F

from . import _chosen

if TYPE_CHECKING:
    from ._trace import Tracer

_T = torch.Tensor
_CELLS: Dict[Any, Callable] = {torch.gru: torch.gru_cell, torch.rnn_tanh: torch.rnn_tanh_cell, torch.rnn_relu: torch.rnn_relu_cell}


class Steps(int):
    """The number of steps of a packed sequence, as batch_sizes has them: pad_packed_sequence() hands it on when it is not given
    a length."""


class Packing:
    """What a tensor of batch_sizes was made of. It is kept, for its id is what it is found by."""

    def __init__(self, lengths: _T, sizes: _T) -> None:
        self.lengths, self.sizes = lengths, sizes


def call(t: "Tracer", func: Any, args: Tuple, kwargs: Dict[str, Any]) -> Any:
    """func(*args, **kwargs) if it is about such a sequence; else None."""
    if func is torch._pack_padded_sequence:
        return _pack(t, *args, **kwargs) if t.isTraced(args[1]) else None
    packing = t.packings.get(id(args[1] if func is not _T.size and len(args) > 1 else args[0])) if t.packings and args else None
    if packing is None:
        return None
    if func is _T.size and args[1:] == (0,):
        return Steps(len(packing.sizes))
    if func is torch._pad_packed_sequence:
        return _pad(t, packing, *args, **kwargs)
    if func in _CELLS or func is torch.lstm:
        return _layers(t, _CELLS.get(func), *args)
    return None


def _pack(t: "Tracer", x: _T, lengths: _T, batch_first: bool) -> Tuple[_T, _T]:
    x = x.transpose(0, 1) if batch_first else x
    if t.sized:    # the lengths of the first batch
        t.expect(lengths)
        with t.paused():
            lengths = lengths.clone()
        return torch._pack_padded_sequence(x, lengths, False)
    if not ((lengths > 0) & (lengths <= len(x))).all() & (lengths[:-1] >= lengths[1:]).all():
        raise RuntimeError("pack_padded_sequence: lengths must be between 1 and the number of steps, the largest first unless "
                           "enforce_sorted is False")
    mask = torch.arange(len(x)).unsqueeze(1) < lengths
    sizes = mask.sum(1)
    t.packings[id(sizes)] = Packing(lengths, sizes)
    with t.choosing():
        return _chosen.choose(t, x, mask), sizes


def _pad(t: "Tracer", packing: Packing, data: _T, sizes: _T, batch_first: bool, value: float, steps: int) -> Tuple[_T, _T]:
    rows = t.rowsOf(data)
    if rows is None:
        t.askSize()
    with t.choosing():
        shape = (len(sizes), -1, *data.shape[1:])
        padded = torch.where(rows.over(data), data, torch.full((), value, dtype=data.dtype)).view(shape)
    if isinstance(steps, Steps):
        padded = padded[:int(packing.lengths.max())]
    elif steps > len(padded):
        more = torch.full((steps - len(padded), *padded.shape[1:]), value, dtype=data.dtype)
        padded = torch.cat([padded, more])
    return padded.transpose(0, 1) if batch_first else padded, packing.lengths


def _layers(t: "Tracer", cell: Optional[Callable], data: _T, sizes: _T, states: Any, params: Any, has_biases: bool, layers: int,
            dropout: float, train: bool, bidirectional: bool) -> Tuple[_T, ...]:
    rows = t.rowsOf(data)
    if rows is None:
        t.askSize()
    ways = 2 if bidirectional else 1
    each = len(params) // (layers * ways)
    last: List[List[_T]] = []
    with t.choosing():
        x = data.reshape(len(sizes), -1, data.shape[1])
        mask = rows.mask.view(len(sizes), -1, 1)
        for layer in range(layers):
            if layer and dropout and train:
                x = F.dropout(x, dropout)
            made = []
            for k in range(layer * ways, (layer + 1) * ways):
                first = [s[k] for s in states] if cell is None else [states[k]]
                y, state = _run(cell, x, mask, first, params[k * each:(k + 1) * each], has_biases, k % ways == 1)
                made.append(y)
                last.append(state)
            x = torch.cat(made, -1)
        out = x.reshape(-1, x.shape[-1])
    return (t.markRows(out, rows), *(torch.stack(s) for s in zip(*last)))


def _run(cell: Optional[Callable], x: _T, mask: _T, state: List[_T], params: Any, has_biases: bool, back: bool) -> Tuple[_T, List[_T]]:
    """One layer in one direction: the results of all steps, and the last states."""
    out: List[Any] = [None] * len(x)
    for i in reversed(range(len(x))) if back else range(len(x)):
        new = _lstm(x[i], state, params, has_biases) if cell is None else [cell(x[i], state[0], *params)]
        state = [torch.where(mask[i], n, s) for n, s in zip(new, state)]
        out[i] = state[0]
    return torch.stack(out), state


def _lstm(x: _T, state: List[_T], params: Any, has_biases: bool) -> List[_T]:
    """PyTorch's lstm_cell() knows no projections, which are a weight more."""
    biases = params[2:4] if has_biases else (None, None)
    i, f, g, o = (F.linear(x, params[0], biases[0]) + F.linear(state[0], params[1], biases[1])).chunk(4, 1)
    c = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
    h = o.sigmoid() * c.tanh()
    return [F.linear(h, params[-1]) if len(params) % 2 else h, c]
