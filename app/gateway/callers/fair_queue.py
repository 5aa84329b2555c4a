"""Limits expensive reads (Kafka scans, searches), shared fairly between users and tenants.

The next slot goes to a tenant with the fewest running, then to one of its users with the fewest, then to who has waited
longest; tenants and users with as many go in turn. One user gets at most half of the slots, so a user with many
requests delays others only by the running work. Places to wait are shared, too: among tenants and users as all else
(models/interface/fair_slots.py), and one user gets a few.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager

from app.gateway.edge.errors import ApiError
from app.wire.error import ErrorCode
from app.wire.ids import tenant_or_user
from models.interface.fair_slots import FairSlots, Payers, payers_of

MOST_WAITING = 16
PLACES = 512
_RETRY_S = 2.0

_Line = dict[asyncio.Future[None], None]
"""A user's requests, the one that has waited longest first."""


class FairQueue:
    """`what` names the work in error messages, in the plural."""

    def __init__(self, at_once: int, what: str, *, most_waiting: int = MOST_WAITING) -> None:
        self._at_once = at_once
        self._most_of_user = max(1, at_once // 2)
        self._most_waiting = most_waiting
        self._what = what
        self._places = FairSlots(PLACES)
        self._running: Counter[str] = Counter()
        self._tenants: Counter[str] = Counter()
        self._waiting: dict[str, dict[str, _Line]] = {}
        """By tenant and user, whose turn is next first."""

    @asynccontextmanager
    async def turn(self, user_id: str, *, goes_on: bool = False) -> AsyncIterator[None]:
        """Wait for a slot and hold it. Raises `ApiError` if too many requests of the user, or of its tenant, are
        waiting, unless this one `goes_on`: it has had a slot before.
        """
        tenant = tenant_or_user(user_id)
        payers = payers_of(tenant, user_id)
        line = self._waiting.get(tenant, {}).get(user_id, {})
        if not goes_on:
            self._check(payers, len(line))
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tenant, {}).setdefault(user_id, line)[turn] = None
        self._places.hold(payers)
        self._give()
        try:
            await turn
            yield
        finally:
            if not self._leave(tenant, user_id, turn):
                self._end(tenant, user_id)
            self._give()

    def _check(self, payers: Payers, waiting: int) -> None:
        if waiting >= self._most_waiting:
            message = f"{waiting} {self._what} of this user are waiting already"
            raise ApiError(ErrorCode.RATE_LIMITED, message, retry_after_s=_RETRY_S)
        if (refused := self._places.refused(payers)) is None:
            return
        if held := self._places.held(refused):
            message = f"{held} {self._what} of this tenant are waiting already"
            raise ApiError(ErrorCode.RATE_LIMITED, message, retry_after_s=_RETRY_S)
        raise ApiError(ErrorCode.OVERLOADED, f"too many {self._what} are waiting", retry_after_s=_RETRY_S)

    def _give(self) -> None:
        while self._waiting and self._running.total() < self._at_once:
            ready = ((tenant, user) for tenant, users in self._waiting.items() if (user := self._next_of(users)))
            if (chosen := _fewest(ready, self._tenants)) is None:
                return
            tenant, user_id = chosen
            turn = next(iter(self._waiting[tenant][user_id]))
            self._leave(tenant, user_id, turn)
            self._to_the_end(tenant, user_id)
            self._running[user_id] += 1
            self._tenants[tenant] += 1
            if not turn.done():
                turn.set_result(None)

    def _next_of(self, users: Mapping[str, _Line]) -> str | None:
        """The tenant's user whose turn is next, if one of them may run more."""
        ready = ((user_id, user_id) for user_id in users if self._running[user_id] < self._most_of_user)
        chosen = _fewest(ready, self._running)
        return None if chosen is None else chosen[1]

    def _to_the_end(self, tenant: str, user_id: str) -> None:
        if (users := self._waiting.pop(tenant, None)) is not None:
            self._waiting[tenant] = users
            if (line := users.pop(user_id, None)) is not None:
                users[user_id] = line

    def _leave(self, tenant: str, user_id: str, turn: asyncio.Future[None]) -> bool:
        """The request waits no longer; False if it did not wait."""
        users = self._waiting.get(tenant, {})
        line = users.get(user_id, {})
        if turn not in line:
            return False
        del line[turn]
        if not line:
            del users[user_id]
        if not users:
            del self._waiting[tenant]
        self._places.release(payers_of(tenant, user_id))
        return True

    def _end(self, tenant: str, user_id: str) -> None:
        for counts, key in ((self._running, user_id), (self._tenants, tenant)):
            counts[key] -= 1
            if not counts[key]:
                del counts[key]


def _fewest(ready: Iterable[tuple[str, str]], running: Counter[str]) -> tuple[str, str] | None:
    """The first one of those with the fewest running. Few have any, so it is nearly always found at once."""
    best = None
    for one in ready:
        if not running[one[0]]:
            return one
        if best is None or running[one[0]] < running[best[0]]:
            best = one
    return best
