"""Fetches of topics whose records may come a moment later."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

from app.recent_rate import RecentRate

# How long the fetches of an unhurried topic pause, and from how many records a second on.
ROUND_S = 0.1
OFTEN = 30


class FetchThrottle:
    """Fetches busy unhurried topics in rounds, so that their records do not complete the fetches of other topics.

    A fetch covers all partitions and returns as soon as one of them has records; the others then wait for the next
    fetch. Every answer ends with a record on `turns`, so these records would complete half of all fetches.
    """

    def __init__(self, unhurried: frozenset[str]) -> None:
        self._unhurried = unhurried
        self._records = RecentRate()

    def fetched(self, consumer: Any, fetched: Mapping[Any, Sequence[Any]]) -> None:
        """If an unhurried topic had records, leave all unhurried topics out of the next fetches for a moment.

        A fetch that waits without them goes on waiting after that moment. This does not matter while other records
        arrive all the time. If they are rare, a record of `turns` would wait for the next request, and be processed at
        the same time as it.
        """
        count = sum(len(records) for partition, records in fetched.items() if partition.topic in self._unhurried)
        if count:
            self._records.add(count, time.monotonic())
            if self._records.value > OFTEN:
                consumer.pause(*self._assigned(consumer))
                # A partition assigned meanwhile is not paused; one that was lost needs no resume.
                asyncio.get_running_loop().call_later(ROUND_S, lambda: consumer.resume(*self._assigned(consumer)))

    def _assigned(self, consumer: Any) -> list[Any]:
        return [partition for partition in consumer.assignment() if partition.topic in self._unhurried]
