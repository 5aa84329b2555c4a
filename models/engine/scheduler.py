"""What the next step computes.

Every step has one budget of tokens. Decoding sequences come first, one token each, and the rest goes to prompts in
chunks, so a long prompt never delays running answers. Of prompts the first to arrive comes first, but behind what
arrives while all that its user, and its tenant, have there would be computed at `PROMPTS_PER_S`: long prompts of one
user delay no other's short one, and wait for others no longer than that.

A sequence is admitted if there are pages for all its tokens and some for its answer. If memory runs out all the same,
the least important sequence releases its pages and is computed again later: of the lowest priority, of the user with
the most pages, the newest.

No user, and no tenant, has all places of a step (models/fair_slots.py). Nor all pages: for a sequence of another one, a
user that holds more than `SHARE` times as many releases those of its newest sequences.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from models.engine.compute.pages import PagePool
from models.engine.sequence import ScheduledChunk, SequenceState, pages_for
from models.fair_slots import SHARE, FairSlots, Owner

PROMPTS_PER_S = 2000  # tokens


@dataclass(slots=True)
class Limits:
    """`chunk`: prompt tokens in a step with decoding sequences; `lone_chunk`: in a step without; `scored`: in any step,
    tokens that are scored, because each has a row of logits.
    """

    max_running: int = 128
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
        return sequence.let_go(self.pool, forget=forget)

    def plan(self) -> list[ScheduledChunk]:
        """The slices of the next step, decoding sequences first."""
        self._admit()
        decoding = [sequence for sequence in list(self.running) if sequence.pending == 1]
        slices = [ScheduledChunk(sequence, sequence.computed, 1) for sequence in decoding if self._secure(sequence)]
        slices = [
            part for part in slices if part.sequence.pages
        ]  # securing a later sequence may have preempted an earlier one
        budget = self.limits.chunk if slices else self.limits.lone_chunk
        scored = self.limits.scored
        for sequence in self._prompts():
            count = min(sequence.pending, budget if sequence.scores is None else min(budget, scored))
            if count <= 0:
                continue
            slices.append(ScheduledChunk(sequence, sequence.computed, count))
            budget -= count
            scored -= slices[-1].scored
        return slices

    def _prompts(self) -> list[SequenceState]:
        """The sequences that have more than a token to compute, in their order."""
        prompts = [sequence for sequence in self.running if sequence.pending > 1]
        if len(prompts) < 2:
            return prompts
        backlog: Counter[Owner] = Counter()
        for sequence in prompts:
            for owner in sequence.owners:
                backlog[owner] += sequence.pending

        def rank(sequence: SequenceState) -> tuple[int, float, int]:
            tokens = sum(backlog[owner] for owner in sequence.owners) or sequence.pending
            return int(sequence.job.priority), sequence.arrived + tokens / PROMPTS_PER_S, sequence.number

        return sorted(prompts, key=rank)

    def follow(self, slices: Sequence[ScheduledChunk]) -> list[ScheduledChunk] | None:
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
            for sequence in self.waiting.firsts(self._clock()):
                if len(self.running) >= self.limits.max_running:
                    return
                if not self._has_place(sequence) or not self._passes(sequence, too_large):
                    continue
                if self._hold_or_preempt(sequence):
                    self._join(sequence)
                    admitted = True
                else:
                    too_large.append(sequence)

    def _passes(self, sequence: SequenceState, too_large: Sequence[SequenceState]) -> bool:
        """Whether the sequence may be admitted before these, which do not fit: they would starve if any could, and
        everyone would wait for them if none could.
        """
        return not too_large or all(self._yields(one, sequence, self._pages_of_owners()) for one in too_large)

    def _has_place(self, sequence: SequenceState) -> bool:
        return self._places.refused(sequence.owners) is None

    def _join(self, sequence: SequenceState) -> None:
        self.waiting.remove(sequence)
        self.running.append(sequence)
        self._places.hold(sequence.owners)
        if sequence.stream.admitted_at is None:
            sequence.stream.admitted_at = time.time()
        # charge its whole cost now, or one user would take every free place before the first token is counted
        self.waiting.charge(sequence, sequence.limit - sequence.computed)

    def _leave(self, sequence: SequenceState) -> None:
        self.running.remove(sequence)
        self._places.release(sequence.owners)
        self.waiting.charge(sequence, len(sequence.tokens) - sequence.limit)

    def _hold_or_preempt(self, sequence: SequenceState) -> bool:
        """Allocate its pages, from those of a user that holds many more if need be."""
        while not self._hold(sequence):
            pages = self._pages_of_owners()
            last = self._least_important(pages)
            if last is None or not self._yields(last, sequence, pages):
                return False
            self._preempt(last)
        return True

    def _hold(self, sequence: SequenceState) -> bool:
        """Allocate its pages, if that leaves enough for what the running sequences and it will soon generate."""
        spare = 0
        if self.running:
            own = pages_for(len(sequence.tokens), self.pool.size)
            spare = self._soon(sequence) - own + sum(self._soon(other) for other in self.running)
        if not sequence.hold(self.pool, spare):
            return False
        if not sequence.answered:
            sequence.cached = sequence.computed
        return True

    def _soon(self, sequence: SequenceState) -> int:
        ahead = min(sequence.limit, len(sequence.tokens) + self.limits.headroom)
        return pages_for(ahead, self.pool.size) - len(sequence.pages)

    def _secure(self, sequence: SequenceState) -> bool:
        """A page for the sequence's last token, preempting a less important sequence if there is none."""
        while sequence.pages:
            if sequence.grow(self.pool):
                return True
            last = self._least_important(self._pages_of_owners())
            assert last is not None  # the sequence itself runs
            self._preempt(last)
        return False

    def _yields(self, first: SequenceState, waiting: SequenceState, pages: Counter[Owner]) -> bool:
        """Whether the first sequence makes room for a waiting one: its owner holds far more, and its priority is not
        higher.
        """
        if first.job.priority < waiting.job.priority:
            return False
        need = pages_for(len(waiting.tokens), self.pool.size)
        owners = zip(first.owners, waiting.owners, strict=False)
        return next((pages[one] > SHARE * (pages[own] + need) for one, own in owners if one != own), False)

    def _pages_of_owners(self) -> Counter[Owner]:
        pages: Counter[Owner] = Counter()
        for sequence in self.running:
            for owner in sequence.owners:
                pages[owner] += len(sequence.pages)
        return pages

    def _least_important(self, pages: Counter[Owner]) -> SequenceState | None:
        """The first of the running ones to be preempted."""

        def rank(sequence: SequenceState) -> tuple[int, list[int], int]:
            priority, number = _importance(sequence)
            return priority, [pages[owner] for owner in sequence.owners], number

        return max(self.running, key=rank, default=None)

    def _preempt(self, sequence: SequenceState) -> None:
        self._leave(sequence)
        sequence.let_go(self.pool)
        self.waiting.add(sequence, again=True)
        self.preempted += 1


