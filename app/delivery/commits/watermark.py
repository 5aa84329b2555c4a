"""The time up to which every request of a partition has been answered.

A sweep deletes rows that no request may need any more. It must trust neither a consumer's position, which is stale
during a rebalance, nor a wall clock. The log replaces both: now and then the owner notes (the broker's time, the end of
`requests`). Once every request before a noted end is finished, all remaining requests were appended after the noted
time.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

_MOST_NOTES = 64


@dataclass(slots=True)
class Watermark:
    """`at` is Unix milliseconds of the broker's clock; None until the first noted end has been reached."""

    at: int | None = None
    _notes: deque[tuple[int, int]] = field(default_factory=deque)

    def note(self, now: int, end: int) -> None:
        """The log ended at the offset `end` at the time `now`, or a moment later."""
        if len(self._notes) < _MOST_NOTES:
            self._notes.append((now, end))

    def advance(self, head: int) -> int | None:
        """All requests before the offset `head` are finished. Returns the new watermark."""
        while self._notes and self._notes[0][1] <= head:
            self.at = self._notes.popleft()[0]
        return self.at
