"""Space the transactions of a worker under load, so that each one carries more commits.

A transaction takes six requests to the broker, however little is in it, and after each of them the event loop waits for
the GIL. Without spacing, a busy worker makes a transaction for nearly every request.

    few commits     each begins its transaction at once
    many            a worker begins `PER_S` transactions a second, and what arrives meanwhile joins them
    many partitions none waits longer than `LONGEST_S` for its turn, so the rate is exceeded

A reader waits for none of this: the end of an answer is in the token log before its commit begins. What waits is the
record on `turns`. A commit is urgent, and begins at once, if the next request of its conversation waits for it, or if
requests wait for slots (lanes.py) and many of those are held by commits that wait.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

PER_S = 10.0
BURST = 8
LONGEST_S = 0.5


class CommitPacer:
    """Shared by all partitions of a worker. A generic cell rate algorithm: `_due` is when the bucket is full again."""

    def __init__(self, per_s: float = PER_S, burst: int = BURST, longest_s: float = LONGEST_S) -> None:
        self._interval_s = 1 / per_s
        self._allowed_s = burst / per_s
        self._longest_s = longest_s
        self._due = 0.0

    def reserve(self, now: float) -> float:
        """Reserve the next transaction; returns how long it has to wait, in seconds."""
        latest = now + self._allowed_s + self._longest_s
        self._due = min(max(self._due, now) + self._interval_s, latest)
        return max(0.0, self._due - self._allowed_s - now)

    async def wait(self, urgent: asyncio.Event) -> None:
        """Wait for the next transaction's turn, or until `urgent` is set."""
        delay = self.reserve(asyncio.get_running_loop().time())
        if delay > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await urgent.wait()
