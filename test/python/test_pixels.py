"""Classes of pixels, from a file to pictures: train, eval and predict, with the metrics that NumPy computes of the same scores."""

import csv
import json
import os
import subprocess

import re

import numpy as np
import pytest
from nets import LARGE, UResNet

torch = pytest.importorskip("torch")
Image = pytest.importorskip("PIL.Image")

OK, FAILED, USAGE = 0, 1, 2
COUNT, PLANES, HEIGHT, WIDTH, CLASSES = 6, 2, 12, 20, 3
NET = f"""input {PLANES} {HEIGHT} {WIDTH}
classes {CLASSES}
a: conv2d 16 kernel=3 padding=1
relu
b: conv2d {CLASSES * PLANES} kernel=1
reshape {CLASSES} {PLANES} {HEIGHT} {WIDTH}
loss cross_entropy
"""


def pictures(seed=0):
    """Lines on noise: what is bright is class 1, and class 2 where it is brighter still."""
    rng = np.random.default_rng(seed)
    y = np.zeros((COUNT, PLANES, HEIGHT, WIDTH), np.int64)
    for i in range(COUNT):
        for p in range(PLANES):
            y[i, p, rng.integers(HEIGHT)] = 1
            y[i, p, :, rng.integers(WIDTH)] = 2
    x = rng.normal(0, 0.3, y.shape).astype(np.float32) + np.array([0, 2, 4], np.float32)[y]
    return x, y


@pytest.fixture
def run(build_dir, tmp_path):
    env = {**os.environ, "TESSERA_CACHE_DIR": str(build_dir / "test-cache"), "LC_ALL": "C.UTF-8"}
    (tmp_path / "net.txt").write_text(NET)
    x, y = pictures()
    np.savez(tmp_path / "data.npz", x=x, y=y)

    def call(*args, code=OK):
        done = subprocess.run([build_dir / "tessera", *map(str, args)], cwd=tmp_path, env=env, text=True,
                              capture_output=True, timeout=120)
        assert done.returncode == code, done.stdout + done.stderr
        call.err = done.stderr
        return done.stdout
    return call


TRAIN = ["train", "data.npz", "--model", "net.txt", "--lr", "0.02", "--epochs"]    # the last of two --lr counts


def scores(path, x):
    w = {k: torch.as_tensor(v) for k, v in torch.load(path).items() if k[:2] in ("a.", "b.")}
    z = torch.nn.functional.conv2d(torch.as_tensor(x), w["a.weight"], w["a.bias"], padding=1).relu()
    return torch.nn.functional.conv2d(z, w["b.weight"], w["b.bias"]).reshape(-1, CLASSES, PLANES, HEIGHT, WIDTH)


def measured(said, y):
    """Accuracy, that of what is not background, IoU of each class."""
    ious = [float(((said == c) & (y == c)).sum() / ((said == c) | (y == c)).sum()) for c in range(CLASSES)]
    return float((said == y).mean()), float((said == y)[y > 0].mean()), ious


def test_from_data_to_pictures(run, tmp_path):
    x, y = pictures()
    out = run(*TRAIN, 40, "--csv", "log.csv", "--class-weights", "balanced")
    assert "with pixels of 3 classes" in out and "Training IoU: 0 " in out
    rows = list(csv.DictReader(open(tmp_path / "log.csv")))
    assert list(rows[0])[5:] == ["nonzero_accuracy", "iou_0", "iou_1", "iou_2", "mean_iou"]
    assert float(rows[-1]["mean_iou"]) > 0.9 > float(rows[0]["mean_iou"])

    z = scores(tmp_path / "net.pth", x)
    accuracy, nonzero, ious = measured(z.argmax(1).numpy(), y)
    result = json.loads(run("eval", "net.pth", "--json", "--plots", "plots"))
    assert result["task"] == "pixels" and result["samples"] == COUNT
    assert result["accuracy"] == pytest.approx(accuracy) and result["nonzero_accuracy"] == pytest.approx(nonzero)
    assert [c["iou"] for c in result["classes"]] == pytest.approx(ious)
    assert result["mean_iou"] == pytest.approx(np.mean(ious))
    assert result["mean_iou_nonzero"] == pytest.approx(np.mean(ious[1:]))
    assert result["loss"] == pytest.approx(float(torch.nn.functional.cross_entropy(z, torch.as_tensor(y))), rel=1e-4)
    assert sum(map(sum, result["confusion"])) == y.size

    said = json.loads(run("predict", "net.pth", "data.npz", "event", 3, 1, "--json", "--no-plots"))["images"][0]["events"]
    assert [e["event"] for e in said] == [1, 3]
    assert [c["iou"] for c in said[1]["classes"]] == pytest.approx(measured(z[3].argmax(0).numpy(), y[3])[2])
    out = run("predict", "net.pth", "data.npz", "event", 3, "--plots", "plots")
    assert "event 3" in out and "event 1" not in out
    for plane in range(PLANES):
        assert Image.open(tmp_path / "plots" / f"data-event3-plane{plane}.png").size[0] > WIDTH
    assert (tmp_path / "net-plots" / "sample.png").exists() and (tmp_path / "plots" / "confusion_matrix.png").exists()


