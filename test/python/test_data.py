"""Datasets, images and downloads, against Pillow and torchvision and a server that misbehaves."""

import gzip
import hashlib
import os
import re
import struct
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision
from PIL import Image, ImageOps

FASHION = Path("/usr/share/datasets/fashion-mnist")
DIGITS = "data/mnist"


class Result:
    def __init__(self, run, out):
        self.status, self.text, self.error = run.returncode, run.stdout, run.stderr
        lines = [line.split(" ", 1) for line in run.stdout.splitlines()]
        self.classes = [rest for word, rest in lines if word == "class"]
        facts = dict(lines)
        self.dtype = {"u8": np.uint8, "f32": np.float32}.get(facts.get("dtype"))
        self.shape = tuple(int(x) for x in facts.get("shape", "").split())
        self.data = np.fromfile(out, self.dtype).reshape(self.shape) if self.dtype and out.exists() else None
        labels = Path(f"{out}.labels")
        self.labels = np.fromfile(labels, np.int32) if labels.exists() else None


@pytest.fixture
def tool(build_dir, tmp_path):
    """tool("image", path, width=28) runs test/tools/data.c and reads what it wrote."""
    count = iter(range(1000))

    def run(command, what, env=None, **options):
        out = tmp_path / f"out{next(count)}"
        args = [f"{k}={v}" for k, v in options.items()]
        ran = subprocess.run([build_dir / "test" / "tools_data", command, str(what), f"out={out}", *args],
                             capture_output=True, text=True, timeout=120, cwd=tmp_path,
                             env={**os.environ, "HOME": str(tmp_path / "home"), "XDG_CACHE_HOME": "", **(env or {})})
        assert ran.returncode in (0, 1), ran.stderr
        return Result(ran, out)

    return run


def fashion():
    if not FASHION.exists():
        pytest.skip("needs Debian's package dataset-fashion-mnist, which is not there")
    return FASHION


def ramp(height, width, channels=3, seed=0):
    """Something between noise and a picture."""
    random = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    base = np.stack([(x * 7 + y * (3 + c)) % 256 for c in range(channels)], -1)
    noisy = np.where(random.random(base.shape) < 0.3, random.integers(0, 256, base.shape), base)
    return noisy.astype(np.uint8).squeeze()


# Named sets


def idx(path):
    data = gzip.decompress(path.read_bytes())
    rank = data[3]
    dims = struct.unpack(f">{rank}I", data[4:4 + 4 * rank])
    return np.frombuffer(data, np.uint8, offset=4 + 4 * rank).reshape(dims)


@pytest.mark.parametrize("split, prefix, count", [("train", "train", 60000), ("test", "t10k", 10000)])
def test_fashion_mnist_as_debian_installs_it(tool, split, prefix, count):
    got = tool("open", "fashion-mnist", split=split)
    folder = fashion()
    assert got.shape == (count, 1, 28, 28)
    assert got.classes == ["T-shirt", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag",
                           "Ankle boot"]
    assert (got.data[:, 0] == idx(folder / f"{prefix}-images-idx3-ubyte.gz")).all()
    assert (got.labels == idx(folder / f"{prefix}-labels-idx1-ubyte.gz")).all()


def test_mnist_is_found_in_every_place(tool, shared, tmp_path):
    folder = shared(DIGITS)
    want = idx(folder / "t10k-images-idx3-ubyte.gz")
    places = {
        "a": dict(dir=folder),
        "b": dict(dir=tmp_path / "b"),
        "c": dict(env={"TESSERA_DATA_DIR": str(tmp_path / "c")}),
        "data": {},
        "home/.cache/tessera": {},
    }
    for place, how in places.items():
        raw = tmp_path / place / "MNIST" / "raw"
        if place != "a":
            raw.mkdir(parents=True)
            for name in ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"):    # unpacked, as torchvision has them
                (raw / name).write_bytes(gzip.decompress((folder / f"{name}.gz").read_bytes()))
        got = tool("open", "mnist", split="test", limit=100, **how)
        assert got.classes == list("0123456789"), got.error
        assert (got.data[:, 0] == want[:100]).all()
        if place != "a":
            for f in raw.iterdir():
                f.unlink()


