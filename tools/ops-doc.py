#!/usr/bin/python3
"""Write doc/ops.md: the op table (src/op/ops.h) with the notes below.

    tools/ops-doc.py            write it
    tools/ops-doc.py --check    exit 1 when it is not what this would write

An op without a note, or a note without an op, is an error.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "doc" / "ops.md"

HEAD = """\
# Ops

Written by `tools/ops-doc.py` from `src/op/ops.h`; change the notes there.

Every op can be made by name with `ts_apply`, and has a C function in `tessera.h` or `tessera/ops.h`. What users call
are words ([words.md](words.md)), each of which becomes one op or many. Names and meaning are PyTorch's, and every op is compared with it, forward and backward, in `test/op/cases.txt`.
What differs is said under *differs*.

- Sizes are static and at least 1; a tensor has at most 8 dims. There are no empty tensors.
- Attributes are `ts_arg` by name; their kinds here: `i` integer (`ts_arg_int`), `f` number (`ts_arg_number`, an integer
  will do), `s` text (`ts_arg_text`), `l` list of integers (`ts_arg_ints`). A missing one takes the value in parentheses. One that the op does not
  have, or of another kind, is an error.
- `dim` and `dims` may be negative and then count from the end. A rank 0 tensor has no dims, so ops that
  need one refuse it, softmax and log_softmax excepted (PyTorch treats a scalar as having one in more places).
- *grad*: the op can be differentiated. Where it says no, nothing behind the op depends on the parameters,
  or (marked *error*) asking for a gradient through it fails.
- *composite*: expanded into other ops before anything else sees it.
- Made by name, pointwise ops want equal dtypes. The functions of `tessera.h` promote as PyTorch does; an
  `i8` with a `u8` gives `i32`, for there is no `i16`.
