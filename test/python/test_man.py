"""The manual pages format without a complaint, and they and the changelog know the version."""

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "doc" / "man").glob("*.[13]"))
NONE = pytest.param(None, marks=pytest.mark.skip(reason="doc/man has no pages yet"), id="none")


@pytest.mark.parametrize("page", PAGES or [NONE], ids=lambda p: p.name)
def test_page_formats_cleanly(page):
    done = subprocess.run(
        ["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", str(page)],
        env={**os.environ, "LC_ALL": "C.UTF-8", "MANROFFSEQ": "", "MANWIDTH": "80"},
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0 and done.stderr == ""


def test_version():
    version = re.search(r'TS_VERSION\s+"(.*?)"', (ROOT / "include/tessera.h").read_text())[1]
    assert re.search(r"^## (\d\S+)", (ROOT / "CHANGELOG.md").read_text(), re.M)[1] == version
    for page in PAGES:
        assert f'"Tessera {version}"' in page.read_text().splitlines()[0], page.name
