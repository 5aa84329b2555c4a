"""The order in which records were fetched, by which a record that was never delivered is noticed."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any


class FetchOrder:
    """Which record of a partition was fetched before which.

    Faust delivers the records of a partition in the order of their fetches, and drops some of them during a rebalance.
    Everything fetched before a delivered record was therefore either delivered or dropped, and can be forgotten.
    """

    def __init__(self) -> None:
        self._newest: dict[Any, int] = {}
        self._fetched: dict[Any, deque[tuple[int, int]]] = {}

    def fetched(self, partition: Any, records: Sequence[Any]) -> None:
        waiting = self._fetched.setdefault(partition, deque())
        for record in records:
            last = self._newest.get(partition, -1)
            self._newest[partition] = record.offset
            # After a seek backwards the previous record is not known.
            waiting.append((record.offset, last if last < record.offset else -1))

    def before(self, partition: Any, offset: int) -> int:
        """Offset of the record that was fetched before the one at that offset, -1 if that is not known."""
        waiting = self._fetched.get(partition, deque())
        place = next((place for place, (one, _) in enumerate(waiting) if one == offset), None)
        if place is None:
            return -1
        for _ in range(place):
            waiting.popleft()
        return waiting.popleft()[1]

    def __len__(self) -> int:
        return sum(map(len, self._fetched.values()))
