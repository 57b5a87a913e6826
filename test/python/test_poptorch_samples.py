"""Torch's own sample inputs through poptorch: doc/torch-samples.md stays true. samples.py says how.

Here a few samples of a part of the ops that the document calls right, another part in each round of a soak; with
TS_SOAK all samples of all ops, of which none may be wrong.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "doc" / "torch-samples.md"
PARTS = 16    # of which one is a quick test's


def run(build_dir, where, *args):
    """The answers of samples.py, a process of its own: it wants no compiler and no log."""
    subprocess.run([sys.executable, str(Path(__file__).with_name("samples.py")), "--json", str(where), *args], check=True,
                   env={**os.environ, "PYTHONPATH": str(build_dir / "python")}, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)
    return json.loads(where.read_text())["answers"]


def test_ops_that_were_right_are_right(build_dir, tmp_path, samples):
    known = samples.right_by(DOCUMENT.read_text(), samples.release_of(torch.__version__))
    if not known:
        pytest.skip(f"doc/torch-samples.md has no list for torch {torch.__version__}")
    if os.environ.get("TS_SOAK"):
        answers = run(build_dir, tmp_path / "found.json")
        wanted = known
    else:
        part = int(os.environ.get("TS_ROUND", "0")) % PARTS
        answers = run(build_dir, tmp_path / "found.json", "--part", str(part), "--parts", str(PARTS), "--limit", "8",
                      "--dtypes", "float32,float64,int64")
        wanted = [name for name in known if samples.share(name, part, PARTS)]
    lost = {name: answers[name] for name in wanted if samples.verdict(answers[name]) not in ("right", "nothing")}
    assert not lost, lost
    wrong = {name: answer["wrong"] for name, answer in answers.items() if answer["wrong"]}
    assert not wrong, wrong


def test_how_many_there_are(samples):
    """The list only grows."""
    text = DOCUMENT.read_text()
    assert len(samples.right_by(text, "1.13")) >= LEAST["1.13"]
    assert len(samples.right_by(text, "2.15")) >= LEAST["2.15"]
    assert "### 0 right" not in text and " wrong\n" not in text


LEAST = {"1.13": 515, "2.15": 562}
