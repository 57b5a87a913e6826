"""The examples train, and say what is wrong with bad data."""

import gzip
import os
import re
import sqlite3
import struct
import subprocess
import sys
from pathlib import Path

import pytest

FASHION = Path("/usr/share/datasets/fashion-mnist")
EXAMPLES = {
    # program: options that keep it short, what it should at least reach (of 100; chance is 10)
    "classifier": (["--epochs", "1", "--limit", "3200"], 55),
    "mnist_cnn": (["--epochs", "1", "--limit", "1600"], 55),
    "mnist_pipeline": (["--epochs", "2", "--limit", "4000"], 50),
}


def run(build_dir, name, *args):
    return subprocess.run([build_dir / "examples" / name, *map(str, args)], capture_output=True, text=True,
                          env={**os.environ, "TESSERA_CACHE_DIR": str(build_dir / "test-cache")})


def accuracy(done):
    assert done.returncode == 0, done.stderr
    return float(re.fullmatch(r"(?:Eval accuracy|Accuracy on test set): (\d+\.\d\d)%\n", done.stdout)[1])


@pytest.fixture(scope="session")
def fashion():
    if not FASHION.exists():
        pytest.skip(f"needs {FASHION} of the package dataset-fashion-mnist")
    return FASHION


@pytest.mark.parametrize("name", EXAMPLES)
def test_it_learns(name, build_dir, fashion):
    args, least = EXAMPLES[name]
    done = run(build_dir, name, *args)
    assert accuracy(done) > least
    assert re.match(r"epoch 1/\d  loss \d\.\d{4}\n", done.stderr)


@pytest.mark.parametrize("name", ["mnist_cnn", "mnist_pipeline"])
def test_it_reads_digits(name, build_dir, shared):
    args, least = EXAMPLES[name]
    assert accuracy(run(build_dir, name, *args, "--data", shared("data/mnist"))) > least


def test_the_seed_repeats_a_run(build_dir, fashion):
    runs = [run(build_dir, "classifier", "--epochs", 1, "--limit", 320, "--seed", seed, "--threads", threads)
            for seed, threads in ((1, 1), (1, 3), (2, 2))]
    assert runs[0].stderr == runs[1].stderr != runs[2].stderr
    assert runs[0].stdout == runs[1].stdout


def test_pipelines_give_the_same(build_dir, fashion, tmp_path):
    """Pipelined, sharded, offloaded: the same losses and accuracy."""
    kinds = [[], ["--offload-optimiser", "--profile", "--profile-dir", tmp_path / "p"]]
    if os.environ.get("TS_SOAK"):    # else of the Python one only
        kinds.append(["--strategy", "sharded"])
    runs = [run(build_dir, "mnist_pipeline", "--epochs", 1, "--limit", 4000, *kind) for kind in kinds]
    assert all(accuracy(r) == accuracy(runs[0]) for r in runs)
    losses = [re.findall(r"loss (\S+)", r.stderr) for r in runs]
    assert losses[0] and all(x == losses[0] for x in losses)
    db = sqlite3.connect(tmp_path / "p" / "profile.db")
    # each call times every section, forward and backward of every micro-batch, and the updates
    runs = db.execute("SELECT sum(CASE phase WHEN 0 THEN 100 ELSE 10 END) FROM section").fetchone()[0]
    found = db.execute("SELECT count(*), count(DISTINCT device) FROM event WHERE kernel IS NULL AND call = 0").fetchone()
    assert runs >= 100 * 7 + 10 * 4 and found == (runs, 4) and (tmp_path / "p" / "trace.json").exists()


# The Python example.


def python_example(build_dir, root, *args):
    env = {**os.environ, "PYTHONPATH": str(build_dir / "python"), "TESSERA_CACHE_DIR": str(build_dir / "test-cache")}
    return subprocess.run([sys.executable, root / "examples" / "mnist_pipeline.py", *map(str, args)], env=env,
                          capture_output=True, text=True, timeout=120)


