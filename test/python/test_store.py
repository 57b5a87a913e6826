"""Checkpoints and arrays: what PyTorch and NumPy write is read, what is written they read.

The safetensors package is not needed: its format is a length, a JSON header and bytes.
"""

import ast
import collections
import json
import struct
import subprocess
import zipfile
import zlib

import numpy as np
import pytest

torch = pytest.importorskip("torch")

DTYPES = {
    "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "f64": torch.float64, "i8": torch.int8,
    "u8": torch.uint8, "i32": torch.int32, "i64": torch.int64, "bool": torch.bool,
}
NAMES = {v: k for k, v in DTYPES.items()}
SAFE = {"f32": "F32", "f16": "F16", "bf16": "BF16", "f64": "F64", "i8": "I8", "u8": "U8", "i32": "I32", "i64": "I64",
        "bool": "BOOL"}


class Store:
    def __init__(self, build_dir, folder):
        self.tools = build_dir / "test"
        self.folder = folder

    def path(self, name):
        return self.folder / name

    def run(self, tool, *args):
        return subprocess.run([self.tools / f"tools_store_{tool}", *map(str, args)], capture_output=True)

    def read(self, path):
        """The tree as our reader sees it, with tensors as torch tensors."""
        done = self.run("dump", path)
        assert done.returncode == 0, done.stderr.decode()
        return evaluate(ast.parse(done.stdout.decode().strip(), mode="eval").body)

    def refuse(self, path):
        """The error of a file that is not read."""
        done = self.run("dump", path)
        assert done.returncode == 1 and not done.stdout, done
        return done.stderr.decode()

    def convert(self, a, b):
        done = self.run("convert", a, b)
        assert done.returncode == 0, done.stderr.decode()
        return b

    def save(self, tree, **options):
        path = self.path("theirs.pth")
        torch.save(tree, path, **options)
        return path


@pytest.fixture
def store(build_dir, tmp_path):
    return Store(build_dir, tmp_path)


def evaluate(node):
    """store_dump's text: a Python literal, plus Float('hex') and Tensor(dtype, dims, 'bytes')."""
    if isinstance(node, ast.Call) and node.func.id == "Float":
        return float.fromhex(node.args[0].value)
    if isinstance(node, ast.Call):
        dtype, dims, data = (ast.literal_eval(a) for a in node.args)
        flat = torch.frombuffer(bytearray.fromhex(data), dtype=DTYPES[dtype]) if data else torch.empty(0, dtype=DTYPES[dtype])
        return flat.reshape(dims)
    if isinstance(node, ast.Dict):
        return {ast.literal_eval(k): evaluate(v) for k, v in zip(node.keys, node.values)}
    if isinstance(node, (ast.List, ast.Tuple)):
        items = [evaluate(v) for v in node.elts]
        return items if isinstance(node, ast.List) else tuple(items)
    return ast.literal_eval(node)


def same(a, b):
    """Equal in type, order and every bit; dicts of any class are dicts."""
    if isinstance(a, torch.Tensor):
        return (isinstance(b, torch.Tensor) and a.dtype == b.dtype and a.shape == b.shape
                and bits(a) == bits(b))
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float):
        return isinstance(b, float) and struct.pack("d", a) == struct.pack("d", b)
    return type(a) is type(b) and a == b


def bits(t):
    t = t.detach().contiguous()
    return bytes(t.view(-1).view(torch.uint8).numpy()) if t.numel() else b""


def example(dtype, *shape):
    t = torch.arange(int(np.prod(shape)) or 0, dtype=torch.float32).reshape(shape)
    return (t % 3 == 1) if dtype == torch.bool else (t * 1.5 - 4).to(dtype) if dtype != torch.uint8 else t.to(dtype)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 3, 3)
        self.norm = torch.nn.BatchNorm2d(3)
        self.fc = torch.nn.Linear(12, 4)
        self.fc2 = torch.nn.Linear(12, 4)
        self.fc2.weight = self.fc.weight  # tied

    def forward(self, x):
        x = self.norm(self.conv(x)).relu().flatten(1)
        return self.fc(x) + self.fc2(x)


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-4),
    "adam": lambda p: torch.optim.Adam(p, lr=1e-3, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-3),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-3, momentum=0.5, centered=True),
}


def trained(name, steps=3):
    torch.manual_seed(0)
    model = Net()
    optimizer = OPTIMIZERS[name](model.parameters())
    step(model, optimizer, steps)
    return model, optimizer


def step(model, optimizer, steps):
    x = torch.linspace(-1, 1, 2 * 16).reshape(2, 1, 4, 4)
    for _ in range(steps):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()


