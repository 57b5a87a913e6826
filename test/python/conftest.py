"""What every Python test can ask for."""

import atexit
import gzip
import os
import shutil
import signal
import struct
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# A job in the background is started with SIGINT ignored, and so would be the programs that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# What others attach, the tests that run at the same time among them, is not to be seen here.
os.environ["XDG_RUNTIME_DIR"] = tempfile.mkdtemp(prefix="tessera-test-")
atexit.register(shutil.rmtree, os.environ["XDG_RUNTIME_DIR"], ignore_errors=True)

# Two tests at a time share the cores: PyTorch's threads, here and in programs that tests start, do not spin.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# The package of the build, not the sources: those have no extension module.
sys.path.insert(0, str(ROOT / os.environ.get("TS_BUILD_ROOT", "build") / "python"))


# What takes longest begins first, so that no core is without work at the end.
LONGEST = ["seeds", "poptorch_devices", "parity", "processes", "poptorch_nets", "train", "kills", "poptorch_ops", "poptorch_data",
           "examples", "export", "devices", "tool", "eval", "package", "poptorch_model", "store"]


def pytest_configure(config):
    config.addinivalue_line("markers", "compiled: where most tests of a file do without the compiler, this one needs it")
    config.addinivalue_line("markers", "soak: shown again by another test, in less time; `make soak` runs it")


def pytest_collection_modifyitems(config, items):
    if not os.environ.get("TS_SOAK"):
        left = [item for item in items if item.get_closest_marker("soak")]
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in left]
    names = [f"test_{name}" for name in LONGEST]
    items.sort(key=lambda item: names.index(item.path.stem) if item.path.stem in names else len(names))


def pytest_collection_finish():
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)    # the other core has another test


@pytest.fixture(scope="session")
def root():
    """The top of the source tree."""
    return ROOT


@pytest.fixture(scope="session")
def samples():
    """samples.py, whose torch.testing sets variables of the environment when it is imported."""
    sys.path.insert(0, str(Path(__file__).parent))
    kept = dict(os.environ)
    try:
        import samples
    finally:
        os.environ.clear()
        os.environ.update(kept)
    return samples


@pytest.fixture(scope="session")
def build_dir():
    """The build to test: TS_BUILD_ROOT, or build/."""
    path = ROOT / os.environ.get("TS_BUILD_ROOT", "build")
    assert path.is_dir(), f"{path} is not there; run make first"
    return path


@pytest.fixture(scope="session")
def few_fashion(tmp_path_factory):
    """A TESSERA_DATA_DIR with the first samples of Fashion-MNIST, not compressed: opening all of it takes longer than
    most tests do with it. None where Debian's package is not installed."""
    full, root = Path("/usr/share/datasets/fashion-mnist"), tmp_path_factory.mktemp("few")
    if not full.exists():
        return None
    (root / "fashion-mnist").mkdir()
    for split in "train", "t10k":
        for kind, head, row in (("images-idx3", 16, 784), ("labels-idx1", 8, 1)):
            with gzip.open(full / f"{split}-{kind}-ubyte.gz") as f:
                data = f.read(head + 1024 * row)
            (root / "fashion-mnist" / f"{split}-{kind}-ubyte").write_bytes(data[:4] + struct.pack(">I", 1024) + data[8:])
    return root


def shared_path(name):
    """A file or folder of the data kept beside the source tree; skips the test, naming it, when absent."""
    path = ROOT.parent / "shared" / name
    if not path.exists():
        pytest.skip(f"needs ../shared/{name}, which is not there")
    return path


@pytest.fixture(scope="session")
def shared():
    """shared("data/mnist") is the path of that folder, or skips the test."""
    return shared_path
