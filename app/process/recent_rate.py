"""How many of something came in roughly the last second."""

from __future__ import annotations

import math


class RecentRate:
    """Each second, what was counted before weighs less by a factor of e. Times are seconds of one monotonic clock."""

    def __init__(self) -> None:
        self.value = 0.0
        self._counted_at = 0.0

    def add(self, count: int, now: float) -> None:
        self.value = self.value * math.exp(self._counted_at - now) + count
        self._counted_at = now
