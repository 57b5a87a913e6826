"""The poptorch package as it is installed: by pip, as a copy and in place, and by `make install`."""

import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
VERSION = re.search(r'TS_VERSION +"(.+?)"', (ROOT / "include/tessera.h").read_text())[1]

# The environment of a user: none of the paths that tests add, and no network.
ENV = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PIP_", "TESSERA_", "LD_"))}
ENV.update(PIP_NO_INDEX="1", PIP_DISABLE_PIP_VERSION_CHECK="1", PIP_CONFIG_FILE=os.devnull)

STEP = """
import importlib.metadata, torch, poptorch, popart._internal.ir, popdist.poptorch
net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Tanh())
class Loss(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = net
    def forward(self, x, t):
        y = self.net(x)
        return y, torch.nn.functional.mse_loss(y, t)
opts = poptorch.Options().showCompilationProgressBar(False)
model = poptorch.trainingModel(Loss(), opts, torch.optim.SGD(net.parameters(), lr=0.1))
x, t = torch.randn(4, 3), torch.randn(4, 2)
losses = [model(x, t)[1].item() for _ in range(20)]
assert losses[-1] < losses[0], losses
libraries = {line.split()[-1] for line in open("/proc/self/maps") if "libtessera" in line}
assert poptorch.optim.__file__.startswith(poptorch.__path__[0])
where = {m.__path__[0].rsplit("/", 1)[0] for m in (poptorch, popart, popdist)}
assert len(where) == 1, where
if poptorch.__path__[0].find("/dist-packages/") < 0:
    assert importlib.metadata.version("poptorch") == poptorch.__version__
print(poptorch.__version__, poptorch.__file__, poptorch._core.__file__, *libraries, sep="\\n")
"""


def run(*command, **env):
    done = subprocess.run([str(c) for c in command], cwd="/", env={**ENV, **env}, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600)
    assert done.returncode == 0, done.stdout
    return done.stdout


def trained(python, cache, **env):
    """A few training steps with the installed package: its version, and the files it consists of."""
    version, *files = run(python, "-c", STEP, TESSERA_CACHE_DIR=cache, **env).split()
    return version, [Path(f) for f in files]


def dynamic(library, kind):
    text = run("readelf", "-d", library)
    return re.findall(rf"\({kind}\).*\[(.*)\]", text)


def files_in(folder):
    return {p for p in folder.rglob("*") if "__pycache__" not in p.parts}


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")    # the same step each time: compiled once


@pytest.fixture(scope="module")
def venv(tmp_path_factory, build_dir):
    """An environment that sees the system's torch, and its folder of packages."""
    folder = tmp_path_factory.mktemp("venv")
    run("/usr/bin/python3", "-m", "venv", "--system-site-packages", "--without-pip", folder)
    return folder / "bin" / "python", next(folder.glob("lib/python*/site-packages"))


def test_pip_installs_a_copy_and_takes_it_away(venv, cache):
    python, site = venv
    before = files_in(site)
    run(python, "-m", "pip", "install", ROOT)
    version, (package, core, library) = trained(python, cache)
    assert version == VERSION
    assert [package.parent, core.parent, library] == [site / "poptorch"] * 2 + [site / "poptorch/libtessera.so.0"]
    assert (site / "poptorch" / "py.typed").exists()
    run(python, "-m", "pip", "uninstall", "-y", "poptorch")
    assert files_in(site) == before and not (site / "poptorch").exists()


def test_pip_installs_in_place_and_takes_it_away(venv, cache, root):
    python, site = venv
    before = files_in(site)
    run(python, "-m", "pip", "install", "--no-build-isolation", "-e", ROOT)
    version, (package, core, library) = trained(python, cache)
    assert version == VERSION
    assert package.parent == root / "python/poptorch"
    assert core.parent == root / "build/python/poptorch" and library.parent == root / "build"
    run(python, "-m", "pip", "uninstall", "-y", "poptorch")
    assert files_in(site) == before


def test_no_torch_library_is_linked(build_dir):
    """So one build serves every release of torch."""
    core = next((build_dir / "python/poptorch").glob("_core*.so"))
    for library in (core, build_dir / "libtessera.so.0"):
        assert not [n for n in dynamic(library, "NEEDED") if "torch" in n or "c10" in n or "python" in n]
    assert "libtessera.so.0" in dynamic(core, "NEEDED")


@pytest.mark.parametrize("prefix, folder", [
    ("/usr", "lib/python3/dist-packages"), ("/usr/local", "lib/python3.*/dist-packages"),
    ("/opt/tessera", "lib/python3.*/site-packages")])
def test_packages_go_where_debian_s_python_looks(prefix, folder, root):
    found = run("/usr/bin/python3", root / "tools/python-folder", prefix).strip()
    assert Path(found).match(f"{prefix}/{folder}")
    looks = run("/usr/bin/python3", "-c", "import site; print(*site.getsitepackages())").split()
    assert (found in looks) == prefix.startswith("/usr")


def test_make_install_has_the_package(tmp_path, cache, root, build_dir):
    run("meson", "install", "-C", build_dir, "--no-rebuild", "--quiet", "--destdir", tmp_path)
    package = next(tmp_path.rglob("poptorch/__init__.py")).parent
    assert package.parent.name == "dist-packages"
    version, (found, core, library) = trained("/usr/bin/python3", cache, PYTHONPATH=package.parent)
    assert version == VERSION and found.parent == core.parent == package
    assert library.parent == next(tmp_path.rglob("libtessera.so.0")).parent
    assert all(p.startswith("$ORIGIN") for p in dynamic(core, "RUNPATH")[0].split(":"))


def test_a_source_archive_has_the_last_commit(tmp_path, root):
    if not (root / ".git").exists():
        pytest.skip("not a git checkout")
    code = f"import poptorch_build; print(poptorch_build.build_sdist({str(tmp_path)!r}))"
    name = run("/usr/bin/python3", "-c", code, PYTHONPATH=root / "tools").strip()
    assert name == f"poptorch-{VERSION}.tar.gz"
    with tarfile.open(tmp_path / name) as archive:
        names = archive.getnames()
        info = archive.extractfile(f"poptorch-{VERSION}/PKG-INFO").read().decode()
    assert f"poptorch-{VERSION}/pyproject.toml" in names and f"poptorch-{VERSION}/src/tessera.c" in names
    assert info.startswith("Metadata-Version: 2.1\nName: poptorch\n")


def test_the_first_program_of_the_manual_runs(tmp_path, cache, root, build_dir):
    program = re.search(r"```python\n(.*?)```", (root / "doc/python.md").read_text(), re.S)[1]
    file = tmp_path / "first.py"
    file.write_text(program.replace("net.pth", str(tmp_path / "net.pth")))
    text = run("/usr/bin/python3", file, PYTHONPATH=build_dir / "python", TESSERA_CACHE_DIR=cache)
    assert "tensor(" in text and (tmp_path / "net.pth").exists()
