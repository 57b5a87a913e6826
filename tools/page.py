#!/usr/bin/python3
"""The page of `tessera report` as C: src/show/page/ in two strings, what comes before the data and after it.

    tools/page.py FILE     the build makes it

page.html names its parts, and each is put where it stands:

    <!-- style.css -->     the text of that file, in a <style>
    <!-- unpack.js -->     in a <script>
    <!-- data -->          the cut between the two strings
"""

import re
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "src" / "show" / "page"
CUT = "<!-- data -->"


def part(name):
    text = (PAGE / name).read_text()
    return f"<style>\n{text}</style>" if name.endswith(".css") else f"<script>\n{text}</script>"


def whole():
    return re.sub(r"<!-- (\w+\.(?:css|js)) -->", lambda m: part(m[1]), (PAGE / "page.html").read_text())


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
