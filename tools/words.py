#!/usr/bin/python3
"""What follows from the table of words, src/front/vocabulary.h.

    tools/words.py header FILE     the prototypes of tessera/ops.h; the build makes it
    tools/words.py source FILE     the functions behind them
    tools/words.py doc [--check]   doc/words.md; --check: exit 1 when it is not what this would write

Every op of src/op/ops.h must have a C function: a word of its name, a word that makes it, or a row MADE.
"""

import re
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "src" / "front" / "vocabulary.h"
OPS = ROOT / "src" / "op" / "ops.h"
PAGE = ROOT / "doc" / "words.md"

#: the names of a list's integers, by their number
SIZES = {1: ["length"], 2: ["height", "width"], 3: ["depth", "height", "width"]}
KINDS = {"x": "tensor", "n": "tensor or number", "f": "number", "i": "integer", "b": "bool", "s": "text",
         "l": "integers", "e": "integers", "m": "numbers", "t": "tensors", "d": "dtype", "r": "reduction"}


class Argument:
    """name, kind, count of a list, what it is when left out (None: it is needed), whether C takes it"""

    def __init__(self, text, c):
        m = re.fullmatch(r"(\w+)(?::(\w)(\d?))?(\?)?(=\S*)?", text)
        if not m:
            sys.exit(f"words: not an argument: '{text}'")
        self.name, self.kind, self.c = m[1], m[2] or "x", c
        self.count = int(m[3] or 0)
        self.optional, self.otherwise = bool(m[4]), m[5][1:] if m[5] else None
        if self.kind not in KINDS:
            sys.exit(f"words: '{text}' has no kind '{self.kind}'")

    def parameters(self):
        """As C has it."""
        integer = "int" if "dim" in self.name else "int64_t"
        plain = {"x": "ts_value *", "n": "ts_value *", "f": "double ", "b": "bool ", "s": "const char *",
                 "d": "ts_dtype ", "r": "ts_reduction ", "i": integer + " ", "e": "int64_t "}
        if self.kind == "l" and self.count:
            return [f"int64_t {n}" for n in SIZES[self.count]]
        if self.kind in plain:
            return [plain[self.kind] + self.name]
        of = {"l": "const int64_t *", "m": "const double *", "t": "ts_value *const *"}[self.kind]
        return [f"int n{self.name}", of + self.name]

    def made(self):
        """The ts_arg of it."""
        n = self.name
        if self.kind == "l" and self.count:
            return f"ts_arg_ints(NULL, {self.count}, (int64_t[]){{{', '.join(SIZES[self.count])}}})"
        return {"x": f"ts_arg_tensor(NULL, {n})", "n": f"ts_arg_tensor(NULL, {n})", "f": f"ts_arg_number(NULL, {n})",
                "i": f"ts_arg_int(NULL, {n})", "b": f"ts_arg_int(NULL, {n})", "e": f"ts_arg_int(NULL, {n})",
                "s": f"ts_arg_text(NULL, {n})", "d": f"ts_arg_text(NULL, ts_dtype_name({n}))",
                "r": f"ts_arg_text(NULL, reduction_name({n}))", "l": f"ts_arg_ints(NULL, n{n}, {n})",
                "m": f"ts_arg_numbers(NULL, n{n}, {n})", "t": f"ts_arg_tensors(NULL, n{n}, {n})"}[self.kind]

    def documented(self):
        kind = KINDS[self.kind] + (f", {self.count}" if self.count else "")
        if self.kind == "x":
            return f"`{self.name}`" + (" (none)" if self.optional else "")
        value = f" = {self.otherwise}" if self.otherwise else " (none)" if self.optional or self.otherwise == "" else ""
        return f"`{self.name}`: {kind}{value}"


class Word:
    """A row."""

    def __init__(self, fields, section):
        self.name, self.c, self.rule, op, _, _, text, self.about = fields[:8]
        self.op, self.section = op.strip('"'), section
        text, _, results = text.strip('"').partition("->")
        before, _, after = text.partition("/")
        self.about = self.about.strip('"')
        self.arguments = [Argument(t, True) for t in before.split()] + [Argument(t, False) for t in after.split()]
        self.results = results.split()

    @property
    def function(self):
        into = "_into" if self.results == ["*"] else ""
        return f"ts_{self.name}" + {"n": "_n", "f": "_with"}.get(self.c, into)

    def taken(self):
        return [a for a in self.arguments if a.c]

    def outs(self):
        """(index, name) of the results after the first"""
        return [(i, n) for i, n in enumerate(self.results) if i and n not in "-*"]

    def signature(self):
        several = self.results == ["*"]
        found = any(a.kind in "xnt" for a in self.taken())
        parameters = [] if found else ["ts_graph *g"]
        for a in self.taken():
            parameters += a.parameters()
        parameters += ["int room", "ts_value **out"] if several else [f"ts_value **{n}" for _, n in self.outs()]
        return ("int " if several else "ts_value *") + f"{self.function}({', '.join(parameters)})"


def fields_of(row):
    """The fields of a row: commas in text do not count."""
    return [f.strip() for f in re.findall(r'\s*("(?:[^"\\]|\\.)*"|[^,]+)(?:,|$)', row)]


def words():
    section, out = "", []
    for kind, row in re.findall(r"^(SECTION|WORD|OURS|VIEW)\( (.*) \)$", TABLE.read_text(), re.M):
        if kind == "SECTION":
            section = row.strip('"')
        else:
            out.append(Word(fields_of(row), section))
    return out


