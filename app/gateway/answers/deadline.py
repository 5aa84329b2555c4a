"""A time limit that moves with each token.

A timer of its own for each token would cost as much as the token. One timer serves many settings: when it rings before
the latest limit, it is set again for the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Deadline:
    """`set` and `clear` around each wait; `on_passed` is called once the limit that was set last has passed."""

    def __init__(self, on_passed: Callable[[], object]) -> None:
        self.has_passed = False
        self._on_passed = on_passed
        self._at: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def set(self, within_s: float) -> None:
        loop = asyncio.get_running_loop()
        self.has_passed = False
        self._at = loop.time() + within_s
        if self._timer is None or self._timer.when() > self._at:
            self._ring_at(self._at)

    def clear(self) -> None:
        self._at = None

    def close(self) -> None:
        self._at = None
        if self._timer is not None:
            self._timer.cancel()

    def _ring_at(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(at, self._timer_rang)

    def _timer_rang(self) -> None:
        self._timer = None
        if self._at is None:
            return  # the next `set` sets the timer again
        if asyncio.get_running_loop().time() < self._at:
            self._ring_at(self._at)
        else:
            self._at = None
            self.has_passed = True
            self._on_passed()
