"""Which pages of the KV cache users hold, and whose sequence releases its own if there are not enough.

Callers choose the priorities of their requests themselves. So they order a user's own sequences, and those of users who
hold about as much; who holds more than `SHARE` times as many pages releases some for others of a lower priority, too.
Only work in batches never takes pages from answers that somebody reads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from models.engine.sequence import SequenceState
from models.fair_slots import SHARE, Owner
from models.generation import Priority


class Holdings:
    """Those of the running sequences, at one moment."""

    def __init__(self, running: Sequence[SequenceState]) -> None:
        self._running = running
        self._pages: Counter[Owner] = Counter()
        self._sequences: Counter[Owner] = Counter()
        for sequence in running:
            for owner in sequence.owners:
                self._pages[owner] += len(sequence.pages)
                self._sequences[owner] += 1

    def least_important(self) -> SequenceState:
        """The sequence to preempt if one has no page for its next token: of the lowest priority the user with the most
        pages, and of that user the newest. Raises `ValueError` if none runs.
        """
        last = max(self._running, key=lambda one: (one.job.priority, self._held_by(one), one.number))
        largest = self._of_largest()
        return largest if last.job.priority < Priority.BATCH and self._is_far_more(largest, last) else last

    def to_preempt_for(self, waiting: SequenceState, need: int) -> SequenceState | None:
        """The sequence to preempt so that a waiting one gets `need` pages; None if it has to wait."""
        largest = self._of_largest() if self._running else None
        return largest if largest is not None and self.yields(largest, waiting, need) else None

    def yields(self, first: SequenceState, waiting: SequenceState, need: int) -> bool:
        """Whether the owner of the first sequence makes room for a waiting one that needs that many pages."""
        is_batch = waiting.job.priority == Priority.BATCH > first.job.priority
        return not is_batch and self._is_far_more(first, waiting, need)

    def _of_largest(self) -> SequenceState:
        """The least important sequence of the owner with the most pages."""
        return max(self._running, key=lambda one: (self._held_by(one), one.job.priority, one.number))

    def _held_by(self, sequence: SequenceState) -> list[int]:
        return [self._pages[owner] for owner in sequence.owners]

    def _is_far_more(self, one: SequenceState, other: SequenceState, need: int = 0) -> bool:
        """Whether the first one's owner holds far more, and in several sequences: a lone long one is not sacrificed."""
        pairs = zip(one.owners, other.owners, strict=False)
        return next(
            (
                self._sequences[its] > 1 and self._pages[its] > SHARE * (self._pages[others] + need)
                for its, others in pairs
                if its != others
            ),
            False,
        )
