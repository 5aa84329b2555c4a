"""Estimate how long a request would wait in its partition, from a few observations per minute.

The distance between the committed offset and the end of a partition of `requests`, less what the commit says has
finished ahead of that offset, is an upper bound of its open requests: commits are late, and have no room for every
request that finished behind a long one. Ends of answers in `tokens` are therefore counted as well, and the lower value
is used. Requests without an end of their own (dead letters, duplicates) are counted until a commit has them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

WINDOW_S = 60.0
OLD_S = 15.0


@dataclass(frozen=True, slots=True)
class Sample:
    """One observation at a time of a monotonic clock, by partition: the ends of `requests`, its committed offsets plus
    what has finished ahead of them, and the answers ended so far.
    """

    at: float
    ends: Mapping[int, int]
    finished: Mapping[int, int]
    ended: Mapping[int, int]


class Estimate:
    """Without input or output."""

    def __init__(self, max_in_flight: int) -> None:
        self._max_in_flight = max_in_flight
        self._samples: deque[Sample] = deque()
        self._open: dict[int, int] = {}

    def add(self, sample: Sample) -> None:
        before = self._samples[-1] if self._samples else None
        for partition, end in sample.ends.items():
            most = end - sample.finished.get(partition, 0)
            if before is not None:
                come = end - before.ends.get(partition, end)
                gone = sample.ended.get(partition, 0) - before.ended.get(partition, 0)
                most = min(most, self._open.get(partition, most) + come - gone)
            self._open[partition] = max(0, most)
        self._samples.append(sample)
        while sample.at - self._samples[0].at > WINDOW_S:
            self._samples.popleft()

    def forget(self) -> None:
        self._samples.clear()
        self._open.clear()

    def wait_s(self, partition: int, now: float) -> float:
        """Seconds until a new request would begin; 0 if it would begin at once."""
        if not self._samples or now - self._samples[-1].at > OLD_S:
            return 0.0
        first, last = self._samples[0], self._samples[-1]
        ahead = self._open.get(partition, 0) - self._max_in_flight
        seconds = last.at - first.at
        if ahead < 0 or not seconds:
            return 0.0
        # Without an observed end, all that is known is that the next one takes at least this long.
        ended = max(1, last.ended.get(partition, 0) - first.ended.get(partition, 0))
        return (ahead + 1) * seconds / ended
