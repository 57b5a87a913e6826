"""The manual pages format without a complaint."""

import os
import subprocess
from pathlib import Path

import pytest

PAGES = sorted((Path(__file__).resolve().parents[2] / "doc" / "man").glob("*.[13]"))
NONE = pytest.param(None, marks=pytest.mark.skip(reason="doc/man has no pages yet"), id="none")


@pytest.mark.parametrize("page", PAGES or [NONE], ids=lambda p: p.name)
def test_page_formats_cleanly(page):
    done = subprocess.run(
        ["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", str(page)],
        env={**os.environ, "LC_ALL": "C.UTF-8", "MANROFFSEQ": "", "MANWIDTH": "80"},
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0 and done.stderr == ""
