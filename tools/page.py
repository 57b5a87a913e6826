#!/usr/bin/python3
"""The page of `tessera report` as C: src/show/page/ in two strings, what comes before the data and after it.

    tools/page.py FILE     the build makes it

page.html names its parts, and each is put where it stands:

    <!-- style.css -->     the text of that file, in a <style>
    <!-- a.js b.js -->     in one <script>, without the comments, indents and blanks, which stay in the tree
    <!-- data -->          the cut between the two strings
"""

import re
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "src" / "show" / "page"
CUT = "<!-- data -->"


#: a piece of JavaScript: comment, string, template (without one inside it), regular expression after what cannot end
#: a value, blanks, anything else
PIECE = re.compile(r"""(/\*.*?\*/|//[^\n]*)|("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|(`)|(?<=[(,=:!&|?] )(/(?:\\.|\[(?:\\.|[^\]])*\]|[^/\\\n])+/)|(?<=\()(/(?:\\.|\[(?:\\.|[^\]])*\]|[^/\\\n])+/)|([ ]+)|(\n\s*)|(.)""", re.S)
TIGHT = set("=<>&|?:,;{}()[]*!+-")
TWICE = {"++", "--"}    # two of them in a row are another


def template(text, at):
    """Where the template that begins at `at` ends; templates inside its ${} are part of it."""
    depth, at = 0, at + 1
    while True:
        if text[at] == "\\":
            at += 1
        elif text.startswith("${", at):
            depth, at = depth + 1, at + 1
        elif depth and text[at] == "}":
            depth -= 1
        elif text[at] == "`" and depth:
            at = template(text, at) - 1
        elif text[at] == "`":
            return at + 1
        at += 1


def squeeze(text):
    """The same program in fewer bytes: no comments, no indents, no blanks beside punctuation, no semicolon that ends a
    block (so no loop may have an empty statement for its body there). Lines stay lines, but for those that end in a comma."""
    out, at = "", 0
    while at < len(text):
        m = PIECE.match(text, at)
        comment, string, tick, regex, regex2, blank, line, _ = m.groups()
        end = template(text, at) if tick else m.end()
        if line:
            out += "" if out.endswith(("\n", ",", "(")) or not out else "\n"
        elif blank:
            before, after = out[-1:], text[end:end + 1]
            tight = before in TIGHT | {"\n", ""} or after in TIGHT
            out += "" if tight and before + after not in TWICE else " "
        elif text[at] == "}" and out.rstrip("\n").endswith(";"):
            out = out.rstrip("\n")[:-1] + out[len(out.rstrip("\n")):] + "}"
        elif not comment:
            out += text[at:end]
        at = end
    return out


def part(names):
    texts = [(PAGE / name).read_text() for name in names]
    if names[0].endswith(".css"):
        return f"<style>\n{''.join(texts)}</style>"
    strict = '"use strict";\n'
    return f"<script>\n{strict}{squeeze(''.join(t.removeprefix(strict) for t in texts))}</script>"


def whole():
    return re.sub(r"<!-- ((?:\w+\.(?:css|js)\s+)+)-->", lambda m: part(m[1].split()), (PAGE / "page.html").read_text())


def literal(line):
    """A line as a C string; the question mark so that no compiler sees a trigraph."""
    return '"' + line.replace("\\", "\\\\").replace('"', '\\"').replace("?", "\\?") + '\\n"'


def source(name, text):
    lines = "\n".join(literal(line) for line in text.splitlines())
    return f"extern const char {name}[];\nconst char {name}[] =\n{lines};\n"


def main():
    head, tail = whole().split(CUT)
    Path(sys.argv[1]).write_text("/* Made of src/show/page by tools/page.py. */\n" +
                                 source("ts_page_head", head) + source("ts_page_tail", tail.lstrip("\n")))


if __name__ == "__main__":
    main()
