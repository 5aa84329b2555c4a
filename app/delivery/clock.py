"""The broker's clock, as the owner of a partition knows it.

A worker's own clock can be hours off, and so can a producer's. What several workers must agree on (when a turn ended,
when a conversation expires, when a user was erased) is therefore measured by the broker's clock: `tokens` has
LogAppendTime, so the acknowledgement of every fence and every token event tells what the broker's clock said when it
appended the record. In between, the process's monotonic clock goes on from there.

The result is never later than the broker's clock, because an acknowledgement arrives after its append. It is earlier
by at most the shortest round trip that was seen.
"""

from __future__ import annotations

import time

from aiokafka.structs import RecordMetadata

_LOG_APPEND_TIME = 1
_TOLERANCE_MS = 1000


class BrokerClock:
    """Unix milliseconds; the process's own clock until the first acknowledgement."""

    def __init__(self) -> None:
        self._ahead_ms: float | None = None  # of the monotonic clock

    def acknowledged(self, metadata: RecordMetadata) -> None:
        """Take the time at which the broker appended a record, from its acknowledgement."""
        if metadata.timestamp_type == _LOG_APPEND_TIME:
            ahead = metadata.timestamp - time.monotonic() * 1000
            self._ahead_ms = ahead if self._ahead_ms is None else max(self._ahead_ms, ahead)

    def time_of(self, timestamp: int) -> int:
        """A producer's timestamp, or the time of now where it is ahead by more than clocks may differ."""
        now = self.now()
        return timestamp if timestamp <= now + _TOLERANCE_MS else now

    def now(self) -> int:
        if self._ahead_ms is None:
            return time.time_ns() // 1_000_000
        return int(time.monotonic() * 1000 + self._ahead_ms)
