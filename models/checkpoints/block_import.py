"""Hide installed packages from a library that would import them needlessly."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def unimported(*names: str) -> Iterator[None]:
    """Within the block, `names` look as if they were not installed, but for those that were imported before."""
    hidden = [name for name in names if name not in sys.modules]
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment]  # what the import system takes for "there is none"
    try:
        yield
    finally:
        for name in hidden:
            if sys.modules.get(name, name) is None:  # another thread has not imported it meanwhile
                del sys.modules[name]