def test_the_python_pipeline(build_dir, root, fashion, tmp_path):
    """It learns; sharded, offloaded and profiled it does the same."""
    pytest.importorskip("torchvision")
    raw = tmp_path / "FashionMNIST" / "raw"
    raw.mkdir(parents=True)
    for which, n in (("train", 2400), ("t10k", 800)):
        for kind, head, row in (("images-idx3", 16, 784), ("labels-idx1", 8, 1)):
            with gzip.open(fashion / f"{which}-{kind}-ubyte.gz") as f:
                data = f.read(head + n * row)
            (raw / f"{which}-{kind}-ubyte").write_bytes(data[:4] + struct.pack(">I", n) + data[8:])
    args = ["--fashion", "--data", tmp_path, "--epochs", 2, "--device-iterations", 2, "--learning-rate", 0.003]
    other = ["--strategy", "sharded", "--offload-optimiser", "--profile", "--profile-dir", tmp_path / "p", "--debug"]
    runs = [python_example(build_dir, root, *args, *more) for more in ([], other)]
    for done in runs:
        assert done.returncode == 0, done.stderr
        found = re.fullmatch(r"epoch 1/2  loss (.*)\nepoch 2/2  loss (.*)\nAccuracy on test set: (.*)%\n", done.stdout)
        assert float(found[1]) > float(found[2]) and float(found[3]) > 50, done.stdout
    assert runs[0].stdout == runs[1].stdout
    assert (tmp_path / "p" / "training" / "trace.json").exists()


def test_the_python_pipeline_has_the_documents_options(build_dir, root, shared):
    text = next(shared("seeds").glob("003_*.txt")).read_text()
    options = re.findall(r"^- `(--[\w-]+)` ", text, re.M)
    said = python_example(build_dir, root, "--help").stdout
    assert len(options) > 8 and [o for o in options if f" {o}" not in said] == []


def test_too_few_samples(build_dir, fashion):
    done = run(build_dir, "mnist_pipeline", "--limit", 100)
    assert done.returncode == 1
    assert "one call takes 4000 samples (100 micro-batches of 40), got 100" in done.stderr


@pytest.mark.parametrize("args", [["--epochs", "0"], ["--epochs", "many"], ["--limit", "-1"], ["--what"],
                                  ["--threads", ""], ["a", "b"], ["--epochs", "1.5"], ["--epochs", "1e14"],
                                  ["--threads", "100000"], ["--lr", "nan"], ["--seed", "-1"], ["--data"]])
def test_bad_options(args, build_dir):
    done = run(build_dir, "classifier", *args)
    assert done.returncode == 2 and done.stderr and not done.stdout


def test_help(build_dir):
    done = run(build_dir, "classifier", "--help")
    assert done.returncode == 0 and "--epochs" in done.stdout


# Bad data: a folder made of good files, one of them spoilt.