def whole(model, optimizer):
    return {"epoch": 7, "model_state_dict": model.state_dict(), "optimizer_state_dict": optimizer.state_dict(),
            "loss": 0.125, "best": None, "history": [1.0, 0.5, float("inf")], "done": False,
            "rng": torch.get_rng_state(), "name": "nät"}


FORMATS = pytest.mark.parametrize("options", [
    dict(_use_new_zipfile_serialization=z, pickle_protocol=p) for z in (True, False) for p in (2, 3, 4, 5)
], ids=lambda o: f"{'zip' if o['_use_new_zipfile_serialization'] else 'legacy'}-{o['pickle_protocol']}")


# --- reading what torch.save writes ---------------------------------------------------------------

@FORMATS
def test_plain_values(store, options):
    tree = {"a": [1, -1, 255, 256, 65536, -2**31, 2**31, 2**63 - 1, -2**63], "b": (0.1, -0.0, float("-inf")),
            "c": {"x": None, 3: True, -4: False}, "text": "a'\\\"\n€", "empty": [[], (), {}, ""], "one": (1,), "two": (1, 2),
            "long": list(range(3000)), "many": {str(i): i for i in range(3000)}}
    assert same(store.read(store.save(tree, **options)), tree)


@FORMATS
def test_every_dtype(store, options):
    tree = {n: example(t, 2, 3) for n, t in DTYPES.items()}
    tree.update(scalar=torch.tensor(2.5), empty=torch.zeros(3, 0, 2), deep=torch.ones(1, 2, 1, 1, 2, 1, 1, 3))
    assert same(store.read(store.save(tree, **options)), tree)


@FORMATS
def test_views(store, options):
    base = torch.arange(24.).reshape(4, 6)
    tree = {"base": base, "t": base.t(), "slice": base[1:3, ::2], "row": base[2], "expanded": base[:, :1].expand(4, 5),
            "permuted": torch.arange(24).reshape(2, 3, 4).permute(2, 0, 1), "last": base[3, 5],
            "channels_last": torch.arange(24.).reshape(1, 2, 3, 4).contiguous(memory_format=torch.channels_last)}
    assert same(store.read(store.save(tree, **options)), tree)


@FORMATS
def test_other_types_become_plain(store, options):
    shared = [1, 2]
    tree = {"size": torch.Size([2, 3]), "dtype": torch.float32, "device": torch.device("cpu"), "set": {5},
            "ordered": collections.OrderedDict(a=1), "counter": collections.Counter({30: 1}), "bytes": b"\0\xff",
            "none": b"", "twice": [shared, shared], "parameter": torch.nn.Parameter(torch.ones(2)),
            "float": np.float32(1.5), "double": np.float64(0.1), "int": np.int64(-7), "flag": np.bool_(True),
            "array": np.arange(6.).reshape(2, 3), "fortran": np.asfortranarray(np.arange(6).reshape(2, 3)),
            "frozen": frozenset([1])}
    want = {"size": (2, 3), "dtype": "torch.float32", "device": "cpu", "set": [5], "ordered": {"a": 1},
            "counter": {30: 1}, "bytes": torch.tensor([0, 255], dtype=torch.uint8),
            "none": torch.zeros(0, dtype=torch.uint8), "twice": [[1, 2], [1, 2]], "parameter": torch.ones(2),
            "float": 1.5, "double": 0.1, "int": -7, "flag": True, "array": torch.arange(6.).double().reshape(2, 3),
            "fortran": torch.arange(6).reshape(2, 3), "frozen": [1]}
    assert same(store.read(store.save(tree, **options)), want)


@FORMATS
@pytest.mark.parametrize("name", ["momentum", "adam"])
def test_training_checkpoints(store, options, name):
    tree = whole(*trained(name))
    assert same(store.read(store.save(tree, **options)), tree)


def test_tensors_with_attributes(store):
    t = torch.ones(3)
    t.note = "kept by torch"
    assert same(store.read(store.save({"t": t})), {"t": torch.ones(3)})


def test_schedulers(store):
    model, optimizer = trained("sgd")
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 3])
    tree = scheduler.state_dict()
    assert same(store.read(store.save(tree)), {**tree, "milestones": dict(tree["milestones"])})


# --- refusing -------------------------------------------------------------------------------------

class Evil:
    def __reduce__(self):
        import os
        return os.system, ("true",)


