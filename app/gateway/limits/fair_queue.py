"""Limits expensive reads (Kafka scans, searches), shared fairly between users and tenants.

The next slot goes to the tenant with the fewest running, then to its user with the fewest, then to the request that has
waited longest. One user gets at most half of the slots, so a user with many requests delays others only by the running
work. The number of waiting requests is limited per user.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from app.gateway.errors import ApiError
from app.wire.error import ErrorCode
from app.wire.ids import tenant_of

MOST_WAITING = 16
_RETRY_S = 2.0


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    user_id: str
    turn: asyncio.Future[None]


class FairQueue:
    """`what` names the work in error messages, in the plural."""

    def __init__(self, at_once: int, what: str, *, most_waiting: int = MOST_WAITING) -> None:
        self._at_once = at_once
        self._most_of_user = max(1, at_once // 2)
        self._most_waiting = most_waiting
        self._what = what
        self._running: Counter[str] = Counter()
        self._tenants: Counter[str] = Counter()
        self._waiting: list[_Waiting] = []

    @asynccontextmanager
    async def turn(self, user_id: str, *, goes_on: bool = False) -> AsyncIterator[None]:
        """Wait for a slot and hold it. Raises `ApiError` if too many requests of the user are waiting, unless this one
        `goes_on`: it has had a slot before.
        """
        if not goes_on and sum(one.user_id == user_id for one in self._waiting) >= self._most_waiting:
            message = f"{self._most_waiting} {self._what} of this user are waiting already"
            raise ApiError(ErrorCode.RATE_LIMITED, message, retry_after_s=_RETRY_S)
        waiting = _Waiting(user_id, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._give()
        try:
            await waiting.turn
            yield
        finally:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
            else:
                self._end(user_id)
            self._give()

    def _give(self) -> None:
        while self._running.total() < self._at_once:
            ready = [one for one in self._waiting if self._running[one.user_id] < self._most_of_user]
            if not ready:
                return
            chosen = min(ready, key=lambda one: (self._tenants[_tenant(one.user_id)], self._running[one.user_id]))
            self._waiting.remove(chosen)
            self._running[chosen.user_id] += 1
            self._tenants[_tenant(chosen.user_id)] += 1
            if not chosen.turn.done():
                chosen.turn.set_result(None)

    def _end(self, user_id: str) -> None:
        for counts, key in ((self._running, user_id), (self._tenants, _tenant(user_id))):
            counts[key] -= 1
            if not counts[key]:
                del counts[key]


def _tenant(user_id: str) -> str:
    """A user without a tenant counts as a tenant of its own."""
    return tenant_of(user_id) or user_id
