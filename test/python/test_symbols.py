"""The shared library exports what the public headers mark TS_API, and nothing else; names follow one rule; and the
binary interface is the one that include/tessera.abi writes down. A change of it is an edit of that file: `make golden`
writes it, and its diff says what programs built before will notice."""

import os
import re
import subprocess

import api
import pytest

# Put there by some linkers, not by us.
LINKER = {"_init", "_fini", "_edata", "_end", "__bss_start"}
# Short because they stand in every program: an error is compared with TS_OK, and a dtype is in every input.
SHORT = {"ts_status": ("TS_OK", "TS_ERR_"), "ts_dtype": ("TS_F", "TS_BF", "TS_I", "TS_U", "TS_BOOL")}


def exported(library):
    text = subprocess.run(
        ["nm", "-D", "--defined-only", "--format=posix", str(library)],
        capture_output=True, text=True, check=True).stdout
    return {line.split()[0].split("@")[0] for line in text.splitlines()} - LINKER


def test_every_declared_function_is_exported(root, build_dir):
    assert sorted(api.functions(root) - exported(build_dir / "libtessera.so")) == []


def test_nothing_else_is_exported(root, build_dir):
    assert sorted(exported(build_dir / "libtessera.so") - api.functions(root)) == []


def test_public_names_start_with_ts(root):
    assert [n for n in sorted(api.functions(root)) if not n.startswith("ts_")] == []


def test_constants_have_the_name_of_their_enum(root):
    for name, constants in api.enums(root):
        prefix = re.sub(r"_(kind|mode|format)$", "", name).upper() + "_"
        if not name:    # bits of a field
            prefix = constants[0].rsplit("_", 1)[0] + "_"
        assert all(c.startswith(SHORT.get(name, prefix)) for c in constants), name


def test_no_field_is_unused(root):
    assert [name for name, fields in api.structs(root) if "unused" in fields] == []


# --- the binary interface

HEAD = """\
# The binary interface of libtessera: what a program that was built before needs to find. Written by `make golden`;
# test/python/test_symbols.py compares. A function that is gone, a constant with another value or a field at another
# place breaks programs: that is a new soname. New functions, constants and fields at a struct's end break none; a new
# field begins where the struct ended, not in the padding there, which older programs leave as it was.
"""


def layout(root, tmp_path):
    """The values of constants, and sizes and places of fields, by a program that asks the compiler."""
    lines = []
    for name, constants in api.enums(root):
        lines += [f'printf("enum {name or "-"} {c} %lld\\n", (long long){c});' for c in constants]
    for name, fields in api.structs(root):
        lines.append(f'printf("struct {name} %zu\\n", sizeof({name}));')
        lines += [f'printf("field {name}.{f} %zu %zu\\n", offsetof({name}, {f}), sizeof((({name} *)0)->{f}));'
                  for f in fields]
    program = tmp_path / "layout.c"
    program.write_text("#include <stdio.h>\n" + "".join(f"#include <{h}>\n" for h in api.headers(root))
                       + "int main(void)\n{\n" + "\n".join(lines) + "\n}\n")
    subprocess.run(["cc", *(f"-I{d}" for d in api.folders(root)), program, "-o", tmp_path / "layout"], check=True)
    return subprocess.run([tmp_path / "layout"], capture_output=True, text=True, check=True).stdout


def test_the_binary_interface_is_the_one_written_down(root, build_dir, tmp_path):
    if os.uname().machine != "x86_64":
        pytest.skip("the sizes are those of 64-bit x86")
    library = build_dir / "libtessera.so"
    dynamic = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
    now = (HEAD + f"soname {re.search(r'soname: .(.*?).$', dynamic, re.M)[1]}\n"
           + "".join(f"function {n}\n" for n in sorted(exported(library))) + layout(root, tmp_path))
    file = root / "include" / "tessera.abi"
    if os.environ.get("TS_GOLDEN_UPDATE"):
        file.write_text(now)
    assert file.read_text().splitlines() == now.splitlines()


def test_the_version_is_in_one_place(root, build_dir):
    version = re.search(r'TS_VERSION\s+"(.*?)"', (root / "include/tessera.h").read_text())[1]
    assert (build_dir / f"libtessera.so.{version}").exists()
    assert (build_dir / f"libtessera.so.{version.split('.')[0]}").exists()