@FORMATS
@pytest.mark.parametrize("tree, words", [
    (Evil(), "posix.system"),
    (Net(), "test_store.Net"),
    (torch.nn.Linear(2, 2), "torch.nn.modules.linear.Linear"),
    (torch.zeros(2, dtype=torch.complex64), "torch.ComplexFloatStorage"),
    (torch.zeros(2, dtype=torch.int16), "torch.ShortStorage"),
    (torch.quantize_per_tensor(torch.ones(2), 1., 0, torch.qint8), "torch._utils._rebuild_qtensor"),
    (torch.eye(2).to_sparse(), "torch._utils._rebuild_sparse_tensor"),
    ([1 + 2j], "builtins.complex"),
    ({(1, 2): 3}, "a dict with a tuple as a key"),
    (2**64, "an integer of 9 bytes"),
    (torch.ones([1] * 9), "a tensor of rank 9"),
    (np.arange(3, dtype=">i4"), "big-endian"),
    (np.arange(3, dtype="i2"), "numpy.dtype('i2')"),
    (np.array([None]), "numpy.dtype('O8')"),
], ids=lambda x: x if isinstance(x, str) else "")
def test_refused_by_name(store, options, tree, words):
    error = store.refuse(store.save(tree, **options))
    assert words in error
    assert "reading" in error


def test_cycles_are_refused(store):
    knot = [1]
    knot.append({"again": knot})
    assert "holds itself" in store.refuse(store.save(knot))


def test_a_torchscript_archive_is_refused(store):
    path = store.path("script.pt")
    torch.jit.script(torch.nn.Linear(2, 2)).save(path)
    assert "the checkpoint asks for __torch__" in store.refuse(path)


# --- writing what torch.load reads ----------------------------------------------------------------

def test_torch_loads_what_we_write(store):
    tree = whole(*trained("adam"))
    path = store.convert(store.save(tree), store.path("ours.pth"))
    assert same(torch.load(path), tree)
    assert zipfile.ZipFile(path).testzip() is None


def test_torch_trusts_what_we_write(store):
    """Its safe reader takes our state dicts; that of 1.13 knows no floats, so no whole checkpoints."""
    state = trained("adam")[0].state_dict()
    path = store.convert(store.save(state), store.path("ours.pth"))
    assert same(torch.load(path, weights_only=True), dict(state))


def test_every_dtype_and_shape_written(store):
    tree = {n: example(t, 2, 3) for n, t in DTYPES.items()}
    tree.update(scalar=torch.tensor(2.5), empty=torch.zeros(3, 0, 2), deep=torch.ones(1, 2, 1, 1, 2, 1, 1, 3),
                big=[2**31, 2**40, -2**63, 2**31 - 1, -2**31], nested=((), [()], {"x": {}}), ints={0: 1, -5: "x"})
    assert same(torch.load(store.convert(store.save(tree), store.path("ours.pth"))), tree)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_goes_on_from_what_we_write(store, name):
    """Saved by PyTorch, rewritten by us, loaded again: the next steps are bit for bit the same."""
    model, optimizer = trained(name)
    tree = torch.load(store.convert(store.save(whole(model, optimizer)), store.path("ours.pth")))
    other = Net()
    resumed = OPTIMIZERS[name](other.parameters())
    assert str(other.load_state_dict(tree["model_state_dict"])) == "<All keys matched successfully>"
    resumed.load_state_dict(tree["optimizer_state_dict"])
    step(model, optimizer, 4)
    step(other, resumed, 4)
    assert same(dict(model.state_dict()), dict(other.state_dict()))
    assert same(optimizer.state_dict(), resumed.state_dict())


def test_tied_weights_stay_tied(store):
    model, _ = trained("sgd")
    tree = torch.load(store.convert(store.save(model.state_dict()), store.path("ours.pth")))
    assert tree["fc.weight"].data_ptr() == tree["fc2.weight"].data_ptr()
    names = zipfile.ZipFile(store.path("ours.pth")).namelist()
    assert sum("/data/" in n for n in names) == len(model.state_dict()) - 1


def test_the_same_tree_gives_the_same_file(store):
    path = store.save(whole(*trained("adam")))
    a, b = store.convert(path, store.path("a.pth")), store.convert(path, store.path("b.pth"))
    assert a.read_bytes() == b.read_bytes()
    assert store.convert(a, store.path("c.pth")).read_bytes() == a.read_bytes()


# --- NumPy ----------------------------------------------------------------------------------------

NUMPY = [n for n in DTYPES if n != "bf16"]


