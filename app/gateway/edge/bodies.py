"""A limit for the bytes of all bodies that the gateway holds at once, and turns in which they are decoded.

Each body is small (asking/reading.py), but may take half a minute to arrive, and thousands of connections may send one.
No key's callers may hold so many bytes that others find no room (fair_slots.py). A body takes the event loop for
milliseconds, so one of a key is decoded at a time: who has a thousand connections delays others as with one. Bodies of
replies have such a limit, too (slow_readers.py).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from app.gateway.edge.errors import ApiError
from app.process.user_locks import UserLocks
from app.wire.error import ErrorCode
from models.interface.fair_slots import further

_RETRY_S = 2
_MANY = 4
"""Who holds more than this part has sent too much; others are refused because of others."""


class Bodies:
    def __init__(self, most_bytes: int, what: str = "requests") -> None:
        """`what` names in error messages what has the bodies."""
        self.held = 0
        self._what = what
        self._most = most_bytes
        self._holders: Counter[str] = Counter()
        self._turns = UserLocks()

    @contextmanager
    def body(self, holder: str) -> Iterator[Body]:
        """One body until it is decoded. `holder` is the subject of its caller's key."""
        body = Body(self, holder)
        try:
            yield body
        finally:
            self.held -= body.size
            self._holders[holder] -= body.size
            if not self._holders[holder]:
                del self._holders[holder]

    def turn(self, holder: str) -> asyncio.Lock:
        """Held while a body of that holder is decoded; those that wait for it come in their order."""
        return self._turns.of(holder)

    def add(self, holder: str, size: int) -> None:
        """Raise `ApiError` if there is no room for that many more bytes of that holder."""
        free, held = self._most - self.held - size, self._holders[holder]
        if free >= 0 and further(held, free):
            self.held += size
            self._holders[holder] += size
        elif held > self._most // _MANY:
            message = f"too many {self._what} of this caller are in transfer"
            raise ApiError(ErrorCode.RATE_LIMITED, message, retry_after_s=_RETRY_S)
        else:
            raise ApiError(ErrorCode.OVERLOADED, f"too many {self._what} are in transfer", retry_after_s=_RETRY_S)


class Body:
    """The received bytes of one body."""

    def __init__(self, bodies: Bodies, holder: str) -> None:
        self.size = 0
        self._bodies = bodies
        self._holder = holder

    def add(self, size: int) -> None:
        """Raises `ApiError`."""
        self._bodies.add(self._holder, size)
        self.size += size
