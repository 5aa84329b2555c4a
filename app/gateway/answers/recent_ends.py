"""Which answers of a user have ended just now: their turns are on `turns`, or will be soon.

An end is told before the transaction that writes the turn: the words are never later than they must be, and the
transaction has to wait for the one before it. Whoever lists turns therefore reads on until it has those of all ends
that any reader was told (`Archive.turns`).
"""

from __future__ import annotations

import time
from collections import deque

from app.wire.event import EventType, TokenEvent

KEPT_S = 30.0
"""A transaction is committed within some hundredths of a second, on an overloaded broker within seconds."""


class RecentEnds:
    def __init__(self) -> None:
        self._in_order: deque[tuple[float, str, str]] = deque()
        self._of_users: dict[str, dict[str, float]] = {}

    def add(self, event: TokenEvent) -> None:
        """An event that was read, or that a reader was told. An error leaves no turn."""
        self._expire()
        if event.type is EventType.DONE and event.user_id is not None and event.request_id is not None:
            now = time.monotonic()
            self._in_order.append((now, event.user_id, event.request_id))
            self._of_users.setdefault(event.user_id, {})[event.request_id] = now

    def of(self, user_id: str) -> set[str]:
        """The requests of the user whose answers have ended lately."""
        self._expire()
        return {*self._of_users.get(user_id, ())}

    def _expire(self) -> None:
        before = time.monotonic() - KEPT_S
        while self._in_order and self._in_order[0][0] < before:
            at, user_id, request_id = self._in_order.popleft()
            of_user = self._of_users.get(user_id, {})
            if of_user.get(request_id) == at:
                del of_user[request_id]
            if not of_user:
                self._of_users.pop(user_id, None)
