"""The timer that forgets: what has expired in the tables gets its tombstone.

A table may hold a million rows, and a look at all of them takes seconds. So a sweep looks at a thousand, which takes a
millisecond or two, lets the event loop have twenty, and goes on: answers do not notice it, and what a sweep costs is
less than a tenth of a core while it lasts, however large the table.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator

from app.delivery.finish import Finish, LostError
from app.delivery.observer import UNOBSERVED, Observer
from app.delivery.owner import Owner
from app.delivery.partition import Partition
from app.settings import Settings
from tables.conversations import MemoryRules
from tables.expiry import tombstones
from tables.records import Change, Table, key_parts

# Keeps a transaction small, and the event loop free for what is alive.
_AT_ONCE = 200
_LOOKED_AT = 1000
_REST_S = 0.02


class Sweeper:
    def __init__(self, settings: Settings, rules: MemoryRules, owner: Owner, observer: Observer = UNOBSERVED) -> None:
        self._settings = settings
        self._rules = rules
        self._owner = owner
        self._observer = observer

    async def sweep(self) -> None:
        for number in list(self._owner.partitions):
            partition = self._owner.owned(number)
            if partition is not None:
                await self._sweep(partition)

    async def _sweep(self, partition: Partition) -> None:
        watermark = await self._owner.watermark(partition)
        own = partition.own
        scanned: Counter[Table] = Counter()
        deleted: Counter[Table] = Counter()
        expired = tombstones(
            own.store,
            self._rules,
            dedup_ms=int(self._settings.dedup_s * 1000),
            erased_ms=self._settings.turns_retention_s * 1000,
            watermark=watermark,
            scanned=scanned,
        )
        more = True
        while more and self._owner.owned(partition.number) is partition and partition.own is own:
            found, more = _some(expired)
            rows = [row for row in found if not self._in_use(partition, row)]
            try:
                if rows:
                    await partition.finish(Finish(None, tuple(rows)))
            except LostError:
                return
            deleted.update(row.table for row in rows)
            await asyncio.sleep(_REST_S if more else 0)
        if self._owner.owned(partition.number) is partition:
            partition.own.store.apply((), {}, now_ms=time.time_ns() // 1_000_000)
            self._observer.swept(partition.number, scanned - deleted, deleted)

    @staticmethod
    def _in_use(partition: Partition, row: Change) -> bool:
        if row.table is not Table.CONVERSATIONS:
            return False
        conversation = key_parts(row.key)
        return any(claim.conversation == conversation for claim in partition.own.claims.values())


def _some(expired: Iterator[Change | None]) -> tuple[list[Change], bool]:
    """What is found in a short look, and whether there may be more."""
    rows: list[Change] = []
    for looked, row in enumerate(expired, start=1):
        if row is not None:
            rows.append(row)
        if len(rows) >= _AT_ONCE or looked >= _LOOKED_AT:
            return rows, True
    return rows, False
