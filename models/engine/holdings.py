"""Which pages of the KV cache users hold, and whose sequences release their own if there are not enough.

Callers choose the priorities of their requests themselves. So they order a user's own sequences, and those of users who
hold about as much; who holds more than `SHARE` times as many pages releases some for others of a lower priority, too.
Work in batches takes no pages from answers that somebody reads. A user keeps its only sequence: otherwise each short
answer of others would cause a long one to be computed anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from models.engine.sequence import SequenceState
from models.interface.fair_slots import SHARE, Payer
from models.interface.generation import JobPriority


class Holdings:
    """Those of the running sequences, at one moment."""

    def __init__(self, running: Iterable[SequenceState]) -> None:
        self._running = list(running)
        self._pages: Counter[Payer] = Counter()
        self._sequences: Counter[Payer] = Counter()
        for sequence in self._running:
            self._count(sequence, 1)

    def least_important(self) -> SequenceState:
        """The sequence to preempt if one has no page for its next token: of the lowest priority the newest, but first
        one of a user who holds far more than that one's. Raises `ValueError` if none runs.
        """
        last = max(self._running, key=lambda one: (one.job.priority, one.number))
        largest = self._of_largest()
        return largest if last.job.priority < JobPriority.BATCH and self._holds_far_more(largest, last) else last

    def yielding(self, waiting: SequenceState, need: int) -> SequenceState | None:
        """The sequence that releases its pages first for a waiting one, which needs that many; None if none does."""
        largest = self._of_largest() if self._running else None
        return largest if largest is not None and self.yields(largest, waiting, need) else None

    def yields(self, first: SequenceState, waiting: SequenceState, need: int) -> bool:
        """Whether the payer of the first sequence makes room for a waiting one that needs that many pages."""
        is_batch = waiting.job.priority == JobPriority.BATCH > first.job.priority
        return not is_batch and self._holds_far_more(first, waiting, need)

    def may_yield(self, first: SequenceState) -> bool:
        """Whether `yields` may be true of the first sequence for any other."""
        return any(self._sequences[payer] > 1 for payer in first.payers)

    def remove(self, sequence: SequenceState) -> list[SequenceState]:
        """As if the sequence had released its pages; returns the others."""
        self._running.remove(sequence)
        self._count(sequence, -1)
        return self._running

    def _count(self, sequence: SequenceState, times: int) -> None:
        for payer in sequence.payers:
            self._pages[payer] += times * len(sequence.pages)
            self._sequences[payer] += times

    def _of_largest(self) -> SequenceState:
        """The least important sequence of the payer with the most pages, of those with several sequences."""

        def rank(sequence: SequenceState) -> tuple[list[int], int, int]:
            held = [self._pages[payer] if self._sequences[payer] > 1 else 0 for payer in sequence.payers]
            return held, sequence.job.priority, sequence.number

        return max(self._running, key=rank)

    def _holds_far_more(self, one: SequenceState, other: SequenceState, need: int = 0) -> bool:
        """Whether the first one's payer has several sequences and far more pages than the other's, with `need`."""
        for its, others in zip(one.payers, other.payers, strict=False):
            if its != others:
                return self._sequences[its] > 1 and self._pages[its] > SHARE * (self._pages[others] + need)
        return False
