"""Words without PyTorch beside them: the type and shape that the library finds by itself (src/front/words_face.c), which
is what C and model descriptions get, against PyTorch's answer; and a case for every word of the table.

The calls of test_poptorch_ops.py are traced again, each word without its answer. Words that PyTorch makes of others, so
that no trace has them, are in CASES: compiled, run and compared.
"""

import importlib.util
import re
import subprocess
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import poptorch
from poptorch import _record, _trace
import test_poptorch_ops as ops

ROOT = Path(__file__).resolve().parents[2]
TABLE = (ROOT / "src/front/vocabulary.h").read_text()


def _table():
    spec = importlib.util.spec_from_file_location("words", ROOT / "tools" / "words.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {w.name: w for w in module.words()}


WORDS = _table()
ALSO = dict(re.findall(r'^ALSO\( "([\w:.]+)", (\w+) \)', TABLE, re.M))
TRACE = set(re.findall(r'^TRACE\( "([\w:.]+)"', TABLE, re.M))
OURS = set(re.findall(r"^OURS\( (\w+),", TABLE, re.M))

#: What PyTorch answers with a dtype or a shape that its arguments do not have.
ANSWERED = {"aten::fill": "writes to a tensor, which it does not read", "poptorch::one_hot": "F.one_hot is taken before"}


def word_of(op):
    """The word that a name stands for, None where only a trace has it."""
    base = op.partition(".")[0]
    for name in (op, base):
        plain = name.replace("aten::", "")
        if name in TRACE or base in ANSWERED:
            return None
        word = ALSO.get(plain, plain)
        if word in WORDS and (plain in ALSO or word not in OURS or "::" not in name):
            return WORDS[word]
    return None


@pytest.fixture(name="own")
def fixture_own(monkeypatch):
    """Every call finds its answer itself; gives the names of the words so far."""
    lower, seen, wrong = _record.Record._lower, set(), []

    def alone(self, op, spec, args):
        word = word_of(op)
        if word is None:
            return lower(self, op, spec, args)
        names = [a.name for a in word.arguments]
        most = names.index("scale_factors") if "upsample" in op and op.endswith(".default") else len(names)
        values = lower(self, op, (None, ()), args[:most])    # PyTorch 2 has a factor for each dim, and the size
        seen.add(word.name)
        got = values[0].dtype, tuple(values[0].shape)
        if got != (spec[0], tuple(spec[1])):
            wrong.append(f"{op}: {got}, and PyTorch has {spec}")
        return values

    monkeypatch.setattr(_record.Record, "_lower", alone)
    monkeypatch.setattr(_trace.Tracer, "_checkMade", lambda self, t: None)
    monkeypatch.setenv("TESSERA_CACHE_DIR", "")
    return seen, wrong


def trace(call, inputs):
    tracer = _trace.Tracer("own", True, poptorch.Options())
    inputs = [t.clone() for t in inputs]
    for k, t in enumerate(inputs):
        tracer.addInput(f"i{k}", t)
    tracer.run(torch.nn.Module(), lambda: call(*inputs))
    assert not tracer.missing


#: Not of one trace: they ask for values.
NOT_ALONE = ("multivariate",)
NOT_ALONE += ("clamp_t",)    # ends that are tensors: maximum and minimum in C


@pytest.mark.parametrize("table, inputs", [
    (ops.POINTWISE, (ops.X, ops.Y)), (ops.SHAPES, (ops.X, ops.Y)), (ops.REDUCTIONS, (ops.X, ops.Y)),
    (ops.WITHOUT_GRADIENT, (ops.X, ops.Y)), (ops.LAYERS, (ops.IMAGE,))],
    ids=["pointwise", "shapes", "reductions", "no_gradient", "layers"])
def test_answers(own, table, inputs):
    for name, call in table.items():
        if name not in NOT_ALONE:
            trace(call, inputs)
    assert not own[1], "\n".join(own[1])
    assert own[0]


X, Y, IMAGE = ops.X, ops.Y, ops.IMAGE
SIGNAL, VOLUME = IMAGE.flatten(2), IMAGE.reshape(2, 4, 4, 4, 4)
WEIGHT = torch.linspace(-1, 1, 3 * 4 * 3 * 3 * 3).sin().view(3, 4, 3, 3, 3)
BIAS = torch.tensor([0.5, -0.25, 1.0])
PLACES = torch.arange(2 * 4 * 4 * 4 * 4).view(2, 4, 4, 4, 4) % 500
STARTS = torch.tensor([0, 0, 1, 3, 3, 3])


def _attention(x, mask=None, causal=False, scale=None):
    scores = x @ x.transpose(-1, -2) * (x.shape[-1] ** -0.5 if scale is None else scale)
    if causal:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return scores.softmax(-1) @ x


#: {word: [(x, the other arguments, what PyTorch makes of x)]}; no trace of PyTorch 1.13 has them
CASES = {
    "adaptive_avg_pool1d": [(SIGNAL, ([5],), lambda x: F.adaptive_avg_pool1d(x, 5))],
    "adaptive_max_pool1d": [(SIGNAL, ([7],), lambda x: F.adaptive_max_pool1d(x, 7))],
    "argsort": [(X, (1, True), lambda x: x.argsort(1, True))],
    "avg_pool1d": [(SIGNAL, ([3], [2], [1], False, False), lambda x: F.avg_pool1d(x, 3, 2, 1, False, False))],
    "max_pool1d": [(SIGNAL, ([3], [2], [1]), lambda x: F.max_pool1d(x, 3, 2, 1)),
                   (SIGNAL, ([4], [], [0], [2], True), lambda x: F.max_pool1d(x, 4, None, 0, 2, True))],
    "checkpoint": [(X, (), lambda x: x)], "nop": [(X, (), lambda x: x)],
    "conv": [(SIGNAL, (WEIGHT[..., 0, 0], [2], [1], [1]), lambda x: F.conv1d(x, WEIGHT[..., 0, 0], None, 2, 1))],
    "conv1d": [(SIGNAL, (WEIGHT[..., 0, 0], BIAS, 2), lambda x: F.conv1d(x, WEIGHT[..., 0, 0], BIAS, 2))],
    "conv2d": [(IMAGE, (WEIGHT[..., 0], BIAS, [2, 1], 1, [1, 2]),
                lambda x: F.conv2d(x, WEIGHT[..., 0], BIAS, (2, 1), 1, (1, 2))),
               (IMAGE, (WEIGHT[:2, :2, ..., 0], None, 1, 0, 1, 2), lambda x: F.conv2d(x, WEIGHT[:2, :2, ..., 0], groups=2))],
    "conv3d": [(VOLUME, (WEIGHT, None, 1, 1), lambda x: F.conv3d(x, WEIGHT, padding=1))],
    "conv_transpose1d": [(SIGNAL[:, :3], (WEIGHT[..., 0, 0], None, 2, 1, 1),
                          lambda x: F.conv_transpose1d(x, WEIGHT[..., 0, 0], None, 2, 1, 1))],
    "conv_transpose2d": [(IMAGE[:, :3], (WEIGHT[..., 0], None, 2, 1, 1, 1, 2),
                          lambda x: F.conv_transpose2d(x, WEIGHT[..., 0], None, 2, 1, 1, 1, 2))],
    "conv_transpose3d": [(VOLUME[:, :3], (WEIGHT,), lambda x: F.conv_transpose3d(x, WEIGHT))],
    "conv_input": [(IMAGE[:, :3, :6, :6], (WEIGHT[..., 0], [], [], [], 1, [8, 8]),
                    lambda x: torch.nn.grad.conv2d_input((2, 4, 8, 8), WEIGHT[..., 0], x))],
    "conv_weight": [(IMAGE, (IMAGE[:, :3, :6, :6], [], [], [], 1, [3, 3]),
                     lambda x: torch.nn.grad.conv2d_weight(x, (3, 4, 3, 3), x[:, :3, :6, :6]))],
    "fill": [(X, (2.5,), lambda x: torch.full_like(x, 2.5))],
    "flatten": [(IMAGE, (1,), lambda x: x.flatten(1)), (IMAGE, (1, 2), lambda x: x.flatten(1, 2))],
    "ge": [(X, (Y,), lambda x: x >= Y)], "square": [(X, (), torch.square)],
    "group_norm": [(IMAGE, (2, BIAS.new_tensor([1., 2, 3, 4]), None, 1e-3),
                    lambda x: F.group_norm(x, 2, torch.tensor([1., 2, 3, 4]), None, 1e-3))],
    "identity_loss": [(X, ("sum",), lambda x: x.sum())],
    "isfinite": [(X, (), torch.isfinite)],
    "kl_div": [(X, (Y, "sum"), lambda x: F.kl_div(x, Y, reduction="sum")),
               (X, (Y, "mean", True), lambda x: F.kl_div(x, Y, reduction="mean", log_target=True))],
    "l1_loss": [(X, (Y,), lambda x: F.l1_loss(x, Y))],
    "ldexp": [(X, (Y,), lambda x: torch.ldexp(x, Y))],
    "linear": [(X, (Y, BIAS.new_tensor([1., 2, 3, 4])), lambda x: F.linear(x, Y, torch.tensor([1., 2, 3, 4])))],
    "logical_and": [(X, (Y,), lambda x: x.logical_and(Y))], "logical_or": [(X, (Y,), lambda x: x.logical_or(Y))],
    "masked_scatter": [(X, (Y > 1, Y), lambda x: x.masked_scatter(Y > 1, Y))],
    "max_unpool3d": [(VOLUME, (PLACES, [8, 8, 8]), lambda x: F.max_unpool3d(x, PLACES, 2))],
    "max_pool_grad": [(IMAGE[:, :, :4, :4], (torch.full((2, 4, 4, 4), 3, dtype=torch.uint8), [2, 2], [], [], False, [8, 8]),
                       lambda x: F.pad(x.unsqueeze(-1).unsqueeze(-3), (1, 0, 0, 0, 1, 0)).reshape(2, 4, 8, 8))],
    "mix": [(IMAGE, (WEIGHT[0, :2, 0, 0, 0].new_tensor([[1., 2, 0, -1], [0, 1, 1, 3]]), 1),
             lambda x: torch.einsum("oc,nchw->nohw", torch.tensor([[1., 2, 0, -1], [0, 1, 1, 3]]), x))],
    "one_hot": [(ops.INDEX, (5,), lambda x: F.one_hot(x, 5))],
    "relu6": [(8 * X, (), F.relu6)], "selu": [(X, (), F.selu)],
    "replication_pad2d": [(IMAGE, ([1, 2, 0, 3],), lambda x: F.pad(x, (1, 2, 0, 3), "replicate"))],
    "run_starts": [(STARTS, (0, 4), lambda x: torch.tensor([0, 2, 3, 3]))],
    "run_add": [(torch.tensor([0, 2, 3, 3, 6]), (X[0], torch.arange(6), 0),
                 lambda x: torch.zeros(4).index_add(0, STARTS, X[0]))],
    "scatter_prod": [(STARTS, (X[0], Y[0, :4], 0), lambda x: Y[0, :4].scatter_reduce(0, x, X[0], "prod"))],
    "scan": [(X, (1, "add"), lambda x: x.cumsum(1)), (X, (0, "mul", True), lambda x: x.flip(0).cumprod(0).flip(0))],
    "scan_places": [(X, (1, "max"), lambda x: x.cummax(1)[1])],
    "row_scatter": [(STARTS, (X[0], Y[0, :4], 0, "add"), lambda x: Y[0, :4].scatter_add(0, x, X[0])),
                    (STARTS[2:5], (X[0, :3], Y[0, :4], 0, "put"), lambda x: torch.stack([Y[0, 0], X[0, 0], Y[0, 2], X[0, 2]]))],
    "run_amax": [(torch.tensor([0, 2, 3, 3, 6]), (X[0], torch.arange(6), Y[0, :4], 0),
                  lambda x: Y[0, :4].scatter_reduce(0, STARTS, X[0], "amax"))],
    "run_amin": [(torch.tensor([0, 2, 3, 3, 6]), (X[0], torch.arange(6), Y[0, :4], 0),
                  lambda x: Y[0, :4].scatter_reduce(0, STARTS, X[0], "amin"))],
    "scatter_amax": [(STARTS, (X[0], Y[0, :4], 0), lambda x: Y[0, :4].scatter_reduce(0, x, X[0], "amax"))],
    "scatter_amin": [(STARTS, (X[0], Y[0, :4], 0), lambda x: Y[0, :4].scatter_reduce(0, x, X[0], "amin"))],
    "safe_softmax": [(X, (1,), lambda x: x.softmax(1))],
    "scaled_dot_product_attention": [
        (IMAGE, (IMAGE, IMAGE), _attention),
        (IMAGE, (IMAGE, IMAGE, IMAGE[0, 0] < 1), lambda x: _attention(x, IMAGE[0, 0] < 1)),
        (IMAGE, (IMAGE, IMAGE, None, 0.0, True, 0.5), lambda x: _attention(x, None, True, 0.5))],
    "step": [(X, (), lambda x: (x > 0).float())],
    "sum_pool": [(IMAGE, ([2, 2],), lambda x: 4 * F.avg_pool2d(x, 2))],
    "sum_pool_grad": [(IMAGE[:, :, :4, :4], ([2, 2], [], [], False, [8, 8]),
                       lambda x: x.repeat_interleave(2, 2).repeat_interleave(2, 3))],
    "untile": [(IMAGE.reshape(2, 2, 2, 2, 2, 16), ([4, 3],),
                lambda x: x.permute(2, 5, 3, 0, 4, 1).reshape(2, 16, 4, 4)[..., :3])],
    "upsample_nearest3d": [(VOLUME, ([8, 6, 5],), lambda x: F.interpolate(x, (8, 6, 5)))],
    "upsample_nearest_exact1d": [(SIGNAL, ([50],), lambda x: F.interpolate(x, 50, mode="nearest-exact"))],
    "upsample_nearest_exact3d": [(VOLUME, ([3, 6, 7],), lambda x: F.interpolate(x, (3, 6, 7), mode="nearest-exact"))],
    "windows": [(IMAGE, ([4, 4], [2, 2], [0, 0], [3, 3]),
                 lambda x: x.unfold(2, 4, 2).unfold(3, 4, 2).permute(4, 5, 0, 2, 3, 1))],
}

#: Their numbers are ours: {word: (x, the other arguments, their mean and deviation)}, over many elements
MANY = torch.full((200, 300), 2.0)
RANDOM = {
    "bernoulli": (MANY / 8, (), 0.25, 0.433), "dropout": (MANY, (0.2,), 2, 1), "feature_dropout": (MANY, (0.5,), 2, 2),
    "exponential": (MANY, (2.0,), 0.5, 0.5), "normal": (MANY, (1.0, 3.0), 1, 3), "rand_like": (MANY, (), 0.5, 0.2887),
    "randn_like": (MANY, (), 0, 1), "randint_like": (MANY, (2, 9), 5, 2), "uniform": (MANY, (1.0, 3.0), 2, 0.5774),
    "rrelu": (-MANY, (0.1, 0.4, True), -0.5, 0.1732), "geometric": (MANY, (0.5,), 2, 1.4142),
    "log_normal": (MANY, (0.0, 0.5), 1.1331, 0.6039),
}

#: Made of nothing, or half precision: in test/front/words.c
IN_C = {"iota", "rand", "randn", "randperm", "round_random"}

#: Without a mean, or of another shape: drawn in test_poptorch_ops.py
DRAWN = {"cauchy", "multinomial"}


class Emitted(torch.nn.Module):
    """Each case as a call by its word."""

    def forward(self, *inputs):
        tracer, out = _trace.tracer(), {}
        for x, (name, (_, extra, f)) in zip(inputs, emitted()):
            like = f(x.detach() if tracer is None else cases_of(name))
            out[name] = like if tracer is None else tracer.emit(
                name.partition(" ")[0], extra, lambda: x.new_zeros(like.shape, dtype=like.dtype))
        return out


def emitted():
    """[(name, case)], a name for each"""
    return [(f"{name} {i}", case) for name, cases in CASES.items() for i, case in enumerate(cases)]


def cases_of(name):
    word, i = name.split(" ")
    return CASES[word][int(i)][0]


def test_words_that_no_trace_has(own):
    inputs = [case[0] for _, case in emitted()]
    model = poptorch.inferenceModel(Emitted(), poptorch.Options().showCompilationProgressBar(False))
    ours = model(*inputs)
    assert not own[1], "\n".join(own[1])
    for name, (x, _, f) in emitted():
        try:
            ops.close(ours[name], f(x), 1e-4)
        except AssertionError as e:
            raise AssertionError(f"{name}: {e}") from None


class Drawn(torch.nn.Module):
    """The words of RANDOM."""

    def forward(self, *inputs):
        tracer = _trace.tracer()
        return {word: tracer.emit(word, case[1], x.clone) if tracer else x
                for x, (word, case) in zip(inputs, RANDOM.items())}


def test_random_words(own):
    inputs = [case[0] for case in RANDOM.values()]
    drawn = poptorch.inferenceModel(Drawn(), poptorch.Options().showCompilationProgressBar(False))(*inputs)
    assert own[0] == set(RANDOM) and not own[1]
    for word, (_, _, mean, deviation) in RANDOM.items():
        assert drawn[word].mean().item() == pytest.approx(mean, abs=0.05), word
        assert drawn[word].std().item() == pytest.approx(deviation, abs=0.05), word


def test_every_word_has_a_case(own):
    for table, inputs in ((ops.POINTWISE, (X, Y)), (ops.SHAPES, (X, Y)), (ops.REDUCTIONS, (X, Y)),
                          (ops.WITHOUT_GRADIENT, (X, Y)), (ops.LAYERS, (IMAGE,))):
        for name, call in table.items():
            if name not in NOT_ALONE:
                trace(call, inputs)
    of_others = {"diag"} if not torch.__version__.startswith("1.") else set()    # PyTorch 2 makes it of diagonal
    assert sorted(set(WORDS) - own[0] - set(CASES) - set(RANDOM) - IN_C - DRAWN - of_others) == []


def test_the_page_of_words_is_current():
    done = subprocess.run([ROOT / "tools" / "words.py", "doc", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
