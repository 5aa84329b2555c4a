"""JavaScript's packages for the tests that need them, as their lock files say; git ignores where they are put."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.one_maker import one_maker

NODE, NPM = shutil.which("node"), shutil.which("npm")


def installed(folder: Path) -> Path:
    """The packages of a folder with a `package-lock.json`, installed there where they are not yet."""
    packages = folder / "node_modules"
    lock = packages / ".package-lock.json"
    with one_maker(packages):
        if not lock.exists() or lock.stat().st_mtime < (folder / "package-lock.json").stat().st_mtime:
            command = [str(NPM), "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
            subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=240)
    return packages
