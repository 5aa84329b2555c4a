"""The npm package of this repository (deploy/packages/npm), built as it is published."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.integration.npm import NODE, installed

FOLDER = Path(__file__).parents[2] / "deploy" / "packages" / "npm"


def built() -> Path:
    """The folder of the package, with its `dist`."""
    installed(FOLDER)
    _node("build.mjs")
    return FOLDER


def built_example() -> Path:
    """The folder of the React example's files, to be served."""
    folder = built()
    _node("node_modules/typescript/bin/tsc", "-p", "example/tsconfig.json")
    _node("node_modules/vite/bin/vite.js", "build", "example")
    return folder / "example" / "dist"


def _node(*arguments: str) -> None:
    ran = subprocess.run([str(NODE), *arguments], cwd=FOLDER, check=False, capture_output=True, text=True, timeout=240)
    assert ran.returncode == 0, ran.stdout + ran.stderr
