"""The sequences that no step computes yet, and which one is next."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from models.engine.sequence import SequenceState

Class = tuple[str, str, int]  # tenant, user, priority
FORGET = 4096  # names kept before those without waiting or recent work are removed


class WaitingSequences:
    """Priority comes first, and a waiting sequence rises by one priority every `aging_s`.

    Within a priority, the tenant that was served least is next, then its user that was served least, then the earliest
    arrival. A user's hundred requests therefore delay no other user's single one. A tenant or user that returns after a
    pause starts level with those that wait; it has no credit.
    """

    def __init__(self, aging_s: float) -> None:
        self._aging_s = aging_s
        self._classes: dict[Class, deque[SequenceState]] = {}
        self._served: dict[tuple[str, ...], float] = {}

    def __len__(self) -> int:
        return sum(len(sequences) for sequences in self._classes.values())

    def __bool__(self) -> bool:
        return bool(self._classes)

    @property
    def fronts(self) -> Iterator[SequenceState]:
        """The first sequence of every class, in any order."""
        return (sequences[0] for sequences in self._classes.values())

    def add(self, sequence: SequenceState, *, again: bool = False) -> None:
        """`again`: it was running and goes before its user's other sequences."""
        class_ = _class_of(sequence)
        tenant, user, _ = class_
        if class_ not in self._classes:
            self._level((tenant,))
            self._level((tenant, user))
            self._classes[class_] = deque()
        if again:
            self._classes[class_].appendleft(sequence)
        else:
            self._classes[class_].append(sequence)

    def remove(self, sequence: SequenceState) -> None:
        class_ = _class_of(sequence)
        sequences = self._classes.get(class_)
        if sequences is not None and sequence in sequences:
            sequences.remove(sequence)
            if not sequences:
                del self._classes[class_]

    def charge(self, sequence: SequenceState, tokens: int) -> None:
        for name in ((sequence.job.tenant,), (sequence.job.tenant, sequence.job.user)):
            self._served[name] = self._served.get(name, 0.0) + tokens

    def firsts(self, now: float) -> Iterator[SequenceState]:
        """The first sequence of every class, best first; ask again after each round."""
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
                name for tenant, user, _ in self._classes for name in ((tenant,), (tenant, user))
            }
            self._served = {known: served for known, served in self._served.items() if known in waiting}
        names: list[tuple[str, ...]] = [class_[:2][: len(name)] for class_ in self._classes]
        rivals = {rival for rival in names if rival[:-1] == name[:-1]}
        if rivals and name not in rivals:
            least = min(self._served.get(rival, 0.0) for rival in rivals)
            self._served[name] = max(self._served.get(name, 0.0), least)


def _class_of(sequence: SequenceState) -> Class:
    return sequence.job.tenant, sequence.job.user, int(sequence.job.priority)