def check_ops(all_words):
    made = set(re.findall(r"^MADE\( (\w+),", TABLE.read_text(), re.M))
    made |= {w.name for w in all_words} | {w.op for w in all_words if w.c != "-"}
    ops = re.findall(r"^(?:POINT|OP|MACRO|CONTROL)\( (\w+),", OPS.read_text(), re.M)
    if missing := [op for op in ops if op not in made]:
        sys.exit(f"words: no C function for the op {', '.join(missing)}")


def comment(text):
    return "\n".join(textwrap.wrap(f"/* {text} */", 96, subsequent_indent=" * ", break_on_hyphens=False))


def prototype(word):
    text = f"TS_API {word.signature()};"
    return "\n".join(textwrap.wrap(text, 100, subsequent_indent="    ", break_on_hyphens=False))


def macro(word):
    """ts_reshape(x, 2, 3) for ts_reshape_n"""
    before = [p.split("*")[-1].split()[-1] for a in word.taken()[:-1] for p in a.parameters()]
    return f"#define ts_{word.name}({', '.join(before)}, ...) {word.function}({', '.join(before)}, TS_DIMS_(__VA_ARGS__))"


def header():
    all_words = words()
    check_ops(all_words)
    out = ["/* tessera/ops.h - a C function for every word, made of src/front/vocabulary.h by tools/words.py.",
           " *", " * Included by tessera.h. Names and meaning are PyTorch's. A list is its length and its address; a",
           " * tensor that may be left out may be NULL, and so may the address of a result that is not",
           " * wanted. A call that cannot be done returns NULL, as does one of a NULL value; the graph",
           " * remembers why. What a function here cannot say (lists for each dim, numbers for tensors, the",
           " * other options) ts_word() can. */",
           "#ifndef TESSERA_OPS_H", "#define TESSERA_OPS_H"]
    section, functions = None, []
    for w in all_words:
        if w.c == "-":
            continue
        if w.section != section:
            section = w.section
            out += ["", f"/* --- {section.lower()} " + "-" * (89 - len(section)) + " */", ""]
        out += [comment(w.about), prototype(w)]
        out += [macro(w)] if w.c == "n" else []
        functions.append(w.function)
    out += ["", "#ifndef TS_NO_LOCATIONS", "#define TS_AT_(call) (ts_here(__FILE__, __LINE__), call)"]
    out += [f"#define {f}(...) TS_AT_({f}(__VA_ARGS__))" for f in functions]
    return "\n".join(out + ["#endif", "#endif", ""])


def body(w):
    args = ", ".join(a.made() for a in w.taken())
    graph = "NULL" if any(a.kind in "xnt" for a in w.taken()) else "g"
    call = f'ts_word_make({graph}, "{w.name}", {len(w.taken())}, (ts_arg[]){{{args}}}, '
    if w.results == ["*"]:
        return f"    return {call}room, out);\n"
    room = max([i for i, _ in w.outs()], default=0) + 1
    lines = [f"    ts_value *out[{room}];", "", f"    {call}{room}, out);"]
    for i, name in w.outs():
        lines += [f"    if ({name})", f"        *{name} = out[{i}];"]
    return "\n".join(lines + ["    return out[0];", ""])


def source():
    out = ["/* The functions of tessera/ops.h, made by tools/words.py. */", '#include "front/words.h"', "",
           "static const char *reduction_name(ts_reduction r)", "{",
           '    static const char *const names[] = {"mean", "sum", "none"};', "",
           '    return (unsigned)r <= TS_REDUCTION_NONE ? names[r] : "no reduction";', "}", ""]
    for w in words():
        if w.c in "wf":
            out += [w.signature(), "{", body(w).rstrip("\n"), "}", ""]
    return "\n".join(out)


HEAD = """\
# Words

Written by `tools/words.py` from `src/front/vocabulary.h`.

A word is a function of the user's world, with PyTorch's name and meaning; it becomes one op of the graph
([ops.md](ops.md)) or many. Each can be said in four ways:

- in Python, by PyTorch's own function: `torch.nn.functional.hardtanh(x, -2, 2)` ([torch-ops.md](torch-ops.md));
- in a model's description, as a line ([models.md](models.md)): `hardtanh min_val=-2 max_val=2`;
- in C, by the function in the table: `ts_hardtanh(x, -2, 2)`;
- in C by name, with any of its arguments: `ts_word(g, "hardtanh", NULL, 2, (ts_arg[]){ts_arg_tensor("x", x),
  ts_arg_number("max_val", 2)}, 1, &y, &n)`.

An argument without `=` or (none) is needed. One of integers that says a number wants so many; kernels, strides and
the like may also be one integer for all dims, as in C. Where there is no function, the layers and losses of `tessera.h`
have the word.
"""


def page():
    out, section = [HEAD], None
    for w in words():
        if w.section != section:
            section = w.section
            out.append(f"\n## {section}\n\n| word | C | arguments | |\n| --- | --- | --- | --- |\n")
        arguments = ", ".join(a.documented() for a in w.arguments).replace("|", "\\|")
        function = "" if w.c == "-" else f"`{w.function}`"
        about = w.about.replace("|", "\\|")
        out.append(f"| `{w.name}` | {function} | {arguments} | {about} |\n")
    return "".join(out)


def main():
    made = {"header": header, "source": source}
    if len(sys.argv) == 3 and sys.argv[1] in made:
        Path(sys.argv[2]).write_text(made[sys.argv[1]]())
    elif sys.argv[1:] == ["doc", "--check"]:
        if not PAGE.exists() or PAGE.read_text() != page():
            sys.exit("doc/words.md is not up to date: tools/words.py doc writes it")
    elif sys.argv[1:] == ["doc"]:
        PAGE.write_text(page())
    else:
        sys.exit("usage: tools/words.py header FILE | source FILE | doc [--check]")


if __name__ == "__main__":
    main()
