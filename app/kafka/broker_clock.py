"""The broker's clock, as known to the owner of a partition.

The clock of a worker, or of a producer, can be hours off. Everything that several workers must agree on (when a turn
ended, when a conversation expires, when a user was erased) is therefore measured by the broker's clock. `tokens` uses
LogAppendTime, so the acknowledgement of each fence and each token event contains the broker's time. Between
acknowledgements, the process's monotonic clock advances it.

An acknowledgement bounds the broker's clock from both sides: the broker appended the record after it was sent and
before the acknowledgement arrived. `now` is the lower bound, so it is never ahead of the broker. `time_of` rejects a
timestamp only if it is ahead of the upper bound: a worker that was suspended right after it wrote its fence knows the
broker's clock only to within a few seconds, and must not move an erasure back by them.
"""

from __future__ import annotations

import time

from aiokafka.structs import RecordMetadata

_LOG_APPEND_TIME = 1
_TOLERANCE_MS = 1000
YEAR_2000_MS = 946_684_800_000


class BrokerClock:
    """Unix milliseconds; from the process's own clock until the first acknowledgement."""

    def __init__(self) -> None:
        # broker's time minus monotonic time: lower and upper bound
        self._ahead_ms: float | None = None
        self._most_ahead_ms = float("inf")

    def acknowledged(self, metadata: RecordMetadata, sent_at: float) -> None:
        """Update the clock with the append time in an acknowledgement.

        `sent_at`: `time.monotonic()` right before the record was sent.
        """
        if metadata.timestamp_type == _LOG_APPEND_TIME:
            ahead = metadata.timestamp - time.monotonic() * 1000
            self._ahead_ms = ahead if self._ahead_ms is None else max(self._ahead_ms, ahead)
            self._most_ahead_ms = min(self._most_ahead_ms, metadata.timestamp - sent_at * 1000)

    def time_of(self, timestamp: int) -> int:
        """A producer's timestamp, or the current time if no clock can have shown it: in the future by more than clocks
        may differ, or before the year 2000 (-1 means none).
        """
        return timestamp if YEAR_2000_MS <= timestamp <= self._latest() + _TOLERANCE_MS else self.now()

    def _latest(self) -> float:
        """The latest time that the broker's clock may show now."""
        if self._ahead_ms is None:
            return self.now()
        return time.monotonic() * 1000 + max(self._most_ahead_ms, self._ahead_ms)

    def now(self) -> int:
        if self._ahead_ms is None:
            return time.time_ns() // 1_000_000
        return int(time.monotonic() * 1000 + self._ahead_ms)
