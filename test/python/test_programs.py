"""Programs in the way of Graphcore's tutorials and applications, in test/python/programs: each runs as it is, and does what it is for.

main() of a program returns numbers, which are losses but where a check says otherwise, and what else there is to look at.
"""

import importlib
import os
import pathlib
import subprocess
import sys

import pytest

from poptorch_helpers import nothing_cached    # noqa: F401

PROGRAMS = pathlib.Path(__file__).parent / "programs"


def falls(losses, more, to=0.8):
    assert losses[-1] < to * losses[0] and all(x == x for x in losses), losses


def well(name, least):
    """The loss falls, and this is at least so much."""
    def check(losses, more):
        falls(losses, more)
        assert (more[name] if name else more) >= least, more
    return check


def vit(losses, more):
    falls(losses, more)
    assert more["latency"] == 3 and len(more["counters"]) > 3


def phases(losses, more):
    falls(losses, more, 0.5)
    assert more["between"] < 1e-3 and more["right"]


def halves(losses, more):
    for name, (first, last) in more.items():
        assert last < 0.8 * first, (name, first, last)


def loading(counts, seen):
    assert counts == [20, 20, 20, 16, 20]
    assert all(v == list(range(0, 2 * len(v), 2)) for v in seen.values())


def control(worst, more):
    assert worst[0] < 1e-5 and more["names"] > 0


def export(losses, more):
    falls(losses, more, 0.95)
    assert more["doubled"] and more["close"] < losses[-1] + 1e-4


def bert(losses, more):
    falls(losses, more, 0.9)
    assert more["lr"] == 0.02


CHECKS = {
    "basics": well(None, 0.9), "bert": bert, "control": control, "custom": well("same", True), "distributed": falls, "export": export,
    "gnn": falls, "gpt_phased": phases, "halves": halves, "loading": loading, "recommend": well("right", 0.9),
    "resnet": well(None, 0.9), "speech": well("right", 4), "unet": well("dice", 0.7), "vae": falls, "vit": vit, "wide": falls,
}


@pytest.fixture
def checked(monkeypatch):
    """checked(name) runs a program. Processes of its loaders import it by its name."""
    monkeypatch.syspath_prepend(str(PROGRAMS))

    def run(name):
        if name == "gnn":
            pytest.importorskip("torch_geometric", reason="torch_geometric is not installed")
        CHECKS[name](*importlib.import_module(name).main())
    yield run
    for name in CHECKS:
        sys.modules.pop(name, None)


def test_every_program_has_a_check():
    assert sorted(CHECKS) == sorted(p.stem for p in PROGRAMS.glob("*.py"))


@pytest.mark.parametrize("name", sorted(CHECKS))
def test_programs(name, monkeypatch, checked):
    """Without a compiler: what the device computes is tested elsewhere. An operation of one's own needs one."""
    if name != "custom":
        monkeypatch.setenv("TESSERA_CC", "/nowhere/cc")
    checked(name)


@pytest.mark.soak
@pytest.mark.parametrize("name", sorted(CHECKS))
def test_programs_compiled(name, checked):
    checked(name)


def test_the_launcher(build_dir):
    """Two processes of one program, as poprun starts them."""
    code = f"import sys; sys.path.insert(0, {str(PROGRAMS)!r}); import distributed; print(distributed.main()[1])"
    environment = {**os.environ, "PYTHONPATH": str(build_dir / "python"), "TESSERA_CC": "/nowhere/cc"}
    done = subprocess.run([build_dir / "tessera", "run", "--num-instances", "2", "--num-replicas", "2", sys.executable, "-c", code],
                          env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("'instances': 2, 'replicas': 2") == 2, done.stdout
