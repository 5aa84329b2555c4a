"""Requests that end their worker each time they are replayed.

A request that crashes the engine, or the whole process, is replayed by the next owner and crashes that one too: the
partition, and every worker of the group in turn, would never get past it. So attempts are counted in the log.

1. Before a replayed request goes to the engine, its owner writes a notice `attempt` with the number n of this attempt
   to `tokens`, and waits for its delivery. A fresh request writes none, so the ordinary way costs nothing.
2. n grows by one with each attempt that begins at the same token of the answer. An answer that has grown since the
   last attempt begins at n = 1 again: whatever ended the worker then, it was not this request alone.
3. An owner that lets a request go in good order (a stop, a rebalance) takes its attempt back with a notice n - 1.
   What remains in the log is the number of owners that vanished while they had it.
4. Requests that run beside the one at fault are counted with it. From the second lost attempt on a request is a
   suspect, and a worker runs its suspects one at a time: those that are innocent end, and only one at a time can be
   counted again.
5. A request with three lost attempts is not tried a fourth time. It ends with the error `engine_error`, and its record
   goes to `dead-letters`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import msgspec

from app.wire.event import ATTEMPT, Notice

MOST_ATTEMPTS = 3
_SUSPECT = 2


class AttemptDetails(msgspec.Struct, frozen=True):
    attempt: int


@dataclass(frozen=True, slots=True)
class Attempt:
    """The newest attempt that the log holds of a request: its number, and the index at which it began."""

    number: int
    index: int

    @classmethod
    def of(cls, notice: Notice, index: int) -> Attempt | None:
        """The attempt that a notice of the log speaks of, None for other notices."""
        if notice.code != ATTEMPT:
            return None
        try:
            return cls(msgspec.convert(notice.details, AttemptDetails).attempt, index)
        except msgspec.ValidationError:
            return None


def lost_attempts(last: Attempt | None, index: int) -> int:
    """How many attempts to go on from the token `index` have been lost in a row."""
    return last.number if last is not None and last.index == index else 0


class Isolation:
    """Lets the suspects of a worker run one at a time, beside all other requests."""

    def __init__(self) -> None:
        self._one_suspect = asyncio.Lock()

    @asynccontextmanager
    async def run(self, attempt: int) -> AsyncIterator[None]:
        """The time in which an attempt of that number runs."""
        if attempt <= _SUSPECT:
            yield
            return
        async with self._one_suspect:
            yield