def test_batches_are_what_torchvision_makes(tool):
    folder = fashion()
    mean, deviation = 0.1307, 0.3081
    got = tool("batches", "fashion-mnist", split="test", batch=16, steps=4, mean=mean, deviation=deviation)
    transform = torchvision.transforms.Compose(
        [torchvision.transforms.ToTensor(), torchvision.transforms.Normalize((mean,), (deviation,))])
    images = idx(folder / "t10k-images-idx3-ubyte.gz")[:64]
    want = torch.stack([transform(Image.fromarray(x)) for x in images]).numpy()
    assert (got.data == want).all()
    assert (got.labels == idx(folder / "t10k-labels-idx1-ubyte.gz")[:64]).all()


def test_without_files_or_an_address_the_error_says_what_to_do(tool, tmp_path):
    got = tool("open", "mnist", env={"TESSERA_MNIST_URL": ""})
    assert got.status == 1
    assert "the files of mnist are not in $TESSERA_DATA_DIR, ./data, the cache folder" in got.error
    assert "TESSERA_MNIST_URL" in got.error and "dataset-fashion-mnist" in got.error
    got = tool("open", "fashion-mnist", dir=tmp_path, env={"TESSERA_FASHION_MNIST_URL": ""})
    assert "install Debian's package dataset-fashion-mnist" in got.error
    assert "while  opening the dataset fashion-mnist (train)" in got.error


# Images


def pillow(path, mode="RGB"):
    data = np.asarray(Image.open(path).convert(mode))
    return data[None] if data.ndim == 2 else data.transpose(2, 0, 1)


def save_png(path, kind):
    colour, gray = Image.fromarray(ramp(23, 31)), Image.fromarray(ramp(23, 31, 1))
    alpha = Image.fromarray(ramp(23, 31, 1, seed=1))
    if kind == "rgb":
        colour.save(path)
    elif kind == "gray":
        gray.save(path)
    elif kind == "bits1":
        gray.convert("1").save(path)
    elif kind == "palette":
        colour.quantize(200).save(path)
    elif kind in ("palette4", "palette2", "palette1"):
        bits = int(kind[-1])
        colour.quantize(2 ** bits).save(path, bits=bits)
    elif kind == "palette_transparent":
        colour.quantize(50).save(path, transparency=bytes(range(0, 250, 5)))
    elif kind == "rgba":
        colour.putalpha(alpha)
        colour.save(path)
    elif kind == "gray_alpha":
        gray.putalpha(alpha)
        gray.save(path)
    elif kind == "rgb_transparent":
        colour.save(path, transparency=(7, 3, 4))
    elif kind == "gray16":
        Image.fromarray((ramp(23, 31, 1).astype(np.uint16) * 3)).save(path)
    else:
        write_png(path, kind)