- Integers are computed through double in the reference executor: `i64` beyond 2^53 is not exact there.
- An index outside its range reads NaN (0 for integers) or adds nothing, where PyTorch raises.
- Half precision (`f16`, `bf16`): each op rounds its result; sums inside one op are in f32 or better. Where the processor rounds to bf16 itself (AVX512-BF16), results below 2^-126 become 0.
"""

# name: (inputs, attributes, differs)
POINT1 = ("x", "", "")
FLOATS = ("x: floats", "", "")
POINT2 = ("x, y", "", "")
COMPARE = ("x, y", "", "")
BITS = ("x, y: integers", "", "")

NOTES = {
    "Pointwise, one input": {
        "neg": POINT1, "abs": POINT1, "sign": POINT1, "square": POINT1, "reciprocal": FLOATS, "sqrt": FLOATS,
        "rsqrt": FLOATS, "exp": FLOATS, "expm1": FLOATS, "log": FLOATS, "log1p": FLOATS, "log2": FLOATS,
        "log10": FLOATS, "sin": FLOATS, "cos": FLOATS, "asin": FLOATS, "acos": FLOATS, "acosh": FLOATS, "tanh": FLOATS, "erf": FLOATS, "sigmoid": FLOATS,
        "erfc": FLOATS, "erfinv": FLOATS, "lgamma": FLOATS, "digamma": FLOATS,
        "relu": ("x", "", ""),
        "step": ("x", "", "not in PyTorch: 0 where x <= 0, else 1, so 1 for NaN: the slope of relu"),
        "floor": POINT1, "ceil": POINT1, "round": ("x", "", "to even, as PyTorch"), "trunc": POINT1,
        "isnan": POINT1, "logical_not": POINT1, "bitwise_not": ("x: integers", "", ""),
        "detach": ("x", "", "the value of x; no gradient goes through"),
        "nop": ("x", "", "x itself"),
        "cast": ("x", "`dtype`: f32 f16 bf16 f64 i8 u8 i32 i64 bool",
                 "float to integer drops the fraction; outside the integer's range it gives the nearest end "
                 "of it and NaN gives 0 (PyTorch leaves both open). Integer to integer wraps"),
    },
    "Pointwise, more inputs; they broadcast": {
        "add": POINT2, "sub": POINT2, "mul": POINT2,
        "div": ("x, y: floats", "", "true division; `ts_div` makes f32 of integers first"),
        "floor_divide": ("x, y", "", "`torch.div(x, y, rounding_mode='floor')`"),
        "remainder": ("x, y", "", "sign of y"), "fmod": ("x, y", "", "sign of x; the gradient by y counts whole "
                                                         "quotients exactly where PyTorch rounds x / y"),
        "pow": POINT2, "atan2": ("x, y: floats", "", ""),
        "zeta": ("s, q: floats", "", "Hurwitz's, `torch.special.zeta`; s gets no gradient (PyTorch raises). 0 at "
                                     "q = inf, where PyTorch has NaN"),
        "maximum": ("x, y", "", "equal elements share the gradient, as PyTorch"),
        "minimum": ("x, y", "", "equal elements share the gradient, as PyTorch"),
        "eq": COMPARE, "ne": COMPARE, "lt": COMPARE, "le": COMPARE, "gt": COMPARE, "ge": COMPARE,
        "logical_and": COMPARE, "logical_or": COMPARE, "logical_xor": COMPARE,
        "bitwise_and": BITS, "bitwise_or": BITS, "bitwise_xor": BITS,
        "bitwise_left_shift": ("x, y: integers", "", "by the width or more, or by less than 0: 0"),
        "bitwise_right_shift": ("x, y: integers", "", "by the width or more, or by less than 0: the sign alone"),
        "where": ("condition, x, y", "", "the condition may have any dtype"),
    },
    "Tensors from nothing": {
        "full": ("", "`shape`, `value` (0), `dtype` (f32)", ""),
        "const": ("", "`shape`, `dtype` (f32)", "made by `ts_const` only"),
        "iota": ("", "`shape`, `dim` (0), `dtype` (f32)", "the coordinate along dim: `arange`, expanded"),
        "rand": ("", "`shape`, `dtype` (f32; or f64), `stream` (0)",
                 "uniform in [0, 1) in steps of 2^-24. The numbers depend on the engine's seed, the stream, "
                 "the micro-batch and the element only; not PyTorch's numbers"),
        "randn": ("", "`shape`, `dtype` (f32), `stream` (0)", "standard normal, by Box and Muller from f32"),
        "round_random": ("x: f32", "`dtype`: f16 or bf16, `stream` (0)",
                         "not in PyTorch: one of the two halves around x, the upper one as often as x is close to "
                         "it, so x on average. Halves, infinities and NaN stay. Beyond the largest half comes "
                         "infinity, as far away as the next half would be: of 65520 every second is 65504"),
        "dropout": ("x: floats", "`p` (0.5), `training` (1), `stream` (0)", "other random numbers"),
    },
    "Views": {
        "reshape": ("x", "`shape`: one size may be -1", ""),
        "permute": ("x", "`dims`: each of 0..rank-1 once", "no negative dims"),
        "expand": ("x", "`shape`: -1 keeps a size", ""),
        "slice": ("x", "`dim` (0), `start` (0), `end`, `step` (1)",
                  "0 <= start < end <= size: the caller clamps, and nothing is empty"),
        "pad": ("x", "`lo`, `hi`: a value each dim, `value` (0)",
                "dims in order, where `F.pad` has them from the last; never negative"),
        "flip": ("x", "`dims`", ""),
        "concat": ("x, ... at most 64 (`ts_concat`: any number)", "`dim` (0)", "`torch.cat`; equal dtypes"),
    },
    "Reductions": {
        "sum": ("x", "`dims` (all), `keepdim` (0)", "integers and bool add up in i64, as PyTorch"),
        "amax": ("x", "`dims` (all), `keepdim` (0), `ties` (share)", "equal extremes share the gradient, as PyTorch; `ties=first`: the first has it, as in `max` of a dim; `each`: each has all of it; `norm`: one that is NaN has none"),
        "amin": ("x", "`dims` (all), `keepdim` (0), `ties` (share)", "equal extremes share the gradient, as PyTorch; `ties=first`: the first has it, as in `max` of a dim; `each`: each has all of it; `norm`: one that is NaN has none"),
        "prod": ("x", "`dims` (all), `keepdim` (0)", "several dims at once"),
        "argmax": ("x", "`dims`: one (all: the flat place), `keepdim` (0)", "the first of equals; i64"),
        "argmin": ("x", "`dims`: one (all: the flat place), `keepdim` (0)", "the first of equals; i64"),
        "mean": ("x: floats", "`dims` (all), `keepdim` (0)", ""),
        "logsumexp": ("x: floats", "`dims` (all), `keepdim` (0)", "no gradient worth having in a row of -inf"),
        "softmax": ("x: floats", "`dim` (-1)", ""),
        "log_softmax": ("x: floats", "`dim` (-1)", ""),
    },
    "Products": {
        "matmul": ("x [.., m, k], y [.., k, n]", "", "rank 2 at least; `ts_matmul` takes vectors too"),
        "conv": ("x [N, C, ..], w [O, C/groups, ..]",
                 "`stride` (1), `padding` (0), `dilation` (1), `groups` (1), `winograd` (0): 4 where the CPU computes it by tiles",
                 "1 to 3 spatial dims by the rank of x; padding in numbers only; a batch is needed"),
        "conv_input": ("dy [N, O, ..], w", "as conv, and `shape`: the spatial sizes of x",
                       "`torch.nn.grad.conv2d_input`"),
        "conv_weight": ("x, dy", "as conv, and `shape`: the kernel's sizes, `parts` (1) of dy's rows",
                        "`torch.nn.grad.conv2d_weight`; with parts the sum of each, counted by a first dim, and no gradient"),
        "linear": ("x [.., in], w [out, in], optional b [out]", "", "w and b are cast to x's dtype"),
        "conv_bias": ("x, w, optional b [O]", "`stride` (1), `padding` (0), `dilation` (1), `groups` (1)", "w and b are cast to x's dtype"),
        "conv_transpose": ("x [N, C, ..], w [C, O/groups, ..], optional b [O]",
                           "`stride` (1), `padding` (0), `dilation` (1), `groups` (1), `output_padding` (0)", ""),
        "attention": ("q [.., T, d], k [.., S, d], v [.., S, e], optional mask",
                      "`scale` (1 / sqrt d)", "`scaled_dot_product_attention` without dropout; a mask of "
                      "numbers is added to the scores, one of bools is true where to look"),
    },
    "Pooling and resizing: x [N, C, ..], 1 to 3 spatial dims": {
        "max_pool": ("x", "`kernel`, `stride` (kernel), `padding` (0), `ceil_mode` (0)",
                     "the second output is the place in the window (0 .. taps-1, u8 or i32), not in the input; "
                     "no dilation"),
        "max_pool_grad": ("dy, places", "as max_pool, and `shape`: the spatial sizes of x", "max_pool's gradient"),
        "sum_pool": ("x", "as max_pool", "avg_pool times the window, padding is 0"),
        "untile": ("x [kh, kw, N, th, tw, C]", "`shape`: 2 values",
                   "tiles that do not overlap, back as a picture [N, C, *shape*]; no gradient"),
        "sum_pool_grad": ("dy", "as sum_pool, and `shape`", "sum_pool's gradient"),
        "windows": ("x [N, C, H, W]", "`kernel`, `stride`, `padding`, `count`: 2 values each",
                    "`unfold` to [kh, kw, N, *count*, C], 0 outside x; no gradient. Fast convolutions are made of it"),
        "mix": ("x, m [rows, size]: f32", "`dim` (0)", "m times x along dim; no gradient goes to m"),
        "avg_pool": ("x: floats", "as max_pool, and `exclude_pad` (0)", "`exclude_pad` is not `count_include_pad`; "
                     "no `divisor_override`"),
        "adaptive_avg_pool": ("x: floats", "`size`", ""),
        "upsample_nearest": ("x: floats", "`size`", "by size, not by factor; `nearest`, not `nearest-exact`"),
        "upsample_bilinear": ("x: floats", "`size`, `align_corners` (0)",
                              "linear and trilinear too, by the rank of x; by size, not by factor"),
    },
    "Indexing; indices are i8, u8, i32 or i64": {
        "gather": ("x, index", "`dim` (0)", ""),
        "scatter_add": ("index, source", "`dim` (0), `shape` of the result",
                        "onto zeros; index and source of the same shape"),
        "index_select": ("x, index", "`dim` (0)", "an index of any rank takes the place of dim: `x[:, index]`"),
        "index_add": ("index, source", "`dim` (0), `size` of the result in dim", "onto zeros; an index of any rank"),
        "sort": ("x", "`dim` (-1), `count` (0), `descending` (0)",
                 "outputs the values and their places (i64), the first `count` of them or all; always stable; NaN is "
                 "the largest"),
        "argsort": ("x", "`dim` (-1), `count` (0), `descending` (0)", "the places of sort"),
        "run_starts": ("index, sorted", "`dim` (0), `size`",
                       "not in PyTorch: where the indices from 0 to size - 1 would begin in it"),
        "run_add": ("starts, source, places", "`dim` (0)",
                    "not in PyTorch: index_add of an index whose `places` are sorted (`pass/runs.c`)"),
        "recur": ("x, w, b, h0[, c0]", "`cell`, `reverse` (0), `strips` (0)",
                  "the steps of `torch.lstm`, `gru`, `rnn_tanh`, `rnn_relu`; x is their input times its weights. Also gives what "
                  "the gradient needs"),
        "recur_grad": ("dh, w, what was saved, ..", "`cell`, `reverse` (0), `strips` (0)", "recur's gradient by x and the first states"),
        "scatter_amax": ("index, source, x", "`dim` (0)", "`scatter_reduce(\"amax\")` of x; ties share the gradient"),
        "scatter_amin": ("index, source, x", "`dim` (0)", "`scatter_reduce(\"amin\")` of x; ties share the gradient"),
        "scatter_prod": ("index, source, x", "`dim` (0)", "`scatter_reduce(\"prod\")` of x"),
        "row_scatter": ("index, source, x", "`dim` (0), `how`", "not in PyTorch: a row of x at a time, to which the source is added "
                        "(add), written (put), or of which the product, largest or smallest is taken (prod, amax, amin)"),
        "scan": ("x", "`dim` (0), `how`, `reverse` (0)", "`cumsum` (how=add), `cumprod` (mul); from the end of dim if reverse"),
        "scan_places": ("x", "`dim` (0), `how`", "the second result of `cummax` (how=max) and `cummin` (min)"),
        "run_amax": ("starts, source, places, x", "`dim` (0)", "not in PyTorch: scatter_amax of an index whose `places` are sorted"),
        "run_amin": ("starts, source, places, x", "`dim` (0)", "not in PyTorch: scatter_amin of an index whose `places` are sorted"),
        "one_hot": ("index", "`classes`, `dtype` (i64)", "classes must be given; an index outside is a row of zeros"),
        "embedding": ("index, w [rows, cols]", "", "no `padding_idx`, `max_norm`, `sparse`"),
    },
    "The host": {
        "host_call": ("any", "`id`, `types` of the results (\"f32[4] i32[2]\"), `gradient` (-1), `checks` (`pass/guard.c` only)",
                      "not in PyTorch; calls `ts_run_options.host`; without `types` it is a tap: its one input, which "
                      "the host sees, and whose gradient is a tap; with `types` and `gradient` the gradient is a call too"),
    },
    "Activations": {
        "leaky_relu": ("x: floats", "`negative_slope` (0.01)", ""),
        "gelu": ("x: floats", "`approximate` (none; or tanh)", ""), "silu": ("x: floats", "", ""),
        "elu": ("x: floats", "`alpha` (1)", "no `scale`, `input_scale`"),
        "softplus": ("x: floats", "`beta` (1), `threshold` (20)", ""),
        "clamp": ("x", "`min` (none), `max` (none), `open` (0)", "numbers only; `open`: no gradient at the ends, as `hardtanh`; NaN passes its gradient on, where PyTorch gives 0"),
    },
    "Norms": {
        "batch_norm": ("x [N, C, ..], running_mean [C], running_var [C], optional w [C], b [C]",
                       "`eps` (1e-5), `momentum` (0.1), `training` (1)",
                       "outputs y and the next running mean and variance; assign those to the buffers. "
                       "Statistics in f32 (f64 for f64); running statistics are needed"),
        "group_norm": ("x [N, C, ..], optional w [C], b [C]", "`groups` (1), `eps` (1e-5)", "rank 7 at most"),
        "layer_norm": ("x, optional w, b of the last dims", "`ndims` (1): how many last dims, `eps` (1e-5)", ""),
    },
    "Losses; `reduction` (mean), sum or none": {
        "nll_loss": ("x [N, C, ..] or [C], target [N, ..] of integers, optional w [C]", "`reduction`, `ignore_index`",
                     "nothing is ignored unless `ignore_index` is given (PyTorch: -100)"),
        "cross_entropy": ("x [N, C, ..] or [C], target [N, ..] of integers, optional w [C]",
                          "`reduction`, `ignore_index`, `label_smoothing` (0)",
                          "as nll_loss; no targets of probabilities"),
        "mse_loss": ("x, target", "`reduction`", "equal shapes: no broadcasting"),
        "l1_loss": ("x, target", "`reduction`", "equal shapes"),
        "smooth_l1_loss": ("x, target", "`reduction`, `beta` (1)", "equal shapes"),
        "binary_cross_entropy": ("x in 0..1, target, optional w", "`reduction`",
                                 "x outside 0..1 is not noticed; in f16 the slope at 0 and 1 is at most 2^14"),
        "binary_cross_entropy_with_logits": (
            "x, target, optional w, optional pos_weight",
            "`reduction`, `has_weight` (0): the third input is w, not pos_weight", ""),
        "kl_div": ("x: log-probabilities, target", "`reduction` (also batchmean), `log_target` (0)",
                   "a target of 0 has gradient 0"),
        "identity_loss": ("x", "`reduction`", "not in PyTorch; poptorch's"),
    },
    "Control": {
        "for_loop": ("what the body takes; one sub-graph", "`count`",
                     "not in PyTorch; the body's outputs are its next inputs; written out, 20000 ops at most"),
        "cond": ("one bool, what both sides take; two sub-graphs", "", "both sides are computed"),
    },
}


def attributes():
    """name -> {attribute: kind} of every ATTRS row."""
    found = re.findall(r'^ATTRS\( (\w+), *"(.*)" \)$', (ROOT / "src/op/ops.h").read_text(), re.M)
    return {name: dict(a.split(":") for a in attrs.split()) for name, attrs in found}


def with_kinds(name, note, kinds):
    """A note on attributes with their kinds; one that is missing or too many is an error."""
    while m := re.match(r"as (\w+)(, and )?", note):
        family = next(f for f in NOTES.values() if m[1] in f)
        note = family[m[1]][1] + (", " if m[2] else "") + note[m.end():]
    named = re.findall(r"`(\w+)`", note)
    if sorted(named) != sorted(kinds):
        sys.exit(f"ops-doc: the note for '{name}' has {', '.join(named)}; ops.h has {', '.join(kinds)}")
    return re.sub(r"`(\w+)`", lambda m: f"`{m[1]}:{kinds[m[1]]}`", note)


def table():
    """name -> (differentiable, result) of every row."""
    rows = {}
    for line in (ROOT / "src/op/ops.h").read_text().splitlines():
        m = re.match(r"(POINT|OP|MACRO|CONTROL)\((.*)\)\s*$", line)
        if not m:
            continue
        f = [x.strip() for x in m[2].split(",")]
        if m[1] == "POINT":
            grad = "yes" if f[3] != "none" else "no"
            rows[f[0]] = (grad, "bool" if f[2] == "b" else "")
        elif m[1] == "OP":
            source = "TS_SOURCE" in f[3] or "TS_NODIFF" in f[3]
            rows[f[0]] = ("yes" if f[5] != "none" else "no" if source else "no, error", "")
        else:
            rows[f[0]] = ("composite", "")
    return rows


def text():
    rows, out, noted, kinds = table(), [HEAD], set(), attributes()
    for family, ops in NOTES.items():
        out.append(f"\n## {family}\n\n| op | inputs | attributes | grad | differs |\n| --- | --- | --- | --- | --- |\n")
        for name, (inputs, attrs, differs) in ops.items():
            if name not in rows:
                sys.exit(f"ops-doc: a note for '{name}', which is not in ops.h")
            grad, result = rows[name]
            noted.add(name)
            attrs = with_kinds(name, attrs, kinds.get(name, {}))
            differs = "; ".join(x for x in (f"gives {result}" if result else "", differs) if x)
            out.append(f"| `{name}` | {inputs} | {attrs} | {grad} | {differs} |\n")
    if missing := sorted(rows.keys() - noted):
        sys.exit(f"ops-doc: no note for {', '.join(missing)}")
    return "".join(out)


def main():
    if sys.argv[1:] == ["--check"]:
        if not OUT.exists() or OUT.read_text() != text():
            sys.exit("doc/ops.md is not up to date: tools/ops-doc.py writes it")
    elif sys.argv[1:]:
        sys.exit("usage: tools/ops-doc.py [--check]")
    else:
        OUT.parent.mkdir(exist_ok=True)
        OUT.write_text(text())


if __name__ == "__main__":
    main()
