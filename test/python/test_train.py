"""tessera train: the files it writes as PyTorch, Pillow and TensorBoard's format have them; the same bits for any number
of threads and after Ctrl-C, kill -9 and --resume; errors before the first epoch."""

import csv
import gzip
import json
import os
import random
import re
import resource
import shlex
import signal
import struct
import subprocess
import tempfile
import time
import zipfile
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
Image = pytest.importorskip("PIL.Image")

OK, FAILED, USAGE = 0, 1, 2
DATA = Path("/usr/share/datasets/fashion-mnist")
needs_data = pytest.mark.skipif(not DATA.exists(), reason="needs Debian's dataset-fashion-mnist")
SHORT = ["fashion-mnist", "--limit", 512, "--epochs", 1, "--no-plots"]


@pytest.fixture
def train(build_dir, tmp_path, few_fashion):
    env = {**os.environ, "TESSERA_CACHE_DIR": str(build_dir / "test-cache"), "LC_ALL": "C.UTF-8",
           **({"TESSERA_DATA_DIR": str(few_fashion)} if few_fashion else {})}

    def start(*args, **how):
        env.update(how.pop("set", {}))
        return subprocess.Popen([build_dir / "tessera", "train", *map(str, args)], cwd=tmp_path, env=env, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, **how)

    def run(*args, code=OK, **how):
        child = start(*args, **how)
        out, err = child.communicate(timeout=120)
        assert child.returncode == code, out + err
        run.err = err
        return out
    run.start = start
    return run


def events(text):
    return [json.loads(line) for line in text.splitlines()]


def same(a, b):
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and a.numpy().tobytes() == b.numpy().tobytes()
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b or a != a and b != b


TIMES = {"seconds", "epochs"}  # rows of the table have times


def assert_same_run(a, b):
    """Two checkpoints are of the same computation: every number but the times."""
    a, b = torch.load(a), torch.load(b)
    for key in ("epoch", "step", "loss", "model_state_dict", "optimizer_state_dict"):
        assert same(a[key], b[key]), key
    for key in ("rng_seed", "rng_step", "states", "samples", "options"):
        assert same(a["tessera"][key], b["tessera"][key]), key
    pa, pb = a["tessera"]["progress"], b["tessera"]["progress"]
    assert same({k: v for k, v in pa.items() if k not in TIMES}, {k: v for k, v in pb.items() if k not in TIMES})
    assert same(pa["epochs"][:, :2].contiguous(), pb["epochs"][:, :2].contiguous())


