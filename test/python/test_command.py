"""The command as a person uses it on data of their own: every line of what it promises, through the command line."""

import ctypes.util
import fcntl
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest

from command_helpers import (    # noqa: F401 (tessera is a fixture)
    FAILED, MLP, SMALL, SMALL_GPT, USAGE, events, houses, lines, photos, story, table, tessera)


EMBEDDING = "input 6 dtype=i32\nclasses 2\ne: embedding 20 8\nflatten\nfc: linear classes\nloss cross_entropy\n"


# --- what goes into a net is what is in the file


@pytest.mark.compiled
@pytest.mark.parametrize("kind", ["npz", "csv"])
def test_indices_are_fed_as_integers(tessera, tmp_path, kind):
    r = np.random.RandomState(0)
    x = r.randint(0, 20, (256, 6))
    y = (x[:, 0] > 9).astype("i4")
    (tmp_path / "net.txt").write_text(EMBEDDING)
    data = tmp_path / f"data.{kind}"
    if kind == "npz":
        np.savez(data, x=x, y=y)
    else:
        np.savetxt(data, np.column_stack([x, y]), "%d", ",")
    end, = events(tessera("train", data, "--model", "net.txt", "--epochs", 3, "--lr", 0.05, "--no-plots", "--json"), "end")
    assert end["accuracy"] > 0.95
    assert json.loads(tessera("eval", "net.pth", "--no-plots", "--json"))["accuracy"] == end["accuracy"]


def test_numbers_that_are_no_indices_are_refused(tessera, tmp_path):
    (tmp_path / "net.txt").write_text(EMBEDDING)
    x = np.full((64, 6), 3.0, "f4")
    x[7, 2] = 3.5
    np.savez(tmp_path / "data.npz", x=x, y=np.arange(64) % 2)
    tessera("train", "data.npz", "--model", "net.txt", code=FAILED)
    assert "number 2 of sample 7 in data.npz is 3.5" in tessera.err
    assert not (tmp_path / "net.pth").exists()


@pytest.mark.compiled
def test_an_index_outside_names_the_layer(tessera, tmp_path):
    (tmp_path / "net.txt").write_text(EMBEDDING)
    x = np.zeros((64, 6), "i4")
    x[7, 2] = 20
    np.savez(tmp_path / "data.npz", x=x, y=np.arange(64) % 2)
    tessera("train", "data.npz", "--model", "net.txt", code=FAILED)
    assert "index_select" in tessera.err and "net.txt:3" in tessera.err
    assert not (tmp_path / "net.pth").exists()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_data_that_is_no_number_is_refused(tessera, tmp_path, bad):
    x = np.ones((64, 6), "f4")
    x[7, 2] = bad
    np.savez(tmp_path / "data.npz", x=x, y=np.arange(64) % 2)
    tessera("train", "data.npz", code=FAILED)
    assert "number 2 of sample 7 in data.npz is " in tessera.err
    tessera("data", "data.npz", code=FAILED)


@pytest.mark.compiled
def test_a_loss_that_is_no_number_stops_and_says_where(tessera, tmp_path):
    r = np.random.RandomState(0)
    np.savez(tmp_path / "data.npz", x=1e4 * r.randn(64, 6).astype("f4"), y=np.arange(64) % 2)
    tessera("train", "data.npz", "--model", "mlp.txt", "--optimizer", "sgd", "--lr", 1000, "--epochs", 9, code=FAILED)
    assert "the loss is not a number any more, in epoch" in tessera.err
    assert " made a" in tessera.err.split("looking for the first layer")[1] and ", mlp" in tessera.err
    assert not (tmp_path / "mlp.pth").exists()


# --- preprocessing is part of the model


def score(text):
    return {s["class"]: s["score"] for s in json.loads(text)["images"][0]["scores"]}


@pytest.mark.parametrize("resize", [pytest.param("20", marks=pytest.mark.compiled), "16x24,bicubic"])
def test_predict_does_what_training_did(tessera, tmp_path, resize):
    """The logits of an image are those of a net that is fed the training's own pixels."""
    Image = pytest.importorskip("PIL.Image")
    photos(tmp_path / "photos")
    tessera("train", "photos", "--resize", resize, "--model", "mlp.txt", "--mean", "0.4,0.5,0.6", "--std", "0.2,0.3,0.25",
            "--batch-size", 4, "--epochs", 1, "--no-plots")
    got = score(tessera("predict", "mlp.pth", "photos/dark/3.png", "--no-plots", "--json"))
    height, width = (16, 24) if "x" in resize else (20, 20)
    how = Image.BICUBIC if "bicubic" in resize else Image.BILINEAR
    with Image.open(tmp_path / "photos/dark/3.png") as im:
        pixels = np.asarray(im.convert("RGB").resize((width, height), how), "f4") / np.float32(255)
    x = ((pixels - np.float32([0.4, 0.5, 0.6])) / np.float32([0.2, 0.3, 0.25])).transpose(2, 0, 1)[None]
    torch = pytest.importorskip("torch")
    w = torch.load(tmp_path / "mlp.pth")
    h = torch.tensor(x).flatten(1)
    for i in (1, 2):
        h = torch.nn.functional.linear(h, w[f"fc{i}.weight"], w[f"fc{i}.bias"])
        h = h.relu() if i < 2 else h
    np.testing.assert_allclose([got["dark"], got["light"]], h[0], atol=1e-4)
    a = json.loads(tessera("eval", "mlp.pth", "--no-plots", "--json"))
    b = json.loads(tessera("eval", "mlp.pth", "--no-plots", "--json", "--mean", "0", "--std", "1"))
    assert a["loss"] != b["loss"]
    other = score(tessera("predict", "mlp.pth", "photos/dark/3.png", "--no-plots", "--json", "--mean", "0", "--std", "1"))
    assert other != got


def test_the_middle_of_the_shorter_side(tessera, tmp_path):
    """--resize N --crop M is torchvision's Resize(N), CenterCrop(M)."""
    Image = pytest.importorskip("PIL.Image")
    photos(tmp_path / "photos")
    tessera("train", "photos", "--resize", 20, "--crop", "16", "--model", "mlp.txt", "--batch-size", 4, "--epochs", 1,
            "--no-plots")
    with Image.open(tmp_path / "photos/dark/3.png") as im:  # 40 x 30 -> 26 x 20 -> 16 x 16
        im.convert("RGB").resize((26, 20), Image.BILINEAR).crop((5, 2, 21, 18)).save(tmp_path / "done.png")
    a = score(tessera("predict", "mlp.pth", "photos/dark/3.png", "--no-plots", "--json"))
    b = score(tessera("predict", "mlp.pth", "done.png", "--no-plots", "--json", "--resize", "16"))
    assert a == b


def test_a_file_that_does_not_say_how_is_told(tessera, tmp_path):
    photos(tmp_path / "photos")
    torch = pytest.importorskip("torch")
    tessera("train", "photos", "--resize", 20, "--model", "mlp.txt", "--batch-size", 4, "--epochs", 1, "--no-plots")
    torch.save(torch.load(tmp_path / "mlp.pth"), tmp_path / "plain.pth")
    (tmp_path / "net.txt").write_text(MLP.replace("input 1 28 28", "input 3 20 20"))
    tessera("eval", "plain.pth", "--model", "net.txt", "--data", "photos", "--no-plots")
    assert "does not say how its images were normalised" in tessera.err
    tessera("eval", "plain.pth", "--model", "net.txt", "--data", "photos", "--no-plots", "--mean", 0.5, "--std", 0.5)
    assert tessera.err == ""


