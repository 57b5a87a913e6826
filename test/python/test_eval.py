"""tessera eval, predict, data, and inspect of checkpoints: the numbers are PyTorch's, the pixels Pillow's."""

import functools
import gzip
import http.server
import json
import os
import re
import struct
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision
from PIL import Image, ImageOps
from test_models import MODELS

OK, FAILED, USAGE = 0, 1, 2
FASHION = Path("/usr/share/datasets/fashion-mnist")
CLASSES = ["T-shirt", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"]
COUNT = 512    # samples to evaluate with: full batches of 32
SMALL = [name for name in MODELS if name != "resnet18" and "uresnet" not in name]


@pytest.fixture
def tool(build_dir, tmp_path, few_fashion):
    def run(*args, **how):
        env = {**os.environ, "TESSERA_CACHE_DIR": str(build_dir / "test-cache"), "TESSERA_DATA_DIR": str(few_fashion or ""),
               **how.pop("set", {})}
        return subprocess.run([build_dir / "tessera", *map(str, args)], capture_output=True, text=True, env=env,
                              cwd=tmp_path, timeout=120, **how)
    return run


@functools.lru_cache
def fashion():
    """The first test samples as the dataset has them, as u8 and labels."""
    if not FASHION.exists():
        pytest.skip(f"needs {FASHION}, of the package dataset-fashion-mnist")
    with gzip.open(FASHION / "t10k-images-idx3-ubyte.gz") as f:
        pixels = np.frombuffer(f.read(16 + COUNT * 784)[16:], np.uint8).reshape(COUNT, 1, 28, 28)
    with gzip.open(FASHION / "t10k-labels-idx1-ubyte.gz") as f:
        return pixels, np.frombuffer(f.read(8 + COUNT)[8:], np.uint8).astype(np.int64)


@functools.lru_cache
def module(name):
    torch.manual_seed(7)
    return MODELS[name][0]().eval()


def normalised(pixels, mean=0.5, deviation=0.5):
    return (torch.tensor(pixels).float() / 255 - mean) / deviation


def scores(net, x, batch=32):
    with torch.no_grad():
        return torch.cat([net(part) for part in x.split(batch)])


def loss(name, y, labels):
    return float((F.nll_loss if name.startswith("classifier") else F.cross_entropy)(y, torch.tensor(labels)))


def confusion(y, labels, classes=10):
    counts = np.zeros((classes, classes), int)
    np.add.at(counts, (labels, y.argmax(1).numpy()), 1)
    return counts.tolist()


def result(done):
    assert done.returncode == OK and done.stderr == "", done.stderr
    return json.loads(done.stdout)


def expect(done, code, *words):
    text = done.stderr + done.stdout
    assert done.returncode == code, text
    for word in words:
        assert word in text, text
    if code:
        assert done.stderr.startswith("tessera"), text
    return done


def write_safetensors(path, tensors, metadata=None):
    header, body = {"__metadata__": metadata} if metadata else {}, b""
    for name, t in tensors.items():
        data = t.numpy().tobytes()
        header[name] = {"dtype": "F32", "shape": list(t.shape), "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def described(tool, **more):
    """The metadata that a checkpoint of tessera train has."""
    return {"tessera.model": tool("models", "classifier").stdout, "tessera.model.name": "shoes",
            "tessera.data": "fashion-mnist", "tessera.classes": "\n".join(CLASSES), "tessera.input": "1 28 28",
            "tessera.normalize": "0.5 0.5", "tessera.version": "0.1.0", **more}


# --- eval


@pytest.mark.parametrize("name", SMALL)
def test_eval_is_what_pytorch_finds(tool, tmp_path, name):
    pixels, labels = fashion()
    net = module(name)
    torch.save(net.state_dict(), tmp_path / "net.pth")
    args = ["--model", name] if name == "classifier-dim0" else []    # its parameters are those of classifier
    got = result(tool("eval", "net.pth", "--data", "fashion-mnist", "--limit", COUNT, "--json", "--no-plots", *args))
    want = scores(net, normalised(pixels))
    assert got["model"] == name and got["samples"] == COUNT
    assert got["confusion"] == confusion(want, labels)
    assert got["right"] == int((want.argmax(1).numpy() == labels).sum())
    assert got["accuracy"] == pytest.approx(got["right"] / COUNT)
    assert got["loss"] == pytest.approx(loss(name, want, labels), rel=1e-5)
    assert [c["class"] for c in got["classes"]] == CLASSES
    assert list(tmp_path.glob("*.png")) == []


def test_the_table_and_the_picture(tool, tmp_path):
    pixels, labels = fashion()
    net = module("lenet")
    torch.save(net.state_dict(), tmp_path / "net.pth")
    done = expect(tool("eval", "net.pth", "--data", "fashion-mnist", "--limit", COUNT, "--plots", "a/b"), OK)
    guesses = scores(net, normalised(pixels)).argmax(1).numpy()
    right = int((guesses == labels).sum())
    assert f"accuracy   {100 * right / COUNT:.2f}%  ({right} of {COUNT})" in done.stdout
    rows = {line.rsplit(None, 4)[0]: line.rsplit(None, 4)[1:] for line in done.stdout.splitlines() if line.count("0.")}
    for i, name in enumerate(CLASSES):
        both, taken, there = ((guesses == i) & (labels == i)).sum(), (guesses == i).sum(), (labels == i).sum()
        p, r = both / max(taken, 1), both / max(there, 1)
        assert rows[name] == [f"{p:.3f}", f"{r:.3f}", f"{2 * p * r / max(p + r, 1e-9):.3f}", str(there)]
    with Image.open(tmp_path / "a/b/confusion_matrix.png") as im:
        im.load()
        assert im.width > 600 and im.height > 600
    assert tool("eval", "net.pth", "--data", "fashion-mnist", "--limit", 32, "--quiet", "--no-plots").stdout.count("\n") == 1
    assert not (tmp_path / "confusion_matrix.png").exists()
    tool("eval", "net.pth", "--data", "fashion-mnist", "--limit", 33, "--batch-size", 32, "--threads", 1)
    assert (tmp_path / "confusion_matrix.png").exists()


def test_a_last_batch_that_is_not_full(tool, tmp_path):
    pixels, labels = fashion()
    torch.save(module("mlp").state_dict(), tmp_path / "net.pth")
    got = result(tool("eval", "net.pth", "--data", "fashion-mnist", "--limit", 45, "--json", "--no-plots"))
    assert got["confusion"] == confusion(scores(module("mlp"), normalised(pixels[:45])), labels[:45])


def save_as(kind, net, path):
    state = net.state_dict()
    if kind == "nested":
        torch.save({"epoch": 3, "model_state_dict": state, "loss": torch.tensor(0.5),
                    "optimizer_state_dict": torch.optim.Adam(net.parameters()).state_dict()}, path)
    elif kind in ("state_dict", "model"):
        torch.save({kind: state, "args": {"lr": 0.1}}, path)
    elif kind == "before 1.6":
        torch.save(state, path, _use_new_zipfile_serialization=False)
    elif kind == "npz":
        np.savez(path, **{k: v.numpy() for k, v in state.items()})
        path.with_suffix(".pth.npz").rename(path)
    elif kind == "safetensors":
        write_safetensors(path, state)
    else:
        torch.save({k: v.to(getattr(torch, kind)) for k, v in state.items()}, path)


@pytest.mark.parametrize("kind", ["nested", "state_dict", "model", "before 1.6", "npz", "safetensors", "float64",
                                  "float16", "bfloat16"])
def test_every_kind_of_file(tool, tmp_path, kind):
    pixels, labels = fashion()
    net = module("classifier")
    save_as(kind, net, tmp_path / "net.pth")
    if kind.startswith(("float", "bfloat")):
        rounded = {k: v.to(getattr(torch, kind)).float() for k, v in net.state_dict().items()}
        net = MODELS["classifier"][0]().eval()
        net.load_state_dict(rounded)
    got = result(tool("eval", "net.pth", "--data", "fashion-mnist", "--limit", 128, "--json", "--no-plots"))
    want = scores(net, normalised(pixels[:128]))
    assert got["confusion"] == confusion(want, labels[:128])
    assert got["loss"] == pytest.approx(loss("classifier", want, labels[:128]), rel=1e-5)


def test_a_file_that_knows_its_net(tool, tmp_path):
    """Model, data, names of classes and normalisation are in the file."""
    pixels, labels = fashion()
    net = module("classifier")
    names = [f"kind {i}" for i in range(10)]
    text = tool("models", "classifier").stdout.replace("log_softmax\n", "").replace("loss nll", "loss cross_entropy")
    facts = described(tool, **{"tessera.model": text, "tessera.normalize": "0.2 0.4"})
    write_safetensors(tmp_path / "net.safetensors", net.state_dict(), facts)
    got = result(tool("eval", "net.safetensors", "--limit", 64, "--json", "--no-plots"))
    want = scores(net, normalised(pixels[:64], 0.2, 0.4))
    assert got["model"] == "shoes" and got["data"] == "fashion-mnist"
    assert got["confusion"] == confusion(want, labels[:64])
    assert got["loss"] == pytest.approx(loss("classifier", want, labels[:64]), rel=1e-5)
    torch.save({"model_state_dict": net.state_dict(), "tessera": {**facts, "seed": 3}}, tmp_path / "net.resume.pth")
    again = result(tool("eval", "net.resume.pth", "--limit", 64, "--json", "--no-plots"))
    assert {**again, "file": ""} == {**got, "file": ""}
    write_safetensors(tmp_path / "net.safetensors", net.state_dict(), {**facts, "tessera.classes": "\n".join(names)})
    expect(tool("eval", "net.safetensors", "--limit", 64), FAILED, "class 0 is 'kind 0' for the model and 'T-shirt'",
           "  while  comparing the classes\n  hint ")


class Small(nn.Module):
    """With batch norm, whose counter is not of the net, for 5 classes of other samples."""

    def __init__(self, features=6, classes=5):
        super().__init__()
        self.a = nn.Linear(features, 16)
        self.b = nn.BatchNorm1d(16)
        self.c = nn.Linear(16, classes)
        with torch.no_grad():
            self.b.running_mean.uniform_(-1, 1)
            self.b.running_var.uniform_(0.5, 2)

    def forward(self, x):
        return self.c(F.relu(self.b(self.a(x))))


SMALL_TEXT = "input 6\nclasses 5\na: linear 16\nb: batch_norm\nrelu\nc: linear classes\nloss cross_entropy\n"


def write_csv(path, x, labels):
    path.write_text("".join(",".join(map(repr, map(float, row))) + f",{t}\n" for row, t in zip(x, labels)))


def test_a_description_and_a_csv_file(tool, tmp_path):
    torch.manual_seed(1)
    net = Small().eval()
    x, labels = torch.randn(70, 6), np.arange(70) % 5
    torch.save(net.state_dict(), tmp_path / "net.pth")
    (tmp_path / "net.txt").write_text(SMALL_TEXT)
    write_csv(tmp_path / "x.csv", x, labels)
    got = result(tool("eval", "net.pth", "--model", "net.txt", "--data", "x.csv", "--json", "--no-plots"))
    want = scores(net, x)
    assert got["confusion"] == confusion(want, labels, 5)
    assert got["loss"] == pytest.approx(loss("small", want, labels), rel=1e-5)
    (tmp_path / "net.txt").write_text(SMALL_TEXT.replace("classes 5", "classes 9"))    # the weights have the last word
    again = result(tool("eval", "net.pth", "--model", "net.txt", "--data", "x.csv", "--json", "--no-plots"))
    assert again["confusion"] == got["confusion"]
    write_csv(tmp_path / "x.csv", x[:, :4], labels)
    expect(tool("eval", "net.pth", "--model", "net.txt", "--data", "x.csv"), FAILED,
           "the net takes samples of 6, the data has samples of 4", "  while  ", "  hint ")
    write_csv(tmp_path / "x.csv", x, np.arange(70) % 7)
    expect(tool("eval", "net.pth", "--model", "net.txt", "--data", "x.csv"), FAILED,
           "the net tells 5 classes apart, the data has 7", "  while  ", "  hint ")


def test_built_in_models_with_other_numbers_of_classes(tool, tmp_path):
    """mnist-pipeline has 10 filters too, which are no classes."""
    pixels, labels = fashion()
    torch.manual_seed(2)
    net = MODELS["mnist-pipeline"][0]().eval()
    net.layer4 = nn.Linear(256, 13)
    torch.save(net.state_dict(), tmp_path / "net.pth")
    np.savez(tmp_path / "x.npz", x=pixels[:50, 0], y=labels[:50])
    got = result(tool("eval", "net.pth", "--data", "x.npz", "--json", "--no-plots"))
    assert got["model"] == "mnist-pipeline"
    assert got["confusion"] == confusion(scores(net, normalised(pixels[:50])), labels[:50], 13)
    assert [c["class"] for c in got["classes"]] == [str(i) for i in range(13)]
    net.layer4 = nn.Linear(256, 7)
    torch.save(net.state_dict(), tmp_path / "net.pth")
    expect(tool("eval", "net.pth", "--data", "x.npz"), FAILED, "the net tells 7 classes apart, the data has 10")


def test_a_folder_of_images(tool, tmp_path):
    """They are resized to what the net takes, and classes of other names are noticed."""
    pixels, labels = fashion()
    for i in range(40):
        folder = tmp_path / "images" / f"{labels[i]} {CLASSES[labels[i]]}"
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels[i, 0]).resize((56, 56)).save(folder / f"{i}.png")
    folders = sorted(p.name for p in (tmp_path / "images").iterdir())
    assert len(folders) == 10
    torch.save(module("lenet").state_dict(), tmp_path / "net.pth")
    got = result(tool("eval", "net.pth", "--data", "images", "--json", "--no-plots"))
    counts = np.zeros((10, 10), int)
    for c, name in enumerate(folders):
        for f in (tmp_path / "images" / name).iterdir():
            x = np.array(Image.open(f).resize((28, 28), Image.BILINEAR))
            counts[c, int(scores(module("lenet"), normalised(x[None, None])).argmax())] += 1
    assert got["confusion"] == counts.tolist()
    assert [c["class"] for c in got["classes"]] == folders
    for f in (tmp_path / "images" / folders[3]).iterdir():
        f.unlink()
    (tmp_path / "images" / folders[3]).rmdir()
    expect(tool("eval", "net.pth", "--data", "images"), FAILED, "the net tells 10 classes apart, the data has 9")


def test_a_net_of_resized_images(tool, tmp_path):
    """Where the file says the size, images are made so; where it does not, they do not fit."""
    pixels, labels = fashion()
    large = [Image.fromarray(p[0]).resize((40, 50)) for p in pixels[:48]]
    np.savez(tmp_path / "x.npz", x=np.stack(list(map(np.array, large))), y=labels[:48])
    write_safetensors(tmp_path / "net.safetensors", module("classifier").state_dict(), described(tool))
    got = result(tool("eval", "net.safetensors", "--data", "x.npz", "--json", "--no-plots"))
    small = np.stack([np.array(im.resize((28, 28), Image.BILINEAR))[None] for im in large])
    assert got["confusion"] == confusion(scores(module("classifier"), normalised(small)), labels[:48])
    torch.save(module("classifier").state_dict(), tmp_path / "net.pth")
    expect(tool("eval", "net.pth", "--data", "x.npz"), FAILED,
           "the net takes samples of 1x28x28, the data has samples of 1x50x40", "  while  ", "  hint ")


def test_what_does_not_fit_is_said_at_once(tool, tmp_path):
    state = dict(module("lenet").state_dict())
    state["fc9.weight"] = state.pop("fc2.bias")
    state["conv1.weight"] = torch.zeros(6, 1, 3, 3)
    state["fc1.bias"] = torch.zeros(120, dtype=torch.int64)
    torch.save(state, tmp_path / "net.pth")
    done = tool("eval", "net.pth", "--model", "lenet", "--data", "fashion-mnist")
    expect(done, FAILED, "the weights do not fit the model 'lenet'; 4 tensors differ",
           "is 6x1x3x3 in the file, 6x1x5x5 in the model", "is i64 in the file, f32 in the model",
           "\n  at     net.pth\n  while  loading the weights\n  hint ")
    assert re.search(r"fc2.bias +missing in the file", done.stderr)
    assert re.search(r"fc9.weight +unexpected", done.stderr)
    with pytest.raises(RuntimeError) as theirs:    # PyTorch names the same, but for the type
        MODELS["lenet"][0]().load_state_dict(state)
    assert all(name in str(theirs.value) for name in ("fc2.bias", "fc9.weight", "conv1.weight"))
    expect(tool("eval", "net.pth", "--data", "fashion-mnist"), FAILED, "no built-in model has parameters of these",
           "--model NAME", "  while  looking for the model")


@pytest.mark.parametrize("command, extra", [("eval", ["--data", "fashion-mnist"]), ("predict", ["x.png"])])
@pytest.mark.parametrize("content, words", [
    (None, ["cannot open net.pth"]),
    (b"", ["net.pth"]),
    (b"PK\3\4" + bytes(100), ["corrupt"]),
    ({"a": 1}, ["net.pth has no state dict", "torch.save(model.state_dict()", "  while  "]),
    ([torch.zeros(2)], ["net.pth has no state dict"]),
    (torch.zeros(2), ["net.pth has no state dict"]),
    ({"w\x1b[2J": torch.zeros(2)}, ["no built-in model has parameters"]),
])
def test_files_that_are_no_checkpoints(tool, tmp_path, command, extra, content, words):
    if isinstance(content, bytes):
        (tmp_path / "net.pth").write_bytes(content)
    elif content is not None:
        torch.save(content, tmp_path / "net.pth")
    done = expect(tool(command, "net.pth", *extra), FAILED, *words)
    assert all(c.isprintable() or c == "\n" for c in done.stderr)


@pytest.mark.parametrize("key, value, words", [
    ("tessera.model", "input 1 28 28\nnonsense\n", ["nonsense"]),
    ("tessera.model", "input 4\nfc1: linear 4\n", ["do not fit", "unexpected"]),
    ("tessera.input", "1 28 x", ["tessera.input is '1 28 x'", "reading the metadata"]),
    ("tessera.input", "1 -28 28", ["tessera.input is"]),
    ("tessera.input", "1 999999999 999999999", ["error"]),
    ("tessera.normalize", "0.5", ["tessera.normalize is '0.5'"]),
    ("tessera.normalize", "0.5 0", ["tessera.normalize is"]),
    ("tessera.normalize", "0.5,0.5 1,nan", ["tessera.normalize is"]),
    ("tessera.data", "\x1b[2J", ["tessera.data is '?[2J'"]),
    ("tessera.data", "no/such/data", ["cannot open no/such/data", "  hint "]),
])
def test_metadata_that_makes_no_sense(tool, tmp_path, key, value, words):
    write_safetensors(tmp_path / "net.safetensors", module("classifier").state_dict(), described(tool, **{key: value}))
    done = expect(tool("eval", "net.safetensors", "--limit", 8, "--no-plots"), FAILED, *words)
    assert all(c.isprintable() or c == "\n" for c in done.stderr)


def test_data_that_is_missing(tool, tmp_path):
    torch.save(module("mlp").state_dict(), tmp_path / "net.pth")
    nowhere = {"HOME": str(tmp_path), "TESSERA_DATA_DIR": "", "TESSERA_MNIST_URL": "", "XDG_CACHE_HOME": ""}
    expect(tool("eval", "net.pth"), FAILED, "net.pth does not say which data it was trained on", "  hint ", "--data")
    expect(tool("eval", "net.pth", "--data", "mnist", set=nowhere), FAILED, "the files of mnist are not in")
    expect(tool("eval", "net.pth", "--data", "mnist", "--data-dir", "x", set=nowhere), FAILED, "not in x")
    expect(tool("eval", "net.pth", "--data", "no/such"), FAILED, "cannot open no/such")
    expect(tool("eval", "net.pth", "--model", "no/such", "--data", "mnist"), FAILED, "no model 'no/such'")
    np.save(tmp_path / "x.npy", np.zeros((4, 28, 28), np.uint8))
    expect(tool("eval", "net.pth", "--data", "x.npy"), FAILED, "the data has no labels")
    (tmp_path / "file").write_text("")
    expect(tool("eval", "net.pth", "--data", "fashion-mnist", "--limit", 8, "--plots", "file/x"), FAILED,
           "cannot make the folder file")


# --- predict


def pillow_steps(path, invert=True, filter=Image.BICUBIC):
    """The porting tutorial's steps."""
    img = ImageOps.grayscale(Image.open(path).resize((28, 28), filter))
    if invert and img.getpixel((1, 1)) > 200:
        img = ImageOps.invert(img)
    return torchvision.transforms.Compose(
        [torchvision.transforms.ToTensor(), torchvision.transforms.Normalize((0.5,), (0.5,))])(img)


def make_images(folder):
    """Samples as a camera would have them: large, dark on light, colour; and others."""
    pixels, _ = fashion()
    random = np.random.default_rng(0)
    large = [ImageOps.invert(Image.fromarray(pixels[i, 0])).resize((300 + 7 * i, 400), Image.BICUBIC) for i in range(4)]
    large[0].convert("RGB").save(folder / "boot.jpg", quality=90)
    large[1].convert("RGB").save(folder / "pullover.png")
    large[2].save(folder / "trousers.jpeg", quality=70)
    large[3].save(folder / "more.png")
    Image.fromarray(pixels[5, 0]).save(folder / "small.png")
    Image.fromarray(random.integers(0, 255, (90, 61, 3), np.uint8)).save(folder / "noise.png")
    Image.fromarray(random.integers(0, 255, (5, 3, 3), np.uint8)).save(folder / "tiny.jpg")
    return sorted(p.name for p in folder.iterdir() if p.suffix in (".jpg", ".jpeg", ".png"))


@pytest.mark.parametrize("invert", ["auto", "never"])
def test_the_net_sees_what_pillow_makes(tool, tmp_path, invert):
    """A net whose scores are its input."""
    images = make_images(tmp_path)
    torch.save({"same.weight": torch.eye(784), "same.bias": torch.zeros(784)}, tmp_path / "same.pth")
    (tmp_path / "same.txt").write_text("input 1 28 28\nclasses 784\nflatten\nsame: linear classes\n")
    got = result(tool("predict", "same.pth", *images, "--model", "same.txt", "--top", 784, "--json", "--no-plots",
                      "--invert", invert))
    assert [image["file"] for image in got["images"]] == images
    for image in got["images"]:
        seen = np.zeros(784, np.float32)
        for s in image["scores"]:
            seen[s["index"]] = s["score"]
        want = pillow_steps(tmp_path / image["file"], invert == "auto").numpy().reshape(784)
        assert (seen == want).all(), image["file"]


@pytest.mark.parametrize("name", ["classifier", "lenet"])
def test_predictions_are_those_of_pytorch(tool, tmp_path, name):
    images = make_images(tmp_path)
    torch.save(module(name).state_dict(), tmp_path / "net.pth")
    got = result(tool("predict", "net.pth", *images, "--top", 10, "--json", "--no-plots", "--data", "fashion-mnist"))
    for image in got["images"]:
        want = scores(module(name), pillow_steps(tmp_path / image["file"])[None])[0]
        share = want.exp() if name == "classifier" else want.softmax(0)
        assert image["index"] == int(want.argmax()) and image["class"] == CLASSES[image["index"]]
        assert [s["index"] for s in image["scores"]] == want.argsort(descending=True).tolist()
        for s in image["scores"]:
            assert s["score"] == pytest.approx(float(want[s["index"]]), abs=1e-5)
            assert s["probability"] == pytest.approx(float(share[s["index"]]), abs=1e-6)
            assert s["class"] == CLASSES[s["index"]]


def test_predict_prints_and_draws(tool, tmp_path):
    make_images(tmp_path)
    (tmp_path / "more").mkdir()
    (tmp_path / "boot.jpg").rename(tmp_path / "more" / "small.jpg")
    write_safetensors(tmp_path / "net.safetensors", module("classifier").state_dict(), described(tool))
    done = tool("predict", "net.safetensors", "small.png", "more/small.jpg", "--top", 2, "--plots", "out")
    expect(done, OK)
    assert re.match(r"small.png: (.+)\n  \1 +\d+\.\d\d%\n  .+%\n  written out/small_prediction.png\n\nmore/small.jpg: ",
                    done.stdout)
    for name in ("small_prediction.png", "small-2_prediction.png"):
        with Image.open(tmp_path / "out" / name) as im:
            im.load()
            assert im.width > im.height > 300
    torch.save(module("classifier").state_dict(), tmp_path / "net.pth")
    expect(tool("predict", "net.pth", "small.png", "--no-plots"), OK, "small.png: class ")


def test_an_image_that_cannot_be_read_does_not_stop_the_others(tool, tmp_path):
    make_images(tmp_path)
    (tmp_path / "bad.jpg").write_bytes((tmp_path / "boot.jpg").read_bytes()[:20])
    (tmp_path / "text.png").write_text("no image")
    torch.save(module("lenet").state_dict(), tmp_path / "net.pth")
    images = ["no.png", "boot.jpg", "bad.jpg", "text.png", "."]
    done = expect(tool("predict", "net.pth", *images, "--no-plots"), FAILED, "cannot open no.png", "boot.jpg: class",
                  "bad.jpg", "text.png is neither")
    assert done.stderr.count("tessera: ") == 5  # the fifth: how images were normalised is a guess
    got = json.loads(tool("predict", "net.pth", *images, "--no-plots", "--json").stdout)
    assert ["error" in image for image in got["images"]] == [True, False, True, True, True]


def test_a_net_of_other_images_takes_them_as_they_are(tool, tmp_path):
    """And names with any bytes are valid JSON."""
    make_images(tmp_path)
    name = os.fsdecode(b'a"\\ \xff\n.jpg')
    (tmp_path / "boot.jpg").rename(tmp_path / name)
    write_safetensors(tmp_path / "net.safetensors", module("classifier").state_dict(),
                      described(tool, **{"tessera.data": "photos", "tessera.classes": "\n".join('"\\é\x1b' + c for c in CLASSES)}))
    got = result(tool("predict", "net.safetensors", name, "--top", 1, "--json", "--no-plots"))
    best = got["images"][0]["scores"][0]
    want = scores(module("classifier"), pillow_steps(tmp_path / name, invert=False, filter=Image.BILINEAR)[None])[0]
    assert best["score"] == pytest.approx(float(want.max()), abs=1e-5)
    assert got["images"][0]["file"] == 'a"\\ \ufffd\n.jpg'
    assert best["class"] == '"\\é?' + CLASSES[int(want.argmax())]


def test_predict_with_nets_for_other_things(tool, tmp_path):
    make_images(tmp_path)
    torch.save(Small().state_dict(), tmp_path / "net.pth")
    (tmp_path / "net.txt").write_text(SMALL_TEXT)
    expect(tool("predict", "net.pth", "boot.jpg", "--model", "net.txt"), FAILED, "takes samples of 6, which are no images")
    (tmp_path / "net.txt").write_text("input 1 28 28\nc: conv2d 3 kernel=3\n")
    torch.save({"c.weight": torch.zeros(3, 1, 3, 3), "c.bias": torch.zeros(3)}, tmp_path / "net.pth")
    expect(tool("predict", "net.pth", "boot.jpg", "--model", "net.txt"), FAILED,
           "3 classes at 676 places", "no scores of classes")
    torch.save(module("classifier").state_dict(), tmp_path / "net.pth")
    expect(tool("predict", "net.pth", "boot.jpg", "--model", "classifier-dim0", "--no-plots"), OK,
           "log_softmax is not over the classes")
    expect(tool("predict", "net.pth"), USAGE, "INPUT is missing")


def test_colour_images(tool, tmp_path):
    torch.manual_seed(5)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 10 * 12, 3), nn.Softmax(1)).eval()
    (tmp_path / "net.txt").write_text("input 3 12 14\nclasses 3\n0: conv2d 4 kernel=3\nflatten\n2: linear classes\nsoftmax\n")
    torch.save(net.state_dict(), tmp_path / "net.pth")
    make_images(tmp_path)
    got = result(tool("predict", "net.pth", "noise.png", "--model", "net.txt", "--json"))["images"][0]
    x = np.array(Image.open(tmp_path / "noise.png").resize((14, 12), Image.BILINEAR)).transpose(2, 0, 1)
    want = scores(net, normalised(x[None]))[0]
    assert [s["index"] for s in got["scores"]] == want.argsort(descending=True).tolist()
    assert [s["probability"] for s in got["scores"]] == pytest.approx(sorted(want.tolist(), reverse=True), abs=1e-6)


