"""What the next step computes.

Every step has one budget of tokens: rows that decode come first, one token each, and what is left goes to prompts in
chunks, so a long prompt never holds up those who read. A row is admitted when there are pages for all it has and some
for what it will say; should memory run out all the same, the row that matters least gives its pages back and is
computed again later.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from models.engine.pages import PagePool
from models.engine.row import Row, Slice, pages_for
from models.engine.waiting import WaitingRows


@dataclass(slots=True)
class Limits:
    """`chunk`: tokens of prompts in a step beside rows that decode; `lone_chunk`: in a step with none of those."""

    max_running: int = 64
    chunk: int = 256
    lone_chunk: int = 2048
    headroom: int = 64  # tokens of an answer that memory must be there for when its row is admitted
    aging_s: float = 5.0


class Scheduler:
    def __init__(self, pool: PagePool, limits: Limits, clock: Callable[[], float]) -> None:
        self.pool = pool
        self.limits = limits
        self.running: list[Row] = []
        self.waiting = WaitingRows(limits.aging_s)
        self.preempted = 0
        self._clock = clock

    def add(self, row: Row) -> None:
        self.waiting.add(row)

    def remove(self, row: Row, *, forget: bool = False) -> list[int]:
        """The row has ended; returns the pages that nobody holds any more."""
        if row in self.running:
            self.running.remove(row)
            self.waiting.charge(row, len(row.tokens) - row.limit)
        else:
            self.waiting.remove(row)
        return row.let_go(self.pool, forget=forget)

    def plan(self) -> list[Slice]:
        """The slices of the next step, rows that decode first."""
        self._admit()
        decoding = [row for row in list(self.running) if row.pending == 1]
        slices = [Slice(row, row.computed, 1) for row in decoding if self._secure(row)]
        slices = [part for part in slices if part.row.pages]  # securing a later row may have cost an earlier one
        budget = self.limits.chunk if slices else self.limits.lone_chunk
        for row in sorted((row for row in self.running if row.pending > 1), key=_importance):
            if budget <= 0:
                break
            count = min(row.pending, budget)
            slices.append(Slice(row, row.computed, count))
            budget -= count
        return slices

    def follow(self, slices: Sequence[Slice]) -> list[Slice] | None:
        """The slices of the step after that of `slices`, where it is certain before anything drawn is known.

        It is where all rows draw and go on, and nobody could join them. Who ends all the same has computed one token
        for nobody.
        """
        going = [part for part in slices if not part.row.ended]
        joining = self.waiting and len(self.running) < self.limits.max_running
        if joining or not going or len(going) != len(self.running):
            return None
        if not all(part.draws and not part.draft and part.row.foreseen for part in going):
            return None
        if not all(part.row.grow(self.pool, ahead=1) for part in going):
            return None
        return [Slice(part.row, len(part.row.tokens), 1) for part in going]

    def _admit(self) -> None:
        admitted = True
        while admitted and self.waiting and len(self.running) < self.limits.max_running:
            admitted = False
            for row in self.waiting.firsts(self._clock()):
                if len(self.running) >= self.limits.max_running or not self._hold(row):
                    return  # who is first and does not fit is waited for, or large rows would starve
                self.waiting.remove(row)
                self.running.append(row)
                if row.stream.admitted_at is None:
                    row.stream.admitted_at = time.time()
                # all it may cost, at once: or a user takes every free place before the first token is counted
                self.waiting.charge(row, row.limit - row.computed)
                admitted = True

    def _hold(self, row: Row) -> bool:
        """Take its pages, if that leaves enough for what the running rows and it will soon say."""
        spare = 0
        if self.running:
            own = pages_for(len(row.tokens), self.pool.size)
            spare = self._soon(row) - own + sum(self._soon(other) for other in self.running)
        if not row.hold(self.pool, spare):
            return False
        if not row.answered:
            row.cached = row.computed
        return True

    def _soon(self, row: Row) -> int:
        ahead = min(row.limit, len(row.tokens) + self.limits.headroom)
        return pages_for(ahead, self.pool.size) - len(row.pages)

    def _secure(self, row: Row) -> bool:
        """A page for the row's last token, at the cost of a less important row where there is none."""
        while row.pages:
            if row.grow(self.pool):
                return True
            self._preempt(max(self.running, key=_importance))
        return False

    def _preempt(self, row: Row) -> None:
        self.running.remove(row)
        self.waiting.charge(row, len(row.tokens) - row.limit)
        row.let_go(self.pool)
        self.waiting.add(row, again=True)
        self.preempted += 1


def _importance(row: Row) -> tuple[int, int]:
    return int(row.job.priority), row.sequence