@pytest.mark.parametrize("args, words", [
    (["--mean", "0.5"], "--mean and --std go together"),
    (["--mean", "0.5", "--std", "0"], "make no sense"),
    (["--mean", "0.5,0.5", "--std", "1"], "make no sense"),
    (["--mean", "x", "--std", "1"], "make no sense"),
    (["--resize", "0"], "--resize is '0'"),
    (["--resize", "20,nearest"], "--resize is '20,nearest'"),
    (["--crop", "10"], "--crop needs --resize"),
])
def test_wrong_recipes(tessera, tmp_path, args, words):
    photos(tmp_path / "photos", 4)
    tessera("train", "photos", "--model", "mlp.txt", *args, code=USAGE)
    assert words in tessera.err


# --- the command starts from wherever it is installed


STRANGER = r"""
#include <stdio.h>
#include <tessera.h>
#include <tessera/store.h>

int main(void)
{
    static float x[64][2], t[64][1];
    for (int i = 0; i < 64; i++)
        t[i][0] = (x[i][0] = (float)(i % 8) / 8) - 2 * (x[i][1] = (float)(i / 8) / 8);
    ts_graph *g = ts_graph_new("line");
    ts_value *in = ts_input(g, "x", TS_F32, 16, 2), *want = ts_input(g, "t", TS_F32, 16, 1);
    ts_value *y = ts_linear(ts_tanh(ts_linear(in, "fc1", 16)), "fc2", 1);
    ts_loss(ts_mse_loss(y, want));
    ts_optimizer adam = ts_adam(0.01);
    ts_executable *exe = NULL;
    ts_engine *e = NULL;
    double loss = 0;
    if (ts_compile(g, &(ts_options){.optimizer = &adam}, &exe) || ts_engine_new(exe, NULL, &e) ||
        ts_train(e, 64, (const void *[]){x, t}, &(ts_train_options){.epochs = 200}, &loss) ||
        ts_engine_save(e, "line.pth"))
        return fputs(ts_error_text(), stderr), 1;
    printf("loss %.5f\n", loss);
    return loss > 0.01;
}
"""

VISIT = r"""
set -e
cat > net.txt <<END
input 2
classes 1
fc1: linear 16
tanh
fc2: linear 1
loss mse
END
tessera --version
flags=$(pkg-config --define-variable=prefix=$PREFIX --cflags --libs tessera)
cc -std=c11 -Wall -Wextra -Werror line.c $flags -Wl,-rpath,$(pkg-config --define-variable=prefix=$PREFIX --variable=libdir tessera) -o line
./line
tessera export line.pth --model net.txt --c out
cc -std=c99 -O3 out/main.c out/net.c -lm -o out/net
out/net | diff - out/expected.txt
tessera train data.npz --model mlp.txt --epochs 1 --batch-size 4
tessera eval mlp.pth
"""


@pytest.fixture(scope="module")
def installed(build_dir):
    """What `make install` installs, in a folder that was moved and that everyone may read."""
    with tempfile.TemporaryDirectory(prefix="tessera-test-") as folder:
        os.chmod(folder, 0o755)
        subprocess.run(["meson", "install", "-C", build_dir, "--no-rebuild", "--quiet", "--destdir", f"{folder}/a"], check=True)
        os.rename(f"{folder}/a", f"{folder}/moved")
        yield Path(folder), next(Path(folder).rglob("bin/tessera")).parents[1]


