"""The committed trajectories are what PyTorch computes here; test/pass/optimizer.c compares ours to them."""

import subprocess
import sys

import pytest

pytest.importorskip("torch")


def numbers(text):
    """The cases as {words: rows of weights}."""
    cases, rows = {}, None
    for line in text.splitlines():
        if line.startswith("case "):
            rows = cases[line[5:]] = []
        elif not line.startswith("#"):
            rows.append([float(x) for x in line.split()])
    return cases


def test_the_trajectories_are_pytorch_s(root):
    made = subprocess.run([sys.executable, str(root / "test" / "data" / "make_optim.py")],
                          capture_output=True, text=True, check=True).stdout
    here, kept = numbers(made), numbers((root / "test" / "data" / "optim.txt").read_text())
    assert len(here) > 30 and here.keys() <= kept.keys()    # an older PyTorch has fewer
    for words, rows in here.items():
        for made_row, kept_row in zip(rows, kept[words], strict=True):
            assert made_row == pytest.approx(kept_row, rel=1e-10, abs=1e-12), words
