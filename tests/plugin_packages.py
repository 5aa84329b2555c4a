"""Packages with entry points, as pip leaves them, in a folder of its own on the path."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from parley_client.plugins import Kind

from app.plugins.known import known


def put_package(folder: Path, source: str, points: dict[Kind, dict[str, str]], name: str = "example") -> None:
    """A module `NAME` with this source, and its entry points: names and attributes of it."""
    module = name.replace("-", "_")
    (folder / f"{module}.py").write_text(source)
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = [line for kind, own in points.items() for line in (f"[{kind}]", *(f"{a} = {b}" for a, b in own.items()))]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")


@contextmanager
def on_the_path(folder: Path) -> Iterator[None]:
    """While its packages are installed."""
    modules = set(sys.modules)
    sys.path.insert(0, str(folder))
    known.cache_clear()
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        known.cache_clear()
        for one in set(sys.modules) - modules:
            file = getattr(sys.modules[one], "__file__", None)
            if file and Path(file).is_relative_to(folder):
                del sys.modules[one]
