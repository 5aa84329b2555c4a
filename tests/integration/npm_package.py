"""The npm package of this repository (deploy/packages/npm), built as it is published."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.integration.npm import NODE, installed
from tests.one_maker import one_maker

FOLDER = Path(__file__).parents[2] / "deploy" / "packages" / "npm"


def built() -> Path:
    """The folder of the package, with its `dist`."""
    installed(FOLDER)
    with one_maker(FOLDER):
        _built(FOLDER / "dist" / "vectors.json", "build.mjs")
    return FOLDER


def built_example() -> Path:
    """The folder of the React example's files, to be served."""
    page = built() / "example" / "dist"
    _node("node_modules/typescript/bin/tsc", "-p", "example/tsconfig.json")
    with one_maker(page):
        _built(page / "index.html", "node_modules/vite/bin/vite.js", "build", "example")
    return page


def _built(last: Path, *arguments: str) -> None:
    """Unless `last`, which the build writes last, is younger than all sources: others may read what is there."""
    if not last.exists() or last.stat().st_mtime < max(source.stat().st_mtime for source in _sources()):
        _node(*arguments)


def _sources() -> Iterator[Path]:
    """Git knows them: what is built is ignored."""
    command = ["git", "ls-files", "-z", "--", ".", "../conformance", "../../../app/reader"]
    listed = subprocess.run(command, cwd=FOLDER, check=True, capture_output=True, text=True)
    return (FOLDER / name for name in listed.stdout.split("\0") if name)


def _node(*arguments: str) -> None:
    ran = subprocess.run([str(NODE), *arguments], cwd=FOLDER, check=False, capture_output=True, text=True, timeout=240)
    assert ran.returncode == 0, ran.stdout + ran.stderr
