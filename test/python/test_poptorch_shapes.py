"""A trace runs operations on meta tensors: their results have the types, shapes and order in memory of those that a CPU computes.

Every operation that torch's own samples call, and that their backward passes call, is run both ways. Here a part of the ops,
another in each round of a soak; with TS_SOAK all.
"""

import os
import warnings

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from poptorch import _shapes

PARTS = 24

#: Results whose size depends on values, and what only PyTorch's own backward passes read: places of embedding_bag, and statistics
#: of norms in half precision. Of the rest only the order in memory differs, which no result shows.
OTHERWISE = {"nonzero", "unique_consecutive", "_embedding_bag", "_embedding_bag_forward_only", "native_batch_norm",
             "_native_batch_norm_legit", "native_layer_norm", "nonzero_static"}
ORDER = {"_fft_c2r", "_fft_r2c", "_linalg_svd", "linalg_eig", "max_unpool2d", "flip", "pixel_shuffle", "pixel_unshuffle", "rot90"}


def tensors(value, found):
    if isinstance(value, torch.Tensor):
        found.append(value)
    elif isinstance(value, (list, tuple)):
        for v in value:
            tensors(v, found)
    return found


def steps(t):
    return [s for s, n in zip(t.stride(), t.shape) if n > 1] if t.numel() else []


class BothWays(TorchDispatchMode):
    """Runs what is called, and notes where the trace's idea of the result differs."""

    def __init__(self):
        super().__init__()
        self.wrong, self.calls = set(), 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        name = func._schema.name.partition("::")[2]
        given = tensors([args, list(kwargs.values())], [])
        if any(t.layout != torch.strided for t in tensors(out, list(given))):    # which the trace refuses
            return out
        if _shapes._kind(func) == "plain" and given and name not in OTHERWISE:
            self.calls += 1
            self.compare(name, tensors(_shapes.run(func, args, kwargs), []), tensors(out, []))
        return out

    def compare(self, name, ours, theirs):
        if len(ours) != len(theirs):
            self.wrong.add(f"{name}: {len(ours)} results instead of {len(theirs)}")
        for a, b in zip(ours, theirs):
            if (a.dtype, a.shape) != (b.dtype, b.shape):
                self.wrong.add(f"{name}: {a.dtype} {tuple(a.shape)} instead of {b.dtype} {tuple(b.shape)}")
            elif steps(a) != steps(b) and name not in ORDER:
                self.wrong.add(f"{name}: steps {a.stride()} of {tuple(a.shape)} instead of {b.stride()}")
            if not _shapes._apart(a):
                self.wrong.add(f"{name}: elements share their places")


def walk(samples, info, dtype, mode, most):
    """The first samples, and their gradients, as far as torch can compute them."""
    for k, s in enumerate(samples.samples_of(info, dtype)):
        if k >= most:
            return
        found = []
        tree = samples.tensors_of(((s.input, *s.args), dict(s.kwargs)), found)
        if any(t.layout != torch.strided for t in found):
            continue
        gradients = dtype == torch.float32 and info.supports_autograd
        args, kwargs = samples.built(tree, [t.detach().clone().requires_grad_(gradients and t.is_floating_point()) for t in found])
        try:
            with mode:
                out = [t for t in tensors(info.op(*args, **kwargs), []) if t.requires_grad and not t.is_complex()]
                if out:
                    sum(t.sum() for t in out).backward()
        except Exception:    # a sample that torch cannot take
            pass


def test_meta_tensors_are_like_those_of_a_cpu(samples):
    part = None if os.environ.get("TS_SOAK") else int(os.environ.get("TS_ROUND", "0")) % PARTS
    mode = BothWays()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for info in samples.op_db():
            if part is not None and not samples.share(samples.name_of(info), part, PARTS):
                continue
            for dtype in {torch.float32, torch.int64, torch.float16} & set(info.supported_dtypes("cpu")):
                walk(samples, info, dtype, mode, 16 if part is None else 6)
    assert mode.calls > 50 and not mode.wrong, sorted(mode.wrong)
