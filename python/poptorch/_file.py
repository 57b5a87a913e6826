"""Compiled models in files: a header, the executable, and a pickled record.

    8 bytes   magic
    8 bytes   length of the executable, little endian
    n bytes   the executable, as tessera.h saves it
    the rest  a dictionary, pickled (protocol 4)
"""

import os
import pickle
import struct
import tempfile
from typing import Any, Dict, Tuple

from . import _core, _native
from ._logging import logger
from .errors import createPoptorchError

_MAGIC = b"poptorch"
_HEADER = struct.Struct("<8sQ")
DEFAULT_NAME = "model.poptorch"


def path(filename: str) -> str:
    """Where to write: a file in `filename` if that is a directory; missing parents are made."""
    filename = os.fspath(filename)
    if os.path.isdir(filename):
        logger.warning("save(): %s is a directory, writing %s in it", filename, DEFAULT_NAME)
        filename = os.path.join(filename, DEFAULT_NAME)
    parent = os.path.dirname(filename)
    if parent:
        os.makedirs(parent, exist_ok=True)
    return filename


def write(filename: str, executable: Any, record: Dict[str, Any]) -> None:
    """Write the file whole, or leave what was there."""
    filename = path(filename)
    folder = os.path.dirname(os.path.abspath(filename))
    with tempfile.TemporaryDirectory(dir=folder, prefix=".poptorch") as scratch:
        part = os.path.join(scratch, "executable")
        with _native.nativeErrors():
            executable.save(part)
        with open(part, "rb") as f:
            code = f.read()
        whole = os.path.join(scratch, "whole")
        with open(whole, "wb") as f:
            f.write(_HEADER.pack(_MAGIC, len(code)))
            f.write(code)
            pickle.dump({"version": _core.version, **record}, f, protocol=4)
        os.replace(whole, filename)


def _parts(filename: str) -> Tuple[bytes, bytes]:
    try:
        with open(filename, "rb") as f:
            data = f.read()
    except OSError as e:
        raise createPoptorchError(f"Cannot read {filename}: {e.strerror}") from None
    magic, length = _HEADER.unpack(data[:_HEADER.size]) if len(data) >= _HEADER.size else (b"", 0)
    if magic != _MAGIC or length > len(data) - _HEADER.size:
        raise createPoptorchError(f"{filename} is not a file that save() wrote, or it is cut short")
    return data[_HEADER.size:_HEADER.size + length], data[_HEADER.size + length:]


def read(filename: str) -> Dict[str, Any]:
    """The record. AssertionError for another version."""
    try:
        record = pickle.loads(_parts(filename)[1])
    except (pickle.UnpicklingError, EOFError, AttributeError, ImportError, IndexError) as e:
        raise createPoptorchError(f"The record in {filename} cannot be read: {e}") from None
    if not isinstance(record, dict) or "version" not in record:
        raise createPoptorchError(f"{filename} has no record")
    if record["version"] != _core.version:
        raise AssertionError(f"{filename} was saved by version {record['version']}, this is {_core.version}")
    return record


def executable(filename: str) -> Any:
    """The executable, loaded."""
    with tempfile.NamedTemporaryFile(suffix=".tsx") as f:
        f.write(_parts(filename)[0])
        f.flush()
        with _native.nativeErrors():
            return _core.load(f.name)
