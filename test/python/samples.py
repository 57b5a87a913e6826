"""Torch's own sample inputs, through poptorch and through torch: what is accepted, and is it right?

    python3 samples.py                      # all ops, a line for each that is not right; --json FILE keeps the answers
    python3 samples.py add softmax          # these, with what is wrong
    python3 samples.py --write a.json b.json > doc/torch-samples.md

torch.testing has sample inputs for every op: sizes, strides, broadcasting, tensors without dims and without elements,
arguments by keyword. Each sample's tensors become a model's inputs; the model is traced with other numbers than it
then runs with, so that none can be compiled in, and runs without a compiler on the reference executor. In double
precision a training step compares the gradients of all inputs too.

An op is right (every sample is accepted, and as torch has it), or in part (the rest is refused by name), refused, or
wrong. One of random numbers is compared in type and shape only.
"""

import argparse
import hashlib
import importlib
import json
import os
import re
import sys
import textwrap
import time
import types
import unittest
import warnings

os.environ.setdefault("POPTORCH_LOG_LEVEL", "OFF")
os.environ["TESSERA_CC"] = "/nowhere/cc"
os.environ["TESSERA_CACHE_DIR"] = ""

import torch    # noqa: E402

import poptorch    # noqa: E402

DTYPES = [torch.float32, torch.float64, torch.int64, torch.bool, torch.float16, torch.bfloat16]
TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-5, torch.float16: 2e-2, torch.bfloat16: 1e-1}

#: What they draw is compared elsewhere (test_poptorch_semantics.py).
RANDOM = re.compile(r"bernoulli|cauchy|dropout|exponential|geometric|log_normal|multinomial|normal$|normal_|normal/|rand|"
                    r"rrelu|uniform|empty|fractional_max_pool|pca_lowrank|svd_lowrank|normal\.|argsort|"
                    r"multi_head_attention_forward")

#: Of equal elements any may be the one: the places are not compared.
ORDERED = {"kthvalue", "mode", "topk", "sort", "msort", "median", "nanmedian", "max.reduction_with_dim", "cummax", "cummin"}

#: Vectors of which the sign may be any: compared is what torch's own gradient checks make of them, which is the same for both.
SIGNED = {"svd", "linalg.svd", "linalg.eigh", "symeig"}

#: Torch's gradient has numbers for elements that do not count: the other triangle of a factor, and what was written
#: over by another of the same place. Of ctc_loss it counts on log probabilities that add up to 1; of a determinant that
#: is 0 ours is not there, and neither of an entropy of less than 0.
#: hypot has samples of infinity. A bag's samples have NaN in rows that do not count, which reach the gradient of the weights of those.
OTHER_GRADIENT = {"hypot", "index_put", "nn.functional.embedding_bag", "special.entr", "nn.functional.ctc_loss", "linalg.det", "cholesky_inverse", "cholesky_solve", "nn.functional.max_unpool1d", "nn.functional.max_unpool2d",
                  "nn.functional.max_unpool3d"}


def op_db():
    """The list of torch's OpInfos. Its module imports one that only its own tests need."""
    if "expecttest" not in sys.modules:
        stand_in = types.ModuleType("expecttest")
        stand_in.TestCase, stand_in.ACCEPT = unittest.TestCase, False
        sys.modules["expecttest"] = stand_in
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module("torch.testing._internal.common_methods_invocations").op_db


def name_of(info):
    return info.name + (f".{info.variant_test_name}" if info.variant_test_name else "")


def tensors_of(value, out):
    """A copy of the structure with numbers for tensors, which go to out."""
    if isinstance(value, torch.Tensor):
        out.append(value)
        return ("tensor", len(out) - 1)
    if isinstance(value, (list, tuple)):
        made = [tensors_of(v, out) for v in value]
        return ("tuple" if isinstance(value, tuple) else "list", made)
    if isinstance(value, dict):
        return ("dict", {k: tensors_of(v, out) for k, v in value.items()})
    return ("plain", value)


def built(tree, tensors):
    kind, value = tree
    if kind == "tensor":
        return tensors[value]
    if kind == "dict":
        return {k: built(v, tensors) for k, v in value.items()}
    if kind in ("list", "tuple"):
        return (list if kind == "list" else tuple)(built(v, tensors) for v in value)
    return value


def results(out):
    found = []
    tensors_of(out if isinstance(out, (list, tuple, torch.Tensor)) else list(out) if hasattr(out, "__iter__") else [out],
               found)
    return found


