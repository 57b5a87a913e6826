"""The tutorials' scripts, as they are, on poptorch.

The Python blocks of a document, one after the other, are a script; it runs as a program of its own. Where the
document shows output, the program has to print the same but for the numbers. Images are in torchvision's layout
under the script's folder and home. With TS_SOAK set they are all there, and the accuracy is the document's;
otherwise there are fewer of them, and the accuracy is what that many allow.

The pipelining tutorial places its blocks on four devices. Whatever the engine makes of that, its results must be those
of one device: test_placement_changes_no_number says so.
"""

import gzip
import importlib.util
import os
import re
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")

import numpy as np    # noqa: E402
from PIL import Image, ImageOps    # noqa: E402

FASHION = Path("/usr/share/datasets/fashion-mnist")
STAND_INS = Path(__file__).resolve().parent / "stand_ins"
FULL = bool(os.environ.get("TS_SOAK"))
PARTS = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")

# seed: images to train and to test with in the short run, the least accuracy of the short and of the full one
SEEDS = {"000": (8000, 1600, 70, 88), "002": (2400, 1600, 80, 99), "003": (8000, 1600, 80, 98)}


def idx(path, count):
    """The first rows of a compressed IDX file, uncompressed; all with count None."""
    with gzip.open(path) as f:
        head = f.read(4)
        dims = list(struct.unpack(f">{head[3]}I", f.read(4 * head[3])))
        dims[0] = min(dims[0], count or dims[0])
        return head + struct.pack(f">{len(dims)}I", *dims) + f.read(int(np.prod(dims)))


def fill(folder, name, source, counts):
    """A dataset as torchvision keeps it."""
    raw = folder / name / "raw"
    raw.mkdir(parents=True)
    for part in PARTS:
        (raw / part).write_bytes(idx(source / f"{part}.gz", counts[part.startswith("t10k")]))


def seed_text(shared, number):
    folder = shared("seeds")
    found = sorted(folder.glob(f"{number}_*.txt"))
    if not found:
        pytest.skip(f"needs ../shared/seeds/{number}_*.txt, which is not there")
    return found[0].read_text()


def blocks(text, kind):
    return re.findall(rf"^```{kind}\n(.*?)^```$", text, re.M | re.S)


def datasets(shared, place, number, counts):
    if number == "000":
        if not FASHION.is_dir():
            pytest.skip(f"needs {FASHION}, of the package dataset-fashion-mnist")
        fill(place / ".torch" / "datasets", "FashionMNIST", FASHION, counts)
        trousers(place)
    else:
        folder = ".torch/datasets" if number == "002" else "mnist_data"
        fill(place / folder, "MNIST", shared("data/mnist"), counts)


def trousers(place):
    """The picture that the first tutorial downloads: a pair of trousers before a white wall."""
    data = idx(FASHION / "t10k-images-idx3-ubyte.gz", 20)[16:]
    labels = idx(FASHION / "t10k-labels-idx1-ubyte.gz", 20)[8:]
    at = labels.index(1)
    picture = Image.frombytes("L", (28, 28), data[at * 784:(at + 1) * 784])
    (place / "images").mkdir()
    ImageOps.invert(picture).resize((280, 280)).convert("RGB").save(place / "images" / "trousers.jpg", quality=95)


def environment(build_dir, place, **more):
    """Of a script; stand-ins only for what is not installed."""
    paths = [str(build_dir / "python")]
    if not all(importlib.util.find_spec(m) for m in ("matplotlib", "sklearn")):
        paths.append(str(STAND_INS))
    return {**os.environ, "PYTHONPATH": ":".join(paths), "HOME": str(place), "MPLBACKEND": "Agg",
            "POPTORCH_CACHE_DIR": str(place / "cache"), **more}


class Run:
    """A script that has run, and what it printed."""

    def __init__(self, build_dir, place, script, **more):
        (place / "script.py").write_text(script)
        started = time.perf_counter()
        done = subprocess.run([sys.executable, "script.py"], cwd=place, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=3000, env=environment(build_dir, place, **more))
        self.seconds = time.perf_counter() - started
        self.place = place
        self.out, self.err = done.stdout, done.stderr
        assert done.returncode == 0, done.stderr[-3000:]
        # A bar draws over itself: each state is a line of its own here.
        self.lines = [x.strip() for x in re.split(r"[\n\r]", self.out + "\n" + self.err)]

    def number(self, pattern):
        found = re.search(pattern, self.out)
        assert found, self.out
        return float(found[1])


