"""tools/configure: whatever a build folder was before, it fits what is installed now.

A project of a few lines stands for ours: it asks for one library, `thing`, that the tests install and remove,
and writes what it found to config.h.
"""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

PROJECT = """
project('p', 'c', meson_version: '>= 1.0.0')
thing = dependency('thing', required: false, method: 'pkg-config')
configure_file(output: 'config.h', configuration: {'VERSION': thing.found() ? thing.version() : 'none',
                                                   'CC': meson.get_compiler('c').get_id()})
foreach file : run_command('tools/sources', 'src', check: true).stdout().split()
  executable('program', 'src' / file)
endforeach
"""


class Project:
    """A tree with tools/configure in it, and a folder of pkg-config files."""

    def __init__(self, root):
        self.root, self.build, self.installed = root / "tree", root / "tree/build", root / "installed"
        if self.root.exists():
            return
        (self.root / "tools").mkdir(parents=True)
        (self.root / "src").mkdir()
        self.installed.mkdir()
        for tool in ("configure", "sources"):
            shutil.copy(ROOT / "tools" / tool, self.root / "tools" / tool)
        (self.root / "meson.build").write_text(PROJECT)
        (self.root / "src/a.c").write_text("int main(void) { return 0; }\n")

    def install(self, version):
        (self.installed / "thing.pc").write_text(f"Name: thing\nDescription: d\nVersion: {version}\n")

    def environment(self, **env):
        return {**os.environ, "PKG_CONFIG_LIBDIR": str(self.installed), **env}

    def configure(self, **env):
        run = subprocess.run(["tools/configure", "build"], cwd=self.root, env=self.environment(**env),
                             capture_output=True, text=True)
        assert run.returncode == 0, run.stdout + run.stderr
        return self.found()

    def found(self):
        lines = (self.build / "config.h").read_text().splitlines()
        return {x.split()[1]: x.split()[2] for x in lines if x.startswith("#define")}

    def make(self):
        subprocess.run(["ninja", "-C", self.build, "--quiet"], check=True)


@pytest.fixture
def project(tmp_path):
    return Project(tmp_path)


@pytest.fixture(scope="module")
def pristine(tmp_path_factory):
    """A project that was configured, and a copy of it: meson's paths are absolute, so it is used where it was made."""
    folder = tmp_path_factory.mktemp("made")
    Project(folder / "here").configure()
    shutil.copytree(folder / "here", folder / "kept", symlinks=True)
    return folder


@pytest.fixture
def made(pristine):
    """The same after configure(), which takes meson a second."""
    shutil.rmtree(pristine / "here")
    shutil.copytree(pristine / "kept", pristine / "here", symlinks=True)
    return Project(pristine / "here")


def test_installed_later(made):
    project = made
    assert project.found()["VERSION"] == "none"
    project.install("1.0")
    assert project.configure()["VERSION"] == "1.0"


def test_removed_and_upgraded(project):
    project.install("1.0")
    assert project.configure()["VERSION"] == "1.0"
    project.install("1.0.1")
    assert project.configure()["VERSION"] == "1.0.1"
    (project.installed / "thing.pc").unlink()
    assert project.configure()["VERSION"] == "none"


def test_hidden_for_one_run(project):
    project.install("1.0")
    assert project.configure(PKG_CONFIG_LIBDIR="/nonexistent")["VERSION"] == "none"
    assert project.configure()["VERSION"] == "1.0"
    assert project.configure(PKG_CONFIG_LIBDIR="/nonexistent")["VERSION"] == "none"


def test_nothing_changed(made):
    """Nothing is done, and nothing compiled again; what is found later compiles only what uses it."""
    project = made
    project.make()
    ninja, program = project.build / "build.ninja", project.build / "program"
    before = ninja.stat().st_mtime_ns, program.stat().st_mtime_ns
    project.configure()
    assert ninja.stat().st_mtime_ns == before[0]
    project.install("1.0")
    project.configure()
    project.make()
    assert program.stat().st_mtime_ns == before[1]


def test_another_compiler(made):
    project = made
    assert project.found()["CC"] == "gcc"
    assert project.configure(CC="clang")["CC"] == "clang"
    assert project.configure()["CC"] == "gcc"


def test_another_place(project):
    """A folder that was copied here has the other place's paths in it."""
    project.configure()
    project.make()
    moved = Project(project.root.parent / "copy")
    shutil.copytree(project.build, moved.build)
    shutil.rmtree(project.root)
    moved.configure()
    moved.make()


def test_another_list_of_files(made):
    project = made
    (project.root / "src/a.c").rename(project.root / "src/b.c")
    project.configure()
    project.make()


@pytest.mark.parametrize("damage", [
    lambda b: (b / "build.stamp").unlink(),
    lambda b: (b / "found.stamp").unlink(),
    lambda b: (b / "build.ninja").unlink(),
    lambda b: [(b / "meson-private/coredata.dat").unlink(), (b / "list.stamp").unlink()],
    lambda b: [(b / "meson-private/coredata.dat").write_bytes(b"\x80"), (b / "found.stamp").unlink()],
    lambda b: [shutil.rmtree(b), b.mkdir(), (b / "pytest.xml").touch()],
], ids=["no stamp", "not looked", "no ninja file", "no core", "damaged core", "a folder of ours"])
def test_half_made(made, damage):
    project = made
    damage(project.build)
    project.install("1.0")
    assert project.configure()["VERSION"] == "1.0"
    project.make()


@pytest.mark.parametrize("after", [0.1, 0.4])
def test_interrupted(project, after):
    """Killed at any time, the setup of a fresh folder and of one there was; the next one is whole."""
    for _ in range(2):
        run = subprocess.Popen(["tools/configure", "build"], cwd=project.root, env=project.environment(),
                               start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(after)
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
        project.install("1.0")
        assert project.configure()["VERSION"] == "1.0"
        project.make()
        project.install("2.0")


def test_keeps_what_people_made(made):
    project = made
    (project.build / "demo").mkdir()
    (project.build / "demo/classifier.pth").touch()
    project.configure(CC="clang")
    assert (project.build / "demo/classifier.pth").exists()


def test_errors_are_shown(project):
    (project.root / "meson.build").write_text("project('p', 'c')\nerror('this is wrong')\n")
    run = subprocess.run(["tools/configure", "build"], cwd=project.root, env=project.environment(),
                         capture_output=True, text=True)
    assert run.returncode == 1 and "this is wrong" in run.stderr
