"""A clock that stands still until the test advances it; timers run at exactly their time."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable


class FakeTimer:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class FakeTimers:
    def __init__(self) -> None:
        self.now = 100.0
        self._heap: list[tuple[float, int, FakeTimer]] = []
        self._order = itertools.count()

    def time(self) -> float:
        return self.now

    def call_soon(self, callback: Callable[[], None]) -> FakeTimer:
        return self.call_at(self.now, callback)

    def call_at(self, when: float, callback: Callable[[], None]) -> FakeTimer:
        timer = FakeTimer(callback)
        heapq.heappush(self._heap, (when, next(self._order), timer))
        return timer

    def turn(self) -> None:
        """Run what is due now, as the loop does after the code that runs has yielded."""
        self.until(self.now)

    def until(self, when: float) -> None:
        while self._heap and self._heap[0][0] <= when:
            due, _, timer = heapq.heappop(self._heap)
            self.now = max(self.now, due)
            if not timer.cancelled:
                timer.callback()
        self.now = when

    def pending(self) -> int:
        return sum(not timer.cancelled for _, _, timer in self._heap)
