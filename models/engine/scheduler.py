"""What the next step computes.

A step computes a bounded number of tokens. Decoding sequences come first, one token each, and the rest goes to prompts
in chunks in the order of prompt_order.py. So a long prompt delays no running answer, and no short prompt of another
user.

A sequence is admitted if there are pages for all its tokens and some for its answer. If memory runs out all the same,
the least important sequence releases its pages and is computed again later.

No user or tenant has all places of a step (fair_slots.py) or all pages: one that holds more than `SHARE` times as many
pages as another releases its least important sequences for it (holdings.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from models.compute.pages import PagePool, pages_for
from models.engine.holdings import Holdings
from models.engine.sequence import ScheduledChunk, SequenceState
from models.engine.waiting import WaitingSequences
from models.interface.fair_slots import FairSlots
from models.interface.prompt_order import PromptBacklog


@dataclass(slots=True)
class StepLimits:
    """`chunk`: prompt tokens in a step with decoding sequences; `lone_chunk`: in a step without; `scored`: in any step,
    prompt tokens whose logits are reported, because each needs a row of them.
    """

    max_running: int = 128
    chunk: int = 256
    lone_chunk: int = 2048
    headroom: int = 64  # tokens of an answer that must fit into memory for its sequence to be admitted
    aging_s: float = 5.0
    scored: int = 128


class Scheduler:
    def __init__(self, pool: PagePool, limits: StepLimits, clock: Callable[[], float]) -> None:
        self.pool = pool
        self.limits = limits
        self.running: list[SequenceState] = []
        self.waiting = WaitingSequences(limits.aging_s)
        self.preempted = 0
        self._places = FairSlots(limits.max_running)
        self._clock = clock

    def add(self, sequence: SequenceState) -> None:
        self.waiting.add(sequence)

    def remove(self, sequence: SequenceState, *, forget: bool = False) -> list[int]:
        """The sequence has ended; returns the pages that no sequence holds any more."""
        if sequence in self.running:
            self._leave(sequence)
        else:
            self.waiting.remove(sequence)
        return sequence.free(self.pool, forget=forget)

    def schedule(self) -> list[ScheduledChunk]:
        """The slices of the next step, decoding sequences first."""
        self._admit()
        decoding = [sequence for sequence in list(self.running) if sequence.pending == 1]
        slices = [ScheduledChunk(sequence, sequence.computed, 1) for sequence in decoding if self._append(sequence)]
        slices = [
            part for part in slices if part.sequence.pages
        ]  # a page for a later sequence may have preempted an earlier one
        left = self.limits.chunk if slices else self.limits.lone_chunk
        scored = self.limits.scored
        for sequence in self._prompts():
            count = min(sequence.pending, left if sequence.scores is None else min(left, scored))
            count = min(count, sequence.most_at_once or count)
            if count <= 0:
                continue
            slices.append(ScheduledChunk(sequence, sequence.computed, count))
            left -= count
            scored -= slices[-1].scored
        return slices

    def _prompts(self) -> list[SequenceState]:
        """The sequences that have more than a token to compute, in their order."""
        prompts = [sequence for sequence in self.running if sequence.pending > 1]
        if len(prompts) < 2:
            return prompts
        backlog = PromptBacklog()
        for sequence in prompts:
            backlog.add(sequence.payers, sequence.pending)

        def turn(sequence: SequenceState) -> tuple[float, int]:
            at, priority = sequence.joined, sequence.job.priority
            return backlog.turn(at, sequence.payers, sequence.pending, priority), sequence.number

        return sorted(prompts, key=turn)

    def advance(self, slices: Sequence[ScheduledChunk]) -> list[ScheduledChunk] | None:
        """The slices of the step after that of `slices`, if it is certain before the drawn tokens are known.

        It is certain if all sequences draw and continue, and none could join. A sequence that ends all the same has
        computed one token in vain.
        """
        going = [part for part in slices if not part.sequence.ended]
        joining = len(self.running) < self.limits.max_running and any(map(self._has_place, self.waiting.fronts))
        if joining or not going or len(going) != len(self.running):
            return None
        if not all(part.draws and not part.draft and part.sequence.foreseen for part in going):
            return None
        if not all(part.sequence.grow(self.pool, ahead=1) for part in going):
            return None
        return [ScheduledChunk(part.sequence, len(part.sequence.tokens), 1) for part in going]

    def _admit(self) -> None:
        admitted = True
        while admitted and self.waiting and len(self.running) < self.limits.max_running:
            admitted = False
            too_large: list[SequenceState] = []
            holdings: Holdings | None = None
            for sequence in self.waiting.firsts(self._clock()):
                if len(self.running) >= self.limits.max_running:
                    return
                if not self._has_place(sequence):
                    continue
                if too_large:
                    # If any could pass those that do not fit, these would starve; if none could, all would wait.
                    holdings, need = holdings or Holdings(self.running), self._pages_for(sequence)
                    if not all(holdings.may_yield(one) for one in too_large):
                        break
                    if not all(holdings.yields(one, sequence, need) for one in too_large):
                        continue
                if self._allocate(sequence) or self._allocate_by_preempting(sequence):
                    self._join(sequence)
                    admitted, holdings = True, None
                else:
                    too_large.append(sequence)

    def _has_place(self, sequence: SequenceState) -> bool:
        return self._places.refused(sequence.payers) is None

    def _join(self, sequence: SequenceState) -> None:
        self.waiting.remove(sequence)
        self.running.append(sequence)
        self._places.hold(sequence.payers)
        sequence.joined = self._clock()
        if sequence.stream.admitted_at is None:
            sequence.stream.admitted_at = time.time()
        # charge its whole cost now, or one user would take every free place before the first token is counted
        self.waiting.charge(sequence, sequence.limit - sequence.computed)

    def _leave(self, sequence: SequenceState) -> None:
        self.running.remove(sequence)
        self._places.release(sequence.payers)
        self.waiting.charge(sequence, len(sequence.tokens) - sequence.limit)

    def _allocate_by_preempting(self, sequence: SequenceState) -> bool:
        """Allocate its pages from those of users that hold far more; preempts nothing if that is not enough."""
        need, holdings = self._pages_for(sequence), Holdings(self.running)
        available, preempted = self.pool.available, list[SequenceState]()
        while (first := holdings.yielding(sequence, need)) is not None:
            preempted.append(first)
            available += self.pool.held_once(first.pages)
            if need + self._spare(sequence, holdings.remove(first)) <= available:
                for one in preempted:
                    self._preempt(one)
                return self._allocate(sequence)
        return False

    def _pages_for(self, sequence: SequenceState) -> int:
        return pages_for(len(sequence.tokens), self.pool.size)

    def _allocate(self, sequence: SequenceState) -> bool:
        """Allocate its pages, if that leaves enough for what the running sequences and it will soon generate."""
        if not sequence.allocate(self.pool, self._spare(sequence, self.running)):
            return False
        if not sequence.answered:
            sequence.cached = sequence.computed
        return True

    def _spare(self, sequence: SequenceState, running: Sequence[SequenceState]) -> int:
        """The pages that must be left if it joins those that run: none if it is alone."""
        if not running:
            return 0
        return self._soon(sequence) - self._pages_for(sequence) + sum(self._soon(other) for other in running)

    def _soon(self, sequence: SequenceState) -> int:
        ahead = min(sequence.limit, len(sequence.tokens) + self.limits.headroom)
        return pages_for(ahead, self.pool.size) - len(sequence.pages)

    def _append(self, sequence: SequenceState) -> bool:
        """A page for the sequence's last token, preempting a less important sequence if there is none."""
        while sequence.pages:
            if sequence.grow(self.pool):
                return True
            self._preempt(Holdings(self.running).least_important())
        return False

    def _preempt(self, sequence: SequenceState) -> None:
        self._leave(sequence)
        sequence.free(self.pool)
        self.waiting.add(sequence, again=True)
        self.preempted += 1
