"""Training with `tessera train` and with the same in PyTorch, on the same data: lines to write, seconds, how good the result is.

    PYTHON=python3 bench/train/compare.py build/tessera [--threads 2] [--quick] [--text FILE]

fashion.py and text.py are the PyTorch side. Each runs by itself, one after the other; seconds are those of the training without
compiling, loading and evaluating, as both sides measure them, and `in all` is the whole process. The text is a megabyte of what
Debian installs, when none is given. PYTHON is the interpreter that has PyTorch.
"""
import argparse
import glob
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
FASHION = "/usr/share/datasets/fashion-mnist"


def megabyte(path):
    text = "".join(Path(p).read_text(errors="ignore") for p in sorted(glob.glob("/usr/share/common-licenses/*-*")) +
                   glob.glob("/usr/lib/python3*/pydoc_data/topics.py"))
    path.write_text(text.encode("ascii", "ignore").decode()[:1_000_000])


def timed(args, threads, folder):
    start = time.time()
    done = subprocess.run([str(a) for a in args], capture_output=True, text=True, cwd=folder,
                          env={**os.environ, "OMP_NUM_THREADS": str(threads)})
    if done.returncode:
        sys.exit(done.stderr)
    return done.stdout, time.time() - start


def ours(tessera, threads, folder, result, *args):
    out, seconds = timed([tessera, "train", *args, "--threads", threads, "--no-plots", "--overwrite", "--json"], threads, folder)
    events = [json.loads(line) for line in out.splitlines()]
    return sum(e["seconds"] for e in events if e["event"] == "epoch"), seconds, events[-1][result]


def theirs(script, threads, folder, *args):
    out, seconds = timed([os.environ.get("PYTHON", sys.executable), HERE / script, *args], threads, folder)
    return float(out.split()[0]), seconds, float(out.split()[1])


def lines(script):
    """What there is to write: no comments, no blank lines."""
    code = (HERE / script).read_text().split('"""', 2)[2]
    return sum(1 for line in code.splitlines() if line.strip())


def show(what, script, mine, other, unit):
    print(f"{what:24} {'lines':>6} {'training':>10} {'in all':>8} {unit:>9}")
    for name, n, row in (("tessera train", 1, mine), ("PyTorch", lines(script), other)):
        print(f"  {name:22} {n:6} {row[0]:8.1f} s {row[1]:6.1f} s {row[2]:9.4f}")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("tessera", type=Path)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--quick", action="store_true", help="a tenth of the data")
    p.add_argument("--text", type=Path)
    a = p.parse_args()
    tessera = a.tessera.resolve()
    with tempfile.TemporaryDirectory() as folder:
        text = a.text.resolve() if a.text else Path(folder) / "text.txt"
        if not a.text:
            megabyte(text)
        epochs, limit, rows = (2, ["--limit", 6400], [6400]) if a.quick else (9, [], [])
        mine = ours(tessera, a.threads, folder, "accuracy", "fashion-mnist", "--model", "fashion-cnn", "--epochs", epochs,
                    "--batch-size", 128, "--optimizer", "adamw", "--lr", 0.003, "--lr-schedule", "one-cycle", "--augment",
                    "flip,shift=2", "--output", "fashion.pth", *limit)
        show("Fashion-MNIST", "fashion.py", mine, theirs("fashion.py", a.threads, folder, FASHION, epochs, *rows), "accuracy")
        epochs, limit, rows = (2, ["--limit", 1600], [1600]) if a.quick else (3, [], [])
        mine = ours(tessera, a.threads, folder, "loss", text, "--model", "gpt", "--epochs", epochs, "--output", "text.pth", *limit)
        show("a megabyte of text", "text.py", mine, theirs("text.py", a.threads, folder, text, epochs, *rows), "loss")


main()
