"""`python -m tests.gpu.wheels FOLDER 3.12`: wheels of what a worker and its tests need beside torch and transformers.

The versions are those of this environment, for Linux on x86-64 and that Python. Kernels of CPUs are left out.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, requires, version

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

THERE = ("torch", "transformers")
NEEDLESS = ("numba", "uvicorn", "websockets", "rich")
TESTS = ("pytest", "pytest-asyncio", "pytest-timeout", "hypothesis")
PLATFORMS = ("manylinux_2_34", "manylinux_2_31", "manylinux_2_28", "manylinux_2_17", "manylinux2014", "linux")


def needed() -> list[str]:
    own = {_name(one) for one in _of("parley")} - {*THERE, *NEEDLESS}
    there = {*THERE, *NEEDLESS, *(_name(one) for package in THERE for one in _of(package))}
    return sorted(_closure({*own, *TESTS}, there) - there)


def _closure(names: Iterable[str], there: set[str]) -> set[str]:
    """Those that `there` need are there, too."""
    known: set[str] = set()
    waiting = [*names]
    while waiting:
        name = waiting.pop()
        if name not in known | there:
            known.add(name)
            waiting += [_name(one) for one in _of(name)]
    return known


def _of(package: str) -> list[Requirement]:
    try:
        asked = [Requirement(one) for one in requires(package) or ()]
    except PackageNotFoundError:  # of another platform
        return []
    return [one for one in asked if one.marker is None or one.marker.evaluate({"extra": ""})]


def _name(requirement: Requirement) -> str:
    return str(canonicalize_name(requirement.name))


def main() -> int:
    folder, python = sys.argv[1:]
    platforms = [part for name in PLATFORMS for part in ("--platform", f"{name}_x86_64")]
    how = ["--no-deps", "--only-binary=:all:", "--implementation", "cp", "--python-version", python, *platforms]
    pinned = [f"{name}=={version(name)}" for name in needed()]
    return subprocess.run(
        [sys.executable, "-m", "pip", "download", "-q", "-d", folder, *how, *pinned], check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