class Call(torch.nn.Module):
    """op(*tensors) as the sample has it, and with `weights` a loss of all its results that have gradients."""

    def __init__(self, op, tree, weights=None):
        super().__init__()
        self.op, self.tree = op, tree
        self.weights = torch.nn.ParameterList(weights or [])

    def forward(self, *tensors):
        tensors = list(tensors)
        for w in self.weights:
            i = tensors.index(None)
            tensors[i] = w * 1
        args, kwargs = built(self.tree, tensors)
        out = results(self.op(*args, **kwargs))
        if not len(self.weights):
            return out
        total = sum(w.sum() for w in self.weights)    # so that there is a gradient, be it of nothing else
        for y in out:
            if y.requires_grad and y.numel():
                y = torch.view_as_real(y.resolve_conj()) if y.is_complex() else y
                total = total + (y * torch.linspace(0.5, 1.5, y.numel(), dtype=y.dtype).view(y.shape)).sum()
        return poptorch.identity_loss(total, "none")


def other(t):
    """A tensor like it with other numbers, in the same range."""
    if t.is_floating_point() and not t.dim():
        return t + 1
    if t.is_floating_point() or t.is_complex():
        return (t * 0.9 + 0.01).to(t.dtype)
    return t.flatten().flip(0).view(t.shape) if t.numel() else t


def options():
    return poptorch.Options().showCompilationProgressBar(False)


class Refused(Exception):
    pass


def compiled(model, traced, real):
    """The model, compiled for the first tensors, or if torch has no result for them for the real ones."""
    try:
        try:
            model.compile(*traced)
        except poptorch.Error:
            raise
        except Exception:
            model.compile(*real)
    except (poptorch.Error, NotImplementedError) as e:
        raise Refused(str(e)) from None
    except AssertionError as e:
        raise Refused(str(e)) from None


def forward(op, tree, tensors):
    model = poptorch.inferenceModel(Call(op, tree), options())
    compiled(model, [other(t) for t in tensors], tensors)
    return model(*tensors)


def gradients(op, tree, tensors):
    """(ours, torch's) of the inputs in double precision that have one."""
    floats = [t.is_floating_point() and t.numel() > 0 for t in tensors]
    weights = [torch.nn.Parameter(t.detach().clone()) for t, f in zip(tensors, floats) if f]
    same = [torch.nn.Parameter(t.detach().clone()) for t, f in zip(tensors, floats) if f]
    rest = [None if f else t for t, f in zip(tensors, floats)]
    try:
        loss = Call(op, tree, same)(*rest)
        loss.backward()
    except (RuntimeError, NotImplementedError, AttributeError):    # torch has no gradient
        return None
    net = Call(op, tree, weights)
    model = poptorch.trainingModel(net, options(), torch.optim.SGD(net.parameters(), lr=1.0))
    compiled(model, rest, rest)
    model(*rest)
    ours = [t.detach() - w.detach() for t, w in zip([t for t, f in zip(tensors, floats) if f], net.weights)]
    for i, w in enumerate(same):    # a weight that is not a number takes no step, and a large one none to be seen
        ours[i] = torch.where(w.detach().abs() < 1e6, ours[i], torch.zeros_like(w) if w.grad is None else w.grad)
    return ours, [torch.zeros_like(w) if w.grad is None else w.grad for w in same]


def real(t):
    """Complex numbers as pairs."""
    return torch.view_as_real(t.resolve_conj()) if t.is_complex() else t


def close(a, b, dtype):
    tolerance = TOLERANCE.get(b.dtype if b.is_floating_point() else dtype, 1e-4)
    if b.dtype == torch.int64:    # comes back as int32
        b = torch.where(b.double().abs() < 2**31, b, a.long())
    if b.is_floating_point():    # the last number before infinity is a matter of rounding
        most = torch.finfo(b.dtype).max * 0.999
        a, b = a.double().clamp(-most, most), b.double().clamp(-most, most)
    a, b = a.double(), b.double()
    finite = b[b.isfinite()].abs()
    largest = float(finite.max()) if finite.numel() else 0.0
    near = tolerance * (max(1.0, largest) if tolerance > 1e-3 else 1.0)
    return torch.allclose(a, b, rtol=tolerance, atol=near, equal_nan=True)


def differ(found, expected, dtype, exact=None):
    """What is wrong, or "". What torch computes in few bits is also compared with what it computes in more: exact()."""
    if len(found) != len(expected):
        return f"{len(found)} results instead of {len(expected)}"
    for i, (a, b) in enumerate(zip(found, expected)):
        if a.is_complex() != b.is_complex():
            return f"{a.dtype} instead of {b.dtype}"
        a, b = real(a), real(b)
        if tuple(a.shape) != tuple(b.shape):
            return f"shape {tuple(a.shape)} instead of {tuple(b.shape)}"
        if not b.numel() or close(a, b, dtype):
            continue
        more = exact() if exact else None
        if more is None or not close(a, real(more[i]).to(b.dtype), dtype):
            return f"{a.flatten()[:4].tolist()} instead of {b.flatten()[:4].tolist()}"
    return ""