def _importance(sequence: SequenceState) -> tuple[int, int]:
    return int(sequence.job.priority), sequence.number


Lane = tuple[str, str, int]  # tenant, user, priority
FORGET = 4096  # names kept before those without waiting or recent work are removed


class WaitingSequences:
    """Waiting sequences, and which one is next.

    Priority comes first, and a waiting sequence rises by one class every `aging_s`. Within a class, the tenant that was
    served least is next, then its user that was served least, then the earliest arrival. A user's hundred requests
    therefore delay no other user's single one. A tenant or user that returns after a pause starts level with those that
    wait; it has no credit.
    """

    def __init__(self, aging_s: float) -> None:
        self._aging_s = aging_s
        self._lanes: dict[Lane, deque[SequenceState]] = {}
        self._served: dict[tuple[str, ...], float] = {}

    def __len__(self) -> int:
        return sum(len(lane) for lane in self._lanes.values())

    def __bool__(self) -> bool:
        return bool(self._lanes)

    @property
    def fronts(self) -> Iterator[SequenceState]:
        """The first sequence of every lane, in any order."""
        return (lane[0] for lane in self._lanes.values())

    def add(self, sequence: SequenceState, *, again: bool = False) -> None:
        """`again`: it was running and goes before its user's other sequences."""
        lane = _lane(sequence)
        tenant, user, _ = lane
        if lane not in self._lanes:
            self._level((tenant,))
            self._level((tenant, user))
            self._lanes[lane] = deque()
        if again:
            self._lanes[lane].appendleft(sequence)
        else:
            self._lanes[lane].append(sequence)

    def remove(self, sequence: SequenceState) -> None:
        lane = _lane(sequence)
        sequences = self._lanes.get(lane)
        if sequences is not None and sequence in sequences:
            sequences.remove(sequence)
            if not sequences:
                del self._lanes[lane]

    def charge(self, sequence: SequenceState, tokens: int) -> None:
        for name in ((sequence.job.tenant,), (sequence.job.tenant, sequence.job.user)):
            self._served[name] = self._served.get(name, 0.0) + tokens

    def firsts(self, now: float) -> Iterator[SequenceState]:
        """The first sequence of every lane, best first; ask again after each round."""
        return iter(sorted(self.fronts, key=lambda sequence: self._rank(sequence, now)))

    def _rank(self, sequence: SequenceState, now: float) -> tuple[int, float, float, int]:
        job = sequence.job
        climbed = int((now - sequence.arrived) / self._aging_s)
        served = self._served
        return (
            max(0, int(job.priority) - climbed),
            served.get((job.tenant,), 0.0),
            served.get((job.tenant, job.user), 0.0),
            sequence.number,
        )

    def _level(self, name: tuple[str, ...]) -> None:
        """Raise a returning tenant or user to the least served of those that wait."""
        if len(self._served) > FORGET:
            waiting: set[tuple[str, ...]] = {
                name for tenant, user, _ in self._lanes for name in ((tenant,), (tenant, user))
            }
            self._served = {known: served for known, served in self._served.items() if known in waiting}
        names: list[tuple[str, ...]] = [lane[:2][: len(name)] for lane in self._lanes]
        rivals = {rival for rival in names if rival[:-1] == name[:-1]}
        if rivals and name not in rivals:
            least = min(self._served.get(rival, 0.0) for rival in rivals)
            self._served[name] = max(self._served.get(name, 0.0), least)


def _lane(sequence: SequenceState) -> Lane:
    return sequence.job.tenant, sequence.job.user, int(sequence.job.priority)
