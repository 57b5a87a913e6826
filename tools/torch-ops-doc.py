#!/usr/bin/python3
"""Write doc/torch-ops.md: the ATen ops that poptorch takes, from the tables in src/front/vocabulary.h and _composed.py.

    tools/torch-ops-doc.py            write it
    tools/torch-ops-doc.py --check    exit 1 when it is not what this would write

What a row refuses is found in its function: the words of ts_call_refuse.
"""

import re
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "doc" / "torch-ops.md"

HEAD = """\
# PyTorch ops

Written by `tools/torch-ops-doc.py` from the tables in `src/front/vocabulary.h` and `_composed.py`.

What a model's `forward()` may call: these ATen ops, and every function of PyTorch that is made of them (`einsum`,
`F.normalize`, `chunk`, `nn.LSTM`, ...). A name without an overload stands for all of them; `op_` and `out=` count
as the op. Names of PyTorch 1.13 and of 2.x both have rows.

- Each op is compared with PyTorch, values and gradients, in `test/python/test_poptorch_ops.py`, which also states a
  call of PyTorch for every op of the engine (`doc/ops.md`). `doc/torch-samples.md` has the ops by PyTorch's own samples.
- What does not depend on inputs, weights or buffers is computed by PyTorch while the model is traced, so it needs no
  row: any op may make a mask, a position or a table.
- An op without a row, and a call that a row refuses, are reported together, each with the line of the model.
- A result whose size depends on values (`nonzero`, `unique`, `x[mask]` with a mask that is computed) cannot be, but for
  `x[mask]` where its size does not matter (`doc/python.md`). With a mask that is a constant `x[mask]` works;
  `x[mask] = v` and `masked_fill` always do.
- Complex numbers are pairs of real ones: `_complex.py` has what may be done with them.
- Of several values written to one place (`scatter`, `x[i] = v`) the last is taken.
- `sort` and what uses it are stable; results in `i64` come back as `int32`.
- `ctc_loss` takes 512 steps at most. Matrices that are factored or inverted have 64 rows at most; where PyTorch raises
  because one is singular, or not positive, the result has infinities or NaN.
"""


def functions():
    """function -> what it refuses, itself or through the functions of its file that it calls"""
    found = {}
    for file in sorted((ROOT / "src/front").glob("words*.c")):
        bodies = dict(re.findall(r"^(?:static )?[\w *]+?(\w+)\([^;{]*?\)\n\{\n(.*?)^\}", file.read_text(), re.M | re.S))

        def words(name, seen):
            out = re.findall(r'ts_call_refuse\(\s*c,\s*((?:"[^"]*"\s*)+)', bodies[name])
            for called in dict.fromkeys(re.findall(r"\b(\w+)\(", bodies[name])):
                if called in bodies and called not in seen:
                    seen.add(called)
                    out += words(called, seen)
            return out

        for name in bodies:
            found[name] = list(dict.fromkeys("".join(re.findall(r'"([^"]*)"', w)) for w in words(name, {name})))
    return found


def families():
    """[(family, [(op, function)])]"""
    text, out, rules = (ROOT / "src/front/vocabulary.h").read_text(), [], {}
    for kind, rest in re.findall(r'^(SECTION|WORD|OURS|VIEW|ALSO|TRACE)\( (.*) \)$', text, re.M):
        if kind == "SECTION":
            out.append((rest.strip('"'), []))
            continue
        name, what = (f.strip().strip('"') for f in rest.split(",")[:2])
        if kind in ("WORD", "OURS", "VIEW"):
            what = rules[name] = rest.split(",")[2].strip()
        what = rules[what] if kind == "ALSO" else what
        if kind != "OURS" and "poptorch::" not in name and what not in ("dynamic", "engine"):    # that one only says why not
            out[-1][1].append((name.replace("aten::", ""), f"ts_word_{what}"))
    return [(family, rows) for family, rows in out if rows]


def composed():
    """The ops of _composed.py"""
    text = (ROOT / "python/poptorch/_composed.py").read_text()
    return re.findall(r'"aten::(\w+)"', text[text.index("COMPOSED:"):])


def wrapped(line):
    return textwrap.fill(line, 118, break_long_words=False, break_on_hyphens=False) + "\n"


def text():
    refused, out, count = functions(), [], 0
    for family, rows in families():
        out.append(f"\n## {family[0].upper()}{family[1:]}\n\n" + wrapped(" ".join(f"`{op}`" for op, _ in rows)))
        count += len(rows)
        notes = {}
        for op, function in rows:
            for why in refused.get(function, []):
                notes.setdefault(re.sub(r"%(ll)?[a-z]", "..", why), []).append(op)
        if notes:
            out.append("\n" + wrapped("Refused: " + "; ".join(
                f"{why} ({', '.join(f'`{o}`' for o in ops)})" for why, ops in notes.items()) + "."))
    out.append("\n## Made of others\n\n" + wrapped(" ".join(f"`{op}`" for op in composed())))
    return f"{HEAD}\n{count} rows.\n" + "".join(out)


def main():
    if "--check" in sys.argv[1:]:
        if OUT.read_text() != text():
            sys.exit("doc/torch-ops.md is not up to date: tools/torch-ops-doc.py writes it")
        return
    OUT.write_text(text())


main()
