"""Larger and fewer fetches for a busy consumer.

By default a fetch returns as soon as there is one record. A fetch costs client and broker the same for one record as
for fifty, so at a thousand records a second the fetches cost more than the records. While records come fast, the broker
collects them for the time in which `_TOGETHER` come, 4 to 16 ms, which delays each by half of that. Rare records are
fetched at once.

aiokafka reads both values at each fetch. It has no public way to change them, and is pinned to one version.
"""

from __future__ import annotations

import time
from typing import Any

from aiokafka import AIOKafkaConsumer

from app.process.recent_rate import RecentRate

_SHORTEST_MS, _LONGEST_MS = 4, 16
_TOGETHER = 6
_MIN_BYTES = 1 << 20
_BUSY = 300.0
_CALM = 200.0
"""Records per second from which on, and until which, the broker collects."""


class FetchPace:
    """Call `polled` after each poll of the consumer."""

    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self._fetcher: Any = consumer._fetcher  # noqa: SLF001 - see above
        self._usual = (self._fetcher._fetch_min_bytes, self._fetcher._fetch_max_wait_ms)  # noqa: SLF001
        self._records = RecentRate()
        self.is_busy = False

    def polled(self, records: int) -> None:
        self._records.add(records, time.monotonic())
        rate = self._records.value
        self.is_busy = rate > (_CALM if self.is_busy else _BUSY)
        values = (_MIN_BYTES, window_ms(rate)) if self.is_busy else self._usual
        self._fetcher._fetch_min_bytes, self._fetcher._fetch_max_wait_ms = values  # noqa: SLF001


def window_ms(rate: float) -> int:
    """For how long the broker collects at this many records per second."""
    return min(max(round(1000 * _TOGETHER / rate), _SHORTEST_MS), _LONGEST_MS)
