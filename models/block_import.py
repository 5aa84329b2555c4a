"""Hide an installed package from a library that would import it needlessly."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def unimported(name: str) -> Iterator[None]:
    """Within the block, `name` looks as if it were not installed, unless it was imported before."""
    hidden = name not in sys.modules
    if hidden:
        sys.modules[name] = None  # type: ignore[assignment]  # what the import system takes for "there is none"
    try:
        yield
    finally:
        if hidden:
            del sys.modules[name]