def write_png(path, kind):
    """Those that Pillow does not write: 16 bits, 2 and 4 bits of gray, interlaced."""
    import zlib

    type_, depth, channels = {"rgb16": (2, 16, 3), "rgba16": (6, 16, 4), "gray_alpha16": (4, 16, 2),
                              "gray2": (0, 2, 1), "gray4": (0, 4, 1), "adam7": (2, 8, 3)}[kind]
    width, height = 31, 23
    random = np.random.default_rng(5)

    def rows(w, h):
        n = (w * depth * channels + 7) // 8
        return b"".join(b"\0" + random.integers(0, 256, n, np.uint8).tobytes() for _ in range(h)) if w else b""

    if kind == "adam7":
        passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
        raw = b"".join(rows(-(-(width - x) // dx), -(-(height - y) // dy)) for x, y, dx, dy in passes)
    else:
        raw = rows(width, height)

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = struct.pack(">IIBBBBB", width, height, depth, type_, 0, 0, kind == "adam7")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(raw)) +
                     chunk(b"IEND", b""))


PNGS = ["rgb", "gray", "bits1", "palette", "palette4", "palette2", "palette1", "palette_transparent", "rgba", "gray_alpha",
        "rgb_transparent", "gray16", "rgb16", "rgba16", "gray_alpha16", "gray2", "gray4", "adam7"]


@pytest.mark.parametrize("kind", PNGS)
def test_png_as_pillow_converts_it(tool, tmp_path, kind):
    path = tmp_path / "image.png"
    save_png(path, kind)
    assert (tool("image", path).data == pillow(path)).all()
    assert (tool("image", path, channels=1).data == pillow(path, "L")).all()


JPEGS = {"rgb": {}, "gray": {}, "cmyk": {}, "progressive": dict(progressive=True), "full": dict(subsampling=0),
         "half": dict(subsampling=1), "poor": dict(quality=5), "optimized": dict(optimize=True)}


@pytest.mark.parametrize("kind", JPEGS)
def test_jpeg_as_pillow_converts_it(tool, tmp_path, kind):
    path = tmp_path / "image.jpg"
    image = Image.fromarray(ramp(61, 47))
    image = image.convert({"gray": "L", "cmyk": "CMYK"}.get(kind, "RGB"))
    image.save(path, **JPEGS[kind])
    assert (tool("image", path).data == pillow(path)).all()
    assert (tool("image", path, channels=1).data == pillow(path, "L")).all()


def test_four_inks_of_a_real_picture(tool, tmp_path):
    path = tmp_path / "inks.jpg"
    Image.fromarray(ramp(40, 40, 4).reshape(40, 40, 4), "CMYK").save(path, quality=95)
    assert (tool("image", path).data == pillow(path)).all()
    assert (tool("image", path, channels=1).data == pillow(path, "L")).all()


def test_exif_orientation_is_ignored(tool, tmp_path):
    path = tmp_path / "image.jpg"
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(ramp(20, 30)).save(path, exif=exif)
    got = tool("image", path)
    assert got.shape == (3, 20, 30)
    assert (got.data == pillow(path)).all()


SIZES = [(28, 28), (1, 1), (64, 48), (47, 200), (300, 61), (13, 170), (47, 61)]


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("size", SIZES)
def test_resize_as_torchvision_and_pillow_do(tool, tmp_path, mode, size):
    path, channels = tmp_path / "image.png", 3 if mode == "RGB" else 1
    image = Image.fromarray(ramp(61, 47)).convert(mode)
    image.save(path)
    height, width = size
    got = tool("image", path, height=height, width=width, channels=channels).data
    want = np.asarray(torchvision.transforms.Resize(size)(image))
    assert (got == (want[None] if channels == 1 else want.transpose(2, 0, 1))).all()
    got = tool("image", path, height=height, width=width, channels=channels, filter="bicubic").data
    want = np.asarray(image.resize((width, height)))
    assert (got == (want[None] if channels == 1 else want.transpose(2, 0, 1))).all()


@pytest.mark.parametrize("light", [True, False])
def test_a_photograph_as_the_tutorial_prepares_it(tool, tmp_path, light):
    """Resized, gray, and inverted when its background is light."""
    path = tmp_path / "trousers.jpg"
    picture = ramp(400, 300)
    picture[:, :60] = 250 if light else 40
    Image.fromarray(picture).save(path)
    want = ImageOps.grayscale(Image.open(path).resize((28, 28)))
    assert (want.getpixel((1, 1)) > 200) == light
    if light:
        want = ImageOps.invert(want)
    got = tool("image", path, height=28, width=28, filter="bicubic", channels=1, invert=1)
    assert (got.data[0] == np.asarray(want)).all()


# Folders of classes


def make_folder(path, classes, size=(9, 7)):
    for i, (name, files) in enumerate(classes.items()):
        (path / name).mkdir(parents=True)
        for k, file in enumerate(files):
            image = Image.fromarray(ramp(*size, seed=10 * i + k))
            image.save(path / name / file, **(dict(quality=90) if "j" in Path(file).suffix.lower() else {}))


def test_a_folder_of_classes_is_torchvisions(tool, tmp_path):
    root = tmp_path / "pets"
    make_folder(root, {"dog": ["b.png", "a.JPG", "B.png"], "cat": ["1.jpeg", "10.png", "2.png"], "Zebra": ["z.png"]})
    (root / "cat" / "notes.txt").write_text("not an image")
    (root / "readme").write_text("not a class")
    want = torchvision.datasets.ImageFolder(root)
    got = tool("open", root)
    assert got.classes == want.classes == ["Zebra", "cat", "dog"]
    assert got.labels.tolist() == want.targets
    assert (got.data == np.stack([np.asarray(x).transpose(2, 0, 1) for x, _ in want])).all()
    some = tool("open", root, limit=3)
    assert some.labels.tolist() == [0, 1, 2] and some.classes == want.classes
    gray = tool("open", root, channels=1, height=5, width=5)
    assert gray.shape == (7, 1, 5, 5)
    one = torchvision.transforms.Grayscale()(torchvision.transforms.Resize((5, 5))(want[3][0]))
    assert (gray.data[3, 0] == np.asarray(one)).all()


def test_a_folder_may_be_split(tool, tmp_path):
    root = tmp_path / "pets"
    make_folder(root / "train", {"cat": ["1.png", "2.png"], "dog": ["3.png"]})
    assert tool("open", root).labels.tolist() == [0, 0, 1]
    got = tool("open", root, split="test")
    assert f"the folder {root} has no folder test" in got.error
    make_folder(root / "test", {"cat": ["1.png"], "dog": ["3.png"]})
    assert tool("open", root, split="test").labels.tolist() == [0, 1]


def test_folders_that_cannot_be_read_say_why(tool, tmp_path):
    root = tmp_path / "pets"
    assert f"cannot open {root}: No such file" in tool("open", root).error
    root.mkdir()
    assert f"the folder {root} has no class folders and no IDX files" in tool("open", root).error
    make_folder(root, {"cat": ["1.png"], "dog": []})
    assert f"the class folder {root}/dog has no images" in tool("open", root).error
    make_folder(root / "x", {"dog": ["2.png"]}, size=(9, 8))
    (root / "x" / "dog" / "2.png").rename(root / "dog" / "2.png")
    for folder in (root / "x" / "dog", root / "x"):
        folder.rmdir()
    got = tool("open", root)
    assert f"{root}/dog/2.png has 8 x 9 pixels, and {root}/cat/1.png has 7 x 9" in got.error
    assert "resize" in got.error
    assert tool("open", root, height=4, width=4).shape == (2, 3, 4, 4)
    whole = (root / "dog" / "2.png").read_bytes()
    for bad in (b"", b"hello", whole[:60], whole[:-30], whole[:50] + b"?" + whole[51:]):
        (root / "dog" / "2.png").write_bytes(bad)
        got = tool("open", root, height=4, width=4)
        assert got.status == 1 and f"{root}/dog/2.png" in got.error, got.error


def test_damaged_and_hostile_images_are_refused(tool, tmp_path):
    jpg, png = tmp_path / "a.jpg", tmp_path / "a.png"
    Image.fromarray(ramp(100, 100)).save(jpg)
    whole = jpg.read_bytes()
    jpg.write_bytes(whole[:len(whole) // 2])
    assert "Premature end of JPEG file" in tool("image", jpg).error
    head = whole.index(b"\xff\xc0")
    jpg.write_bytes(whole[:head + 5] + b"\xea\x60\xea\x60" + whole[head + 9:])
    assert "60000 x 60000 pixels; we read up to" in tool("image", jpg).error
    jpg.write_bytes(whole[:head + 5] + b"\x20\x00\x20\x00" + whole[head + 9:])
    assert "claims 8192 x 8192 pixels and has only" in tool("image", jpg).error
    save_png(png, "rgb")
    whole = png.read_bytes()
    import zlib
    for width, height, words in ((2**31 - 1, 2**31 - 1, ""), (60000, 60000, "we read up to"), (8000, 8000, "claims 8000")):
        ihdr = b"IHDR" + struct.pack(">II", width, height) + whole[24:29]
        png.write_bytes(whole[:12] + ihdr + struct.pack(">I", zlib.crc32(ihdr)) + whole[33:])
        got = tool("image", png)
        assert got.status == 1 and words in got.error, got.error


# CSV


def test_csv_as_numpy_reads_it(tool, tmp_path):
    path = tmp_path / "table.csv"
    numbers = np.random.default_rng(0).normal(size=(200, 5)).astype(np.float32)
    kinds = np.array(["setosa", "versi,color", 'virgi"nica', "alba"])[np.arange(200) * 7 % 4]
    with path.open("w", newline="") as f:
        import csv
        writer = csv.writer(f)
        writer.writerow(["a", "b", "kind", "c", "d", "e"])
        for row, kind in zip(numbers, kinds):
            writer.writerow([*row[:2], kind, *row[2:]])
    for label in ("kind", 2, -4):
        got = tool("open", path, label=label)
        assert got.classes == sorted(set(kinds))
        assert (got.data == numbers).all()
        assert [got.classes[i] for i in got.labels] == list(kinds)
    assert tool("open", path, label="kind", limit=7).shape == (7, 5)


# NumPy


def test_npz_of_every_naming(tool, tmp_path):
    path = tmp_path / "set.npz"
    x, y = ramp(40, 30, 1).reshape(10, 12, 10), np.arange(10) % 4
    for names in (("x", "y"), ("images", "labels"), ("x_train", "y_train")):
        np.savez(path, **{names[0]: x, names[1]: y})
        got = tool("open", path)
        assert got.classes == list("0123") and (got.labels == y).all()
        assert (got.data[:, 0] == x).all()
    np.savez_compressed(path, x_train=x, y_train=y, x_test=x[::-1][:3], y_test=y[:3].astype(np.uint8).reshape(3, 1))
    got = tool("open", path, split="test")
    assert (got.data[:, 0] == x[::-1][:3]).all() and (got.labels == y[:3]).all()
    assert tool("open", path, limit=4, height=5, width=6).shape == (4, 1, 5, 6)


def test_channels_come_first(tool, tmp_path):
    path = tmp_path / "set.npz"
    x = ramp(60, 16).reshape(5, 12, 16, 3)
    np.savez(path, x=x, y=np.zeros(5, np.int32))
    assert (tool("open", path).data == x.transpose(0, 3, 1, 2)).all()
    np.savez(path, x=x.transpose(0, 3, 1, 2), y=np.zeros(5, np.int32))    # Fortran order too
    assert (tool("open", path).data == x.transpose(0, 3, 1, 2)).all()


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "i4", "i8", "?"])
def test_npy_of_every_type(tool, tmp_path, dtype):
    path, labels = tmp_path / "x.npy", tmp_path / "y.npy"
    x = (np.random.default_rng(0).normal(size=(6, 4, 3)) * 9).astype(dtype)
    np.save(path, x)
    got = tool("open", path)
    assert got.dtype == np.float32 and (got.data == x.astype(np.float32)).all()
    assert got.classes == [] and not got.labels.any()
    np.save(labels, np.array([0, 1, 2, 2, 1, 0], np.float64))
    got = tool("open", path, label=labels)
    assert got.classes == list("012") and got.labels.tolist() == [0, 1, 2, 2, 1, 0]


def test_arrays_that_do_not_fit_are_refused(tool, tmp_path):
    path = tmp_path / "set.npz"

    def error(**arrays):
        np.savez(path, **arrays)
        return tool("open", path).error

    x = np.zeros((4, 3), np.float32)
    assert "has no samples and labels for this split" in error(a=x)
    assert "has no samples and labels for this split" in error(x_test=x, y_test=np.zeros(4))
    assert "has 4 samples and 5 labels" in error(x=x, y=np.zeros(5))
    assert "have 3 dims; they need one, or two" in error(x=x, y=np.zeros((4, 2, 1)))
    assert "label -1 of sample 2 in" in error(x=x, y=np.array([0, 0, -1, 0]))
    assert "target 0 of sample 1 in" in error(x=x, y=np.array([0, np.nan, 1, 0]))
    assert "label 9e+09 of sample 0 in" in error(x=x, y=np.array([9 * 10**9, 0, 1, 0]))
    assert "is not one of 0..1048575" in error(x=x, y=np.array([1 << 24, 0, 1, 0]))
    assert "has no samples" in error(x=x[:0], y=np.zeros(0))
    path.write_bytes(path.read_bytes()[:-40])
    assert tool("open", path).status == 1


# Downloads


class Server:
    """Serves the four files of a set, and misbehaves as told."""

    def __init__(self, folder):
        self.folder, self.asked = folder, []
        self.cut = self.stall = self.no_ranges = self.endless = False
        self.wrong = None
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                try:
                    outer.answer(self)
                except (BrokenPipeError, ConnectionResetError):
                    pass

            def log_message(self, *args):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}/files"

    def answer(self, h):
        path = self.folder / h.path.split("/")[-1]
        start = int(re.match(r"bytes=(\d+)-", h.headers.get("Range", "bytes=0-"))[1])
        self.asked.append((path.name, start))
        if not h.path.startswith("/files/") or not path.exists():
            return h.send_error(404)
        data = self.wrong if self.wrong is not None else path.read_bytes()
        if self.no_ranges:
            start = 0
        if start and start >= len(data):
            return h.send_error(416)
        h.send_response(206 if start else 200)
        if start:
            h.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        if not self.endless:
            h.send_header("Content-Length", str(len(data) - start))
        h.end_headers()
        if self.stall:
            h.wfile.write(data[start:start + 1000])
            h.wfile.flush()
            time.sleep(20)
        elif self.endless:
            while True:
                h.wfile.write(data)
        elif self.cut:
            h.wfile.write(data[start:start + len(data) // 3 + 1])
        else:
            h.wfile.write(data[start:])


@pytest.fixture
def server(shared):
    s = Server(shared(DIGITS))
    yield s
    s.http.shutdown()
    s.http.server_close()


def raw(tmp_path):
    return tmp_path / "sets" / "MNIST" / "raw"


def fetch(tool, server, tmp_path, **options):
    return tool("open", "mnist", dir=tmp_path / "sets", url=server.url, split="test", **options)


def assert_fetched(got, server, tmp_path):
    assert got.status == 0, got.error
    assert (got.data[:, 0] == idx(server.folder / "t10k-images-idx3-ubyte.gz")).all()
    assert sorted(f.name for f in raw(tmp_path).iterdir()) == ["t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"]


def test_a_set_is_downloaded_once(tool, server, tmp_path):
    got = fetch(tool, server, tmp_path)
    assert_fetched(got, server, tmp_path)
    assert "t10k-images-idx3-ubyte.gz 1648877/1648877" in got.error    # progress
    assert len(server.asked) == 2
    assert_fetched(fetch(tool, server, tmp_path), server, tmp_path)
    assert len(server.asked) == 2


def test_the_address_may_come_from_the_environment(tool, server, tmp_path):
    got = tool("open", "mnist", split="test", env={"TESSERA_MNIST_URL": server.url + "/"})
    assert got.status == 0, got.error
    assert (tmp_path / "home/.cache/tessera/MNIST/raw/t10k-images-idx3-ubyte.gz").exists()


def test_cut_connections_are_continued(tool, server, tmp_path):
    server.cut = True
    assert_fetched(fetch(tool, server, tmp_path), server, tmp_path)
    starts = [at for name, at in server.asked if "images" in name]
    third = 1648877 // 3 + 1
    assert starts == [0, third, 2 * third]


def test_a_part_of_an_earlier_run_is_continued(tool, server, tmp_path):
    server.stall = True    # after 1000 bytes
    got = fetch(tool, server, tmp_path, stop=500)
    assert "the download of t10k-images-idx3-ubyte.gz was stopped" in got.error
    assert (raw(tmp_path) / "t10k-images-idx3-ubyte.gz.part").stat().st_size == 1000
    server.stall = False
    assert_fetched(fetch(tool, server, tmp_path), server, tmp_path)
    assert [at for name, at in server.asked if "images" in name] == [0, 1000]


def test_a_part_that_is_whole_needs_nothing_more(tool, server, tmp_path):
    raw(tmp_path).mkdir(parents=True)
    name = "t10k-images-idx3-ubyte.gz"
    (raw(tmp_path) / f"{name}.part").write_bytes((server.folder / name).read_bytes())
    assert_fetched(fetch(tool, server, tmp_path), server, tmp_path)


def test_a_server_without_ranges_starts_again(tool, server, tmp_path):
    raw(tmp_path).mkdir(parents=True)
    (raw(tmp_path) / "t10k-images-idx3-ubyte.gz.part").write_bytes(b"x" * 1000)
    server.no_ranges = True
    assert_fetched(fetch(tool, server, tmp_path), server, tmp_path)


def test_a_part_of_something_else_is_thrown_away(tool, server, tmp_path):
    raw(tmp_path).mkdir(parents=True)
    (raw(tmp_path) / "t10k-images-idx3-ubyte.gz.part").write_bytes(b"x" * 1000)
    assert_fetched(fetch(tool, server, tmp_path), server, tmp_path)


@pytest.mark.parametrize("wrong", [gzip.compress(b"something else"), b"<html>no such page</html>", b""],
                         ids=["other", "page", "empty"])
def test_wrong_content_is_refused(tool, server, tmp_path, wrong):
    server.wrong = wrong
    got = fetch(tool, server, tmp_path)
    assert got.status == 1 and "\ncorrupt file: " in got.error, got.error
    if wrong[:2] == b"\x1f\x8b":
        assert hashlib.sha256(b"something else").hexdigest() in got.error
    assert list(raw(tmp_path).iterdir()) == []


def test_servers_that_never_end_or_never_answer(tool, server, tmp_path):
    server.endless = True
    got = fetch(tool, server, tmp_path)
    assert "sends more than the 7905552 bytes that the file can have" in got.error
    server.endless, server.stall = False, True
    start = time.monotonic()
    got = fetch(tool, server, tmp_path, stall=1)
    assert "nothing came for 1 seconds" in got.error and time.monotonic() - start < 15


def test_missing_files_and_servers(tool, server, tmp_path):
    server.url += "x"
    assert "404" in fetch(tool, server, tmp_path).error
    server.url = "http://127.0.0.1:9/files"
    assert "cannot download http://127.0.0.1:9/files/t10k-images-idx3-ubyte.gz" in fetch(tool, server, tmp_path).error
    server.url = "file:///etc"
    assert "cannot download" in fetch(tool, server, tmp_path).error


def test_two_processes_download_once(tool, server, tmp_path):
    results = []
    threads = [threading.Thread(target=lambda: results.append(fetch(tool, server, tmp_path))) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for got in results:
        assert_fetched(got, server, tmp_path)
    assert len(server.asked) == 2