def test_a_run_that_goes_on_has_the_same_table(run, tmp_path):
    run(*TRAIN, 4, "--csv", "whole.csv", "--output", "whole.pth", "--augment", "flip,vflip,shift=2", "--no-plots")
    run(*TRAIN, 2, "--output", "parts.pth", "--augment", "flip,vflip,shift=2", "--no-plots")
    run(*TRAIN, 4, "--csv", "parts.csv", "--output", "parts.pth", "--resume", "--no-plots")
    whole, parts = ([{k: v for k, v in row.items() if k not in ("seconds", "samples_per_s")}
                     for row in csv.DictReader(open(tmp_path / name))] for name in ("whole.csv", "parts.csv"))
    assert whole == parts and len(whole) == 4
    assert np.array_equal(*(torch.load(tmp_path / f)["a.weight"] for f in ("whole.pth", "parts.pth")))


def test_smaller_pictures(run, tmp_path):
    x, y = pictures()
    (tmp_path / "net.txt").write_text(NET.replace(f"{HEIGHT} {WIDTH}", f"{HEIGHT // 2} {WIDTH // 2}"))
    run(*TRAIN, 1, "--downsample", 2, "--no-plots")
    small = x.reshape(COUNT, PLANES, HEIGHT // 2, 2, WIDTH // 2, 2).astype(np.float64).mean((3, 5)).astype(np.float32)
    labels = y.reshape(COUNT, PLANES, HEIGHT // 2, 2, WIDTH // 2, 2).max((3, 5))
    np.savez(tmp_path / "small.npz", x=small, y=labels)
    whole = json.loads(run("eval", "net.pth", "--json", "--no-plots"))    # the checkpoint knows the 2
    assert whole["confusion"] == json.loads(run("eval", "net.pth", "--data", "small.npz", "--downsample", 1, "--json",
                                                "--no-plots"))["confusion"]


@pytest.mark.parametrize("args, words", [
    (["--augment", "mixup=0.2"], "mixup"),
    (["--downsample", "7"], "cannot be made 7 times smaller"),
    (["--loss", "mse"], "does not compare scores"),
])
def test_what_cannot_be(run, args, words):
    run(*TRAIN, 1, *args, "--no-plots", code=FAILED)
    assert words in run.err


def places(z, y, **how):
    return torch.nn.functional.cross_entropy(z, y, reduction="none", **how)


def share(y):
    return 1 / torch.bincount(y.flatten(), minlength=CLASSES).clamp(min=1).float()


def focal(z, y, gamma, weight=None):
    return (1 - (-places(z, y)).exp()) ** gamma * places(z, y, weight=weight)


#: Lines of losses, and what they are in PyTorch of scores z, labels y and samples x.
LOSSES = {
    "loss focal": lambda z, y, x: focal(z, y, 2).mean(),
    "loss focal gamma=1.5 reduction=sum factor=0.001": lambda z, y, x: focal(z, y, 1.5).sum() / 1000,
    "class_weights 1 2 5\nloss focal": lambda z, y, x: focal(z, y, 2, torch.tensor([1.0, 2, 5])).mean(),
    "loss cross_entropy balance=yes": lambda z, y, x: torch.nn.functional.cross_entropy(z, y, share(y)),
    "loss cross_entropy weights=seen": lambda z, y, x: (places(z, y) * x.abs()).sum() / x.abs().sum(),
    "loss focal weights=seen reduction=sum": lambda z, y, x: (focal(z, y, 2) * x.abs()).sum(),
    "loss cross_entropy factor=0.25\nloss focal factor=3\nloss cross_entropy of=early":
        lambda z, y, x: torch.nn.functional.cross_entropy(z, y) / 4 + 3 * focal(z, y, 2).mean()
        + torch.nn.functional.cross_entropy(2 * z, y),
}


@pytest.mark.parametrize("lines", LOSSES)
def test_losses(run, tmp_path, lines):
    x, y = map(torch.as_tensor, pictures())
    net = NET.replace("a: conv2d", "abs -> seen\nfrom input\na: conv2d").replace("loss cross_entropy\n", "")
    (tmp_path / "net.txt").write_text(net + "scale 2 -> early\nscale 0.5\n" + lines + "\n")
    out = run(*TRAIN, 1, "--lr", 0, "--batch-size", COUNT, "--json", "--no-plots")
    got = [json.loads(line) for line in out.splitlines() if '"epoch"' in line and '"loss"' in line][0]["loss"]
    assert got == pytest.approx(float(LOSSES[lines](scores(tmp_path / "net.pth", x), y, x)), rel=2e-5)


def test_events_that_are_not_there(run):
    run(*TRAIN, 1, "--no-plots")
    run("predict", "net.pth", "data.npz", "event", 6, code=FAILED)
    assert "there is no event 6" in run.err
    run("predict", "net.pth", "data.npz", "event", code=USAGE)
    run("predict", "net.pth", "data.npz", "event", "last", code=USAGE)


# --- checkpoints of others

def numbered(name):
    return name.replace("block_", "")


#: What other programs make of a checkpoint: its names, where the state dict is, its type.
OTHERS = {
    "as it is": lambda d: d,
    "of several processes": lambda d: {"state_dict": {f"module.{k}": v for k, v in d.items()}, "global_step": 7},
    "of Lightning": lambda d: {"state_dict": {f"model.{k}": v for k, v in d.items()}, "epoch": 1},
    "of a compiled wrapper": lambda d: {"model": {f"_orig_mod.module.{k}": v for k, v in d.items()}},
    "bn": lambda d: {k.replace(".norm.", ".bn."): v for k, v in d.items()},
    "numbers": lambda d: {numbered(k): v for k, v in d.items()},
    "lists of blocks": lambda d: {k.replace("block_", "blocks."): v for k, v in d.items()},
    "all of it, in half": lambda d: {"state_dict": {"module." + numbered(k).replace(".norm.", ".bn."):
                                                    v.half() if v.is_floating_point() else v for k, v in d.items()}},
}


@pytest.fixture
def levels(build_dir, tmp_path):
    """A net of CosmicTagger's kind with one level, its text, and five events."""
    text = subprocess.run([build_dir / "tessera", "models", "uresnet"], capture_output=True, text=True, check=True).stdout
    for setting, small in ("depth 6", "depth 1"), ("bottleneck 256", "bottleneck 8"), ("deepest 5", "deepest 2"), ("last 5", "last 2"):
        assert f"let {setting} " in text
        text = text.replace(f"let {setting} ", f"let {small} ")
    assert "input 3 640 1024 " in text
    (tmp_path / "small.txt").write_text(text.replace("input 3 640 1024 ", "input 3 8 12 "))
    rng = np.random.default_rng(2)
    x, y = rng.normal(0, 1, (5, 3, 8, 12)).astype(np.float32), rng.integers(0, 3, (5, 3, 8, 12))
    np.savez(tmp_path / "events.npz", x=x, y=y)
    torch.manual_seed(5)
    net = UResNet(depth=1, bottleneck=8, deepest=2, last=2, **LARGE).eval()
    for k, v in net.state_dict().items():
        if "running" in k:
            v.uniform_(0.5, 1.5)
    return net, torch.as_tensor(x), torch.as_tensor(y)


@pytest.mark.parametrize("other", OTHERS)
def test_checkpoints_of_others(run, tmp_path, levels, other):
    net, x, y = levels
    torch.save(OTHERS[other](net.state_dict()), tmp_path / "other.pth")
    with torch.no_grad():
        want = float(torch.nn.functional.cross_entropy(net(x), y))
    got = json.loads(run("eval", "other.pth", "--model", "small.txt", "--data", "events.npz", "--json", "--no-plots"))
    assert got["task"] == "pixels" and got["loss"] == pytest.approx(want, rel=2e-3 if "half" in other else 1e-4)
    assert sum(map(sum, got["confusion"])) == y.numel()
    said = json.loads(run("predict", "other.pth", "events.npz", "event", 3, "--model", "small.txt", "--json", "--no-plots"))
    assert [e["event"] for e in said["images"][0]["events"]] == [3]
    run("predict", "other.pth", "events.npz", "--model", "small.txt", "--no-plots", code=FAILED)
    assert "no scores of classes" in run.err
    out = run("train", "events.npz", "--model", "small.txt", "--weights", "other.pth", "--epochs", 1, "--lr", 0, "--no-plots")
    taken, of = map(int, re.search(r"(\d+) of (\d+) tensors are those of other.pth\n", out).groups())
    assert taken == of == len([k for k in net.state_dict() if "tracked" not in k])
    kept = torch.load(tmp_path / "small.pth")
    for k, v in net.state_dict().items():
        if k.endswith(("weight", "bias")):
            np.testing.assert_allclose(kept[k], v, rtol=1e-3, atol=1e-6, err_msg=k)


def test_names_that_could_be_two(run, tmp_path, levels):
    """Which of two tensors it is nobody says: neither is taken."""
    d = dict(levels[0].state_dict())
    d["initial_convolution.bn.weight"] = d["initial_convolution.norm.weight"] + 1
    del d["bottleneck.bias"]
    torch.save(d, tmp_path / "other.pth")
    run("eval", "other.pth", "--model", "small.txt", "--data", "events.npz", "--no-plots", code=FAILED)
    assert "initial_convolution.bn.weight" in run.err and "unexpected" in run.err
    assert re.search(r"bottleneck.bias +missing in the file", run.err)
