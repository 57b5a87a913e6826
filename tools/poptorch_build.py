"""What pip calls to build the poptorch package (PEP 517 and 660): meson and ninja do the work.

    pip install .          a copy: the Python files (of popart, popdist and poptorch_geometric too), the extension
                           module, and beside it libtessera.so.0
    pip install -e .       the Python files stay where they are; after a change to C, `make` is enough

Written here rather than fetched, so that an install needs no network. Debian's Python shares the folder of
`make`, and with it everything that is already built; any other Python has a build of its own, in
build-wheel.
"""

import base64
import hashlib
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DEBIAN = "/usr/bin/python3"
PACKAGES = ["poptorch", "popart", "popdist", "poptorch_geometric"]

EDITABLE = '''"""Finds poptorch and its companions in the checkout they were installed from with `pip install -e`."""

import sys
from importlib.util import spec_from_file_location

FOLDERS = {folders!r}


class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name not in FOLDERS:
            return None
        return spec_from_file_location(name, FOLDERS[name][0] + "/__init__.py", submodule_search_locations=FOLDERS[name])


sys.meta_path.append(Finder)
'''


def run(*command, **env):
    """A command in the root, without the paths that pip sets for the backend: meson is not in there."""
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONNOUSERSITE")}
    subprocess.run(command, cwd=ROOT, env={**clean, **env}, check=True)


def project():
    with open(ROOT / "pyproject.toml", "rb") as f:
        return tomllib.load(f)["project"]


def version():
    """TS_VERSION of the header."""
    return re.search(r'^#define TS_VERSION +"(.+?)"', (ROOT / "include/tessera.h").read_text(), re.M)[1]


def metadata():
    p = project()
    lines = ["Metadata-Version: 2.1", f"Name: {p['name']}", f"Version: {version()}",
             f"Summary: {p['description']}", f"License: {p['license']['text']}",
             f"Requires-Python: {p['requires-python']}"]
    lines += [f"Requires-Dist: {d}" for d in p["dependencies"]]
    for extra, needs in p["optional-dependencies"].items():
        lines += [f"Provides-Extra: {extra}", *(f"Requires-Dist: {d}; extra == '{extra}'" for d in needs)]
    lines += ["Description-Content-Type: text/markdown", "", (ROOT / p["readme"]).read_text()]
    return "\n".join(lines)


def info_folder():
    return f"{project()['name']}-{version()}.dist-info"


def tag():
    """Of the interpreter that runs this, on this kind of machine."""
    python = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    return f"{python}-{python}-{re.sub(r'[-.]', '_', sysconfig.get_platform())}"


def build():
    """Build the package for the interpreter that runs this; the build folder."""
    python = os.path.realpath(sys._base_executable)    # a virtual environment has no headers of its own
    if not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")):
        raise SystemExit(f"poptorch: {python} has no headers; for Debian's Python, install python3-dev")
    folder = "build" if python == os.path.realpath(DEBIAN) else "build-wheel"
    run("tools/configure", folder, PYTHON=python)
    run("ninja", "-C", folder, "--quiet", "poptorch")
    return ROOT / folder


def package(folder):
    """What the wheel has of the package: path in it -> content. Installing drops the build's own library path."""
    with tempfile.TemporaryDirectory() as stage:
        run("meson", "install", "-C", str(folder), "--no-rebuild", "--quiet", "--tags", "python-runtime",
            "--destdir", stage)
        site = next(f.parent for f in Path(stage).rglob("poptorch") if (f / "__init__.py").exists())
        files = {str(f.relative_to(site)): f.read_bytes() for name in PACKAGES for f in (site / name).rglob("*")
                 if f.is_file()}
    files["poptorch/libtessera.so.0"] = (folder / "libtessera.so.0").read_bytes()
    return files


def write_wheel(where, files):
    info = info_folder()
    name = f"{project()['name']}-{version()}-{tag()}.whl"
    files[f"{info}/METADATA"] = metadata().encode()
    files[f"{info}/WHEEL"] = (f"Wheel-Version: 1.0\nGenerator: tessera\nRoot-Is-Purelib: false\n"
                              f"Tag: {tag()}\n").encode()
    record = ""
    with zipfile.ZipFile(Path(where, name), "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, content in sorted(files.items()):
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
            record += f"{path},sha256={digest},{len(content)}\n"
            wheel.writestr(path, content)
        wheel.writestr(f"{info}/RECORD", record + f"{info}/RECORD,,\n")
    return name


# The hooks.


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    info = info_folder()
    Path(metadata_directory, info).mkdir()
    Path(metadata_directory, info, "METADATA").write_text(metadata())
    return info


prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    return write_wheel(wheel_directory, package(build()))


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    built = build()
    folders = {name: [str(ROOT / "python" / name)] for name in PACKAGES}
    folders["poptorch"].append(str(built / "python/poptorch"))
    return write_wheel(wheel_directory, {"_poptorch_editable.py": EDITABLE.format(folders=folders).encode(),
                                         "poptorch.pth": b"import _poptorch_editable\n"})


def build_sdist(sdist_directory, config_settings=None):
    """The last commit."""
    stem = f"{project()['name']}-{version()}"
    run("git", "archive", f"--prefix={stem}/", f"--add-virtual-file={stem}/PKG-INFO:{metadata()}",
        "-o", str(Path(sdist_directory, f"{stem}.tar.gz").resolve()), "HEAD")
    return f"{stem}.tar.gz"