@pytest.fixture
def folder(tmp_path):
    def images(n):
        return struct.pack(">4I", 0x803, n, 28, 28) + bytes(range(256)) * 49 * (n // 16)

    def labels(n):
        return struct.pack(">2I", 0x801, n) + bytes(i % 10 for i in range(n))

    for which in "train", "t10k":
        (tmp_path / f"{which}-images-idx3-ubyte.gz").write_bytes(gzip.compress(images(64)))
        (tmp_path / f"{which}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels(64)))
    return tmp_path


def test_good_data(folder, build_dir):
    accuracy(run(build_dir, "classifier", folder, "--epochs", 1))


def test_plain_files(folder, build_dir):
    for f in folder.glob("*.gz"):
        f.with_suffix("").write_bytes(gzip.decompress(f.read_bytes()))
        f.unlink()
    accuracy(run(build_dir, "classifier", folder, "--epochs", 1))


def refused(build_dir, folder, *words):
    done = run(build_dir, "classifier", "--data", folder)
    assert done.returncode == 1 and not done.stdout
    for word in words:
        assert word in done.stderr


def test_missing_folder(build_dir, tmp_path):
    refused(build_dir, tmp_path / "none", "none: No such file or directory", "--data DIR")


@pytest.mark.parametrize("name", ["train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz",
                                  "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"])
@pytest.mark.parametrize("how,words", [
    ("missing", "neither "),
    ("folder", "is not a regular file"),
    ("empty", "is cut short"),
    ("truncated", "is cut short"),
    ("flipped", "is corrupt"),
    ("short", "bytes after its header and has"),
    ("magic", "is not an IDX file"),
    ("fewer", "bytes after its header and has"),
])
def test_bad_data(name, how, words, folder, build_dir):
    path = folder / name
    packed = path.read_bytes()
    plain = gzip.decompress(packed)
    path.unlink()
    if how == "folder":
        path.mkdir()
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "truncated":
        path.write_bytes(packed[:len(packed) // 2])
    elif how == "flipped":
        path.write_bytes(packed[:30] + bytes(b ^ 255 for b in packed[30:50]) + packed[50:])
        words = name
    elif how == "short":
        path.write_bytes(gzip.compress(plain[:-5]))
    elif how == "magic":
        path.write_bytes(gzip.compress(b"\1" + plain[1:]))
    elif how == "fewer":
        path.write_bytes(gzip.compress(plain[:4] + struct.pack(">I", 0) + plain[8:]))
    refused(build_dir, folder, name, words)


def test_labels_above_nine(folder, build_dir):
    path = folder / "t10k-labels-idx1-ubyte.gz"
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes())[:-1] + b"\n"))
    refused(build_dir, folder, "with labels from 0 to 9")


# --- pixels ---

PIXELS = """input 3 8 16
classes 3
a: conv2d 8 3 padding=1
relu
b: conv2d 9 1
reshape 3 3 8 16
loss cross_entropy
"""


@pytest.fixture
def pixels(tmp_path):
    np = pytest.importorskip("numpy")
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, (4, 3, 8, 16))
    np.savez(tmp_path / "data.npz", x=(y * 3 + rng.normal(0, 0.3, y.shape)).astype(np.float32), y=y)
    (tmp_path / "net.txt").write_text(PIXELS)
    return tmp_path


def test_cosmic(build_dir, pixels):
    args = [pixels / "data.npz", "--model", pixels / "net.txt", "--steps", 200, "--lr", "0.02"]
    done = run(build_dir, "cosmic", *args)
    assert done.returncode == 0, done.stderr
    assert all(float(v) > 0.9 for v in re.findall(r"IoU \w+: (\S+)", done.stdout)) and "step 200: loss" in done.stdout
    several = run(build_dir, "cosmic", *args, "--devices", 2).stdout
    assert re.findall(r"loss \S+|IoU .*", several) == re.findall(r"loss \S+|IoU .*", done.stdout)
    half = run(build_dir, "cosmic", *args, "--precision", "half").stdout
    assert all(float(v) > 0.9 for v in re.findall(r"IoU \w+: (\S+)", half))


@pytest.mark.parametrize("args, code, words", [([], 2, "usage"), (["--steps", "0", "x.npz"], 2, "takes a number"),
                                               (["nowhere.npz"], 1, "cannot open nowhere.npz")])
def test_cosmic_says_what_is_wrong(build_dir, args, code, words):
    done = run(build_dir, "cosmic", *args)
    assert done.returncode == code and words in done.stderr


def test_cosmic_in_python(build_dir, root, pixels):
    pytest.importorskip("torch")
    env = {**os.environ, "PYTHONPATH": str(build_dir / "python"), "TESSERA_CACHE_DIR": str(build_dir / "test-cache")}
    args = ["--data", pixels / "data.npz", "--scale", 1, "--depth", 1, "--filters", 2, "--iterations", 6]
    done = subprocess.run([sys.executable, root / "examples" / "cosmic.py", *map(str, args), "--half", "--devices", "2"],
                          env=env, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert "Compiling + warm-up" in done.stdout and "iterations/s" in done.stdout and "IoU neutrino" in done.stdout
