"""The seeds that follow from the commit."""

from __future__ import annotations

import hashlib
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PER_KIND = 6
"""All kinds together take some 30 s of a processor."""


@cache
def first_seed() -> int:
    """Eight digits of the commit in hexadecimal; without git, of the code."""
    git = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    if git.returncode == 0:
        return int(git.stdout[:8], 16)
    code = b"".join(path.read_bytes() for path in sorted((ROOT / "app").rglob("*.py")))
    return int(hashlib.sha256(code).hexdigest()[:8], 16)


def command(kind: str, seed: int) -> str:
    return f".venv/bin/python -m tests.simulation 1 {seed} {kind}"