# --- data


def test_data_lists_what_there_is(tool, tmp_path):
    fashion()
    nowhere = {"HOME": str(tmp_path), "TESSERA_DATA_DIR": "", "TESSERA_MNIST_URL": "http://127.0.0.1:1/",
               "XDG_CACHE_HOME": ""}
    done = expect(tool("data", set=nowhere), OK)
    rows = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}
    assert rows["fashion-mnist"] == ["60000", "10000", "1x28x28", "10", str(FASHION)]
    assert rows["mnist"][:4] == ["-"] * 4
    expect(tool("data", "mnist", set=nowhere), FAILED, "the files of mnist are not in", "  hint ", "--download")
    done = expect(tool("data", "fashion-mnist", set=nowhere), OK, "1x28x28 of u8", "normalise  0.5 0.5")
    assert re.search(r"^Ankle boot +6000 +1000$", done.stdout, re.M)


def test_data_of_ones_own(tool, tmp_path):
    (tmp_path / "x.csv").write_text("a,b,label\n1,2,x\n2,3,y\n4,5,x\n")
    done = expect(tool("data", "x.csv"), OK, "2 of f32", "samples    3, not divided", "normalise  its columns, to mean 0")
    assert re.search(r"^x +2\ny +1$", done.stdout, re.M)
    expect(tool("data", "no.csv"), FAILED, "cannot open no.csv")
    expect(tool("data", "--download"), USAGE, "a dataset that has a name")
    expect(tool("data", "x.csv", "--download"), USAGE, "a dataset that has a name")
    expect(tool("data", "mnist", "--url", "http://x/"), USAGE, "--url is for --download")


