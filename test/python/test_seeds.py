"""The tutorials' scripts, as they are, on poptorch.

The Python blocks of a document, one after the other, are a script; it runs as a program of its own. Where the
document shows output, the program has to print the same but for the numbers. Images are in torchvision's layout
under the script's folder and home. With TS_SOAK set they are all there, and the accuracy is the document's;
otherwise there are fewer of them, and the accuracy is what that many allow.

The pipelining tutorial places its blocks on four devices. Whatever the engine makes of that, its results must be those
of one device: test_placement_changes_no_number says so.

Then what the documents promise without a script to run: the losses are PyTorch's, a port changes none of them, a
cached program is not compiled again, and PyTorch computes nothing in a call.
"""

import copy
import gzip
import importlib.util
import os
import re
import struct
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")

import nets    # noqa: E402
import numpy as np    # noqa: E402
import poptorch    # noqa: E402
from PIL import Image, ImageOps    # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode    # noqa: E402

FASHION = Path("/usr/share/datasets/fashion-mnist")
STAND_INS = Path(__file__).resolve().parent / "stand_ins"
FULL = bool(os.environ.get("TS_SOAK"))
PARTS = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")

# seed: images to train and to test with in the short run, the least accuracy of the short and of the full one.
#
# Full runs differ by their random seed, here as in PyTorch. Measured in % (mean, least - most) with other seeds than the
# scripts' own, PyTorch with the same net, batches, learning rate and number of updates (batch 400 for A = 10):
#
#          here                          PyTorch                       document
#   000    89.70 (89.48 - 90.03, n=4)    89.24 (88.23 - 89.83, n=4)    89.25
#   002    99.24 (99.22 - 99.27, n=3)    99.39 (n=1)                   99.29
#   003    98.43 (98.20 - 98.60, n=8)    98.41 (97.98 - 98.64, n=8)    98.41
#
# The means of 000 and 003 agree to within their own spread (003: deviations 0.13 and 0.19, so the difference of 0.02 is
# 0.3 of its error); of 002 there are too few runs of PyTorch to say. The bounds of 000 and 003 are some four deviations
# below all runs' mean: no run of a right program is to fail.
SEEDS = {"000": (8000, 1600, 70, 87), "002": (2400, 1600, 80, 99), "003": (8000, 1600, 80, 97.8)}


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


# The documents' nets in this process.

