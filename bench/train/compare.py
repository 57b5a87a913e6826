"""Training with `tessera train` and with the same in PyTorch, on the same data: lines to write, seconds, how good the result is.

    PYTHON=python3 bench/train/compare.py build/tessera [--only fashion|text] [--threads 2] [--seeds 1] [--quick] [--text FILE]

fashion.py and text.py are the PyTorch side. Each runs by itself, one after the other; seconds are those of the training without
compiling, loading and evaluating, as both sides measure them, `in all` is the whole process, and `cores` what it took of all cores
together, which says more on a machine that does other things too. With --seeds N all are means of N runs: the losses of two seeds
differ by more than those of the two programs. The text is a megabyte of what Debian installs, when none is given. PYTHON is the
interpreter that has PyTorch.
"""
import argparse
import glob
import json
import os
import resource
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


def cores():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def timed(args, threads, folder):
    start, before = time.time(), cores()
    done = subprocess.run([str(a) for a in args], capture_output=True, text=True, cwd=folder,
                          env={**os.environ, "OMP_NUM_THREADS": str(threads)})
    if done.returncode:
        sys.exit(done.stderr)
    return done.stdout, time.time() - start, cores() - before


def ours(tessera, a, folder, result, *args):
    def run(seed):
        out, *took = timed([tessera, "train", *args, "--seed", seed, "--threads", a.threads, "--no-plots", "--overwrite", "--json"],
                           a.threads, folder)
        events = [json.loads(line) for line in out.splitlines()]
        return sum(e["seconds"] for e in events if e["event"] == "epoch"), *took, events[-1][result]
    return mean(run, a.seeds)


def theirs(script, a, folder, data, epochs, rows):
    def run(seed):
        out, *took = timed([os.environ.get("PYTHON", sys.executable), HERE / script, data, epochs, seed, *rows], a.threads, folder)
        return float(out.split()[0]), *took, float(out.split()[1])
    return mean(run, a.seeds)


def mean(run, seeds):
    rows = [run(seed) for seed in range(42, 42 + seeds)]
    return [sum(column) / seeds for column in zip(*rows)]


def lines(script):
    """What there is to write: no comments, no blank lines."""
    code = (HERE / script).read_text().split('"""', 2)[2]
    return sum(1 for line in code.splitlines() if line.strip())


def show(what, script, mine, other, unit):
    print(f"{what:24} {'lines':>6} {'training':>10} {'in all':>8} {'cores':>8} {unit:>9}")
    for name, n, row in (("tessera train", 1, mine), ("PyTorch", lines(script), other)):
        print(f"  {name:22} {n:6} {row[0]:8.1f} s {row[1]:6.1f} s {row[2]:6.1f} s {row[3]:9.4f}", flush=True)


def fashion(tessera, a, folder):
    """As the README has it."""
    epochs, limit, rows = (2, ["--limit", 6400], [6400]) if a.quick else (7, [], [])
    mine = ours(tessera, a, folder, "accuracy", "fashion-mnist", "--model", "fashion-cnn", "--epochs", epochs, "--batch-size", 64,
                "--optimizer", "adamw", "--lr", 0.004, "--lr-schedule", "one-cycle", "--augment", "flip", "--output", "fashion.pth",
                *limit)
    show("Fashion-MNIST", "fashion.py", mine, theirs("fashion.py", a, folder, FASHION, epochs, rows), "accuracy")


def text(tessera, a, folder):
    path = a.text.resolve() if a.text else Path(folder) / "text.txt"
    if not a.text:
        megabyte(path)
    epochs, limit, rows = (2, ["--limit", 1600], [1600]) if a.quick else (3, [], [])
    mine = ours(tessera, a, folder, "loss", path, "--model", "gpt", "--epochs", epochs, "--output", "text.pth", *limit)
    show("a megabyte of text", "text.py", mine, theirs("text.py", a, folder, path, epochs, rows), "loss")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("tessera", type=Path)
    p.add_argument("--only", choices=["fashion", "text"])
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--seeds", type=int, default=1)
    p.add_argument("--quick", action="store_true", help="a tenth of the data")
    p.add_argument("--text", type=Path)
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for part in (fashion, text):
            if a.only in (None, part.__name__):
                part(a.tessera.resolve(), a, folder)


main()