def test_data_downloads_when_told(tool, tmp_path):
    fashion()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(FASHION)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    args = ["data", "fashion-mnist", "--data-dir", "here"]
    url = f"http://127.0.0.1:{server.server_port}/"
    expect(tool(*args, set={"TESSERA_FASHION_MNIST_URL": url}), FAILED, "the files of fashion-mnist are not in")
    done = tool(*args, "--download", "--url", url)
    server.shutdown()
    server.server_close()
    expect(done, OK, "here/FashionMNIST/raw", "60000")
    assert tool(*args).stdout == done.stdout


# --- inspect


def test_inspect_knows_the_nets_of_pytorch(tool, tmp_path):
    torch.save(torchvision.models.resnet18(num_classes=7).state_dict(), tmp_path / "net.pth")
    done = expect(tool("inspect", "net.pth", "--batch-size", 2), OK, "model          resnet18", "training step")
    assert re.search(r"fc +linear +2x7 +3591 ", done.stdout)
    assert re.search(r"^layer4.1.bn2.running_var +f32 +512 ", done.stdout, re.M)
    torch.save(MODELS["uresnet-a21"][0]().state_dict(), tmp_path / "net.pth")
    expect(tool("inspect", "net.pth", "--batch-size", 1), OK, "model          uresnet-a21", "training step")
    torch.save({"what": torch.zeros(2, 3)}, tmp_path / "net.pth")
    done = expect(tool("inspect", "net.pth"), OK, "1 tensor of 6 numbers, 24 B")
    assert "model" not in done.stdout