class Classifier(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.pool = torch.nn.Conv2d(1, 5, 3), torch.nn.MaxPool2d(2, 2)
        self.conv2, self.norm = torch.nn.Conv2d(5, 12, 5), torch.nn.GroupNorm(3, 12)
        self.fc1, self.fc2 = torch.nn.Linear(972, 100), torch.nn.Linear(100, 10)

    def forward(self, x):
        x = self.pool(torch.relu(self.conv1(x)))
        x = torch.flatten(self.norm(torch.relu(self.conv2(x))), start_dim=1)
        return torch.log_softmax(self.fc2(torch.relu(self.fc1(x))), 1)


def first(split, n):
    """The first n images, normalised, and labels of "train" or "t10k"."""
    with gzip.open(DATA / f"{split}-images-idx3-ubyte.gz") as f:
        x = np.frombuffer(f.read(16 + n * 784), np.uint8, offset=16).reshape(n, 1, 28, 28)
    with gzip.open(DATA / f"{split}-labels-idx1-ubyte.gz") as f:
        y = np.frombuffer(f.read(8 + n), np.uint8, offset=8)
    return torch.tensor((x / np.float32(255) - 0.5) / 0.5, dtype=torch.float32), torch.tensor(y).long()


# --- the files


@needs_data
def test_everything_a_run_writes(train, tmp_path):
    out = train("fashion-mnist", "--limit", 1024, "--epochs", 2, "--lr", 0.01, "--logdir", "logs", "--csv", "t.csv",
                "--output", "sub.pth")
    accuracy = float(re.search(r"^Test accuracy: ([\d.]+) %$", out, re.M)[1])
    assert re.findall(r"^Epoch (\d/\d): loss", out, re.M) == ["1/2", "2/2"] and train.err == ""
    model = Classifier()
    model.load_state_dict(torch.load(tmp_path / "sub.pth"))
    x, y = first("t10k", 1024)
    right = (model.eval()(x).argmax(1) == y).float().mean().item() * 100
    assert abs(right - accuracy) < 0.2 and accuracy > 50
    for name in ("samples", "curves", "confusion"):
        with Image.open(tmp_path / f"sub-plots/{name}.png") as picture:
            picture.load()
            assert min(picture.size) > 300
    rows = list(csv.DictReader(open(tmp_path / "t.csv")))
    assert [r["epoch"] for r in rows] == ["1", "2"] and float(rows[1]["loss"]) < float(rows[0]["loss"])
    assert set(rows[0]) == {"epoch", "loss", "accuracy", "seconds", "samples_per_s"}
    tags = b"".join(records(next((tmp_path / "logs").iterdir())))
    for tag in (b"train/loss", b"train/accuracy", b"test/accuracy"):
        assert tag in tags
    assert tags.count(b"train/loss") == calls(tmp_path / "sub.resume.pth") > 2
    assert sorted(p.name for p in tmp_path.iterdir()) == ["logs", "sub-plots", "sub.pth", "sub.resume.pth", "t.csv"]


def calls(path):
    own = torch.load(path)["tessera"]
    return own["progress"]["updates"] // int(own["options"]["device-iterations"])


def records(path):
    """The records of a TFRecord file: length, its CRC, data, its CRC."""
    data, at = path.read_bytes(), 0
    while at < len(data):
        n, = struct.unpack_from("<Q", data, at)
        yield data[at + 12:at + 12 + n]
        at += n + 16


@needs_data
def test_metadata(train, tmp_path, build_dir):
    train(*SHORT, "--output", "a.pth")
    train(*SHORT, "--output", "a.safetensors")
    with zipfile.ZipFile(tmp_path / "a.pth") as z:
        facts = {n.split("extra/")[1]: z.read(n).decode() for n in z.namelist() if "/extra/" in n}
    raw = (tmp_path / "a.safetensors").read_bytes()
    header = json.loads(raw[8:8 + struct.unpack_from("<Q", raw)[0]])
    assert header["__metadata__"] == facts
    assert facts["tessera.input"] == "1 28 28" and facts["tessera.normalize"] == "0.5 0.5"
    assert facts["tessera.classes"].split("\n")[1:3] == ["Trouser", "Pullover"]
    assert facts["tessera.model.name"] == "classifier" and facts["tessera.data"] == "fashion-mnist"
    assert facts["tessera.model"] == subprocess.run([build_dir / "tessera", "models", "classifier"], text=True,
                                                    capture_output=True).stdout


@needs_data
def test_eval_agrees(train, tmp_path, build_dir):
    end = events(train(*SHORT, "--json"))[-1]
    done = subprocess.run([build_dir / "tessera", "eval", "classifier.pth", "--limit", "512", "--no-plots", "--json"],
                          cwd=tmp_path, capture_output=True, text=True,
                          env={**os.environ, "TESSERA_CACHE_DIR": str(build_dir / "test-cache")})
    assert done.returncode == OK, done.stderr
    assert json.loads(done.stdout)["accuracy"] == end["accuracy"]


LITTLE = """# as `classifier`, and compiled in a third of the time
input 1 28 28
classes 10
conv: conv2d 3 5 stride=3
relu
norm: group_norm 3
flatten
fc: linear classes
loss cross_entropy
"""

OPTIMIZERS = {
    "sgd": (["--momentum", 0.9], lambda p: torch.optim.SGD(p, lr=0.5, momentum=0.9)),
    "adam": ([], lambda p: torch.optim.Adam(p, lr=0.5)),
    "adamw": (["--weight-decay", 0.1], lambda p: torch.optim.AdamW(p, lr=0.5, weight_decay=0.1)),
    "rmsprop": (["--momentum", 0.5], lambda p: torch.optim.RMSprop(p, lr=0.5, momentum=0.5)),
    "adadelta": ([], lambda p: torch.optim.Adadelta(p, lr=0.5)),
    "asgd": (["--weight-decay", 0.1], lambda p: torch.optim.ASGD(p, lr=0.5)),
}


@needs_data
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_pytorch_goes_on_with_the_optimizer(train, tmp_path, name):
    """One step of PyTorch from the checkpoint is the command's next step, to rounding."""
    args, make = OPTIMIZERS[name]
    (tmp_path / "net.txt").write_text(LITTLE)
    one = ["fashion-mnist", "--model", "net.txt", "--limit", 16, "--no-plots", "--optimizer", name, "--lr", 0.001, *args,
           "--device-iterations", 1]
    train(*one, "--epochs", 3, "--output", "a.pth")
    kept = torch.load(tmp_path / "a.resume.pth")
    train(*one, "--epochs", 4, "--output", "a.pth", "--resume")
    model = torch.nn.Sequential(OrderedDict(conv=torch.nn.Conv2d(1, 3, 5, 3), relu=torch.nn.ReLU(), norm=torch.nn.GroupNorm(3, 3),
                                            flatten=torch.nn.Flatten(), fc=torch.nn.Linear(192, 10)))
    model.load_state_dict(kept["model_state_dict"])
    optimizer = make(model.parameters())
    optimizer.load_state_dict(kept["optimizer_state_dict"])
    assert optimizer.param_groups[0]["lr"] == 0.001
    again = optimizer.state_dict()
    for i, state in kept["optimizer_state_dict"]["state"].items():
        assert state and same({**state}, {k: again["state"][i][k] for k in state})
    x, y = first("train", 16)
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    after = torch.load(tmp_path / "a.pth")
    for key, value in model.state_dict().items():
        assert torch.allclose(value, after[key], rtol=1e-3, atol=2e-5), key


# --- the same bits


@needs_data
def test_seed_and_threads(train, tmp_path):
    for name, more in {"a": [], "b": [], "one": ["--threads", 1], "two": ["--threads", 2], "c": ["--seed", 7]}.items():
        train(*SHORT, "--output", f"{name}.pth", *more)
    files = {p.stem: p.read_bytes() for p in tmp_path.glob("*.pth") if "resume" not in p.name}
    assert files["a"] == files["b"] == files["one"] == files["two"] != files["c"]
    for other in ("b", "one", "two"):
        assert_same_run(tmp_path / "a.resume.pth", tmp_path / f"{other}.resume.pth")


LONG = ["fashion-mnist", "--limit", 512, "--epochs", 4, "--device-iterations", 1, "--optimizer", "adam", "--no-plots"]


def wait_for_step(child, path, step):
    """Until the run is that far, by its own events."""
    for line in child.stdout:
        event = json.loads(line)
        if event["event"] == "checkpoint" and event["step"] >= step:
            return True
    return False


@needs_data
@pytest.mark.parametrize("which, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_and_resumed(train, tmp_path, which, code):
    train(*LONG, "--output", "whole.pth", "--csv", "whole.csv")
    child = train.start(*LONG, "--output", "it's.pth", "--csv", "part.csv", "--checkpoint-every", 5, "--json")
    assert wait_for_step(child, tmp_path, 40)
    child.send_signal(which)
    out, err = child.communicate(timeout=60)
    assert child.returncode == code, err
    last = events(out)[-1]
    assert last["event"] == "stopped" and last["checkpoint"] == "it's.resume.pth"
    kept = torch.load(tmp_path / "it's.resume.pth")
    assert kept["step"] == last["step"] >= 40 and not (tmp_path / "it's.pth").exists()
    again = shlex.split(err.strip().splitlines()[-1])
    assert "To go on:" in err and again[:2] == ["tessera", "train"] and again[-1] == "--resume"
    end = events(train(*again[2:]))
    assert end[0]["step"] == last["step"] and end[-1]["event"] == "end"
    assert (tmp_path / "whole.pth").read_bytes() == (tmp_path / "it's.pth").read_bytes()
    assert_same_run(tmp_path / "whole.resume.pth", tmp_path / "it's.resume.pth")
    rows = [[r["epoch"], r["loss"]] for n in ("whole", "part") for r in csv.DictReader(open(tmp_path / f"{n}.csv"))]
    assert rows[:4] == rows[4:]


@needs_data
def test_killed_at_any_moment(train, tmp_path):
    """Whatever a kill leaves is a whole checkpoint, and the run that goes on from it ends with the same bits."""
    raw = gzip.open(DATA / "train-images-idx3-ubyte.gz").read(16 + 512 * 784)[16:]
    labels = gzip.open(DATA / "train-labels-idx1-ubyte.gz").read(8 + 512)[8:]
    np.savez(tmp_path / "some.npz", x=np.frombuffer(raw, np.uint8).reshape(512, 28, 28),
             y=np.frombuffer(labels, np.uint8).astype(np.int64))    # quick to open
    args = ["some.npz", "--model", "classifier", *LONG[3:]]
    train(*args, "--output", "whole.pth")
    started = time.monotonic()
    train(*args, "--output", "whole.pth", "--overwrite")    # compiled now, so this is how long a run takes
    longest = max(0.3, time.monotonic() - started)    # on a busy machine too some get somewhere
    rnd, steps, kills = random.Random(5), set(), 0
    model, kept = tmp_path / "part.pth", tmp_path / "part.resume.pth"
    args += ["--output", "part.pth", "--checkpoint-every", 3]
    while kills < (500 if os.environ.get("TS_SOAK") else 20) or not model.exists():
        if model.exists():    # the last run came to its end: another one
            model.unlink()
            kept.unlink()
        child = train.start(*args, "--threads", rnd.choice("12"), *(["--resume"] if kept.exists() else []))
        try:
            child.wait(rnd.uniform(0.02, longest))
        except subprocess.TimeoutExpired:
            child.kill()
            kills += 1
        child.communicate()
        if kept.exists():
            steps.add(torch.load(kept)["step"])
        if model.exists():
            assert (tmp_path / "whole.pth").read_bytes() == model.read_bytes()
            assert_same_run(tmp_path / "whole.resume.pth", kept)
    assert len(steps & set(range(1, 4 * 32))) > 5, "too few kills hit a run in its middle"


@needs_data
@pytest.mark.parametrize("more", [["--optimizer", "sgd", "--gradient-accumulation", 4], ["--optimizer", "lamb"],
                                  ["--optimizer", "rmsprop", "--momentum", 0.5],
                                  ["--dropout", "--optimizer", "sgd", "--device-iterations", 3]])
def test_more_epochs_are_a_longer_run(train, tmp_path, more):
    (tmp_path / "net.txt").write_text(LITTLE.replace("relu", "relu\ndropout 0.2") if more[0] == "--dropout" else LITTLE)
    more = ["--model", "net.txt", *(more[1:] if more[0] == "--dropout" else more)]
    train(*SHORT, *more, "--epochs", 2, "--output", "whole.pth")
    train(*SHORT, *more, "--output", "part.pth")
    train("fashion-mnist", "--resume", "--epochs", 2, "--output", "part.pth", "--no-plots")
    assert (tmp_path / "whole.pth").read_bytes() == (tmp_path / "part.pth").read_bytes()
    assert_same_run(tmp_path / "whole.resume.pth", tmp_path / "part.resume.pth")


@needs_data
def test_a_second_signal_quits_at_once(train, tmp_path):
    child = train.start(*LONG, "--epochs", 100000, "--device-iterations", 32, "--json")
    assert wait_for_step(child, tmp_path, 32)
    child.send_signal(signal.SIGINT)
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=60)
    assert child.returncode == 130
    torch.load(tmp_path / "classifier.resume.pth")


@needs_data
def test_an_unfinished_run_is_set_aside(train, tmp_path):
    child = train.start(*LONG, "--epochs", 1000, "--json")
    assert wait_for_step(child, tmp_path, 32)
    child.kill()
    child.communicate()
    out = train(*SHORT)
    assert "classifier.resume.pth.old" in out and torch.load(tmp_path / "classifier.resume.pth.old")["step"] >= 32


# --- what it says


@needs_data
def test_json(train):
    start, *middle, end = events(train(*SHORT, "--json", "--limit", 500, "--device-iterations", 2))
    assert (start["event"], start["samples"], start["dropped"], start["model"]) == ("start", 500, 500 % 32, "classifier")
    assert [e["event"] for e in middle] == ["epoch", "checkpoint"] and middle[0]["epoch"] == 1
    assert middle[0]["loss"] > 0 and 0 < middle[0]["accuracy"] < 1 and middle[0]["samples_per_s"] > 0
    assert end["event"] == "end" and end["output"] == "classifier.pth" and end["plots"] is None
    assert train.err == ""


@needs_data
def test_what_is_left_out_is_said(train):
    assert re.search(r"^20 of the samples.* call of 32 ", train(*SHORT, "--limit", 500, "--device-iterations", 2), re.M)
    assert "left out" not in train(*SHORT, "--overwrite")


@needs_data
def test_quiet_and_bars(train):
    assert re.fullmatch(r"Test accuracy: [\d.]+ %\n", train(*SHORT, "--quiet", set={"TESSERA_PROGRESS": "1"}))
    assert train.err == ""
    train(*SHORT, "--overwrite", set={"TESSERA_PROGRESS": "1"})
    assert "Epochs" in train.err and "Batches" in train.err and "loss=" in train.err


def test_other_data(train, tmp_path):
    """A table without a test set, and a folder of images: the model is chosen by the shape."""
    rnd = np.random.default_rng(3)
    with open(tmp_path / "t.csv", "w") as f:
        for _ in range(200):
            y = rnd.integers(3)
            f.write(",".join(f"{v:.4f}" for v in rnd.normal(size=4) + 3 * y) + f",{'abc'[y]}\n")
    out = train("t.csv", "--epochs", 20)
    assert "the model is mlp" in out and "No test set" in out
    assert f"\nmlp: {sum(t.numel() for t in torch.load(tmp_path / 'mlp.pth').values())} parameters;" in out
    assert float(re.search(r"^Training accuracy: ([\d.]+) %$", out, re.M)[1]) > 90
    assert not (tmp_path / "mlp-plots/samples.png").exists() and (tmp_path / "mlp-plots/curves.png").exists()
    for split, n in (("train", 20), ("test", 6)):
        for name, value in (("dark", 30), ("light", 220)):
            (tmp_path / "p" / split / name).mkdir(parents=True)
            for i in range(n):
                Image.fromarray(rnd.integers(value - 30, value + 30, (24, 20, 3)).astype(np.uint8)).save(
                    tmp_path / "p" / split / name / f"{i}.png")
    out = train("p", "--batch-size", 4, "--resize", 28, "--grayscale", "--epochs", 2)
    assert "samples of 1x28x28 in 2 classes" in out and "the model is lenet" in out
    assert float(re.search(r"^Test accuracy: ([\d.]+) %$", out, re.M)[1]) == 100


@needs_data
def test_the_examples_in_the_help_are_right(train, tmp_path):
    """On less data; those whose data is not there say so."""
    text = train("--help")
    lines = [shlex.split(line) for line in re.findall(r"^  tessera train (.*)$", text, re.M)]
    assert len(lines) == 5
    for args in lines:
        there = args[0] == "fashion-mnist"
        train(*args, *([] if "--resume" in args else ["--limit", 512]), "--no-plots", "--quiet",
              code=OK if there else FAILED, set={"TESSERA_DATA_DIR": "", "XDG_CACHE_HOME": str(tmp_path)})
        assert there or args[0] in train.err or "no model 'net.txt'" in train.err


# --- errors


def parts(text):
    return [line.split()[0] for line in text.splitlines()]


@pytest.mark.parametrize("args, words", [
    ([], "DATA is missing"),
    (["fashion-mnist", "--epochs", 0], "--epochs is 0"),
    (["fashion-mnist", "--epohcs", 3], "did you mean --epochs"),
    (["fashion-mnist", "--output", "x.npz"], "must end in .pth"),
    (["fashion-mnist", "--plots", "a", "--no-plots"], "exclude each other"),
    (["fashion-mnist", "--resize", "28y"], "--resize is '28y'"),
    (["fashion-mnist", "--optimizer", "sdg"], "one of: sgd adam"),
])
def test_wrong_lines(train, args, words):
    train(*args, code=USAGE)
    assert words in train.err


@needs_data
@pytest.mark.parametrize("args, words", [
    (["no-such-data"], "cannot open no-such-data"),
    (["fashion-mnist", "--data", "/nowhere"], "the files of fashion-mnist are not in /nowhere"),
    (["fashion-mnist", "--model", "clasifier"], "did you mean 'classifier'"),
    (["fashion-mnist", "--output", "no/such/x.pth"], "no/such"),
    (["fashion-mnist", "--csv", "no/such/t.csv", "--limit", 64], "no/such/t.csv"),
    (["fashion-mnist", "--logdir", "/proc/x", "--limit", 64], "/proc/x"),
    (["fashion-mnist", "--plots", "/proc/x", "--limit", 64], "cannot make the folder /proc/x"),
    (["fashion-mnist", "--limit", 10], "one call of the engine takes 16 samples"),
    (["fashion-mnist", "--resume"], "there is nothing to resume: classifier.resume.pth is not there"),
    (["fashion-mnist", "--model", "two.txt", "--limit", 64], "the model tells 2 classes apart, the data has 10"),
    (["fashion-mnist", "--model", "flat.txt", "--limit", 64], "shape error"),
    (["fashion-mnist", "--model", "mean.txt", "--limit", 64], "does not compare scores with the classes"),
    (["fashion-mnist", "--model", "little.txt", "--limit", 64, "--lr", 1000000, "--device-iterations", 4, "--check-numbers"], " made a"),
    (["bad.csv"], "bad.csv"),
])
def test_failures(train, tmp_path, args, words):
    (tmp_path / "two.txt").write_text("input 1 28 28\nclasses 10\nflatten\nf: linear 2\nloss cross_entropy\n")
    (tmp_path / "flat.txt").write_text("input 4 4\nclasses 10\nc: conv2d 3 kernel=40\nflatten\nf: linear classes\n"
                                       "loss cross_entropy\n")
    (tmp_path / "mean.txt").write_text("input 1 28 28\nclasses 10\nflatten\nf: linear classes\nloss mse\n")
    (tmp_path / "little.txt").write_text(LITTLE)
    (tmp_path / "bad.csv").write_text("1,2,a\n1,x,b\n")
    train(*args, code=FAILED)
    assert words in train.err and train.err.startswith("tessera: "), train.err
    assert {"while", "hint"} & set(parts(train.err)[1:]), train.err
    assert not (tmp_path / "classifier.pth").exists()


HOSTILE = [  # changes to a checkpoint, and what is said about them
    (lambda o: o["tessera"]["options"].update({"batch-size": "0"}), "options make no sense"),
    (lambda o: o["tessera"]["options"].update({"device-iterations": "-5"}), "options make no sense"),
    (lambda o: o["tessera"]["options"].pop("seed"), "does not say how its run was started"),
    (lambda o: o["tessera"]["progress"].update(call=10**9), "does not say how far its run is"),
    (lambda o: o["tessera"]["progress"].update(epochs=torch.ones(1, 4)), "does not say how far its run is"),
    (lambda o: o["tessera"].pop("epochs"), "how many epochs"),
    (lambda o: o["model_state_dict"].pop("fc1.bias"), "no fc1.bias that fits"),
    (lambda o: o["model_state_dict"].update({"fc1.bias": torch.ones(3)}), "no fc1.bias that fits"),
    (lambda o: o["optimizer_state_dict"]["state"].pop(0), "no conv1.weight.momentum that fits"),
    (lambda o: o["tessera"].update({"tessera.model": "nonsense"}), "the description must begin"),
    (lambda o: o["tessera"].update(samples=7), "the number of samples is '512' here and '7'"),
]


@needs_data
def test_resuming_another_run(train, tmp_path):
    train(*SHORT, "--output", "a.pth")
    before = (tmp_path / "a.resume.pth").read_bytes()
    for more, words in ((["--batch-size", 8], "--batch-size is '8' here and '16' in"),
                        (["--model", "mlp"], "--model is 'mlp' here and 'classifier' in"),
                        (["--seed", 1], "--seed is '1' here and '42'"), (["--limit", 64], "--limit is '64' here and '512'"),
                        (["--optimizer", "adam"], "--optimizer is 'adam' here and 'sgd'")):
        train("fashion-mnist", "--output", "a.pth", "--resume", *more, code=FAILED)
        assert words in train.err, train.err
    train("mnist", "--output", "a.pth", "--resume", code=FAILED)
    assert "the data is 'mnist' here and 'fashion-mnist'" in train.err
    train(*SHORT, "--epochs", 3, "--output", "b.pth")
    train("fashion-mnist", "--epochs", 2, "--output", "b.pth", "--resume", code=FAILED)
    assert "--epochs is 2, and 3 are done" in train.err
    assert (tmp_path / "a.resume.pth").read_bytes() == before
    for change, words in HOSTILE:
        kept = torch.load(tmp_path / "b.resume.pth")
        change(kept)
        torch.save(kept, tmp_path / "c.resume.pth")
        train("fashion-mnist", "--output", "c.pth", "--resume", "--epochs", 4, "--no-plots", code=FAILED)
        assert words in train.err, train.err
    torch.save({"a": torch.ones(2)}, tmp_path / "a.resume.pth")
    train("fashion-mnist", "--output", "a.pth", "--resume", code=FAILED)
    assert "no checkpoint of a training run" in train.err
    (tmp_path / "a.resume.pth").write_bytes(before[:1000])
    train("fashion-mnist", "--output", "a.pth", "--resume", code=FAILED)
    assert "a.resume.pth" in train.err


@needs_data
def test_no_room(train, tmp_path):
    """A limit on the size of files stands for a full disk: the first checkpoint finds it, nothing is left."""
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
    train(*SHORT, "--output", "warm.pth")
    train(*SHORT, code=FAILED, preexec_fn=limit)
    assert "saving classifier.resume.pth" in train.err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["warm.pth", "warm.resume.pth"]


@needs_data
def test_a_disk_that_fills_up(train, tmp_path):
    """Room for one checkpoint, not for the next beside it: the run ends with an error and the first one is whole."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1200k", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("needs the right to mount a tmpfs")
    try:
        train(*SHORT, "--output", "disk/a.pth", code=FAILED)
        assert "No space left on device" in train.err and "saving disk/a.resume.pth" in train.err
        assert [p.name for p in disk.iterdir()] == ["a.resume.pth"] and torch.load(disk / "a.resume.pth")["step"] == 0
    finally:
        subprocess.run(["umount", disk], check=True)


def become_nobody():
    """Root may write everywhere."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)


@needs_data
def test_unwritable_folder(build_dir):
    with tempfile.TemporaryDirectory(prefix="tessera-test-") as folder:
        os.chmod(folder, 0o555)
        how = dict(cwd=folder, preexec_fn=become_nobody, capture_output=True, text=True, timeout=120,
                   env={**os.environ, "TESSERA_CACHE_DIR": "", "HOME": folder, "TESSERA_DATA_DIR": ""})
        try:
            assert subprocess.run([build_dir / "tessera", "--version"], **how).returncode == OK
        except PermissionError:
            pytest.skip("needs a tree that every user may read")
        done = subprocess.run([build_dir / "tessera", "train", *map(str, SHORT)], **how)
        assert done.returncode == FAILED and "Permission denied" in done.stderr and "--output" in done.stderr
        assert os.listdir(folder) == []


def test_the_real_digits(train, tmp_path, shared):
    """MNIST with its own defaults: mnist-cnn with dropout, 50 updates in a call."""
    folder = shared("data/mnist")
    out = events(train("mnist", "--data", folder, "--limit", 4000, "--epochs", 1, "--json"))
    assert out[-1]["event"] == "end" and out[-1]["accuracy"] > 0.85
    assert {p.name for p in (tmp_path / "mnist-cnn-plots").iterdir()} == {"confusion.png", "curves.png", "samples.png"}
    state = torch.load(tmp_path / "mnist-cnn.pth")
    assert state["layer1.conv.weight"].shape == (32, 1, 3, 3)