WIDER = {torch.float32: torch.float64, torch.float16: torch.float64, torch.bfloat16: torch.float64}


def in_more_bits(op, tree, tensors):
    def widened(v):
        if isinstance(v, torch.dtype):
            return WIDER.get(v, v)
        return v
    kind, ((_, args), (_, kwargs)) = tree
    kwargs = {k: (t, widened(v)) if t == "plain" else (t, v) for k, (t, v) in kwargs.items()}
    wide = [t.to(WIDER.get(t.dtype, t.dtype)) for t in tensors]
    args, kwargs = built((kind, (("tuple", args), ("dict", kwargs))), wide)
    try:
        return results(op(*args, **kwargs))
    except Exception:
        return None


def unsigned(op, sample):
    return lambda *args, **kwargs: sample.output_process_fn_grad(op(*args, **kwargs))


def one(info, op, sample, dtype, gradient):
    """"" right, None: nothing to compare with, "refused: ..", "wrong: .."."""
    name, tensors = name_of(info), []
    args = (sample.input, *sample.args)
    tree = tensors_of((args, dict(sample.kwargs)), tensors)
    if not tensors or any(t.dtype == torch.complex32 or t.layout != torch.strided for t in tensors):
        return None
    if info.name in SIGNED:
        op = unsigned(op, sample)
    drawn = RANDOM.search(name) is not None or bool(sample.kwargs.get("dropout_p"))
    if name == "histc" and dtype == torch.bfloat16:    # torch rounds the edges
        return None
    if name == "grid_sampler_2d" and dtype in (torch.float16, torch.bfloat16):    # places in so few bits are a matter of rounding
        return None
    if "polygamma" in name and dtype == torch.int64:    # half of its samples are poles, where torch has what rounding left
        return None
    try:
        copies = [t.detach().clone() for t in tensors]
        with torch.no_grad():
            expected = results(op(*built(tree, copies)[0], **built(tree, copies)[1]))
    except Exception:
        return None
    if not expected or any(not isinstance(t, torch.Tensor) or t.dtype == torch.complex32 or t.layout != torch.strided for t in expected):
        return None
    tensors = [t.detach().clone() for t in tensors]
    try:
        found = results(forward(op, tree, tensors))
        if drawn:
            found = [torch.zeros(f.shape) for f in found]
            expected = [torch.zeros(e.shape) for e in expected]
        if info.name in ORDERED:    # which of several equal ones comes first
            found, expected = found[:1], expected[:1]
        wrong = differ(found, expected, dtype, lambda: in_more_bits(op, tree, tensors))
        if not wrong and gradient and not drawn and info.supports_autograd and info.name not in OTHER_GRADIENT:
            both = gradients(op, tree, tensors)
            wrong = differ(*both, dtype) if both else ""
            wrong = wrong and f"gradient: {wrong}"
    except Refused as e:
        text = str(e)
        found = re.findall(r"^  (\S.*?)  \(", text, re.M)
        return "refused: " + ("; ".join(found) or text.replace("'poptorch_py_error': ", "").split("\n")[0])[:160]
    except Exception as e:
        return f"wrong: {type(e).__name__}: {str(e)[:160]}"
    return f"wrong: {wrong}" if wrong else ""


def samples_of(info, dtype):
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield from info.sample_inputs("cpu", dtype, requires_grad=False)


def judged(info, dtypes, limit=10**9):
    """{"right": samples, "refused": {why: samples}, "wrong": [(dtype, sample, what)], "skipped": samples} of an op."""
    out = {"right": 0, "refused": {}, "wrong": [], "skipped": 0}
    supported = info.supported_dtypes("cpu")
    for dtype in dtypes:
        if dtype not in supported:
            continue
        try:
            for k, sample in enumerate(samples_of(info, dtype)):
                if k >= limit:
                    break
                answer = one(info, info.op, sample, dtype, dtype == torch.float64)
                if answer is None:
                    out["skipped"] += 1
                elif not answer:
                    out["right"] += 1
                elif answer.startswith("refused"):
                    why = answer[len("refused: "):]
                    out["refused"][why] = out["refused"].get(why, 0) + 1
                else:
                    out["wrong"].append((str(dtype), k, answer[len("wrong: "):]))
        except Exception as e:    # torch cannot make the samples
            out.setdefault("unmade", f"{type(e).__name__}: {str(e)[:100]}")
    return out


def verdict(answer):
    if answer["wrong"]:
        return "wrong"
    if not answer["right"]:
        return "refused" if answer["refused"] else "nothing"
    return "partly" if answer["refused"] else "right"


