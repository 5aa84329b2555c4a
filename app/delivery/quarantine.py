"""Requests that end their worker each time they are replayed.

A request that crashes the engine, or the whole process, is replayed by the next owner and crashes that one too: the
partition, and every worker of the group in turn, would never get past it. So attempts are counted in the log.

1. Before a replayed request goes to the engine, its owner writes a notice `attempt` with the number n of this attempt
   to `tokens`, and waits for its delivery. A fresh request writes none, so the ordinary way costs nothing.
2. n grows by one with each attempt that begins at the same token of the answer. An answer that has grown since the
   last attempt begins at n = 1 again: whatever ended the worker then, it was not this request alone.
3. An owner that lets a request go in good order (a stop, a rebalance) takes its attempt back with a notice n - 1. One
   that takes the partition over again itself, after trouble with the broker, knows that its own attempt was not lost.
   What remains is the number of owners that vanished while they had it.
4. Requests that run beside the one at fault are lost with it, and counted. So a request that was lost with its worker
   once is a suspect, and begins alone: no other replayed request is begun until its first token is there, or its end.
   Those that are innocent get there, and only the one at fault is counted again.
5. A request with three lost attempts is not tried a fourth time. It ends with the error `engine_error`, and its record
   goes to `dead-letters`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import msgspec

from app.wire.event import ATTEMPT, Notice

MOST_ATTEMPTS = 3


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
    """Lets the replayed requests of a worker begin: first attempts together, suspects alone."""

    def __init__(self) -> None:
        self._together = 0
        self._is_alone = False
        self._changed = asyncio.Event()

    async def enter(self, attempt: int) -> Beginning:
        """Wait until an attempt of that number may begin; `leave` it once it has."""
        is_suspect = attempt > 1
        while self._is_alone or (is_suspect and self._together):
            await self._changed.wait()
        self._is_alone = is_suspect
        self._together += not is_suspect
        return Beginning(self, is_suspect=is_suspect)

    def _leave(self, *, is_suspect: bool) -> None:
        if is_suspect:
            self._is_alone = False
        else:
            self._together -= 1
        self._changed.set()
        self._changed = asyncio.Event()


class Beginning:
    """The time from an attempt's begin to its first token."""

    def __init__(self, isolation: Isolation, *, is_suspect: bool) -> None:
        self._isolation: Isolation | None = isolation
        self._is_suspect = is_suspect

    def leave(self) -> None:
        """The attempt has begun, or has ended. Only the first call counts."""
        isolation, self._isolation = self._isolation, None
        if isolation is not None:
            isolation._leave(is_suspect=self._is_suspect)  # noqa: SLF001 - of this module
