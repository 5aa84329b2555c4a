"""Give back to the system what a start frees.

While weights get another form and a tokenizer is read, the C library keeps what is freed in between, some 0.3 GB of a
model of 0.5. Large blocks of a start therefore come from the system one by one, and go back to it. In steps, that would
cost thousands of page faults each, so the C library keeps their memory.

glibc alone has these functions; with another C library nothing happens. Who has set `MALLOC_` variables keeps them.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Of `mallopt`."""
_LARGE_OF_A_START = 1 << 18
_LARGEST_KEPT = 1 << 25
"""The most that glibc allows, and what its own rule would soon arrive at."""


@contextmanager
def large_blocks_returned() -> Iterator[None]:
    """For a start: blocks that are freed within are given back."""
    is_ours = not any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in os.environ)
    if is_ours:
        _tell("mallopt", _MMAP_THRESHOLD, _LARGE_OF_A_START)
    try:
        yield
    finally:
        if is_ours:
            _tell("mallopt", _MMAP_THRESHOLD, _LARGEST_KEPT)
            _tell("mallopt", _TRIM_THRESHOLD, 2 * _LARGEST_KEPT)
        _tell("malloc_trim", 0)


def _tell(function: str, *numbers: int) -> None:
    with suppress(OSError, AttributeError):
        library: Any = ctypes.CDLL(None)
        library[function](*numbers)
