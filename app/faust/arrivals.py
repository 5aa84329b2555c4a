"""Which of Faust's records pass on to delivery: those of a partition in the order of their offsets, and none left out.

Faust drops records in a rebalance: the one in hand, and the rest of the batch that was polled. Then it goes back to the
committed offsets, and what was dropped is fetched again. Meanwhile, records that were fetched before still stand in the
queues of its streams, behind the dropped ones:

    fetched   7 8 9 10 11 | back to 7 |  7 8 9 10 11 12
    dropped   . 8 9
    arrives   7 . . 10 11 |           |  7 8 9 10 11 12
    passes    7     -  -              |  7 8 9 10 11 12

So a record passes if everything that was fetched before it, since the consumer went to an offset last, has passed. One
that does not pass is fetched again. `seek` must be called in the same step in which the consumer goes to the offset:
what is fetched between the two would be neither expected nor fetched again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace

Place = tuple[str, int]
"""Topic and partition."""


class LostRecordError(Exception):
    """A record was fetched but never delivered to this worker; it must be read again, by a restarted worker."""


@dataclass(frozen=True, slots=True)
class _Blocked:
    """When the first and the latest record came that did not pass."""

    since: float
    latest: float


class Arrivals:
    """`wait_s`: for how long records of a partition may keep coming of which none passes."""

    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s
        self._expected: dict[Place, deque[int]] = {}
        self._blocked: dict[Place, _Blocked] = {}
        self._is_assigned = False

    def revoke(self) -> None:
        """A rebalance begins: of no partition does anything pass until delivery has heard of the assignment, and the
        consumer has gone to an offset of the partition, in whichever order.
        """
        self._is_assigned = False
        self._expected.clear()
        self._blocked.clear()

    def assign(self) -> None:
        """Delivery hears of the assignment in this step."""
        self._is_assigned = True

    def seek(self, at: Place) -> None:
        """The consumer goes to an offset of the partition. What was fetched before does not pass any more."""
        self._expected[at] = deque()
        self._blocked.pop(at, None)

    def fetched(self, at: Place, offsets: Iterable[int]) -> None:
        if (expected := self._expected.get(at)) is not None:
            expected.extend(offsets)

    def passes(self, at: Place, offset: int, now: float) -> bool:
        """Whether the record that comes now, at `now` in seconds of any clock, passes. It is asked once for each.

        Raises:
            LostRecordError: records keep coming, but not the one that is next.
        """
        expected = self._expected.get(at)
        if expected is None:
            return False
        if expected and expected[0] == offset and self._is_assigned:
            expected.popleft()
            self._blocked.pop(at, None)
            return True
        self._block(at, offset, now)
        return False

    def _block(self, at: Place, offset: int, now: float) -> None:
        blocked = self._blocked.get(at)
        if blocked is None or now - blocked.latest > self._wait_s:
            blocked = _Blocked(since=now, latest=now)
        elif now - blocked.since > self._wait_s:
            missing = next(iter(self._expected[at]), offset)
            raise LostRecordError(f"{at[0]}[{at[1]}]: offset {missing} was fetched and has not come; {offset} has")
        self._blocked[at] = replace(blocked, latest=now)

    def __len__(self) -> int:
        """How many records are on their way."""
        return sum(map(len, self._expected.values()))
