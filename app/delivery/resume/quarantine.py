"""Quarantine of requests that crash their worker each time they are replayed.

A request that crashes the engine or the whole process is replayed by the next owner and crashes that one, too. Neither
the partition nor any worker of the group would ever get past it. Attempts are therefore counted in the log.

1. Before anything is decided, rendered or generated for a replayed request, its owner writes an `attempt` notice with
   the number n of this attempt to `tokens`, and awaits its delivery. A fresh request writes none, so normal operation
   costs nothing.
2. n increases by one with each attempt that begins at the same token of the answer. If the answer has grown since the
   last attempt, n starts at 1 again: the request made progress before the worker was lost.
3. An owner that releases a request in an orderly way (stop, rebalance) takes its attempt back with a notice n - 1. An
   owner that takes the partition over again after a failure of the broker knows that its own attempt was not a crash.
   So is the attempt of a request that waits for tools. What remains is the number of owners that vanished while they
   ran the request. An exception is no crash: it ends its request, and the worker goes on.
4. Requests that run beside the one at fault are lost with it, and counted. A request that was lost with its worker once
   is therefore a suspect and begins alone: no other request begins until its first token is written, or it has ended.
   Innocent requests get that far; only the one at fault is counted again. Fresh requests wait for a suspect that is
   slow to begin for `ALONE_S` at most.
5. Workers are also lost to causes outside: kills, a node that is drained, a lack of memory. These come in series, and
   know nothing of requests. The second attempt of a request therefore begins `_APART_S` after the record of its first,
   and each further one later still. A request at fault loses its worker each time it runs; an innocent one would have
   to run for its moment at four times that lie 50 seconds apart, and each time be hit. If it is, its log is that of a
   request at fault, and no rule tells them apart.
6. A request with four lost attempts is not tried a fifth time. It ends with the error `engine_error`, and its record
   goes to `dead-letters`.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from app.wire.event import ATTEMPT, EventType, Notice

if TYPE_CHECKING:
    from app.delivery.inflight import InFlight
    from app.delivery.resume.tokens import TokenLog

MOST_ATTEMPTS = 4
ALONE_S = 2.0
_APART_S = {1: 0.0, 2: 5.0, 3: 15.0, 4: 30.0}
"""Least seconds between the record of the attempt before and the beginning of this one."""


class AttemptDetails(msgspec.Struct, frozen=True):
    attempt: int


@dataclass(frozen=True, slots=True)
class Attempt:
    """The newest attempt of a request in the log: its number, the token index at which it began, and when it was
    recorded (Unix milliseconds, 0 if that is not known).
    """

    number: int
    index: int
    at: int = 0

    @classmethod
    def of(cls, notice: Notice, index: int, at: int = 0) -> Attempt | None:
        """The attempt that a notice records, None for other notices."""
        if notice.code != ATTEMPT:
            return None
        try:
            return cls(msgspec.convert(notice.details, AttemptDetails).attempt, index, at)
        except msgspec.ValidationError:
            return None


def lost_attempts(last: Attempt | None, index: int) -> int:
    """How many attempts to continue from the token `index` have been lost in a row."""
    return last.number if last is not None and last.index == index else 0


def pause_before(number: int, lost_at: int, now: int) -> float:
    """Seconds until the attempt of that number may begin. The attempt before it was recorded at `lost_at`; both times
    are Unix milliseconds by the broker's clock. A clock that jumped makes no pause longer than it is.
    """
    apart_s = _APART_S.get(number, 0.0)
    return min(apart_s, max(0.0, apart_s - (now - lost_at) / 1000))


@dataclass(slots=True)
class AttemptCount:
    """The attempts to continue one request's answer.

    lost: How many workers in a row were lost while they tried, without the attempt under way.
    from_index: The token from which they tried.
    lost_at: When the last of them was recorded, Unix milliseconds by the broker's clock.
    is_recorded: The log counts one more attempt, that of this worker.
    beginning: That attempt, until its first token.
    """

    lost: int = 0
    from_index: int = 0
    lost_at: int = 0
    is_recorded: bool = False
    beginning: Beginning | None = None

    @property
    def is_beginning(self) -> bool:
        """Whether the attempt has written no token yet."""
        return self.beginning is not None and not self.beginning.is_over

    def end_beginning(self) -> None:
        """The attempt has written a token, or has ended: other replayed requests may begin."""
        if self.beginning is not None:
            self.beginning.leave()


async def write_attempt(tokens: TokenLog, inflight: InFlight, number: int) -> None:
    """Record the number of attempts, and return once the broker has it."""
    notice = Notice(ATTEMPT, "the request is tried again", {"attempt": number})
    event = inflight.accepted.event(EventType.NOTICE, inflight.attempts.from_index, notice=notice)
    await tokens.delivered([await tokens.send(event, inflight.accepted.record.key, inflight.trace_headers)])


class Isolation:
    """Admits the replayed requests of a worker: first attempts together, suspects one at a time."""

    def __init__(self) -> None:
        self.is_alone = False
        """Whether a suspect begins at this moment."""
        self._together = 0
        self._changed = asyncio.Event()

    async def pass_suspect(self) -> None:
        """Let the suspect that begins at this moment, if there is one, get to its first token."""
        if self.is_alone:
            with suppress(TimeoutError):
                async with asyncio.timeout(ALONE_S):
                    await self._changed.wait()

    async def enter(self, attempt: int) -> Beginning:
        """Wait until an attempt of that number may begin; call `leave` once it has begun."""
        is_suspect = attempt > 1
        while self.is_alone or (is_suspect and self._together):
            await self._changed.wait()
        self.is_alone = is_suspect
        self._together += not is_suspect
        return Beginning(self, is_suspect=is_suspect)

    def _leave(self, *, is_suspect: bool) -> None:
        if is_suspect:
            self.is_alone = False
        else:
            self._together -= 1
        self._changed.set()
        self._changed = asyncio.Event()


class Beginning:
    """The time from the beginning of an attempt to its first token."""

    def __init__(self, isolation: Isolation, *, is_suspect: bool) -> None:
        self._isolation: Isolation | None = isolation
        self._is_suspect = is_suspect

    @property
    def is_over(self) -> bool:
        return self._isolation is None

    def leave(self) -> None:
        """The attempt has begun or ended. Only the first call counts."""
        isolation, self._isolation = self._isolation, None
        if isolation is not None:
            isolation._leave(is_suspect=self._is_suspect)  # noqa: SLF001 - of this module
