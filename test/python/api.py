"""What the public headers declare, as the compiler sees them: functions, enums, structs."""

import os
import re
import subprocess


def folders(root):
    """Where headers are: those that are written, and tessera/ops.h, which is made while building."""
    return [root / "include", root / os.environ.get("TS_BUILD_ROOT", "build") / "include"]


def headers(root):
    """All of them as programs include them: tessera.h, tessera/data.h, ..."""
    return ["tessera.h", *sorted(f"tessera/{p.name}" for p in (root / "include/tessera").glob("*.h"))]


def text(root):
    """The declarations of all headers, comments gone and macros expanded; TS_API is ts_api_mark."""
    program = "".join(f"#include <{h}>\n" for h in headers(root))
    done = subprocess.run(["cc", "-E", "-x", "c", *(f"-I{d}" for d in folders(root)), "-"], input=program, capture_output=True,
                          text=True, check=True).stdout
    out, ours = [], False
    for line in done.splitlines():
        marker = re.match(r'# \d+ "(.*?)"', line)
        if marker:
            ours = any(marker[1].startswith(f"{d}/") for d in folders(root))
        elif ours:
            out.append(line)
    marked = "\n".join(out).replace('__attribute__((visibility("default")))', "ts_api_mark")
    return re.sub(r"__attribute__\s*\(\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)\)", " ", marked)


def functions(root):
    declared = text(root)
    names = re.findall(r"\bts_api_mark\b[^;{]*?\b(\w+)\s*\(", declared)
    assert names and len(names) == len(re.findall(r"\bts_api_mark\b", declared)), "a TS_API that is not on a function"
    return set(names)


def enums(root):
    """[(name, [constants])]; the name of one without is ""."""
    found = re.findall(r"\benum\s*(\w*)\s*\{(.*?)\}", text(root), re.S)
    return [(name, re.findall(r"\b(TS_\w+)", body)) for name, body in found]


def structs(root):
    """[(name, [fields])]"""
    out = []
    for name, body in re.findall(r"\btypedef struct (\w+)\s*\{(.*?)\n\}", text(root), re.S):
        fields = []
        body = re.sub(r"\bunion\s*\{.*?\}", "union", body, flags=re.S)    # one field, by its own name
        for declaration in filter(None, (d.strip() for d in body.split(";"))):
            pointer = re.search(r"\(\*(\w+)\)", declaration)
            parts = [pointer[1]] if pointer else [re.search(r"(\w+)\s*(?:\[[^]]*\])?$", p.strip())[1]
                                                  for p in declaration.split(",")]
            fields += parts
        out.append((name, fields))
    return out
