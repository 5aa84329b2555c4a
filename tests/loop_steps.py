"""How long the longest step of the event loop takes: nothing else of the process runs meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class LongestStep:
    """`cpu_s` is processor time of the loop's own thread: a busy machine and other threads do not count."""

    cpu_s: float = 0.0


@contextmanager
def longest_step() -> Iterator[LongestStep]:
    """Measures all steps of all loops of this process until it is left."""
    longest = LongestStep()
    run = asyncio.Handle._run

    def timed(handle: asyncio.Handle) -> Any:
        began = time.thread_time()
        try:
            return run(handle)
        finally:
            longest.cpu_s = max(longest.cpu_s, time.thread_time() - began)

    asyncio.Handle._run = timed  # type: ignore[method-assign]
    try:
        yield longest
    finally:
        asyncio.Handle._run = run  # type: ignore[method-assign]