@pytest.mark.parametrize("who", ["myself", "nobody"])
def test_what_is_installed_serves_a_stranger(installed, who):
    """The command starts, a program of 25 lines and exported C compile and run: from a folder outside the tree, as root and as
    a user who may write nothing but that folder."""
    folder, prefix = installed
    if who == "nobody" and (os.geteuid() or not shutil.which("setpriv")):
        pytest.skip("needs root, to be another user")
    home = folder / who
    home.mkdir()
    (home / "line.c").write_text(STRANGER)
    (home / "mlp.txt").write_text(MLP)
    table(home / "data.npz")
    be = []
    if who == "nobody":
        os.chown(home, 65534, 65534)
        be = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    pc = next(prefix.rglob("tessera.pc")).parent
    done = subprocess.run([*be, "sh", "-c", VISIT], cwd=home, text=True, capture_output=True, timeout=120, env={
        "PATH": f"{prefix}/bin:/usr/bin:/bin", "HOME": str(home), "PREFIX": str(prefix), "PKG_CONFIG_PATH": str(pc), "LC_ALL": "C.UTF-8"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("tessera ") and "loss 0.0" in done.stdout and "accuracy" in done.stdout
    assert list((home / ".cache/tessera").glob("*.tse"))    # compiled, and kept in the user's own folder


# --- files from others


def bomb(path, megabytes):
    """A deflated NPZ that is a thousandth of what it unfolds to. All its megabytes are one, deflated once; the CRC of many is
    not worth its time."""
    import io
    import struct
    import zlib
    head, name, zeros = io.BytesIO(), b"x.npy", bytes(1 << 20)
    np.lib.format.write_array_header_1_0(head, {"descr": "|u1", "fortran_order": False, "shape": (megabytes << 20,)})
    z = zlib.compressobj(9, zlib.DEFLATED, -15)
    first = z.compress(head.getvalue()) + z.flush(zlib.Z_FULL_FLUSH)
    body = first + (z.compress(zeros) + z.flush(zlib.Z_FULL_FLUSH)) * megabytes + z.flush()
    crc = zlib.crc32(head.getvalue())
    for _ in range(megabytes if megabytes < 100 else 0):
        crc = zlib.crc32(zeros, crc)
    facts = struct.pack("<HHHHHIIIHH", 20, 0, 8, 0, 33, crc, len(body), len(head.getvalue()) + (megabytes << 20), len(name), 0)
    local = b"PK\3\4" + facts + name + body
    entry = b"PK\1\2\x14\0" + facts + struct.pack("<HHHII", 0, 0, 0, 0, 0) + name
    path.write_bytes(local + entry + b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, 1, 1, len(entry), len(local), 0))


def test_a_bomb_is_refused_and_looked_at(tessera, tmp_path):
    bomb(tmp_path / "b.npz", 1300)
    assert (tmp_path / "b.npz").stat().st_size < 2 << 20
    tessera("data", "b.npz", code=FAILED)
    assert "unfolds to" in tessera.err and "TESSERA_LOAD_MEMORY" in tessera.err
    assert "1363148800" in tessera("inspect", "b.npz").replace(",", "")  # headers only: no memory, no time
    bomb(tmp_path / "small.npz", 8)
    assert "8388608" in tessera("inspect", "small.npz")
    tessera("eval", "small.npz", "--data", "x", code=FAILED, TESSERA_LOAD_MEMORY="1000000")
    assert "unfolds to" in tessera.err
    tessera("eval", "small.npz", "--data", "x", code=FAILED)
    assert "unfolds to" not in tessera.err


@pytest.mark.parametrize("kind", ["pth", "safetensors", "npz", "npy"])
def test_inspect_reads_headers_only(tessera, tmp_path, kind):
    """What inspect shows of a file whose tensors are damaged is what it shows of the whole one."""
    r = np.random.RandomState(0)
    torch = pytest.importorskip("torch")
    x = {"a": r.randn(300, 70).astype("f4"), "b": r.randn(5) > 0}
    path = tmp_path / f"x.{kind}"
    if kind == "npy":
        np.save(path, x["a"])
    elif kind == "npz":
        np.savez(path, **x)
    elif kind == "pth":
        torch.save({k: torch.tensor(v) for k, v in x.items()}, path)
    else:
        head = json.dumps({"a": {"dtype": "F32", "shape": [300, 70], "data_offsets": [0, 84000]},
                           "b": {"dtype": "BOOL", "shape": [5], "data_offsets": [84000, 84005]}}).encode()
        path.write_bytes(len(head).to_bytes(8, "little") + head + x["a"].tobytes() + x["b"].tobytes())
    whole = tessera("inspect", path)
    data = bytearray(path.read_bytes())
    at = data.find(x["a"].tobytes()[40:80])
    data[at:at + 8] = b"damaged!"
    path.write_bytes(data)
    assert "300x70" in whole and tessera("inspect", path) == whole


# --- files that are there already, and runs that are cut short


@pytest.mark.compiled
def test_a_finished_model_is_not_replaced(tessera, tmp_path):
    table(tmp_path / "data.npz")
    tessera("train", "data.npz", *SMALL)
    before = (tmp_path / "mlp.pth").read_bytes()
    tessera("train", "data.npz", *SMALL, "--seed", 7, code=FAILED)
    assert "mlp.pth is there already, a finished model" in tessera.err and "--overwrite" in tessera.err
    assert (tmp_path / "mlp.pth").read_bytes() == before
    tessera("train", "data.npz", *SMALL, "--seed", 7, "--overwrite")
    assert (tmp_path / "mlp.pth").read_bytes() != before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["data.npz", "mlp.pth", "mlp.resume.pth", "mlp.txt"]


def test_two_runs_do_not_share_an_output(tessera, tmp_path):
    table(tmp_path / "data.npz")
    with open(tmp_path / "mlp.resume.pth.lock", "w") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        tessera("train", "data.npz", *SMALL, code=FAILED)
        assert "another run is training this model" in tessera.err
    tessera("train", "data.npz", *SMALL)  # the file that a killed run left is no lock
    assert not (tmp_path / "mlp.resume.pth.lock").exists()


def test_resuming_goes_by_what_is_in_the_data(tessera, tmp_path):
    table(tmp_path / "data.npz")
    tessera("train", "data.npz", *SMALL)
    (tmp_path / "data.npz").rename(tmp_path / "moved.npz")
    tessera("train", "moved.npz", "--model", "mlp.txt", "--resume", "--epochs", 2, "--no-plots")
    table(tmp_path / "moved.npz", seed=1)
    tessera("train", "moved.npz", "--model", "mlp.txt", "--resume", "--epochs", 3, "--no-plots", code=FAILED)
    assert "is not what the run to go on with learned from" in tessera.err


def test_what_a_killed_run_left_is_removed(tessera, tmp_path):
    table(tmp_path / "data.npz")
    left = [tmp_path / "mlp.resume.pth.12.abc123", tmp_path / "mlp.pth.13.xyz789"]
    kept = [tmp_path / "mlp.pth.14.abc123", tmp_path / "mlp.pth.old", tmp_path / "mlp.pth.old.abc123"]
    for path in left + kept:
        path.write_text("half")
    with open(kept[0]) as f:    # another process is writing it
        fcntl.flock(f, fcntl.LOCK_EX)
        tessera("train", "data.npz", *SMALL)
    assert not any(p.exists() for p in left) and all(p.exists() for p in kept)


def test_results_come_without_their_pictures(tessera, tmp_path):
    photos(tmp_path / "photos")
    tessera("train", "photos", "--resize", 20, *SMALL)
    (tmp_path / "file").write_text("")
    text = tessera("eval", "mlp.pth", "--plots", "file/x", code=FAILED)
    assert "accuracy" in text and "cannot make the folder" in tessera.err
    text = tessera("predict", "mlp.pth", "photos/dark/1.png", "--plots", "file/x", "--json", code=FAILED)
    assert json.loads(text)["images"][0]["class"] in ("dark", "light")


# --- names and folders as they come


def test_class_names_of_any_bytes(tessera, tmp_path):
    photos(tmp_path / "photos")
    names = [b"caf\xe9", b"new\nline\\n"]
    for old, new in zip(["dark", "light"], names):
        os.rename(os.path.join(os.fsencode(tmp_path), b"photos", old.encode()), os.path.join(os.fsencode(tmp_path), b"photos", new))
    tessera("train", "photos", "--resize", 20, "--model", "mlp.txt", "--batch-size", 4, "--epochs", 1)
    text = tessera("eval", "mlp.pth", "--no-plots")  # the names of the file are those of the folders
    assert "caf?" in text and "new?line\\n" in text


def idx(folder, part):
    import struct
    r = np.random.RandomState(0)
    x, y = r.randint(0, 256, (64, 8, 8)).astype("u1"), (np.arange(64) % 2).astype("u1")
    folder.mkdir(exist_ok=True)
    (folder / f"{part}-images-idx3-ubyte").write_bytes(struct.pack(">IIII", 0x803, 64, 8, 8) + x.tobytes())
    (folder / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 0x801, 64) + y.tobytes())


def test_a_damaged_test_set_is_not_a_missing_one(tessera, tmp_path):
    """Its accuracy is not that of the training set."""
    idx(tmp_path / "idx", "train")
    tessera("train", "idx", *SMALL)
    idx(tmp_path / "idx", "t10k")
    os.truncate(tmp_path / "idx/t10k-images-idx3-ubyte", 1000)
    for args in (["train", "idx", *SMALL, "--overwrite"], ["eval", "mlp.pth", "--no-plots"]):
        tessera(*args, code=FAILED)
        assert "t10k-images-idx3-ubyte should have 4096 bytes" in tessera.err


def test_idx_files_without_a_test_set(tessera, tmp_path):
    idx(tmp_path / "idx", "train")
    assert "64, not divided" in tessera("data", "idx")
    out = tessera("train", "idx", *SMALL)
    assert "1 epoch," in out and "No test set" in out
    tessera("eval", "mlp.pth", "--no-plots")
    assert "the training set is taken" in tessera.err


# --- how a run goes


def test_the_best_epoch_is_the_result_and_patience_ends_the_run(tessera, tmp_path):
    table(tmp_path / "data.npz", 256)
    args = ["train", "data.npz", "--model", "mlp.txt", "--epochs", 40, "--lr", 0.02, "--validate", 0.25, "--json"]
    out = tessera(*args, "--patience", 3, "--csv", "t.csv")
    rows, (end,) = lines(out), events(out, "end")
    losses = [r["validation_loss"] for r in rows]
    best = int(np.argmin(losses))
    assert end["best_epoch"] == best + 1 and len(rows) == best + 1 + 3 < 40
    assert end["accuracy"] == rows[best]["validation_accuracy"] and end["accuracy_of"] == "validation"
    start, = events(out, "start")
    assert start["samples"] == 192
    assert "validation_loss" in (tmp_path / "t.csv").read_text().splitlines()[0]
    whole = tessera(*args, "--patience", 3, "--output", "again.pth", "--epochs", 2)
    tessera(*args, "--patience", 3, "--output", "again.pth", "--resume", "--epochs", 40)
    assert (tmp_path / "again.pth").read_bytes() == (tmp_path / "mlp.pth").read_bytes() and whole


def shades(path, n=200):
    """Colours of a picture that are more than a line of text."""
    from PIL import Image
    image = Image.open(path).convert("RGB")
    return {c for k, c in image.getcolors(1 << 24) if k >= n}


