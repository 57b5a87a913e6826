"""tessera export: the C it writes, through strict compilers and sanitizers, against PyTorch; and what it refuses.

The nets are the built-in ones, with PyTorch's initial weights; each is exported once a session.
"""

import json
import os
import re
import struct
import subprocess

import numpy as np
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import nets

OK, FAILED, USAGE = 0, 1, 2
STRICT = ["-Wall", "-Wextra", "-pedantic", "-Werror"]
COMPILERS = {"gcc": ["gcc", "-std=c99"], "clang": ["clang", "-std=c99"], "g++": ["g++", "-x", "c++"]}


class Classifier(nets.Fashion):
    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = self.norm(F.relu(self.conv2(x)))
        x = F.relu(self.fc1(torch.flatten(x, 1)))
        return F.log_softmax(self.fc2(x), 1)


class Digits(nets.Digits):
    def forward(self, x):
        x = self.layer2(self.layer1(x))
        return self.layer4(F.relu(self.layer3(torch.flatten(x, 1))))


class Residual(nn.Module):
    """Batch norm, padding, strides, groups, a sum and two kinds of pooling, from a description."""
    TEXT = """input 3 13 11
c1: conv2d 8 3 padding=1 stride=2
b1: batch_norm
relu
c2: conv2d 8 3 padding=1 groups=4
b2: batch_norm
gelu
avg_pool2d 2
d: dropout 0.5
flatten
fc: linear 5
softmax dim=1
"""

    def __init__(self):
        super().__init__()
        self.c1, self.b1 = nn.Conv2d(3, 8, 3, padding=1, stride=2), nn.BatchNorm2d(8)
        self.c2, self.b2 = nn.Conv2d(8, 8, 3, padding=1, groups=4), nn.BatchNorm2d(8)
        self.fc = nn.Linear(72, 5)
        for norm in (self.b1, self.b2):
            nn.init.uniform_(norm.running_mean, -1, 1)
            nn.init.uniform_(norm.running_var, 0.5, 2)
            nn.init.uniform_(norm.weight, -1, 1)
            nn.init.uniform_(norm.bias, -1, 1)

    def forward(self, x):
        x = F.relu(self.b1(self.c1(x)))
        x = F.avg_pool2d(F.gelu(self.b2(self.c2(x))), 2)
        return F.softmax(self.fc(torch.flatten(x, 1)), 1)


NETS = {"classifier": (Classifier, (1, 28, 28), None), "mnist_cnn": (Digits, (1, 28, 28), None),
        "odd": (Residual, (3, 13, 11), Residual.TEXT)}


def tessera(build_dir, folder, *args, code=OK):
    done = subprocess.run([build_dir / "tessera", *map(str, args)], capture_output=True, text=True, cwd=folder,
                          timeout=120, env={**os.environ, "TESSERA_CACHE_DIR": str(build_dir / "test-cache")})
    assert done.returncode == code, done.stderr + done.stdout
    return done


