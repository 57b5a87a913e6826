"""tools/run-tests: what it says while it runs, and that nothing is left running when it is stopped.

In a tree of its own whose only phase is a made-up `tools/format`.
"""

import importlib.machinery
import importlib.util
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools/run-tests", tmp_path / "tools/run-tests")
    return tmp_path


def phase(tree, script):
    (tree / "tools/format").write_text("#!/bin/sh\n" + script)
    (tree / "tools/format").chmod(0o755)


def start(tree, **popen):
    return subprocess.Popen([sys.executable, tree / "tools/run-tests", "format"], start_new_session=True, **popen)


def alive(tree):
    """Processes that have the tree's name among their words."""
    found = []
    for words in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += [words] if str(tree).encode() in words.read_bytes() else []
        except OSError:
            pass
    return found


def test_lines(tree):
    phase(tree, "exit 0\n")
    out = start(tree, stdout=subprocess.PIPE, text=True).communicate()[0].splitlines()
    assert out[0] == "format: about 5 s on two quiet cores"
    assert out[1].startswith("format       begins: about 5 s")
    assert re.match(r"format +0 passed +0 failed ", out[2])
    assert out[-1] == "0 passed, 0 failed"
    assert "format tests" in (tree / "build/test-times.json").read_text()
    out = start(tree, stdout=subprocess.PIPE, text=True).communicate()[0].splitlines()
    assert out[0] == "format: about 5 s as the last run did"


def test_times_that_are_not_ours(tree):
    phase(tree, "exit 0\n")
    (tree / "build").mkdir()
    for text in ("", "[1]", '{"format tests": "long"}', '{"format tests": null}'):
        (tree / "build/test-times.json").write_text(text)
        run = start(tree, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert run.communicate()[0].splitlines()[-1] == "0 passed, 0 failed"


def test_a_failure_fails(tree):
    phase(tree, "echo src/a.c:1:2: error: code should be clang-formatted '[-Wclang-format-violations]'\nexit 1\n")
    run = start(tree, stdout=subprocess.PIPE, text=True)
    out = run.communicate()[0].splitlines()
    assert "FAILED  format: src/a.c (make format)" in out
    assert out[-1] == "0 passed, 1 failed" and run.returncode == 1


def test_in_place_on_a_terminal(tree):
    phase(tree, "sleep 1\n")
    ours, theirs = pty.openpty()
    run = start(tree, stdout=theirs, env={**os.environ, "TERM": "xterm", "COLUMNS": "40"})
    run.wait()
    os.close(theirs)
    out = b""
    try:
        while more := os.read(ours, 4096):
            out += more
    except OSError:
        pass    # the end of a terminal
    os.close(ours)
    lines = out.decode().split("\r\n")
    drawn = [x for x in lines[2].split("\r\x1b[K") if x][:-1]
    assert drawn and all(x.startswith("format       tests") and len(x) < 40 for x in drawn)
    assert lines[-2] == "0 passed, 0 failed" and "\x1b" not in lines[-2]


@pytest.mark.parametrize("sig, times", [(signal.SIGINT, 1), (signal.SIGTERM, 2),
                                        pytest.param(signal.SIGTERM, 1, marks=pytest.mark.soak),
                                        pytest.param(signal.SIGINT, 2, marks=pytest.mark.soak)])
def test_stopped(tree, sig, times):
    """Nothing is left: neither what ignores signals, nor what has a session and no parent any more."""
    worker = tree / "worker"
    worker.write_text("import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\ntime.sleep(1000)\n")
    phase(tree, f"trap '' INT TERM\n(setsid {sys.executable} {worker} &)\n{sys.executable} {worker}\n")
    run = start(tree, stdout=subprocess.PIPE, text=True)
    late = time.monotonic() + 60
    while len(alive(tree)) < 3:    # the run and two workers
        assert run.poll() is None and time.monotonic() < late
        time.sleep(0.05)
    began = time.monotonic()
    for _ in range(times):
        os.kill(run.pid, sig)
        time.sleep(0.5)
    out = run.communicate()[0].splitlines()
    assert run.returncode == 130 and time.monotonic() - began < 15
    assert out[-2:] == ["interrupted in format", "0 passed, 0 failed"]
    assert not alive(tree)


def test_counts_of_the_tools():
    """Lines as ninja, meson and pytest print them."""
    loader = importlib.machinery.SourceFileLoader("run_tests", str(ROOT / "tools/run-tests"))
    tests = importlib.util.module_from_spec(importlib.util.spec_from_loader("run_tests", loader))
    sys.dont_write_bytecode = True
    loader.exec_module(tests)

    def counted(read, *lines):
        tests.progress.part("tests")
        for line in lines:
            read(line + "\n")
        return tests.progress.count

    assert counted(tests.ninja_line, "[3/40] Compiling C object a.o") == (3, 40, 0)
    assert counted(tests.meson_line, " 1/79 c / base/arena          OK              0.05s   5 subtests passed",
                   "12/79 tessera:c+threads / run/engine    FAIL           10.05s   exit status 2",
                   "13/79 c / base/file           TIMEOUT        600.05s   killed by signal 9 SIGKILL",
                   "Ok:                 77  ") == (13, 79, 2)
    assert counted(tests.pytest_line, "\rgw0 [7] / gw1 [7]", "test/python/test_man.py::test_version ",
                   "[gw0] [ 14%] PASSED test/python/test_man.py::test_version ",
                   "[gw1] [ 28%] FAILED test/python/test_a.py::test_b[x y] ",
                   "[gw1] [ 42%] SKIPPED test/python/test_a.py::test_c ") == (3, 7, 1)
    assert counted(tests.pytest_line, "2 workers [19 items]", "[gw1] [100%] ERROR test/a.py::b ") == (1, 19, 1)