def strip(path):
    """The top of a picture, where its title is."""
    from PIL import Image
    image = Image.open(path).convert("RGB")
    return image.crop((0, 0, image.width, image.height // 8)).tobytes()


def test_pictures_of_a_run_say_what_they_show(tessera, tmp_path):
    """Samples of all classes though the file has one after the other; which set is confused; both curves."""
    y = np.repeat([0, 1], 32).astype("i4")
    x = np.where(y == 0, 64, 192).astype("u1").reshape(-1, 1, 1, 1) * np.ones((1, 1, 8, 8), "u1")
    args = ["train", "data.npz", "--model", "mlp.txt", "--epochs", 12, "--batch-size", 4, "--overwrite"]

    def run(*more, **arrays):
        np.savez(tmp_path / "data.npz", x_train=x, y_train=y, **arrays)
        tessera(*args, *more)
        plots = tmp_path / "mlp-plots"
        lines = {c for c in shades(plots / "curves.png", 100) if max(c) - min(c) > 150}
        return strip(plots / "confusion.png"), lines, shades(plots / "samples.png")
    alone, again, tested, validated = run(), run(), run(x_test=x[2:], y_test=y[2:]), run("--validate", 0.25)
    assert {(64, 64, 64), (192, 192, 192)} <= alone[2]
    assert alone[0] == again[0] and len({alone[0], tested[0], validated[0]}) == 3
    assert alone[1] < validated[1]


@pytest.mark.compiled
def test_the_layer_is_named_that_made_a_number_that_is_none(tessera, tmp_path):
    """Not the state of the optimiser, which takes it from there."""
    table(tmp_path / "data.npz")
    (tmp_path / "net.txt").write_text("input 8\nclasses 2\none: linear 8\ngrow: exp\ntwo: linear classes\nloss cross_entropy\n")
    tessera("train", "data.npz", "--model", "net.txt", "--epochs", 3, "--optimizer", "adam", "--lr", 1e6, "--no-plots", "--check-numbers",
            code=FAILED)
    assert "grow" in tessera.err and " made a" in tessera.err, tessera.err
    assert "exp_avg" not in tessera.err, tessera.err


def test_validation_data_of_its_own(tessera, tmp_path):
    table(tmp_path / "data.npz", 128)
    table(tmp_path / "other.npz", 64, seed=5)
    out = tessera("train", "data.npz", *SMALL, "--validate", "other.npz", "--json")
    score = json.loads(tessera("eval", "mlp.pth", "--data", "other.npz", "--json", "--no-plots"))
    assert lines(out)[-1]["validation_accuracy"] == pytest.approx(score["accuracy"])


@pytest.mark.parametrize("args, want", [
    (["--lr-schedule", "cosine"], lambda e: 0.1 * (1 + np.cos(np.pi * e / 4)) / 2),
    (["--lr-schedule", "step", "--lr-every", 2, "--lr-gamma", 0.5], lambda e: 0.1 * 0.5 ** (e // 2)),
    (["--lr-schedule", "one-cycle"], lambda e: 0.1 * (
        1 + (1 / 25 - 1) * (1 + np.cos(np.pi * e / 1.2)) / 2 if e < 1.2 else
        4e-6 + (1 - 4e-6) * (1 + np.cos(np.pi * (e - 1.2) / 2.8)) / 2)),
    (["--warmup", 2], lambda e: 0.1 * min(1, (e + 0.5) / 2)),
])
def test_learning_rates(tessera, tmp_path, args, want):
    table(tmp_path / "data.npz", 64)
    out = tessera("train", "data.npz", "--model", "mlp.txt", "--optimizer", "sgd", "--lr", 0.1, "--epochs", 4, "--batch-size", 32,
                  "--device-iterations", 1, "--no-plots", "--json", *args)
    assert [r["lr"] for r in lines(out)] == pytest.approx([want(e + 0.5) for e in range(4)])  # the last of two calls


def test_a_plateau_lowers_the_rate(tessera, tmp_path):
    table(tmp_path / "data.npz", 64)
    out = tessera("train", "data.npz", "--model", "mlp.txt", "--optimizer", "sgd", "--lr", 5, "--epochs", 8, "--batch-size", 32,
                  "--no-plots", "--json", "--lr-schedule", "plateau", "--lr-every", 1, "--clip", 1)
    rows, rate, best = lines(out), 5, np.inf
    for r in rows:
        assert r["lr"] == pytest.approx(rate)
        rate, best = rate * (0.1 if r["loss"] >= best else 1), min(best, r["loss"])
    assert rate < 5


COMPILED = [["--ema", 0.9], ["--precision", "bf16"], ["--precision", "f16"]]
MORE = [["--label-smoothing", 0.1], ["--clip", 0.1], ["--class-weights", "balanced"], ["--class-weights", "1,3"],
        ["--lr-schedule", "cosine", "--warmup", 1]]


@pytest.mark.parametrize("more", [*(pytest.param(m, marks=pytest.mark.compiled) for m in COMPILED), *MORE])
def test_each_of_them_learns_and_resumes_to_the_same_bits(tessera, tmp_path, more):
    table(tmp_path / "data.npz", 256)
    args = ["train", "data.npz", "--model", "mlp.txt", "--lr", 0.01, "--no-plots", "--json", *more]
    end, = events(tessera(*args, "--epochs", 6), "end")
    assert end["accuracy"] > 0.9
    if "cosine" not in more:  # the schedule is of all epochs
        tessera(*args, "--epochs", 3, "--output", "part.pth")
        tessera(*args, "--epochs", 6, "--output", "part.pth", "--resume")
        assert (tmp_path / "part.pth").read_bytes() == (tmp_path / "mlp.pth").read_bytes()
    if more[0] != "--lr-schedule":
        tessera("train", "data.npz", "--model", "mlp.txt", "--lr", 0.01, "--no-plots", "--epochs", 6, "--output", "plain.pth")
        assert (tmp_path / "plain.pth").read_bytes() != (tmp_path / "mlp.pth").read_bytes()


def ratio(y):
    return np.bincount(y).sum() / (len(np.bincount(y)) * np.bincount(y).astype("f8"))


@pytest.mark.parametrize("more, how", [
    pytest.param(["--label-smoothing", 0.2], dict(label_smoothing=0.2), marks=pytest.mark.compiled),
    (["--class-weights", "1,3"], dict(weight=[1, 3])),
    (["--class-weights", "balanced"], dict(weight="balanced")),
    (["--class-weights", "2,0.5", "--label-smoothing", 0.1], dict(weight=[2, 0.5], label_smoothing=0.1)),
    (["--clip", 0.05], dict(clip=0.05)),
    (["--optimizer", "sgd", "--momentum", 0.9, "--weight-decay", 0.01], dict(sgd=True)),
    (["--beta1", 0.8, "--beta2", 0.95], dict(betas=(0.8, 0.95))),
])
def test_what_is_learned_is_what_pytorch_learns(tessera, tmp_path, more, how):
    """All samples in one batch, so that their order does not matter: the same losses from the same weights."""
    torch = pytest.importorskip("torch")
    F = torch.nn.functional
    r = np.random.RandomState(0)
    x, y = r.randn(48, 6).astype("f4"), (r.rand(48) < 0.3).astype("i4")
    np.savez(tmp_path / "data.npz", x=x, y=y)
    (tmp_path / "net.txt").write_text("input 6\nclasses 2\nfc1: linear 8\ntanh\nfc2: linear classes\nloss cross_entropy\n")
    torch.manual_seed(0)
    fc1, fc2 = torch.nn.Linear(6, 8), torch.nn.Linear(8, 2)
    net = torch.nn.ModuleDict({"fc1": fc1, "fc2": fc2})
    torch.save(net.state_dict(), tmp_path / "first.pth")
    weight = ratio(y) if how.get("weight") == "balanced" else how.get("weight")
    weight = weight if weight is None else torch.tensor(np.float32(weight))
    o = (torch.optim.SGD(net.parameters(), 0.1, momentum=0.9, weight_decay=0.01) if "sgd" in how else
         torch.optim.Adam(net.parameters(), 0.1, betas=how.get("betas", (0.9, 0.999))))
    want = []
    for _ in range(5):
        loss = F.cross_entropy(fc2(fc1(torch.tensor(x)).tanh()), torch.tensor(y).long(), weight,
                               label_smoothing=how.get("label_smoothing", 0))
        o.zero_grad()
        loss.backward()
        if "clip" in how:
            torch.nn.utils.clip_grad_norm_(net.parameters(), how["clip"])
        o.step()
        want.append(loss.item())
    got = lines(tessera("train", "data.npz", "--model", "net.txt", "--weights", "first.pth", "--batch-size", 48, "--epochs", 5,
                        "--lr", 0.1, "--no-plots", "--json", *more))
    np.testing.assert_allclose([e["loss"] for e in got], want, rtol=2e-5)
    own = torch.load(tmp_path / "net.pth")
    for name, w in net.state_dict().items():
        np.testing.assert_allclose(own[name], w, rtol=1e-3, atol=2e-5, err_msg=name)


@pytest.mark.parametrize("more,why", [
    (["--optimizer", "adam", "--momentum", 0.5], "--momentum is of sgd, rmsprop and muon; adam has none"),
    (["--optimizer", "sgd", "--beta2", 0.9], "sgd has none"),
    (["--optimizer", "adam", "--beta1", 1], "must be below 1"),
])
def test_what_an_optimizer_does_not_have_is_refused(tessera, tmp_path, more, why):
    table(tmp_path / "data.npz", 64)
    for line in ["train", "data.npz", "--model", "mlp.txt"], ["plan", "mlp.txt", "--training"], ["inspect", "mlp.txt"]:
        tessera(*line, *more, code=2)
        assert why in tessera.err


def test_averaged_weights_are_the_average(tessera, tmp_path):
    torch = pytest.importorskip("torch")
    table(tmp_path / "data.npz", 64)
    args = ["train", "data.npz", "--model", "mlp.txt", "--batch-size", 64, "--no-plots", "--ema", 0.75]
    weights = []
    for i in range(1, 4):
        tessera(*args, "--epochs", i, "--output", f"{i}.pth")
        weights.append(torch.load(tmp_path / f"{i}.resume.pth")["model_state_dict"]["fc1.weight"])
    want = weights[0]
    for w in weights[1:]:
        want = 0.75 * want + 0.25 * w
    torch.testing.assert_close(torch.load(tmp_path / "3.pth")["fc1.weight"], want)


def test_the_learning_rate_may_change_on_the_way(tessera, tmp_path):
    table(tmp_path / "data.npz")
    tessera("train", "data.npz", *SMALL, "--lr", 0.01)
    out = tessera("train", "data.npz", "--model", "mlp.txt", "--resume", "--epochs", 2, "--lr", 0.5, "--no-plots", "--json")
    assert lines(out)[-1]["lr"] == 0.5


# --- going on from weights of others


def test_a_new_head_and_frozen_layers(tessera, tmp_path):
    torch = pytest.importorskip("torch")
    photos(tmp_path / "photos")
    tessera("train", "photos", "--resize", 20, *SMALL, "--mean", 0.3, "--std", 0.4)
    Image = pytest.importorskip("PIL.Image")
    (tmp_path / "photos/third").mkdir()
    for i in range(8):
        Image.new("RGB", (40, 30), (255, 0, i)).save(tmp_path / f"photos/third/{i}.png")
    out = tessera("train", "photos", "--resize", 20, "--batch-size", 4, "--epochs", 1, "--no-plots", "--weights", "mlp.pth",
                  "--freeze", "fc1.*", "--output", "tuned.pth")
    assert "2 of 4 tensors are those of mlp.pth; new is fc2.weight and others" in out
    a, b = torch.load(tmp_path / "mlp.pth"), torch.load(tmp_path / "tuned.pth")
    assert torch.equal(a["fc1.weight"], b["fc1.weight"]) and torch.equal(a["fc1.bias"], b["fc1.bias"])
    assert a["fc2.weight"].shape[0] == 2 and b["fc2.weight"].shape[0] == 3
    assert "tessera.normalize                        0.3 0.4" in tessera("inspect", "tuned.pth")  # what it is used to
    tessera("train", "photos", "--resize", 20, *SMALL, "--freeze", "nothing.*", "--output", "x.pth", code=FAILED)
    assert "no parameter of the model 'mlp' is called like 'nothing.*'" in tessera.err
    (tmp_path / "net.txt").write_text("input 3 20 20\nclasses 3\nflatten\nother: linear classes\nloss cross_entropy\n")
    tessera("train", "photos", "--resize", 20, "--model", "net.txt", "--weights", "mlp.pth", "--batch-size", 4, code=FAILED)
    assert "no tensor of mlp.pth has the name and shape" in tessera.err


@pytest.mark.parametrize("kind", ["float64", "float16", "bfloat16"])
def test_weights_of_other_floats_are_taken(tessera, tmp_path, kind):
    torch = pytest.importorskip("torch")
    table(tmp_path / "data.npz")
    shapes = {"fc1": (32, 6), "fc2": (2, 32)}
    torch.manual_seed(0)
    first = {f"{k}.{n}": 0.1 * torch.randn(v if n == "weight" else v[:1]) for k, v in shapes.items() for n in ("weight", "bias")}
    torch.save({k: v.to(getattr(torch, kind)) for k, v in first.items()}, tmp_path / "first.pth")
    assert "4 of 4 tensors are those of first.pth" in tessera("train", "data.npz", *SMALL, "--weights", "first.pth", "--lr", 0)
    for name, w in torch.load(tmp_path / "mlp.pth").items():
        assert torch.equal(w, first[name].to(getattr(torch, kind)).float()), name


# --- images changed at random


@pytest.mark.parametrize("how", [pytest.param("flip,shift=3", marks=pytest.mark.compiled), "rotate=20,vflip", "color=0.3,cutout=6", "flip,mixup=0.4"])
def test_augmentation_is_repeatable(tessera, tmp_path, how):
    photos(tmp_path / "photos")
    args = ["train", "photos", "--resize", 16, "--model", "mlp.txt", "--batch-size", 4, "--epochs", 2, "--no-plots"]
    tessera(*args, "--augment", how, "--threads", 1)
    tessera(*args, "--augment", how, "--threads", 2, "--output", "two.pth")
    tessera(*args, "--output", "plain.pth")
    a, b, c = ((tmp_path / f"{n}.pth").read_bytes() for n in ("mlp", "two", "plain"))
    assert a == b != c
    tessera("train", "photos", "--resize", 16, "--model", "mlp.txt", "--augment", "blur", "--output", "x.pth", code=USAGE)
    assert "--augment has 'blur'" in tessera.err
    table(tmp_path / "data.npz")
    tessera("train", "data.npz", *SMALL, "--augment", how, "--output", "x.pth", code=FAILED)
    assert "only images can be augmented" in tessera.err and not list(tmp_path.glob("x.*"))


# --- what a net says of many things at once, and results for programs


def test_predict_takes_tables_and_folders(tessera, tmp_path):
    import csv
    houses(tmp_path / "houses.csv")
    tessera("train", "houses.csv", "--label", "price", "--drop", "name", "--missing", "mean", "--model", "mlp.txt", "--epochs", 2,
            "--no-plots", "--output", "h.pth")
    rows = (tmp_path / "houses.csv").read_text().splitlines()
    (tmp_path / "new.csv").write_text("\n".join(r.rsplit(";", 1)[0] for r in rows[:41]) + "\n")  # without the price
    got = json.loads(tessera("predict", "h.pth", "new.csv", "--json"))["images"][0]["rows"]
    assert [r["row"] for r in got] == list(range(40))
    table = list(csv.DictReader(tessera("predict", "h.pth", "new.csv", "--csv", "-").splitlines()))
    assert [float(r["price"]) for r in table] == pytest.approx([r["price"] for r in got])
    x = json.loads(tessera("eval", "h.pth", "--json", "--no-plots", "--limit", 40))
    true = np.array([float(r.rsplit(";", 1)[1]) for r in rows[1:41]])
    assert x["mae"] == pytest.approx(abs(true - [r["price"] for r in got]).mean(), rel=1e-5)
    r = np.random.RandomState(0)
    np.savez(tmp_path / "x.npz", x=r.randn(64, 6).astype("f4"), y=np.arange(64) % 2)
    tessera("train", "x.npz", *SMALL)
    np.savez(tmp_path / "only.npz", x=np.load(tmp_path / "x.npz")["x"])
    tessera("predict", "mlp.pth", "only.npz", "--csv", "o.csv")
    table = list(csv.DictReader(open(tmp_path / "o.csv")))
    assert len(table) == 64 and {t["class"] for t in table} <= {"0", "1"}
    photos(tmp_path / "photos")
    tessera("train", "photos", "--resize", 20, *SMALL, "--output", "p.pth")
    table = list(csv.DictReader(tessera("predict", "p.pth", "photos", "--csv", "-", "--no-plots").splitlines()))
    assert [t["input"] for t in table] == sorted(t["input"] for t in table) and len(table) == 16
    one = json.loads(tessera("predict", "p.pth", table[3]["input"], "--no-plots", "--json"))["images"][0]
    assert one["class"] == table[3]["class"]
    tessera("predict", "h.pth", table[3]["input"], code=FAILED)
    assert "gives numbers" in tessera.err
    (tmp_path / "empty").mkdir()
    tessera("predict", "p.pth", "empty", code=FAILED)
    assert "has no .png or .jpg files" in tessera.err


@pytest.mark.compiled
def test_every_result_is_json_too(tessera, tmp_path):
    table(tmp_path / "data.npz")
    tessera("train", "data.npz", *SMALL, "--output", "net.pth")
    for line in (["models"], ["models", "gpt"], ["data"], ["data", "data.npz"], ["inspect", "lenet"], ["inspect", "net.pth"],
                 ["inspect", "net.resume.pth"], ["devices"], ["cache"], ["export", "net.pth", "--c", "out"], ["plan", "mlp"],
                 ["compile", "mlp", "--output", "m.tsx"], ["inspect", "m.tsx"], ["eval", "net.pth", "--no-plots"]):
        assert json.loads(tessera(*line, "--json")), line
    facts = json.loads(tessera("inspect", "net.pth", "--json"))["content"]
    assert facts["fc1.weight"] == {"dtype": "f32", "shape": [32, 6]} and facts["__metadata__"]["tessera.input"] == "6"


def test_help_is_in_parts(tessera):
    import re
    text = tessera("help", "train")
    parts = re.findall(r"^([a-z][a-z ,]+)$", text, re.M)
    assert {"learning", "devices", "files", "tables and texts"} <= set(parts)
    assert "--stages" not in tessera("help", "generate") and "devices\n" not in tessera("help", "models")
    assert text.count("\ntables and texts\n") == text.count("\nimages, and how numbers are normalised\n") == 1
    images = text.split("\nimages, and how numbers are normalised\n")[1].split("\n\n")[0]
    assert all(o in images for o in ("--resize", "--mean", "--crop", "--grayscale"))
    for command in "eval", "predict":    # nothing of a backward pass, an optimizer, or what only training decides
        of_training = ["--recompute", "--shard-optimizer", "--shard-least", "--separate-backward", "--scale", "--vocabulary", "--window"]
        assert not [o for o in of_training if o in tessera("help", command)]
        for option in of_training:
            tessera(command, "x.pth", option, code=USAGE)


def test_images_with_numbers(tessera, tmp_path):
    """A folder of images with a CSV of what is to be learned."""
    photos(tmp_path / "photos", 16)
    rows = ["file,light,pair"] + [f"{k}/{i}.png,{10 * (k == 'light') + i % 2},{i % 2}" for k in ("dark", "light") for i in range(16)]
    (tmp_path / "photos/targets.csv").write_text("\n".join(rows) + "\n")
    out = tessera("train", "photos", "--resize", 12, "--model", "mlp.txt", "--batch-size", 8, "--epochs", 15, "--no-plots", "--json")
    start, end = *events(out, "start"), *events(out, "end")
    assert start["task"] == "numbers" and start["classes"] == 2 and end["rmse"] < 3
    assert json.loads(tessera("eval", "mlp.pth", "--no-plots", "--json"))["rmse"] == pytest.approx(end["rmse"])
    assert json.loads(tessera("data", "photos", "--json"))["targets"] == ["light", "pair"]
    (tmp_path / "photos/targets.csv").write_text("name,light\n1.png,2\n")
    tessera("data", "photos", code=FAILED)
    assert "has no column called 'file'" in tessera.err


# --- the tutorials, as they are written


@pytest.mark.parametrize("name, words", [
    ("photos", ["accuracy", "photos/dark/1.png: ", "tensors are those of photos.pth"]),
    ("table", ["targets    price", "R2", "rmse"]),
    ("text", ["the model is gpt", "Test loss", "perplexity", "the cat"])])
def test_the_tutorial_runs(tmp_path, root, build_dir, name, words):
    import re
    photos(tmp_path / "photos", 16, (40, 40))
    houses(tmp_path / "houses.csv")
    story(tmp_path / "story.txt")
    blocks = re.findall(r"^```sh\n(.*?)^```$", (root / f"doc/tutorial-{name}.md").read_text(), re.M | re.S)
    assert len(blocks) >= 3
    env = {**os.environ, "PATH": f"{build_dir}:{os.environ['PATH']}", "TESSERA_CACHE_DIR": str(build_dir / "test-cache"),
           "LC_ALL": "C.UTF-8"}
    done = subprocess.run(["bash", "-e", "-c", "\n".join(blocks)], cwd=tmp_path, env=env, text=True, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    for word in words:
        assert word in done.stdout, word


@pytest.mark.compiled
def test_export_with_bytes(tessera, tmp_path):
    """A quarter of the constants, the numbers that the example must print, and what it costs; without data, weights only."""
    import re
    r = np.random.RandomState(0)
    x = r.randn(256, 64).astype("f4")
    np.savez(tmp_path / "data.npz", x=x, y=(x[:, 0] > 0).astype("i4"))
    tessera("train", "data.npz", *SMALL, "--model", "mlp")    # of three layers
    f32 = json.loads(tessera("export", "mlp.pth", "--c", "f32", "--json"))["constant_bytes"]
    for kind, products in ("int8", True), ("int8-weights", False):
        said = json.loads(tessera("export", "mlp.pth", "--c", kind, "--quantize", kind, "--json"))
        assert said["int8"]["constant_bytes"] < 0.3 * f32 and said["f32"]["constant_bytes"] == f32
        assert 0 < said["int8"]["seconds"] < 1 and 0 < said["f32"]["seconds"] < 1 and said["metric"] == "accuracy"
        before, after = said["f32"]["metric"], said["int8"]["metric"]
        assert before > 0.5 and abs(before - after) < 0.02
        assert (said["int8_products"] > 1) == products and said["calibration_samples"] == (256 if products else 0)
        for compiler in filter(shutil.which, ("gcc", "clang")):
            subprocess.run(f"{compiler} -std=c99 -O1 -pedantic -Wall -Wextra -Werror main.c mlp.c -lm -o run && ./run | cmp - expected.txt",
                           shell=True, check=True, cwd=tmp_path / kind)
    os.rename(tmp_path / "data.npz", tmp_path / "elsewhere.npz")
    out = tessera("export", "mlp.pth", "--c", "int8", "--quantize", "int8")
    assert "0 products of bytes: only weights are bytes" in out and "accuracy" not in out
    out = tessera("export", "mlp.pth", "--c", "int8", "--quantize", "int8", "--data", "elsewhere.npz")
    assert "products of bytes, calibrated" in out
    f32, int8 = re.search(r"accuracy ([\d.]+) % with f32, accuracy ([\d.]+) % with int8", out).groups()
    assert float(f32) / 100 == pytest.approx(before, abs=1e-4) and abs(float(f32) - float(int8)) < 2
    assert re.search(r"KiB of constants with f32, .*KiB with int8\n[\d.e-]+ ms a run with f32, [\d.e-]+ ms with int8", out)


@pytest.mark.compiled
def test_the_header_says_how_a_table_becomes_numbers(tessera, tmp_path):
    """Who follows what it says gets what `tessera predict` gets; and names of columns are no code."""
    import csv
    import re
    r = np.random.RandomState(0)
    words = ["big", "*/ int f(void) {"]
    rows = [(f"{a:.3f}", words[int(b > 0)], f"{a * 300 + 1000:.2f}") for a, b in r.randn(64, 2)]
    with open(tmp_path / "t.csv", "w") as f:
        csv.writer(f).writerows([["area??/", "how */ int evil; /*", "price"], *rows])
    tessera("train", "t.csv", "--model", "mlp.txt", "--epochs", 2, "--no-plots")
    tessera("export", "mlp.pth", "--c", "c")
    header = (tmp_path / "c/mlp.h").read_text()
    steps = re.findall(r"\[(\d+)\] (.*?)(: 1 or 0)?; \(x - (\S+)\) / (\S+)$", header, re.M)
    assert [s[0] for s in steps] == ["0", "1", "2"] and [bool(s[2]) for s in steps] == [False, True, True]
    scale, mean = map(float, re.search(r"Output \[0\], price is y \* (\S+) \+ (\S+)\.$", header, re.M).groups())
    plain = np.array([[float(a), w == words[1], w == words[0]] for a, w, _ in rows])    # words in sorted order
    x = (plain - [float(s[3]) for s in steps]) / [float(s[4]) for s in steps]
    (tmp_path / "c/use.c").write_text("""#include "mlp.h"
#include <stdio.h>
int main(void)
{
    float x[3], y;
    while (scanf("%f %f %f", &x[0], &x[1], &x[2]) == 3) {
        mlp_run(x, &y);
        printf("%.7g\\n", (double)y);
    }
    return 0;
}
""")
    subprocess.run("cc -std=c99 -pedantic -Wall -Wextra -Werror -O1 use.c mlp.c -lm -o use", shell=True, check=True, cwd=tmp_path / "c")
    got = subprocess.run(tmp_path / "c/use", input="\n".join(" ".join(map(repr, map(float, v))) for v in x), text=True,
                         capture_output=True, check=True).stdout
    want = json.loads(tessera("predict", "mlp.pth", "t.csv", "--json"))["images"][0]["rows"]
    np.testing.assert_allclose(np.float64(got.split()) * scale + mean, [w["price"] for w in want], rtol=1e-4)


# --- several inputs, and what the file of a model remembers

TWO = """# a picture, and numbers that come with it
image: input 1 6 6
more: input 3
kind: input 1 dtype=i32
classes 2
from image
conv: conv2d 4 3
relu
flatten -> a
from kind
e: embedding 5 4
flatten
concat a more
fc: linear classes
loss cross_entropy
"""


def two_inputs(n, seed=0):
    r = np.random.RandomState(seed)
    image, more, kind = r.rand(n, 6, 6).astype("f4"), r.randn(n, 3).astype("f4"), r.randint(0, 5, n)
    return image, more, kind, ((more[:, 1] > 0) ^ (kind > 2)).astype("i4") * 1


def hdf5(path, **arrays):
    """Arrays as libhdf5 writes them; there may be no h5py."""
    name = ctypes.util.find_library("hdf5_serial") or ctypes.util.find_library("hdf5")
    if not name:
        pytest.skip("needs libhdf5")
    lib, id = ctypes.CDLL(name), ctypes.c_int64
    for f in "H5Fcreate", "H5Screate_simple", "H5Dcreate2":
        getattr(lib, f).restype = id
    lib.H5open()
    file = id(lib.H5Fcreate(os.fsencode(path), 2, id(0), id(0)))
    for key, a in arrays.items():
        a = np.ascontiguousarray(a if a.dtype == np.float32 else a.astype("i4"))
        kind = id.in_dll(lib, "H5T_NATIVE_FLOAT_g" if a.dtype == np.float32 else "H5T_NATIVE_INT_g")
        space = id(lib.H5Screate_simple(a.ndim, (ctypes.c_uint64 * a.ndim)(*a.shape), None))
        table = id(lib.H5Dcreate2(file, key.encode(), kind, space, id(0), id(0), id(0)))
        assert lib.H5Dwrite(table, kind, id(0), id(0), id(0), a.ctypes.data_as(ctypes.c_void_p)) >= 0
        lib.H5Dclose(table), lib.H5Sclose(space)
    lib.H5Fclose(file)


@pytest.mark.compiled
@pytest.mark.parametrize("kind", ["npz", "csv", "h5"])
def test_a_net_of_several_inputs(tessera, tmp_path, kind):
    """Train, eval, predict and export; each input is an array of the file, or columns of the table."""
    (tmp_path / "net.txt").write_text(TWO.replace("concat a more", "concat a more\nfc0: linear 16\nrelu"))
    image, more, sort, y = two_inputs(512)
    if kind == "npz":
        np.savez(tmp_path / "d.npz", image=image, more=more, kind=sort, y=y)
    elif kind == "h5":
        hdf5(tmp_path / "d.h5", image=image, more=more, kind=sort, y=y)
    else:
        np.savetxt(tmp_path / "d.csv", np.column_stack([image.reshape(512, -1), more, sort, y]), "%.7g", ",")
    end, = events(tessera("train", f"d.{kind}", "--model", "net.txt", "--epochs", 12, "--lr", 0.02, "--optimizer", "adam",
                          "--no-plots", "--json"), "end")
    assert end["accuracy"] > 0.9
    assert json.loads(tessera("eval", "net.pth", "--no-plots", "--json"))["accuracy"] == end["accuracy"]
    rows = tessera("predict", "net.pth", f"d.{kind}", "--no-plots", "--csv", "out.csv") and (tmp_path / "out.csv").read_text().splitlines()
    assert len(rows) == 513
    if kind != "npz":
        return
    said = json.loads(tessera("export", "net.pth", "--c", "c", "--quantize", "int8", "--json"))
    assert said["int8_products"] >= 2 and abs(said["int8"]["metric"] - end["accuracy"]) < 0.05
    header = (tmp_path / "c/net.h").read_text()
    assert "const float *in_image_0, const float *in_more_1, const int32_t *in_kind_2" in header
    subprocess.run("cc -std=c99 -O1 -Wall -Werror main.c net.c -lm -o run && ./run | cmp - expected.txt", shell=True, check=True,
                   cwd=tmp_path / "c")


@pytest.mark.parametrize("args, words", [
    (["--samples", "a,,b"], "a name is empty"),
    (["--samples", "a,"], "a name is empty"),
    (["--samples", ",".join("a" * 17)], "are more than 16 arrays"),
    (["--samples", "a", "--label", "y,"], "a name is empty"),
    (["--samples", "a", "--label", "y,none"], "has no array 'none'"),
])
def test_lists_of_arrays_that_are_none(tessera, tmp_path, args, words):
    """A list is never shortened in silence."""
    np.savez(tmp_path / "data.npz", a=np.ones((8, 2), "f4"), b=np.ones((8, 3), "f4"), y=np.arange(8) % 2)
    tessera("data", "data.npz", *args, code=FAILED)
    assert words in tessera.err


def test_labels_in_several_arrays(tessera, tmp_path):
    r = np.random.RandomState(0)
    x = r.randn(64, 3).astype("f4")
    np.savez(tmp_path / "data.npz", x=x, up=x[:, 0], down=-x[:, :2])
    assert "targets    0\n           1\n           2\n" in tessera("data", "data.npz", "--label", "up,down")
    end, = events(tessera("train", "data.npz", "--label", "up,down", "--model", "mlp.txt", "--epochs", 40, "--lr", 0.02, "--no-plots", "--json"), "end")
    assert end["r2"] > 0.9


def test_several_inputs_that_do_not_fit(tessera, tmp_path):
    (tmp_path / "net.txt").write_text(TWO)
    image, more, sort, y = two_inputs(64)
    np.savez(tmp_path / "few.npz", image=image, more=more[:, :2], kind=sort, y=y)
    tessera("train", "few.npz", "--model", "net.txt", code=FAILED)
    assert "the inputs image,more,kind take 40 numbers together, the data has samples of 39" in tessera.err
    np.savez(tmp_path / "none.npz", image=image, more=more, y=y)
    tessera("train", "none.npz", "--model", "net.txt", code=FAILED)
    assert "none.npz has no array 'kind'" in tessera.err and "it has image, more, y" in tessera.err
    np.savez(tmp_path / "half.npz", image=image, more=more, kind=sort + 0.5, y=y)
    tessera("train", "half.npz", "--model", "net.txt", code=FAILED)
    assert "number 39 of sample 0 is" in tessera.err and "which is no index" in tessera.err
    np.savez(tmp_path / "rows.npz", image=image, more=more[:9], kind=sort, y=y)
    tessera("train", "rows.npz", "--model", "net.txt", code=FAILED)
    assert "have 64 and 9 rows" in tessera.err


REMEMBERED = {
    "csv": ["--label", "price", "--drop", "name", "--missing", "mean", "--separator", "|"],
    "npz": ["--samples", "pixels", "--label", "truth"],
    "npy": ["--label", "labels.npy"],
    "h5": ["--samples", "pixels", "--label", "truth"],
    "txt": ["--window", "16", "--vocabulary", "260"],
    "images": ["--resize", "12,bicubic", "--mean", "0.4", "--std", "0.3", "--label", "b"],
}


@pytest.mark.parametrize("kind", REMEMBERED)
def test_the_file_of_a_model_remembers_how_its_data_is_read(tessera, tmp_path, kind):
    """Every option of the data is said once, to train."""
    r = np.random.RandomState(0)
    x, y = r.randn(128, 5).astype("f4"), r.randint(0, 3, 128)
    data, options, more = f"d.{kind}", REMEMBERED[kind], ["--model", "mlp.txt"]
    if kind == "csv":
        text = "name|a|b,c|price\n" + "".join(f"n{i}|{'' if i == 7 else x[i, 0]:.5}|{x[i, 1]:.5f}|{x[i, 2]:.5f}\n" if i != 7 else
                                              f"n{i}||{x[i, 1]:.5f}|{x[i, 2]:.5f}\n" for i in range(128))
        (tmp_path / data).write_text(text)
    elif kind == "npz":
        np.savez(tmp_path / data, pixels=x, truth=y, x=x[:, :2], y=y[::-1])
    elif kind == "h5":
        hdf5(tmp_path / data, pixels=x, truth=y, x=x[:, :2], y=y[::-1])
    elif kind == "npy":
        np.save(tmp_path / data, x)
        np.save(tmp_path / "labels.npy", y)
    elif kind == "txt":
        (tmp_path / data).write_text("the cat sat on the mat, and the dog saw it. " * 40)
        (tmp_path / "net.txt").write_text(SMALL_GPT)
        more = ["--model", "net.txt"]
    else:
        Image = pytest.importorskip("PIL.Image")
        (tmp_path / "d.images").mkdir()
        for i in range(24):
            Image.fromarray(r.randint(0, 255, (14, 10, 3)).astype("u1")).save(tmp_path / "d.images" / f"{i}.png")
        (tmp_path / "d.images/targets.csv").write_text("file,a,b\n" + "".join(f"{i}.png,{i},{i % 7}.5\n" for i in range(24)))
    end, = events(tessera("train", data, *options, *more, "--epochs", 1, "--batch-size", 4, "--no-plots", "--json",
                          "--output", "m.pth"), "end")
    said = json.loads(tessera("eval", "m.pth", "--no-plots", "--json"))
    metric = next(k for k in ("accuracy", "rmse", "loss") if k in said and k in end)
    assert said[metric] == pytest.approx(end[metric], rel=1e-5)
    assert not tessera.err or "training set is taken" in tessera.err


# --- what the texts name is there

FOREIGN = {"version", "mpi", "allow-run-as-root", "oversubscribe", "map-by", "bind-to", "mca"}     # of compilers and mpirun
NO_COMMAND = {"dataset", "gpu", "has", "that", "for", "completion"}     # "man tessera has ..."; hidden ones


def strings_of(path):
    """The string literals of a C file, those that follow each other as one."""
    import re
    text = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S)
    return re.findall(r'"((?:[^"\\\n]|\\.)*)"', re.sub(r'"\s*\n?\s*"', "", text))


@pytest.fixture(scope="module")
def option_names(build_dir):
    import re
    def help(*args):
        return subprocess.run([build_dir / "tessera", "help", *args], capture_output=True, text=True, check=True).stdout
    names = [c for c in re.findall(r"^  ([a-z]+)  ", help(), re.M)]
    assert len(names) > 15
    return {c: set(re.findall(r"--([a-z][a-z0-9-]*)", help(c))) for c in names}


def test_hints_name_options_commands_and_files_that_are_there(root, option_names):
    """Of a command's own file its own options, unless the text names another command; of data those of all that read some."""
    import re
    known, wrong = set().union(*option_names.values()) | FOREIGN, []
    reads = set.intersection(*(option_names[c] for c in ("train", "eval", "predict", "data")))
    for path in [*(root / "tool").glob("*.c"), *(root / "src").rglob("*.c")]:
        own = option_names.get(path.stem, known) | FOREIGN if path.parent.name == "tool" else known
        own = reads if path.parent.name == "data" else own
        for text in strings_of(path):
            where = known if re.search(r"tessera [a-z]+", text) else own
            wrong += [(path.name, "--" + o, text) for o in re.findall(r"(?<![\w-])--([a-z][a-z0-9-]*)", text) if o not in where]
            wrong += [(path.name, c, text) for c in re.findall(r"(?<![\w./-])tessera ([a-z]+)\b", text)
                      if c not in option_names and c not in NO_COMMAND]
            wrong += [(path.name, f, text) for f in re.findall(r"[\w/.-]+\.md\b", text) if not (root / "doc" / f).is_file()]
    assert not wrong, wrong


def test_every_result_can_be_json(option_names):
    assert {c for c, options in option_names.items() if "json" not in options} == {"run", "help"}
