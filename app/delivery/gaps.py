"""Records that arrive while one before them is missing.

At a rebalance Faust drops records and seeks to the committed offset, but records that were fetched before may still be
delivered. Those are skipped: all of them are delivered again, in order.
"""

from __future__ import annotations

import asyncio
import dataclasses

from app.delivery.commits.offsets import LostRecordError
from app.delivery.record import Record


@dataclasses.dataclass(frozen=True, slots=True)
class _Gap:
    """The missing offset; since when, and until when, records after it arrived (the event loop's time)."""

    begin: int
    since: float
    seen: float


class Gaps:
    """Of one partition, by topic. `wait_s`: for how long records may keep arriving without the missing one."""

    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s
        self._of_topic: dict[str, _Gap] = {}

    def expect_again(self, record: Record, begin: int, lost: LostRecordError) -> None:
        """The record is behind `begin`, which is missing, and is skipped.

        Raises:
            LostRecordError: records keep arriving, and the missing one does not.
        """
        now = asyncio.get_running_loop().time()
        gap = self._of_topic.get(record.topic)
        if gap is None or gap.begin != begin or now - gap.seen > self._wait_s:
            gap = _Gap(begin, since=now, seen=now)
        elif now - gap.since > self._wait_s:
            raise LostRecordError(f"{record.topic} partition {record.partition}: {lost}")
        self._of_topic[record.topic] = dataclasses.replace(gap, seen=now)
