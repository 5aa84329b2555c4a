"""The timer that deletes expired rows: tombstones for the tables, deletions for Milvus.

A table may hold a million rows, and scanning all of them takes seconds. A sweep therefore scans a thousand rows, which
takes a millisecond or two, then yields to the event loop for twenty. Answers are not delayed, and a running sweep uses
less than a tenth of a core, however large the table.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter

from agents.history import REPEATED_FOR_MS, History
from app.delivery.commits.commit import Commit, LostError
from app.delivery.observer import UNOBSERVED, Observer
from app.delivery.ownership import Ownership
from app.delivery.partition import Partition
from app.delivery.partition_manager import PartitionManager
from app.settings import Settings
from tables.conversations import MemoryRules
from tables.expiry import some, tombstones
from tables.records import Change, Erased, Table, key_parts
from tables.store_errors import CorruptStoreError

_REST_S = 0.02
# A request may reach the log this long after its timestamp.
_DELIVERY_MS = 10_000
# The owner of this partition deletes expired rows from Milvus.
_EXPIRES = 0
_EXPIRE_EVERY_S = 600.0


class Sweeper:
    def __init__(
        self,
        settings: Settings,
        rules: MemoryRules,
        owner: PartitionManager,
        history: History,
        observer: Observer = UNOBSERVED,
    ) -> None:
        self._settings = settings
        self._rules = rules
        self._owner = owner
        self._history = history
        self._observer = observer
        self._expired_at = -math.inf

    async def run(self) -> None:
        """Sweep at each interval, until cancelled."""
        while True:
            await asyncio.sleep(self._settings.sweep_interval_s)
            await self.sweep()

    async def sweep(self) -> None:
        for number in list(self._owner.partitions):
            partition = self._owner.owned(number)
            if partition is not None:
                partition.fence_again_if_needed()
                await self._sweep(partition)
        first = self._owner.owned(_EXPIRES)
        if first is not None and time.monotonic() - self._expired_at >= _EXPIRE_EVERY_S:
            self._expired_at = time.monotonic()
            self._history.expire(first)

    async def _sweep(self, partition: Partition) -> None:
        ownership = partition.ownership
        try:
            await self._sweep_rows(partition, ownership)
        except CorruptStoreError as error:
            ownership.fail(error)

    async def _sweep_rows(self, partition: Partition, ownership: Ownership) -> None:
        watermark = await self._owner.watermark(partition)
        if watermark is None:
            return
        marks: list[tuple[str, Erased]] = []
        scanned: Counter[Table] = Counter()
        deleted: Counter[Table] = Counter()
        expired = tombstones(
            ownership.store,
            self._rules,
            ended_ms=int(self._settings.ended_horizon_s * 1000),
            erased_ms=None if self._settings.erased_horizon_s is None else self._settings.erased_horizon_s * 1000,
            watermark=watermark - min(_DELIVERY_MS, self._rules.ttl_ms),
            scanned=scanned,
            on_mark=lambda user_id, mark: marks.append((user_id, mark)) if _is_young(mark, watermark) else None,
        )
        more = True
        while more and self._owner.owned(partition.number) is partition and partition.ownership is ownership:
            try:
                found, more = some(expired)
                rows = [row for row in found if not self._in_use(partition, row)]
                if rows:
                    await partition.commit(Commit(None, tuple(rows)))
            except LostError:
                return
            deleted.update(row.table for row in rows)
            await asyncio.sleep(_REST_S if more else 0)
        if self._owner.owned(partition.number) is partition and partition.ownership is ownership:
            self._history.erase_again(partition, marks)
            partition.ownership.store.apply((), {}, now_ms=time.time_ns() // 1_000_000)
            self._observer.swept(partition.number, scanned - deleted, deleted)

    @staticmethod
    def _in_use(partition: Partition, row: Change) -> bool:
        if row.table is not Table.CONVERSATIONS:
            return False
        conversation = key_parts(row.key)
        return any(inflight.conversation == conversation for inflight in partition.ownership.inflight_requests.values())


def _is_young(mark: Erased, watermark: int) -> bool:
    return watermark - mark.at <= REPEATED_FOR_MS
