"""What the tests of the command share: the command itself, small data and a small net."""

import json
import os
import subprocess

import numpy as np
import pytest

OK, FAILED, USAGE = 0, 1, 2

# What most nets here are; the model of this name has a layer more and takes three times as long to compile.
MLP = """input 1 28 28
classes 10
flatten
fc1: linear 32
relu
fc2: linear classes
loss cross_entropy
"""


@pytest.fixture
def tessera(build_dir, tmp_path, request):
    """Without a compiler, which is quicker for nets as small as these, but for tests that are marked: what is compiled is
    tested elsewhere, and by `make soak`."""
    env = {**os.environ, "TESSERA_CACHE_DIR": str(build_dir / "test-cache"), "LC_ALL": "C.UTF-8"}
    if not os.environ.get("TS_SOAK") and not request.node.get_closest_marker("compiled"):
        env.update(TESSERA_CC="/nowhere/cc", TESSERA_LOG="error")
    (tmp_path / "mlp.txt").write_text(MLP)

    def run(*args, code=OK, **more):
        done = subprocess.run([build_dir / "tessera", *map(str, args)], cwd=tmp_path, env={**env, **more}, text=True,
                              capture_output=True, timeout=120)
        assert done.returncode == code, done.stdout + done.stderr
        run.err = done.stderr
        return done.stdout
    run.program = build_dir / "tessera"
    return run


def events(text, name):
    return [e for e in map(json.loads, text.splitlines()) if e["event"] == name]


def photos(folder, n=8, size=(40, 30)):
    Image = pytest.importorskip("PIL.Image")
    r = np.random.RandomState(1)
    for k, name in enumerate(["dark", "light"]):
        (folder / name).mkdir(parents=True)
        for i in range(n):
            pixels = (r.rand(size[1] // 5, size[0] // 5, 3) * 100 + 120 * k).astype("u1")
            Image.fromarray(pixels).resize(size, Image.BICUBIC).save(folder / name / f"{i}.png")


SMALL = ["--model", "mlp.txt", "--batch-size", 4, "--epochs", 1, "--no-plots"]


def table(path, n=64, seed=0):
    r = np.random.RandomState(seed)
    x = r.randn(n, 6).astype("f4")
    np.savez(path, x=x, y=(x[:, 0] > 0).astype("i4"))


def lines(text):
    return events(text, "epoch")


def houses(path, n=400, separator=";"):
    r = np.random.RandomState(0)
    area, age, colour = r.randn(n) * 30 + 100, r.rand(n), r.choice(["blue", "green", "red, dark"], n)
    price = 2000 * age + 10 * area + 500 * (colour == "blue")
    rows = [["area", "age", "colour", "name", "price"]]
    for i in range(n):
        rows.append([f"{area[i]:.3f}" if i % 40 else "", f"{age[i]:.4f}", f'"{colour[i]}"', f"house {i}", f"{price[i]:.2f}"])
    path.write_text("\n".join(separator.join(r) for r in rows) + "\n")
    return area, age, colour, price


SMALL_GPT = """input 16 dtype=i32
classes 10
tokens: embedding classes 32
places: positions
-> x
norm1: layer_norm
attention: self_attention 2 causal=yes
add x -> x
norm2: layer_norm
fc1: linear 64
gelu
fc2: linear 32
add x
norm: layer_norm
head: linear classes bias=no
transpose 1 2
loss cross_entropy
"""


def story(path):
    words = ["the cat sat on the mat. ", "a dog ran to the cat. ", "où est le chat? "]
    r = np.random.RandomState(0)
    path.write_text("".join(words[i] for i in r.randint(0, 3, 400)), encoding="utf-8")