HEAD = """\
# PyTorch's samples

Written by `test/python/samples.py --write`. For each op `torch.testing` has sample inputs: sizes, strides, broadcasting, tensors
without dims and without elements, arguments by keyword, in `float32`, `float64`, `int64`, `bool`, `float16` and `bfloat16`. Here
each of them (of torch 2.15 the first 12 of each type) went through poptorch and through PyTorch; of `float64` the gradients
too. What draws random numbers is compared in type and shape.

- *right*: every sample is accepted, and as PyTorch has it.
- *in part*: those that are accepted are right, the others are refused, for the reason that is given.
- *refused*: none is accepted.
- *nothing to compare*: PyTorch has no sample with real tensors on a CPU.

`make test` repeats a part of the samples of ops that are right and `make soak` all of them: an op that is right here stays so.
"""


def lines(names):
    return textwrap.fill(" ".join(f"`{n}`" for n in names), 125, break_long_words=False, break_on_hyphens=False)


def table(releases):
    """The document: {release: {op: answer}}."""
    text = HEAD
    for release, answers in releases.items():
        kinds = {kind: sorted(n for n, a in answers.items() if verdict(a) == kind)
                 for kind in ("right", "partly", "refused", "nothing", "wrong")}
        text += f"\n## torch {release}\n\n{sum(a['right'] for a in answers.values())} samples of {len(answers)} ops are right.\n"
        text += f"\n### {len(kinds['right'])} right\n\n{lines(kinds['right'])}\n"
        for kind, title in (("partly", "in part"), ("refused", "refused"), ("wrong", "wrong")):
            if not kinds[kind]:
                continue
            text += f"\n### {len(kinds[kind])} {title}\n\n"
            for name in kinds[kind]:
                why = answers[name]["refused"]
                reason = max(why, key=why.get) if why else answers[name]["wrong"][0][2]
                reason = re.sub(r" ?\(?In \(\w+\), ", "", re.sub(r" ?\(?[^ ]*samples.py:\d+[^ ]*", "", reason)).strip()
                text += f"- `{name}`: {reason}\n"
        text += f"\n### {len(kinds['nothing'])} with nothing to compare\n\n{lines(kinds['nothing'])}\n"
    return text


def release_of(version):
    return ".".join(version.split("+")[0].split("a")[0].split(".")[:2])


def written(paths):
    releases = {}
    for path in paths:
        with open(path, encoding="utf-8") as f:
            kept = json.load(f)
        releases.setdefault(release_of(kept["torch"]), {}).update(kept["answers"])
    return table(releases)


def right_by(document, release):
    """The ops that a document says are right with this release."""
    part = re.search(rf"^## torch {re.escape(release)}$(.*?)(?=^## |\Z)", document, re.M | re.S)
    found = re.search(r"^### \d+ right\n\n(.*?)\n(?:\n|\Z)", part[1], re.M | re.S) if part else None
    return re.findall(r"`([^`]+)`", found[1]) if found else []


def share(name, part, parts):
    """Is it in this part of all ops? Whatever others there are."""
    return int(hashlib.sha256(name.encode()).hexdigest(), 16) % parts == part


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("ops", nargs="*")
    parser.add_argument("--json")
    parser.add_argument("--dtypes", default="")
    parser.add_argument("--part", type=int, default=0)
    parser.add_argument("--parts", type=int, default=1)
    parser.add_argument("--limit", type=int, default=10**9)
    parser.add_argument("--write", nargs="+")
    given = parser.parse_args()
    if given.write:
        print(written(given.write), end="")
        return
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dtypes = [d for d in DTYPES if not given.dtypes or str(d).partition(".")[2] in given.dtypes.split(",")]
    answers = {}
    for info in op_db():
        name = name_of(info)
        if (given.ops and name not in given.ops and info.name not in given.ops) or \
                not share(name, given.part, given.parts):
            continue
        started = time.time()
        answers[name] = answer = judged(info, dtypes, given.limit)
        answer["seconds"] = time.time() - started
        kind = verdict(answer)
        if kind != "right" or given.ops:
            print(f"{kind:8} {name:40} {answer['right']:4} right", *answer["wrong"][:3], *list(answer["refused"].items())[:3],
                  answer.get("unmade", ""), flush=True)
        if given.json:
            with open(given.json, "w", encoding="utf-8") as f:
                json.dump({"torch": torch.__version__, "answers": answers}, f, indent=1)
    counts = {}
    for answer in answers.values():
        counts[verdict(answer)] = counts.get(verdict(answer), 0) + 1
    print(counts, sum(a["right"] for a in answers.values()), "samples right")


if __name__ == "__main__":
    main()