@pytest.mark.parametrize("dtype", NUMPY)
def test_npy_both_ways(store, dtype):
    for shape in [(), (5,), (2, 3), (0, 4), (1, 2, 3, 1)]:
        a = example(DTYPES[dtype], *shape).numpy()
        for order in "CF":
            np.save(store.path("a.npy"), np.asarray(a, order=order))
            assert same(store.read(store.path("a.npy")), torch.from_numpy(a.copy()))
        b = np.load(store.convert(store.path("a.npy"), store.path("b.npy")))
        assert b.dtype == a.dtype and b.shape == a.shape and b.tobytes() == a.tobytes()
        assert np.load(store.path("b.npy"), mmap_mode="r").tobytes() == a.tobytes()


@pytest.mark.parametrize("write", [np.savez, np.savez_compressed], ids=["stored", "deflated"])
def test_npz_both_ways(store, write):
    arrays = {n: example(DTYPES[n], 3, 50).numpy() for n in NUMPY}
    write(store.path("a.npz"), **arrays)
    assert same(store.read(store.path("a.npz")), {n: torch.from_numpy(a) for n, a in arrays.items()})
    back = np.load(store.convert(store.path("a.npz"), store.path("b.npz")))
    assert list(back) == list(arrays)
    assert all(back[n].dtype == a.dtype and back[n].tobytes() == a.tobytes() for n, a in arrays.items())
    assert zipfile.ZipFile(store.path("b.npz")).testzip() is None


def npy(shape, values=b""):
    d = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".encode()
    d += b" " * (63 - (len(d) + 10) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(d)) + d + values


def write_large_npz(path, entries):
    """Stored entries of a name, first bytes, and zeros after them that take no room on the disk; zip64 all through."""
    most, directory = 0xffffffff, b""
    with open(path, "wb") as f:
        for name, head, zeros in entries:
            at, size, crc = f.tell(), len(head) + zeros, 0 if zeros else zlib.crc32(head)
            f.write(struct.pack("<IHHHHHIIIHH", 0x04034b50, 45, 0, 0, 0, 33, crc, most, most, len(name), 20) + name +
                    struct.pack("<HHQQ", 1, 16, size, size) + head)
            f.seek(zeros, 1)
            if not name.startswith(b"left out"):
                directory += struct.pack("<IHHHHHHIIIHHHHHII", 0x02014b50, 45, 45, 0, 0, 0, 33, crc, most, most, len(name), 28, 0,
                                         0, 0, 0, most) + name + struct.pack("<HHQQQ", 1, 24, size, size, at)
        at, n = f.tell(), directory.count(b"PK\x01\x02")
        f.write(directory + struct.pack("<IQHHIIQQQQ", 0x06064b50, 44, 45, 45, 0, 0, n, n, len(directory), at))
        f.write(struct.pack("<IIQI", 0x07064b50, 0, at + len(directory), 1))
        f.write(struct.pack("<IHHHHIIH", 0x06054b50, 0, 0, 0xffff, 0xffff, most, most, 0))


def test_what_lies_behind_4_gib_is_read(store):
    values = np.arange(6, dtype="f4")
    write_large_npz(store.path("a.npz"), [(b"left out", b"", 5 << 30), (b"b.npy", npy("(2, 3)", values.tobytes()), 0)])
    assert same(store.read(store.path("a.npz")), {"b": torch.from_numpy(values.reshape(2, 3))})


def test_an_array_of_more_than_4_gib_has_its_size(store, build_dir):
    write_large_npz(store.path("a.npz"), [(b"x.npy", npy("(335544320, 4)"), 5 << 30), (b"b.npy", npy("(1,)", b"abcd"), 0)])
    done = subprocess.run([build_dir / "tessera", "inspect", store.path("a.npz")], capture_output=True, text=True, check=True)
    assert "335544320x4           5.0 GiB" in done.stdout and "2 tensors of 1342177281 numbers, 5.0 GiB" in done.stdout


def test_npz_of_nothing(store):
    np.savez(store.path("a.npz"))
    assert store.read(store.path("a.npz")) == {}
    assert list(np.load(store.convert(store.path("a.npz"), store.path("b.npz")))) == []


def test_pickled_npy_is_refused(store):
    np.save(store.path("a.npy"), np.array([{}]), allow_pickle=True)
    assert "a .npy file of type '|O'" in store.refuse(store.path("a.npy"))
    np.save(store.path("a.npy"), np.zeros(2, dtype=[("a", "f4")]))
    assert "records" in store.refuse(store.path("a.npy"))


# --- safetensors ----------------------------------------------------------------------------------