def compile_c(folder, compiler, *args):
    done = subprocess.run([*COMPILERS[compiler], *STRICT, *args], capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr[:4000]


def object_file(folder, name):
    """The net as gcc makes it, once for all tests that look at it or run it."""
    if not (folder / "net.o").exists():
        compile_c(folder, "gcc", "-O2", "-c", f"{name}.c", "-o", "net.o")
    return "net.o"


@pytest.fixture(scope="session")
def exported(build_dir, tmp_path_factory):
    """exported("classifier") is the folder of its files and the PyTorch module."""
    made = {}

    def get(name, batch=1):
        if (name, batch) not in made:
            kind, _, text = NETS[name]
            folder = tmp_path_factory.mktemp(name)
            torch.manual_seed(7)
            net = kind().eval()
            torch.save(net.state_dict(), folder / "net.pth")
            more = []
            if text:
                (folder / "net.txt").write_text(text)
                more = ["--model", "net.txt"]
            tessera(build_dir, folder, "export", "net.pth", "--c", "out/c", "--name", name, "--batch", batch, *more)
            made[name, batch] = folder / "out/c", net
        return made[name, batch]
    return get


def run_exported(folder, name, net, shape, batch, calls=3, flags=None):
    """The scores of some batches by a program around NAME_run and NAME_run_in, and by PyTorch."""
    upper = name.upper()
    (folder / "feed.c").write_text(f"""#include "{name}.h"
#include <stdio.h>
#include <string.h>
static float in[{upper}_INPUT], out[{upper}_OUTPUT], again[{upper}_OUTPUT], scratch[{upper}_SCRATCH];
int main(void)
{{
    memset(scratch, 0xff, sizeof(scratch));
    while (fread(in, sizeof(in), 1, stdin) == 1) {{
        {name}_run(in, out);
        {name}_run_in(scratch, in, again);
        if (memcmp(out, again, sizeof(out)))
            return 1;
        fwrite(out, sizeof(out), 1, stdout);
    }}
    return 0;
}}
""")
    compile_c(folder, "gcc", *(flags or ["-O2"]), "feed.c", f"{name}.c" if flags else object_file(folder, name), "-lm", "-o", "feed")
    x = torch.randn(calls * batch, *shape, generator=torch.Generator().manual_seed(3))
    done = subprocess.run([folder / "feed"], input=x.numpy().tobytes(), capture_output=True)
    assert done.returncode == 0 and not done.stderr, done.stderr
    with torch.no_grad():
        want = net(x).numpy()
    return np.frombuffer(done.stdout, np.float32).reshape(want.shape), want


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("compiler", COMPILERS)
def test_strict_compilers_take_it_and_the_example_prints_what_it_must(exported, name, compiler):
    folder, _ = exported(name)
    what = object_file(folder, name) if compiler == "gcc" else f"{name}.c"
    compile_c(folder, compiler, "-O2", "main.c", what, "-lm", "-o", "example")
    done = subprocess.run([folder / "example"], capture_output=True, text=True)
    assert done.stdout == (folder / "expected.txt").read_text()
    assert re.search(r"^output\[0\] -?\d+\.\d+$", done.stdout, re.M) and re.search(r"^class \d+$", done.stdout, re.M)


@pytest.mark.parametrize("name", NETS)
def test_scores_are_those_of_pytorch(exported, name):
    folder, net = exported(name)
    got, want = run_exported(folder, name, net, NETS[name][1], 1)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_a_batch_of_three(exported):
    folder, net = exported("odd", 3)
    got, want = run_exported(folder, "odd", net, NETS["odd"][1], 3)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    assert "classify" not in (folder / "odd.h").read_text()


@pytest.mark.parametrize("name", NETS)
def test_sanitizers_are_silent(exported, name):
    folder, net = exported(name)
    got, want = run_exported(folder, name, net, NETS[name][1], 1, calls=1,
                             flags=("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", NETS)
def test_nothing_is_needed_but_mathematics(exported, name):
    """No allocation, no other library; and every name that can be seen begins with the net's."""
    folder, _ = exported(name)
    symbols = [line.split()[-2:] for line in subprocess.run(["nm", folder / object_file(folder, name)], capture_output=True, text=True,
                                                            check=True).stdout.splitlines()]
    undefined = {symbol for kind, symbol in symbols if kind == "U"}
    assert undefined <= {"expf", "logf", "sqrtf", "erff", "tanhf", "memset", "memcpy", "_GLOBAL_OFFSET_TABLE_"}
    assert {symbol for kind, symbol in symbols if kind.isupper() and kind != "U"} == {
        f"{name}_run", f"{name}_run_in", f"{name}_classify"}
    for symbol in re.findall(r"^static (?:inline )?(?:const )?\w+ (\w+)[(\[]", (folder / f"{name}.c").read_text(), re.M):
        assert symbol.startswith(name + "_")


def test_the_header_says_what_it_is(exported):
    folder, _ = exported("classifier")
    text = (folder / "classifier.h").read_text()
    for words in ("made by Tessera", "cc -std=c99 -O3 main.c classifier.c -lm", "with the weights of net.pth",
                  "#define CLASSIFIER_INPUT 784", "#define CLASSIFIER_OUTPUT 10", "bytes of scratch",
                  "int classifier_classify(const float *input);"):
        assert words in text
    assert re.search(r"^ \* fc1 +linear +1x100 +97300$", text, re.M)


def safetensors(path, tensors, metadata):
    """A file as the safetensors library writes it; f16 tensors are stored so."""
    header, data = {"__metadata__": metadata}, b""
    for name, t in tensors.items():
        raw = t.numpy().tobytes()
        header[name] = {"dtype": {torch.float16: "F16", torch.float32: "F32"}[t.dtype], "shape": list(t.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def test_half_precision_weights_are_widened(build_dir, tmp_path):
    torch.manual_seed(7)
    net = Classifier().eval()
    states = {name: t.half() for name, t in net.state_dict().items()}
    net.load_state_dict({name: t.float() for name, t in states.items()})
    safetensors(tmp_path / "net.safetensors", states, {})
    tessera(build_dir, tmp_path, "export", "net.safetensors", "--model", "classifier", "--c", "out")
    got, want = run_exported(tmp_path / "out", "classifier", net, (1, 28, 28), 1, calls=1)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_the_sample_is_of_the_dataset_that_the_checkpoint_names(build_dir, tmp_path):
    if not nets.FASHION.exists():
        pytest.skip(f"needs {nets.FASHION}, which is not there")
    net = Classifier().eval()
    safetensors(tmp_path / "net.safetensors", net.state_dict(),
                {"tessera.data": "fashion-mnist", "tessera.normalize": "0.5 0.5",
                 "tessera.classes": "\n".join("*/ evil" if i == 3 else f"thing {i}" for i in range(10))})
    tessera(build_dir, tmp_path, "export", "net.safetensors", "--c", "out")
    out = tmp_path / "out"
    compile_c(out, "gcc", "main.c", "classifier.c", "-lm", "-o", "example")
    done = subprocess.run([out / "example"], capture_output=True, text=True)
    assert done.stdout == (out / "expected.txt").read_text()
    header = (out / "classifier.h").read_text()
    assert "first sample of fashion-mnist's test set, of class 9" in header
    assert "(x - mean) / deviation with 0.5 0.5" in header and "thing 9" in header and r"*\057 evil" in header
    numbers = re.search(r"input\[CLASSIFIER_INPUT\] = \{(.*?)\}", (out / "main.c").read_text(), re.S)[1]
    sample = np.array([float(n.strip().rstrip("f")) for n in numbers.split(",")], np.float32)
    assert sample.shape == (784,) and sample.min() == -1 and sample.max() == 1
    with torch.no_grad():
        want = net(torch.from_numpy(sample).reshape(1, 1, 28, 28))[0]
    assert f"class {int(want.argmax())}\n" in done.stdout


def test_files_of_others_are_left_alone(build_dir, tmp_path, exported):
    folder, _ = exported("classifier")
    weights = folder.parent.parent / "net.pth"
    (tmp_path / "out").mkdir()
    (tmp_path / "out/main.c").write_text("int main(void) { return 0; }\n")
    done = tessera(build_dir, tmp_path, "export", weights, "--c", "out", code=FAILED)
    assert "out/main.c is there, and no export wrote it" in done.stderr and "--force" in done.stderr
    assert sorted(os.listdir(tmp_path / "out")) == ["main.c"]
    tessera(build_dir, tmp_path, "export", weights, "--c", "out", "--force")
    files = ["classifier.c", "classifier.h", "expected.txt", "main.c"]
    assert sorted(os.listdir(tmp_path / "out")) == files
    before = [(tmp_path / "out" / f).read_text() for f in files]
    tessera(build_dir, tmp_path, "export", weights, "--c", "out")  # ours: written again, the same
    assert [(tmp_path / "out" / f).read_text() for f in files] == before


@pytest.mark.parametrize("args, code, words", [
    ([], USAGE, ["--c DIR is missing"]),
    (["--c", "out", "--name", "my net"], FAILED, ["'my net' cannot be the name of an exported net"]),
    (["--c", "out", "--name", "main"], USAGE, ["main.c is the example"]),
    (["--c", "out", "--batch", "0"], USAGE, ["--batch is 0"]),
    (["--c", "out", "--model", "lenet"], FAILED, ["the weights do not fit the model 'lenet'"]),
    (["--c", "net.pth/out"], FAILED, ["cannot make the folder net.pth/out"]),
])
def test_wrong_calls(build_dir, tmp_path, exported, args, code, words):
    folder, _ = exported("classifier")
    (tmp_path / "net.pth").write_bytes((folder.parent.parent / "net.pth").read_bytes())
    done = tessera(build_dir, tmp_path, "export", "net.pth", *args, code=code)
    assert done.stderr.startswith("tessera")
    for word in words:
        assert word in done.stderr
    assert not (tmp_path / "out").exists()
