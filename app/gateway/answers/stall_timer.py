"""Notices a write that takes too long, with one timer for many writes.

A timeout of its own for each token would cost as much as the token.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class StallTimer:
    """`begin` before each write, `end` after it; `on_stall` is called once, if a write takes longer than `stall_s`."""

    def __init__(self, stall_s: float, on_stall: Callable[[], object]) -> None:
        self.has_rung = False
        self._stall_s = stall_s
        self._on_stall = on_stall
        self._loop = asyncio.get_running_loop()
        self._since: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        self._since = self._loop.time()
        if self._timer is None:
            self._timer = self._loop.call_later(self._stall_s, self._look)

    def end(self) -> None:
        self._since = None

    def close(self) -> None:
        self._since = None
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._timer = None
        if self._since is None:
            return  # the next write sets the timer again
        left_s = self._since + self._stall_s - self._loop.time()
        if left_s > 0:
            self._timer = self._loop.call_later(left_s, self._look)
        else:
            self.has_rung = True
            self._on_stall()