def write_safetensors(path, tensors, metadata=None):
    header, data = ({"__metadata__": metadata} if metadata else {}), b""
    for name, t in tensors.items():
        raw = bits(t)
        header[name] = {"dtype": SAFE[NAMES[t.dtype]], "shape": list(t.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def read_safetensors(path):
    """With the rules of the format: every byte belongs to one tensor."""
    raw = path.read_bytes()
    n, = struct.unpack("<Q", raw[:8])
    header, data = json.loads(raw[8:8 + n]), raw[8 + n:]
    metadata = header.pop("__metadata__", None)
    end = 0
    for t in sorted(header.values(), key=lambda t: t["data_offsets"]):
        assert t["data_offsets"][0] == end and sorted(t) == ["data_offsets", "dtype", "shape"]
        end = t["data_offsets"][1]
    assert end == len(data)
    tensors = {}
    for name, t in header.items():
        dtype = DTYPES[{v: k for k, v in SAFE.items()}[t["dtype"]]]
        part = bytearray(data[slice(*t["data_offsets"])])
        flat = torch.frombuffer(part, dtype=dtype) if part else torch.empty(0, dtype=dtype)
        tensors[name] = flat.reshape(t["shape"])
    return tensors, metadata


def test_safetensors_read(store):
    tensors = {n: example(t, 3, 1) for n, t in DTYPES.items()}
    tensors.update(scalar=torch.tensor(1.5), empty=torch.zeros(0, 2))
    write_safetensors(store.path("a.safetensors"), tensors)
    assert same(store.read(store.path("a.safetensors")), tensors)
    write_safetensors(store.path("a.safetensors"), tensors, {"format": "pt"})
    assert same(store.read(store.path("a.safetensors")), {"__metadata__": {"format": "pt"}, **tensors})


def test_safetensors_written(store):
    tensors = {n: example(t, 3, 1) for n, t in DTYPES.items()}
    tensors.update({"scalar": torch.tensor(1.5), "empty": torch.zeros(0, 2), 'odd "name" ä': torch.ones(2)})
    written, metadata = read_safetensors(store.convert(store.save(tensors), store.path("a.safetensors")))
    assert metadata is None and set(written) == set(tensors)
    assert all(same(written[n], t) for n, t in tensors.items())
    write_safetensors(store.path("b.safetensors"), tensors, {"format": "pt"})
    assert read_safetensors(store.convert(store.path("b.safetensors"), store.path("c.safetensors")))[1] == {"format": "pt"}


def test_state_dicts_cross_every_format(store):
    state = trained("sgd")[0].state_dict()
    path = store.save(state)
    for name in ["a.safetensors", "b.npz", "c.pt"]:
        path = store.convert(path, store.path(name))
    assert set(torch.load(path)) == set(state)
    assert all(same(torch.load(path)[n], t) for n, t in state.items())


# --- size -----------------------------------------------------------------------------------------

def test_memory_is_that_of_the_tensors(store):
    """A file is not held twice: 96 MB of tensors load within 96 MB and a little."""
    import resource

    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (160 << 20, 160 << 20))

    if "asan" in str(store.tools):
        pytest.skip("the address sanitizer takes more address space")
    tree = [torch.full((12 << 20,), i, dtype=torch.uint8) for i in range(8)]
    for legacy in (False, True):
        path = store.save(tree, _use_new_zipfile_serialization=not legacy)
        done = subprocess.run([store.tools / "tools_store_convert", path, store.path("ours.pth")],
                              capture_output=True, preexec_fn=limit)
        assert done.returncode == 0, done.stderr.decode()
        assert all(same(a, b) for a, b in zip(torch.load(store.path("ours.pth")), tree))


# --- metadata beside a checkpoint's tree


def test_torch_load_does_not_see_the_metadata(store):
    tensors = {"w": torch.randn(3, 4), "b": torch.arange(4)}
    facts = {"tessera.model": "input 4\n", "n\u00e4me": ""}
    write_safetensors(store.path("a.safetensors"), tensors, facts)
    path = store.convert(store.path("a.safetensors"), store.path("a.pth"))
    assert same(torch.load(path), tensors)
    assert same(store.read(path), {**tensors, "__metadata__": facts})
    with zipfile.ZipFile(path) as z:
        assert z.read("archive/extra/tessera.model") == b"input 4\n" and z.testzip() is None


def test_extra_records_that_are_no_text_are_refused(store):
    path = store.save({"w": torch.ones(2)})
    with zipfile.ZipFile(path, "a") as z:
        folder = z.namelist()[0].split("/")[0]
        z.writestr(f"{folder}/extra/x", b"\xff\xfe")
    assert "is not UTF-8" in store.refuse(path)


def test_extra_records_of_no_dict_are_left_alone(store):
    path = store.save([torch.ones(2)])
    with zipfile.ZipFile(path, "a") as z:
        z.writestr(f"{z.namelist()[0].split('/')[0]}/extra/x", "text")
    assert same(store.read(path), [torch.ones(2)])