@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    """Of this file's tests, for as long as they run."""
    monkeypatch.setenv("POPTORCH_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "cache"))


FOUR = ("B1", "B2", "B3", "B4")
NETS = {
    # seed: optimizer of the script, and PyTorch's; images, their mean and deviation; micro-batch, and a small one
    "000": (lambda p: poptorch.optim.SGD(p, lr=0.001, momentum=0.9),
            lambda p: torch.optim.SGD(p, lr=0.001, momentum=0.9), (nets.FASHION, 0.5, 0.5), 16, 2),
    "002": (lambda p: torch.optim.SGD(p, lr=0.03), lambda p: torch.optim.SGD(p, lr=0.03),
            (nets.MNIST, 0.1307, 0.3081), 8, 1),
    "003": (lambda p: poptorch.optim.AdamW(p, lr=0.001), lambda p: torch.optim.AdamW(p, lr=0.001),
            (nets.MNIST, 0.1307, 0.3081), 40, 4),
}


STEADY = {"000": 4, "002": 12, "003": 9}    # first weights with which PyTorch stays with itself (test_parity.py)


def net_of(shared, number, dropout=False, seed=0):
    """The document's module with its loss, in training mode."""
    scope = {"torch": torch, "nn": torch.nn, "poptorch": poptorch}
    for block in blocks(seed_text(shared, number), "python"):
        if block.startswith("class "):
            exec(block, scope)
    torch.manual_seed(seed)
    net = scope["ClassificationModel"]() if number == "000" else scope["TrainingModelWithLoss"](scope["Network"]())
    for m in net.modules():
        if isinstance(m, torch.nn.Dropout) and not dropout:
            m.p = 0.0
    return net.train()


def options(number="", strategy=None):
    made = poptorch.Options().showCompilationProgressBar(False)
    if number == "003":
        made.setExecutionStrategy(strategy or poptorch.ShardedExecution(*FOUR))
    return made


def batches(number, rows, steps, dtype=torch.float32):
    images, labels = nets.samples(NETS[number][2][0], rows * steps, *NETS[number][2][1:])
    return list(zip(torch.from_numpy(images).to(dtype).split(rows), torch.from_numpy(labels).long().split(rows)))


def torch_step(net, optimizer, x, t):
    optimizer.zero_grad()
    loss = net(x, t)[1]
    loss.backward()
    optimizer.step()
    return loss.item()


@pytest.mark.soak
@pytest.mark.parametrize("number", NETS)
def test_losses_of_200_steps_by_itself(shared, number):
    """In float32, with the script's batches and, for 003, its pipeline and gradient accumulation: 200 losses of ours
    within 1e-4 of PyTorch's, which gave us no more than the first weights."""
    make, theirs, _, rows, _ = NETS[number]
    accumulation = 10 if number == "003" else 1
    net = net_of(shared, number, seed=STEADY[number])
    reference = copy.deepcopy(net)
    optimizer = theirs(reference.parameters())
    opts = options(number, STRATEGIES["pipelined"]())
    opts.Training.gradientAccumulation(accumulation)
    opts.outputMode(poptorch.OutputMode.All)
    model = poptorch.trainingModel(net, opts, make(net.parameters()))
    data = batches(number, rows, 200)
    got, wanted = [], []
    for i in range(0, 200, accumulation):
        part = data[i:i + accumulation]
        got += model(torch.cat([x for x, _ in part]), torch.cat([t for _, t in part]))[1].flatten().tolist()
        optimizer.zero_grad()
        for x, t in part:
            loss = reference(x, t)[1]
            (loss / accumulation).backward()
            wanted.append(loss.item())
        optimizer.step()
    got, wanted = np.array(got), np.array(wanted)
    assert len(got) == 200 and wanted[-50:].mean() < 0.9 * wanted[:50].mean(), "PyTorch did not learn"
    assert np.max(np.abs(got - wanted) / wanted) < 1e-4, np.flatnonzero(np.abs(got - wanted) > 1e-4 * wanted)[0]


@pytest.mark.soak
@pytest.mark.parametrize("number", NETS)
def test_losses_of_200_steps_in_double_precision(shared, number):
    """From the same weights, on the same batches. In float32 such runs part through rounding after some ten to a
    hundred steps, and PyTorch's part from its own (test_parity.py); in float64 nothing is lost in a tie. What is left
    is the learning rate, which the engine keeps in float32."""
    ours, theirs, _, _, rows = NETS[number]
    net = net_of(shared, number).double()
    reference = copy.deepcopy(net)
    optimizer = theirs(reference.parameters())
    model = poptorch.trainingModel(net, options(number), ours(net.parameters()))
    data = batches(number, rows, 200, torch.float64)
    got = np.array([model(x, t)[1].item() for x, t in data])
    wanted = np.array([torch_step(reference, optimizer, x, t) for x, t in data])
    assert wanted[-50:].mean() < 0.9 * wanted[:50].mean(), "PyTorch did not learn"
    assert np.max(np.abs(got - wanted) / wanted) < 1e-5
    for (name, a), b in zip(net.named_parameters(), reference.parameters()):
        torch.testing.assert_close(a.detach(), b.detach(), rtol=1e-4, atol=1e-6, msg=name)


def follow(reference, optimizer, net, ours):
    """Give PyTorch the weights and the optimizer's state that the device has."""
    reference.load_state_dict(net.state_dict())
    if not isinstance(ours, poptorch.optim.Optimizer):
        return
    state = ours.state_dict()["ipu_state"]
    for name, p in reference.named_parameters():
        if isinstance(optimizer, torch.optim.SGD):
            optimizer.state[p] = {"momentum_buffer": state[f"Accl1___{name}"].clone()}
        else:
            optimizer.state[p] = {"exp_avg": state[f"Accl1___{name}"].clone(), "step": state[f"Step___{name}"].clone(),
                                  "exp_avg_sq": state[f"Accl2___{name}"].clone()}


@pytest.mark.parametrize("number", NETS)
def test_losses_of_200_steps(shared, number):
    """A run of ours in the script's own batches. PyTorch takes over its weights and optimizer state every tenth step
    and goes on by itself: losses are within 1e-4, but for at most three that are within 1e-2, where a maximum is
    closer than float32 can tell."""
    make, theirs, _, rows, _ = NETS[number]
    net = net_of(shared, number)
    reference = copy.deepcopy(net)
    optimizer, ours = theirs(reference.parameters()), make(net.parameters())
    model = poptorch.trainingModel(net, options(number), ours)
    got, wanted = [], []
    for i, (x, t) in enumerate(batches(number, rows, 200)):
        if i % 10 == 0 and i > 0:
            follow(reference, optimizer, net, ours)
        got.append(model(x, t)[1].item())
        wanted.append(torch_step(reference, optimizer, x, t))
    wanted = np.array(wanted)
    assert wanted[-50:].mean() < 0.8 * wanted[:50].mean(), "nothing was learnt"
    error = np.abs(np.array(got) - wanted) / (wanted + 1e-2)
    assert np.sum(error > 1e-4) <= 3 and np.max(error) < 1e-2, np.flatnonzero(error > 1e-4)


STRATEGIES = {
    "pipelined": lambda: poptorch.PipelinedExecution(*[poptorch.Stage(b).ipu(i) for i, b in enumerate(FOUR)]),
    "sharded": lambda: poptorch.ShardedExecution(*[poptorch.Stage(b).ipu(i) for i, b in enumerate(FOUR)]),
    "phased": lambda: poptorch.SerialPhasedExecution(["B1"], ["B2"], ["B3"], ["B4"]),
}


def train_placed(shared, strategy):
    net = net_of(shared, "003")
    opts = options("003", strategy).outputMode(poptorch.OutputMode.All).deviceIterations(2)
    opts.Training.gradientAccumulation(8)
    opts.TensorLocations.setOptimizerLocation(poptorch.TensorLocationSettings().useOnChipStorage(False))
    model = poptorch.trainingModel(net, opts, NETS["003"][0](net.parameters()))
    out = [t for x, y in batches("003", 40 * 16, 2) for t in model(x, y)]
    return out + [p.detach() for p in net.parameters()]


@pytest.fixture(scope="module")
def on_one_device():
    made = []

    def get(shared):
        if not made:
            made.append(train_placed(shared, poptorch.ShardedExecution(poptorch.Stage(*FOUR).ipu(0))))
        return made[0]
    return get


@pytest.mark.parametrize("name", STRATEGIES)
def test_placement_changes_no_number(shared, on_one_device, name):
    one, several = on_one_device(shared), train_placed(shared, STRATEGIES[name]())
    assert len(one) == len(several) and all(torch.equal(a, b) for a, b in zip(one, several))


# The engine does the work.

class Calls(TorchDispatchMode):
    """The names of all ATen calls."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func._schema.name)
        return func(*args, **(kwargs or {}))


MEMORY = {"aten::empty", "aten::detach", "aten::alias", "aten::view", "aten::slice", "aten::select", "aten::as_strided",
          "aten::_unsafe_view"}


def assert_no_compute(model, *args):
    with Calls() as calls:
        for _ in range(2):
            model(*args)
    assert calls.names and set(calls.names) <= MEMORY, set(calls.names) - MEMORY


@pytest.mark.parametrize("number, D, A, mode", [
    ("000", 1, 1, None), ("002", 50, 1, poptorch.OutputMode.All), ("003", 2, 8, poptorch.OutputMode.Final), ("000", 4, 1, poptorch.OutputMode.Sum)])
def test_pytorch_computes_nothing_in_a_call(shared, number, D, A, mode):
    net = net_of(shared, number, dropout=True)
    made = options(number, poptorch.PipelinedExecution(*FOUR)).deviceIterations(D)
    if mode is not None:
        made.outputMode(mode)
    inference_options = made.clone()
    made.Training.gradientAccumulation(A)
    (x, t), = batches(number, NETS[number][3] * D * A, 1)
    model = poptorch.trainingModel(net, made, NETS[number][0](net.parameters()))
    model(x, t)
    assert_no_compute(model, x, t)
    plain = net.eval() if number == "000" else net.model.eval()
    if number == "003":
        inference_options.deviceIterations(max(4, D))
    rows = 8 * inference_options.device_iterations
    inference = poptorch.inferenceModel(plain, inference_options)
    inference(x[:rows])
    model(x, t)    # so that it has weights to fetch
    assert_no_compute(inference, x[:rows])


def test_calls_are_counted():
    with Calls() as calls:
        torch.ones(2) + 1
    assert not set(calls.names) <= MEMORY


# Porting: a PyTorch script and what becomes of it.

def side(diff, sign):
    """One side of a diff: '-' as it was, '+' as it becomes."""
    other = {"-": "+", "+": "-"}[sign]
    kept = [re.sub(r"^[-+]", " ", x) for x in diff.splitlines() if not x.startswith(other)]
    return textwrap.dedent("\n".join(kept))


START = """
import sys
import numpy as np
import torch
import torch.nn as nn
import torchvision
torch.set_default_dtype(getattr(torch, sys.argv[1]))
device = torch.device("cpu")
criterion = nn.NLLLoss()
losses = []
transform = torchvision.transforms.Compose([torchvision.transforms.ToTensor(),
                                            torchvision.transforms.Normalize((0.5,), (0.5,))])
"""


def ported(shared, sign):
    """The script of the porting guide, put together from its pieces: '-' for PyTorch, '+' for poptorch."""
    text = seed_text(shared, "001")
    model = re.search(r"^class ClassificationModel.*?(?=^```$)", text, re.M | re.S)[0]
    diffs = {name: next(side(d, sign) for d in blocks(text, "diff") if key in d) for name, key in {
        "imports": "import poptorch", "wrap": "model = model.to(device)", "wrap with loss": "class ModelwithLoss",
        "data": "train_dataset", "optimizer": "poptorch.optim", "loop": "zero_grad"}.items()}
    # The guide's diff leaves this argument twice on PyTorch's side.
    diffs["data"] = re.sub(r"(DataLoader\(train_dataset,)\s+train_dataset,", r"\1", diffs["data"])
    if sign == "+":
        make, wrap = diffs["wrap with loss"].split("training_model =")
        wrap = "training_model =" + wrap
    else:
        make, wrap = diffs["wrap"], ""
    loop = "bar = train_dataloader\n" + diffs["loop"].rstrip() + "\n    losses.append(loss.item())\n"
    return "\n".join([START, diffs["imports"], model, diffs["data"], "torch.manual_seed(0)", make, diffs["optimizer"],
                      wrap, loop, "np.save('losses.npy', np.array(losses))"])


def port(build_dir, shared, tmp_path, sign, dtype, count, **more):
    place = tmp_path / {"-": "torch", "+": "poptorch"}[sign]
    if not place.exists():
        (place / "x").mkdir(parents=True)
        fill(place / "datasets", "FashionMNIST", FASHION, (count, 16))
        (place / "x" / "script.py").write_text(ported(shared, sign))
    done = subprocess.run([sys.executable, "script.py", dtype], cwd=place / "x", capture_output=True, text=True,
                          env=environment(build_dir, place, **more), timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    return np.load(place / "x" / "losses.npy"), done


@pytest.mark.parametrize("dtype, steps, tolerance",
                         [("float32", 30, 1e-4), *([("float64", 60, 1e-6)] if FULL else [])])
def test_a_port_changes_no_loss(build_dir, shared, tmp_path, dtype, steps, tolerance):
    if not FASHION.is_dir():
        pytest.skip(f"needs {FASHION}, of the package dataset-fashion-mnist")
    before, _ = port(build_dir, shared, tmp_path, "-", dtype, 16 * steps)
    after, _ = port(build_dir, shared, tmp_path, "+", dtype, 16 * steps)
    assert len(before) == len(after) == steps
    assert np.max(np.abs(after - before) / before) < tolerance


def test_the_second_run_compiles_nothing(build_dir, shared, tmp_path):
    """POPTORCH_CACHE_DIR=./cache python pytorch_ipu.py, twice. A compiler that keeps a list is asked for its version,
    which is part of the cache's key, and for nothing else."""
    if not FASHION.is_dir():
        pytest.skip(f"needs {FASHION}, of the package dataset-fashion-mnist")
    compiler, calls = tmp_path / "cc", tmp_path / "calls"
    compiler.write_text(f'#!/bin/sh\necho "$*" >> {calls}\nexec cc "$@"\n')
    compiler.chmod(0o755)
    lists, losses = [], []
    for _ in range(2):
        calls.write_text("")
        found, done = port(build_dir, shared, tmp_path, "+", "float32", 64, TESSERA_CC=str(compiler),
                           POPTORCH_CACHE_DIR="./cache")
        lists.append([x for x in calls.read_text().splitlines() if x != "--version"])
        losses.append(found.tolist())
        assert re.search(r"Graph compilation: 100%\|█+\| 100/100 \[", done.stderr)
    assert lists[0] and not lists[1], lists[1]
    assert losses[0] == losses[1]
    assert list((tmp_path / "poptorch" / "x" / "cache").iterdir())
