"""How many requests each user has had admitted in the last minute.

A user is one partition, and so one worker, which counts alone and at once. It counts in memory: after a take-over the
next owner begins with nothing, so a user may have up to twice the limit in the minute around it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

_MINUTE_S = 60.0


class UserRates:
    """`now` is in seconds. Users without a request in the last minute take no memory."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._admitted: dict[str, deque[float]] = {}  # the user with the oldest last request first

    def admit(self, user_id: str, limit: int) -> bool:
        """Whether the user may have another request; counts it if so."""
        now = self._now()
        self._forget(now - _MINUTE_S)
        times = self._admitted.get(user_id, deque[float]())
        while times and times[0] <= now - _MINUTE_S:
            times.popleft()
        if len(times) >= limit:
            return False
        times.append(now)
        self._admitted.pop(user_id, None)
        self._admitted[user_id] = times
        return True

    def __len__(self) -> int:
        return len(self._admitted)

    def _forget(self, since: float) -> None:
        while self._admitted:
            user_id, times = next(iter(self._admitted.items()))
            if times[-1] > since:
                return
            del self._admitted[user_id]
