"""Token buckets: a rate per minute for each user or tenant, with a burst of one minute's worth."""

from __future__ import annotations

import time
from collections import OrderedDict

from app.gateway.errors import ApiError
from app.wire.error import ErrorCode

_MOST_USERS = 100_000


class Buckets:
    """A user that is not in the table has a full bucket. The least recently used entries are dropped first."""

    def __init__(self, per_minute: int, what: str) -> None:
        self._per_minute = per_minute
        self._what = what
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    @property
    def is_on(self) -> bool:
        return self._per_minute > 0

    def check(self, user_id: str, amount: float = 1.0) -> None:
        """Raise `ApiError`, with the time to wait, if the bucket holds less than that."""
        if not self._per_minute:
            return
        level = self._level(user_id)
        if level < amount:
            wait_s = (amount - level) * 60 / self._per_minute
            raise ApiError(
                ErrorCode.RATE_LIMITED, f"more than {self._per_minute} {self._what} per minute", retry_after_s=wait_s
            )

    def spend(self, user_id: str, amount: float) -> None:
        """Take that much; the level may become negative."""
        if self._per_minute:
            self._put(user_id, self._level(user_id) - amount)

    def _level(self, user_id: str) -> float:
        level, at = self._levels.get(user_id, (float(self._per_minute), 0.0))
        return min(self._per_minute, level + (time.monotonic() - at) * self._per_minute / 60)

    def _put(self, user_id: str, level: float) -> None:
        self._levels[user_id] = (level, time.monotonic())
        self._levels.move_to_end(user_id)
        if len(self._levels) > _MOST_USERS:
            self._levels.popitem(last=False)
