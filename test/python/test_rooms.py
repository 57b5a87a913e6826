"""A folder of src/ uses only those before it, in the order that doc/architecture.md gives them."""

import collections
import re
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2]

# A file by itself, with a place in the order like a folder.
FILE = "tessera"


def order():
    """The first column of the table "The path of the data"."""
    text = (SOURCE / "doc/architecture.md").read_text()
    return re.findall(r"^\| `(\w+)(?:\.c)?` \|", text.split("## The path of the data")[1].split("\n## ")[0], re.M)


def room(member):
    """src_op_emit.c.o -> op; src_tessera.c.o -> tessera; what is made of the table of words -> front"""
    found = re.match(r"src_([a-z0-9]+)[_.]", member)
    return found[1] if found else "front"


def symbols(build_dir):
    """What each room defines, and what its files use: {symbol: room}, {(file, symbol)}."""
    text = subprocess.run(["nm", "-A", build_dir / "libtessera_core.a"], check=True, capture_output=True, text=True).stdout
    made, used = {}, set()
    for line in text.splitlines():
        member = re.search(r"([^/:]+\.o):", line)[1]
        kind, name = line.split()[-2:]
        if kind == "U":
            used.add((member, name))
        elif kind in "TDRBV":
            made[name] = room(member)
    return made, used


def edges(build_dir):
    """(user, used) -> the symbols"""
    made, used = symbols(build_dir)
    found = collections.defaultdict(list)
    for member, name in used:
        if name in made and made[name] != room(member):
            found[room(member), made[name]].append(f"{member}: {name}")
    return found


def test_the_order_names_every_folder():
    folders = {p.name for p in (SOURCE / "src").iterdir() if p.is_dir()}
    assert folders == set(order()) - {FILE}


def test_no_room_uses_a_later_one(build_dir):
    place = {name: i for i, name in enumerate(order())}
    back = {pair: sorted(names)[:5] for pair, names in edges(build_dir).items() if place[pair[0]] < place[pair[1]]}
    assert not back, f"back edges; the order is {' '.join(order())}"


def test_the_test_sees_edges(build_dir):
    """A reader of symbols that found none would prove nothing."""
    found = edges(build_dir)
    assert ("op", "graph") in found and (FILE, "run") in found and len(found) > 30


@pytest.mark.parametrize("folder", [f for f in order() if f != FILE])
def test_headers_keep_to_the_order(folder):
    place = {name: i for i, name in enumerate(order())}
    for path in sorted((SOURCE / "src" / folder).glob("*.[ch]")):
        for other in re.findall(r'^#include "(\w+)/', path.read_text(), re.M):
            if other != FILE:    # a public header: include/tessera/
                assert other not in place or place[other] <= place[folder], f"{path.name} includes {other}/"


def test_ops_are_asked_not_recognised():
    """Passes, plan and renderers compare flags and rows of the table (graph/row.h), never names."""
    found = []
    for folder in ("pass", "plan", "render", "gpu"):
        for path in sorted((SOURCE / "src" / folder).glob("*.c")):
            found += re.findall(r"^.*\bstr(?:n?cmp|str)\([^;]*op->(?:name|formula).*$", path.read_text(), re.M)
    assert not found