def same_but_for_numbers(line):
    """A pattern of a line of output: other numbers, and other blanks in front of a bar's."""
    form = re.escape(line.strip())
    form = re.sub(r"\d+:\d+", "TIME", form)
    form = re.sub(r"\d+(\\?\.\d+)?", "NUMBER", form)
    form = re.sub(r"NUMBER(it/s|s/it)", "RATE", form)
    return form.replace("TIME", r"[\d:?]+").replace("RATE", r"[\d.?]+(it/s|s/it)").replace(
        "NUMBER", r"\d+(\.\d+)?").replace(r"\ ", r"\s*")


@pytest.fixture(scope="module")
def ran(build_dir, tmp_path_factory):
    """ran(seed) is its Run, done once."""
    from conftest import shared_path
    done = {}

    def get(number):
        if number not in done:
            text = seed_text(shared_path, number)
            place = tmp_path_factory.mktemp(f"seed{number}")
            datasets(shared_path, place, number, (None, None) if FULL else SEEDS[number][:2])
            done[number] = Run(build_dir, place, "\n".join(blocks(text, "python")))
            print(f"seed {number}: {done[number].seconds:.1f} s")
        return done[number]
    return get


@pytest.mark.parametrize("number", SEEDS)
def test_accuracy(ran, number):
    what = "Eval accuracy" if number == "000" else "Accuracy on test set"
    accuracy = ran(number).number(rf"{what}: ([\d.]+)%")
    print(f"seed {number}: {accuracy} %")
    assert accuracy >= SEEDS[number][3 if FULL else 2]


def shown(text, number):
    """The lines of output in a document that a script prints: not what a notebook makes of a value."""
    lines = [x for block in blocks(text, "output") for x in block.splitlines()]
    if number == "002":    # its output is set by indentation, and ends where that does
        after = text[text.index("print(model_with_loss)"):]
        lines = re.match(r"(?:.*\n)*?```\n\s*((?:    .*\n)+)", after)[1].splitlines()
        lines.append(re.search(r"^    (Accuracy on test set: .*)$", text, re.M)[1])
    return [x for x in lines if x.strip() and not re.match(
        r"(replication_factor=|_TrainingOptions|_TensorLocationOptions|ClassificationModel|  \(|\)|tensor|  +-)", x)
        or number == "002"]


@pytest.mark.parametrize("number", SEEDS)
def test_output_is_the_documents(ran, shared, number):
    lines = shown(seed_text(shared, number), number)
    assert len(lines) >= 4
    run = ran(number)
    for line in lines:
        # The last bar of the pipelining tutorial shares a line with what follows it.
        for part in re.split(r"(?<=\])(?=Accuracy)", line):
            form = same_but_for_numbers(part)
            assert any(re.fullmatch(form, x) for x in run.lines), f"{part!r} is not in the output"


def test_the_first_tutorial_leaves_its_files(ran):
    place = ran("000").place
    for name in ("sample_images.png", "confusion_matrix.png", "image_before_after.png"):
        with Image.open(place / name) as picture:
            assert len(picture.convert("RGB").getcolors(1 << 24)) > 10, f"{name} is empty"
    state = torch.load(place / "classifier.pth")
    assert {k: tuple(v.shape) for k, v in state.items()} == {
        "conv1.weight": (5, 1, 3, 3), "conv1.bias": (5,), "conv2.weight": (12, 5, 5, 5), "conv2.bias": (12,),
        "norm.weight": (12,), "norm.bias": (12,), "fc1.weight": (100, 972), "fc1.bias": (100,),
        "fc2.weight": (10, 100), "fc2.bias": (10,)}
    assert all(type(v) is torch.Tensor and v.isfinite().all() for v in state.values())
    assert re.search(r"^tensor\(\[\[-?\d+\.\d+(e[-+]\d+)?,", ran("000").out, re.M)


@pytest.mark.parametrize("number", SEEDS)
def test_nothing_else_is_said(ran, number):
    """The scripts are right as they are, but for one that uses an old name."""
    said = [x for x in ran(number).lines if "[poptorch" in x or "rror" in x]
    assert len(said) == (number == "002") and all("anchorMode is deprecated" in x for x in said)
