"""The broker's clock, as the owner of a partition knows it.

A worker's own clock can be hours off, and so can a producer's. What several workers must agree on (when a turn ended,
when a conversation expires, when a user was erased) is therefore measured by the broker's clock: `tokens` has
LogAppendTime, so the acknowledgement of every fence and every token event tells what the broker's clock said when it
appended the record. In between, the process's monotonic clock goes on from there.

An acknowledgement bounds the broker's clock from both sides: the broker appended the record after it was sent, and
before the acknowledgement arrived. `now` is the lower bound, so it is never ahead of the broker. `time_of` rejects a
timestamp only if it is ahead of the upper bound: a worker that was suspended right after it wrote its fence knows the
broker's clock only to within a few seconds, and must not move an erasure back by them.
"""

from __future__ import annotations

import time

from aiokafka.structs import RecordMetadata

_LOG_APPEND_TIME = 1
_TOLERANCE_MS = 1000


class BrokerClock:
    """Unix milliseconds; the process's own clock until the first acknowledgement."""

    def __init__(self) -> None:
        # of the monotonic clock: at the least, and at the most
        self._ahead_ms: float | None = None
        self._most_ahead_ms = float("inf")

    def acknowledged(self, metadata: RecordMetadata, sent_at: float) -> None:
        """Take the time at which the broker appended a record, from its acknowledgement.

        `sent_at`: `time.monotonic()` right before the record was sent.
        """
        if metadata.timestamp_type == _LOG_APPEND_TIME:
            ahead = metadata.timestamp - time.monotonic() * 1000
            self._ahead_ms = ahead if self._ahead_ms is None else max(self._ahead_ms, ahead)
            self._most_ahead_ms = min(self._most_ahead_ms, metadata.timestamp - sent_at * 1000)

    def time_of(self, timestamp: int) -> int:
        """A producer's timestamp, or the time of now where it is ahead by more than clocks may differ."""
        return timestamp if timestamp <= self._latest() + _TOLERANCE_MS else self.now()

    def _latest(self) -> float:
        """The latest time that the broker's clock may show now."""
        if self._ahead_ms is None:
            return self.now()
        return time.monotonic() * 1000 + max(self._most_ahead_ms, self._ahead_ms)

    def now(self) -> int:
        if self._ahead_ms is None:
            return time.time_ns() // 1_000_000
        return int(time.monotonic() * 1000 + self._ahead_ms)
