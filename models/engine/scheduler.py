"""What the next step computes.

Every step has one budget of tokens. Decoding sequences come first, one token each, and the rest goes to prompts in
chunks, so a long prompt never delays running answers. A sequence is admitted if there are pages for all its tokens and
some for its answer. If memory runs out all the same, the least important sequence releases its pages and is computed
again later.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from models.engine.compute.pages import PagePool
from models.engine.sequence import ScheduledChunk, SequenceState, pages_for
from models.engine.waiting import WaitingRows


@dataclass(slots=True)
class Limits:
    """`chunk`: prompt tokens in a step with decoding sequences; `lone_chunk`: in a step without; `scored`: in any step,
    tokens that are scored, because each has a row of logits.
    """

    max_running: int = 64
    chunk: int = 256
    lone_chunk: int = 2048
    headroom: int = 64  # tokens of an answer that must fit into memory for its sequence to be admitted
    aging_s: float = 5.0
    scored: int = 128


class Scheduler:
    def __init__(self, pool: PagePool, limits: Limits, clock: Callable[[], float]) -> None:
        self.pool = pool
        self.limits = limits
        self.running: list[SequenceState] = []
        self.waiting = WaitingRows(limits.aging_s)
        self.preempted = 0
        self._clock = clock

    def add(self, row: SequenceState) -> None:
        self.waiting.add(row)

    def remove(self, row: SequenceState, *, forget: bool = False) -> list[int]:
        """The sequence has ended; returns the pages that no sequence holds any more."""
        if row in self.running:
            self.running.remove(row)
            self.waiting.charge(row, len(row.tokens) - row.limit)
        else:
            self.waiting.remove(row)
        return row.let_go(self.pool, forget=forget)

    def plan(self) -> list[ScheduledChunk]:
        """The slices of the next step, decoding sequences first."""
        self._admit()
        decoding = [row for row in list(self.running) if row.pending == 1]
        slices = [ScheduledChunk(row, row.computed, 1) for row in decoding if self._secure(row)]
        slices = [
            part for part in slices if part.row.pages
        ]  # securing a later sequence may have preempted an earlier one
        budget = self.limits.chunk if slices else self.limits.lone_chunk
        scored = self.limits.scored
        for row in sorted((row for row in self.running if row.pending > 1), key=_importance):
            count = min(row.pending, budget if row.scores is None else min(budget, scored))
            if count <= 0:
                continue
            slices.append(ScheduledChunk(row, row.computed, count))
            budget -= count
            scored -= slices[-1].scored
        return slices

    def follow(self, slices: Sequence[ScheduledChunk]) -> list[ScheduledChunk] | None:
        """The slices of the step after that of `slices`, if it is certain before the drawn tokens are known.

        It is certain if all sequences draw and continue, and none could join. A sequence that ends all the same has
        computed one token in vain.
        """
        going = [part for part in slices if not part.row.ended]
        joining = self.waiting and len(self.running) < self.limits.max_running
        if joining or not going or len(going) != len(self.running):
            return None
        if not all(part.draws and not part.draft and part.row.foreseen for part in going):
            return None
        if not all(part.row.grow(self.pool, ahead=1) for part in going):
            return None
        return [ScheduledChunk(part.row, len(part.row.tokens), 1) for part in going]

    def _admit(self) -> None:
        admitted = True
        while admitted and self.waiting and len(self.running) < self.limits.max_running:
            admitted = False
            for row in self.waiting.firsts(self._clock()):
                if len(self.running) >= self.limits.max_running or not self._hold(row):
                    return  # wait for the first one that does not fit, or large sequences would starve
                self.waiting.remove(row)
                self.running.append(row)
                if row.stream.admitted_at is None:
                    row.stream.admitted_at = time.time()
                # charge its whole cost now, or one user would take every free place before the first token is counted
                self.waiting.charge(row, row.limit - row.computed)
                admitted = True

    def _hold(self, row: SequenceState) -> bool:
        """Allocate its pages, if that leaves enough for what the running sequences and it will soon generate."""
        spare = 0
        if self.running:
            own = pages_for(len(row.tokens), self.pool.size)
            spare = self._soon(row) - own + sum(self._soon(other) for other in self.running)
        if not row.hold(self.pool, spare):
            return False
        if not row.answered:
            row.cached = row.computed
        return True

    def _soon(self, row: SequenceState) -> int:
        ahead = min(row.limit, len(row.tokens) + self.limits.headroom)
        return pages_for(ahead, self.pool.size) - len(row.pages)

    def _secure(self, row: SequenceState) -> bool:
        """A page for the sequence's last token, preempting a less important sequence if there is none."""
        while row.pages:
            if row.grow(self.pool):
                return True
            self._preempt(max(self.running, key=_importance))
        return False

    def _preempt(self, row: SequenceState) -> None:
        self.running.remove(row)
        self.waiting.charge(row, len(row.tokens) - row.limit)
        row.let_go(self.pool)
        self.waiting.add(row, again=True)
        self.preempted += 1


def _importance(row: SequenceState) -> tuple[int, int]:
    return int(row.job.priority), row.sequence
