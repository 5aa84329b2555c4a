"""Work on texts that would hold the event loop for too long runs in a thread: one, so that threads do not take the
interpreter from each other and from the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

INLINE = 8192
"""Characters. Hiding the values in a shorter text takes some milliseconds at most."""

T = TypeVar("T")
_THREAD = ThreadPoolExecutor(1, thread_name_prefix="texts")


async def off_loop(size: int, work: Callable[[], T]) -> T:
    """Do work on texts of so many characters together: at once, or in the thread."""
    if size <= INLINE:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_THREAD, work)
