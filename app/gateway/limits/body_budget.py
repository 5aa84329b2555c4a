"""A limit for the bytes of all request bodies that the gateway holds at once.

Each body is small (bodies/reading.py), but may take half a minute to arrive, and thousands of connections may send one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from app.gateway.errors import ApiError
from app.wire.error import ErrorCode


class BodyBudget:
    def __init__(self, most_bytes: int) -> None:
        self.held = 0
        self._most = most_bytes

    @contextmanager
    def body(self) -> Iterator[Body]:
        """One body while it is read and decoded."""
        body = Body(self)
        try:
            yield body
        finally:
            self.held -= body.size

    def add(self, size: int) -> None:
        """Raise `ApiError` if there is no room for that many more bytes."""
        if self.held + size > self._most:
            raise ApiError(ErrorCode.OVERLOADED, "too many requests are in transfer", retry_after_s=2)
        self.held += size


class Body:
    """The received bytes of one body."""

    def __init__(self, budget: BodyBudget) -> None:
        self.size = 0
        self._budget = budget

    def add(self, size: int) -> None:
        """Raises `ApiError`."""
        self._budget.add(size)
        self.size += size
