"""The shared library exports what tessera.h marks TS_API, and nothing else."""

import re
import subprocess

# Put there by some linkers, not by us.
LINKER = {"_init", "_fini", "_edata", "_end", "__bss_start"}


def declared(root, build_dir):
    """The functions marked TS_API, as the compiler sees them: comments gone, macros expanded."""
    header = (root / "include" / "tessera.h").read_text()
    marked, n = re.subn(r"^(\s*#\s*define\s+TS_API)\b(?:.*\\\n)*.*$", r"\1 ts_api_mark", header, flags=re.M)
    assert n, "tessera.h does not define TS_API"
    text = subprocess.run(
        ["cc", "-E", "-P", "-x", "c", "-I", str(root / "include"), "-I", str(build_dir / "include"), "-"],
        input=marked, capture_output=True, text=True, check=True).stdout
    text = re.sub(r"__attribute__\s*\(\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)\)", " ", text)
    names = re.findall(r"\bts_api_mark\b[^;{]*?\b(\w+)\s*\(", text)
    assert len(names) == len(re.findall(r"\bts_api_mark\b", text)), "a TS_API that is not on a function"
    return set(names)


def exported(library):
    text = subprocess.run(
        ["nm", "-D", "--defined-only", "--format=posix", str(library)],
        capture_output=True, text=True, check=True).stdout
    return {line.split()[0].split("@")[0] for line in text.splitlines()} - LINKER


def test_the_header_declares_something(root, build_dir):
    assert declared(root, build_dir)


def test_every_declared_function_is_exported(root, build_dir):
    assert sorted(declared(root, build_dir) - exported(build_dir / "libtessera.so")) == []


def test_nothing_else_is_exported(root, build_dir):
    assert sorted(exported(build_dir / "libtessera.so") - declared(root, build_dir)) == []


def test_public_names_start_with_ts(root, build_dir):
    assert [n for n in sorted(declared(root, build_dir)) if not n.startswith("ts_")] == []
