"""Users take turns at what only one can use at a time, and so do their tenants: a thread, a model, a server.

Work is cut into pieces of a fraction of a second. The longest wait is next: first among tenants, then among
the tenant's users, then among the jobs of that user. The index waits for all others, but not for ever. Work whose asker
is gone ends with its current piece.

The time limit of a job counts its own pieces alone, never those of others. A new request whose turn would come too late
is refused as `BusyError` instead: that is no verdict about it, and no reason to go on without one.
"""

from __future__ import annotations

import asyncio
import enum
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from itertools import count
from statistics import median

_BACKGROUND_EVERY = 8
_FIRST_GUESS_S = 0.05
_RECENT = 15
"""Pieces whose median tells how long the next ones take; one that was held up, as by the load of a model, does not."""


class BusyError(Exception):
    """Too much is waiting; the message is one line."""


class Patience(enum.Enum):
    """NEW: rather refused than late. BEGUN: its answer has begun. BACKGROUND: has any time."""

    NEW = enum.auto()
    BEGUN = enum.auto()
    BACKGROUND = enum.auto()


@dataclass(frozen=True, slots=True)
class Asker:
    """The user for whom the guard reads a text. `about` names the text's source in the log."""

    user: str
    tenant: str = ""
    about: str = ""
    patience: Patience = Patience.NEW


class Piece:
    """Some pieces of work for one asker, one after the other."""

    def __init__(self, turns: FairOrder, asker: Asker, pieces: int, limit_s: float | None, number: int) -> None:
        self.asker = asker
        self.left = pieces
        self.number = number
        self.waiting: asyncio.Future[None] | None = None
        self._turns = turns
        self._left_s = limit_s

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait until it is this job's turn, and do a piece of it. Raises `TimeoutError` when the job's own pieces have
        used up its time.
        """
        await self._turns.begin(self)
        began = time.monotonic()
        try:
            async with asyncio.timeout(self._left_s):
                yield
        finally:
            took = time.monotonic() - began
            if self._left_s is not None:
                self._left_s = max(0.0, self._left_s - took)
            self._turns.end(self, took)


class FairOrder:
    """For one event loop. `width` pieces may be under way at once; `patience_s` is how long a new request may wait."""

    def __init__(self, patience_s: float, width: int = 1) -> None:
        self._free = width
        self._width = width
        self._patience_s = patience_s
        self._jobs: set[Piece] = set()
        self._numbers = count(1)
        self._grants = 0
        self._served: dict[tuple[str, ...], int] = {}  # when a tenant or user had its last turn
        self._took: deque[float] = deque([_FIRST_GUESS_S], maxlen=_RECENT)

    @contextmanager
    def job(self, asker: Asker, pieces: int, limit_s: float | None = None) -> Iterator[Piece]:
        """A job of about so many pieces; raises `BusyError`."""
        job = Piece(self, asker, pieces, limit_s, next(self._numbers))
        wait_s = self._pieces_before(job) * median(self._took) / self._width
        if asker.patience is Patience.NEW and wait_s > self._patience_s:
            raise BusyError(f"too many texts wait for the guard, about {wait_s:.0f} s; try again later")
        self._jobs.add(job)
        try:
            yield job
        finally:
            self._jobs.discard(job)
            self._forget_absent(asker)

    def _pieces_before(self, new: Piece) -> int:
        """How many pieces of others come before the end of this job: what its user has asked for before, and as much of
        others as they get in turn meanwhile.
        """
        tenants: defaultdict[str, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
        for job in self._jobs:
            if job.asker.patience is not Patience.BACKGROUND:
                tenants[job.asker.tenant][job.asker.user] += max(1, job.left)
        users = tenants.pop(new.asker.tenant, defaultdict(int))
        mine = users.pop(new.asker.user, 0) + new.left
        of_tenant = mine + sum(min(pieces, mine) for pieces in users.values())
        others = sum(min(sum(pieces.values()), of_tenant) for pieces in tenants.values())
        return of_tenant + others - new.left

    async def begin(self, job: Piece) -> None:
        """Wait until it is this job's turn."""
        if self._free:
            self._grant(job)
            return
        job.waiting = asyncio.get_running_loop().create_future()
        try:
            await job.waiting
        except asyncio.CancelledError:
            if not job.waiting.cancelled():  # its turn came in the same step
                self._free += 1
                self._next()
            raise
        finally:
            job.waiting = None

    def end(self, job: Piece, took: float) -> None:
        """A piece of the job took so many seconds."""
        self._took.append(took)
        job.left -= 1
        self._free += 1
        self._next()

    def _next(self) -> None:
        waiting = [job for job in self._jobs if job.waiting is not None and not job.waiting.done()]
        if self._free and waiting:
            job = min(waiting, key=self._order())
            self._grant(job)
            assert job.waiting is not None
            job.waiting.set_result(None)

    def _order(self) -> Callable[[Piece], tuple[bool, int, int, int]]:
        is_for_index = self._grants % _BACKGROUND_EVERY == 0

        def order(job: Piece) -> tuple[bool, int, int, int]:
            tenant, user = _names(job.asker)
            is_later = (job.asker.patience is Patience.BACKGROUND) is not is_for_index
            return is_later, self._served.get(tenant, 0), self._served.get(user, 0), job.number

        return order

    def _grant(self, job: Piece) -> None:
        self._free -= 1
        self._grants += 1
        for name in _names(job.asker):
            self._served[name] = self._grants

    def _forget_absent(self, asker: Asker) -> None:
        present = {name for job in self._jobs for name in _names(job.asker)}
        for name in {*_names(asker)} - present:
            self._served.pop(name, None)


def _names(asker: Asker) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return (asker.tenant,), (asker.tenant, asker.user)
