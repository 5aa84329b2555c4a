"""The page that is shipped is the one that its sources make."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from app.gateway.application import BUILT
from tests.integration.npm import NODE, NPM, installed

SOURCES = BUILT.parent / "page"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(NODE is None or NPM is None, reason="node is not installed: the page was not built"),
]


def test_a_build_makes_the_files_that_are_here(tmp_path: Path) -> None:
    vite = installed(SOURCES) / "vite" / "bin" / "vite.js"
    command = [str(NODE), str(vite), "build", "--outDir", str(tmp_path), "--logLevel", "warn"]
    subprocess.run(command, cwd=SOURCES, check=True, timeout=120)
    assert files(tmp_path) == files(BUILT)


def files(folder: Path) -> dict[str, bytes]:
    return {str(one.relative_to(folder)): one.read_bytes() for one in folder.rglob("*") if one.is_file()}
