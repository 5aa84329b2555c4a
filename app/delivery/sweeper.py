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
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from app.delivery.commits.commit import Commit, LostError
from app.delivery.observer import UNOBSERVED, Observer
from app.delivery.ownership import Ownership
from app.delivery.partition import Partition
from app.delivery.partitions import Partitions
from app.settings import Settings
from tables.conversations import MemoryRules
from tables.erasures import Scope
from tables.expiry import some, tombstones
from tables.records import Erased, RowChange, Table, key_parts
from tables.store_errors import CorruptStoreError

_REST_S = 0.02
# A request may reach the log this long after its timestamp.
_DELIVERY_MS = 10_000
# The owner of this partition deletes expired rows from Milvus.
_EXPIRES = 0
_EXPIRE_EVERY_S = 600.0


REPEATED_FOR_MS = 2 * 3_600_000
"""Marks older than this need no repeated deletion from the index."""


class ExpiringRows(Protocol):
    """What a sweep asks of the index of turns."""

    def erase_again(self, partition: Partition, marks: Iterable[tuple[Scope, Erased]]) -> None:
        """Repeat those deletions of the marks that are due."""

    def expire(self, partition: Partition) -> None:
        """Delete rows that are too old."""


@dataclass(eq=False)
class Sweeper:
    settings: Settings
    rules: MemoryRules
    partitions: Partitions
    index: ExpiringRows
    observer: Observer = UNOBSERVED
    _expired_at: float = field(default=-math.inf, init=False)

    async def run(self) -> None:
        """Sweep at each interval, until cancelled."""
        while True:
            await asyncio.sleep(self.settings.sweep_interval_s)
            await self.sweep()

    async def sweep(self) -> None:
        for number in list(self.partitions.all):
            partition = self.partitions.owned(number)
            if partition is not None:
                partition.fence_again_if_needed()
                await self._sweep(partition)
        first = self.partitions.owned(_EXPIRES)
        if first is not None and time.monotonic() - self._expired_at >= _EXPIRE_EVERY_S:
            self._expired_at = time.monotonic()
            self.index.expire(first)

    async def _sweep(self, partition: Partition) -> None:
        ownership = partition.ownership
        try:
            if ownership.states_former_models:
                await partition.commit(Commit())
            if self._is_owned(partition, ownership):
                await self._sweep_rows(partition, ownership)
        except LostError:
            return
        except CorruptStoreError as error:
            ownership.fail(error)

    def _is_owned(self, partition: Partition, ownership: Ownership) -> bool:
        return self.partitions.owned(partition.number) is partition and partition.ownership is ownership

    async def _sweep_rows(self, partition: Partition, ownership: Ownership) -> None:
        watermark = await self.partitions.watermark(partition)
        if watermark is None:
            return
        marks: list[tuple[Scope, Erased]] = []
        scanned: Counter[Table] = Counter()
        deleted: Counter[Table] = Counter()
        expired = tombstones(
            ownership.store,
            self.rules,
            ended_ms=int(self.settings.ended_horizon_s * 1000),
            erased_ms=None if self.settings.erased_horizon_s is None else self.settings.erased_horizon_s * 1000,
            watermark=watermark - min(_DELIVERY_MS, self.rules.ttl_ms),
            scanned=scanned,
            on_mark=lambda scope, mark: marks.append((scope, mark)) if watermark - mark.at <= REPEATED_FOR_MS else None,
        )
        more = True
        while more and self._is_owned(partition, ownership):
            try:
                candidates, more = some(expired)
                rows = [row for row in candidates if not self._in_use(partition, row)]
                if rows:
                    await partition.commit(Commit(None, tuple(rows)))
            except LostError:
                return
            deleted.update(row.table for row in rows)
            await asyncio.sleep(_REST_S if more else 0)
        if self._is_owned(partition, ownership):
            self.index.erase_again(partition, marks)
            partition.ownership.store.apply((), {}, now_ms=time.time_ns() // 1_000_000)
            self.observer.swept(partition.number, scanned - deleted, deleted)

    @staticmethod
    def _in_use(partition: Partition, row: RowChange) -> bool:
        if row.table is not Table.CONVERSATIONS:
            return False
        conversation, inflight = key_parts(row.key), partition.ownership.inflight_requests.values()
        return any(one.accepted.conversation == conversation for one in inflight)