def test_inspect_shows_what_a_file_says(tool, tmp_path):
    net = module("classifier")
    write_safetensors(tmp_path / "net.safetensors", net.state_dict(), described(tool, **{"note\x1b": "a\x1b[2Jb"}))
    done = expect(tool("inspect", "net.safetensors"), OK, "tessera.model\n    # small CNN", "\n    conv1: conv2d 5 kernel=3\n",
                  "model          shoes", "inference", "a?[2Jb")
    assert re.search(r"^tessera.classes +T-shirt, Trouser, .*Ankle boot$", done.stdout, re.M)
    assert all(c.isprintable() or c == "\n" for c in done.stdout)
    assert not re.search(r" $", done.stdout, re.M)
    save_as("nested", net, tmp_path / "net.pth")
    done = expect(tool("inspect", "net.pth"), OK, "\noptimizer_state_dict\n", "model          classifier")
    assert re.search(r"^  conv1.weight +f32 +5x1x3x3 +180 B$", done.stdout, re.M)
    assert re.search(r"^  param_groups.0.params +0, 1, 2, 3, 4, 5, 6, 7, 8, 9$", done.stdout, re.M)
    write_safetensors(tmp_path / "net.safetensors", net.state_dict(), described(tool, **{"tessera.model": "what\n"}))
    done = expect(tool("inspect", "net.safetensors"), FAILED, "what")
    assert "conv1.weight" in done.stdout    # the tensors are shown all the same
