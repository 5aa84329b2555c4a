"""Takes the records of one foreign partition: each becomes one request, whichever process dies.

1. The requests made of some records, their dead letters, and the offset behind them (`Taken`, a row of the table
   `intake`) are one commit: one transaction of the producer of the partition whose owner reads. A request lies on the
   partition of its user, whoever owns that.
2. Only that owner writes the row. The next owner starts the producer first, which fences the former owner and ends its
   open transaction, and then restores the rows. It sees the last commit, and no later one can follow.
3. It therefore reads on at exactly that offset. Who dies between reading and committing leaves nothing behind, and the
   records are read again.
4. Between two commits of one foreign partition nothing is built on a stale row: each is awaited before the next.

A request keeps the time of its record, so what was sent before an erasure of its user is erased with it, however late
it is read. `requests` deletes by time: a record that is older than half its retention gets that time, and its own one
stands in the header `intake-from`, which counts (`asked_at` in agents/requests.py). Workers remember erasures for a
limited time. A record that is older than that gives no request: its user may have been erased since.

Reading waits while a user has many more requests of this partition than have ended (written_ahead.py): what is not read
is safe in the foreign topic.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.structs import RecordMetadata

from app.delivery.clients import RETRIABLE_ERRORS
from app.delivery.commits.commit import Commit, RecordRefusedError
from app.delivery.follower import TopicTask
from app.delivery.partition import Partition
from app.delivery.record import REQUESTS, Outgoing, Record
from app.features.foreign.intake import IntakeRecords
from app.features.foreign.written_ahead import Written, WrittenAhead
from app.foreign.formats import IntakeTopic
from app.settings import Settings
from app.wire.record_size import record_bytes
from tables import records
from tables.records import RowChange, Table, Taken

log = logging.getLogger(__name__)

POLL_MS = 500
_WAIT_S = 0.5
_MOST_RECORDS = 200
_MOST_BYTES = 2 << 20


class Taking:
    """The requests made of one foreign partition."""

    def __init__(
        self,
        settings: Settings,
        partition: Partition,
        at: TopicPartition,
        topic: IntakeTopic,
        stop: asyncio.Event,
        ahead: WrittenAhead,
    ) -> None:
        self._settings = settings
        self._partition = partition
        self._at = at
        self._records = IntakeRecords(settings, topic, partition.ownership.clock)
        self._stop = stop
        self._ahead = ahead
        self._written: Written = frozenset()

    async def read(self, foreign: TopicTask) -> None:
        """Take records until `stop` is set."""
        taken, first = _taken_of(self._partition, self._at), await foreign.position()
        expected, self._records.schema_id = taken.next, taken.schema_id
        if expected and first > expected:
            lost = f"{self._at.topic}[{self._at.partition}]: the records {expected} to {first - 1}"
            log.error("%s were deleted before they became requests: they get no answer", lost)
        while not self._stop.is_set():
            consumed, position = await foreign.poll(POLL_MS)
            for chunk, behind in _chunks(consumed, position):
                if self._stop.is_set():
                    return
                await self._take([Record.of(self._at.topic, one, is_foreign=True) for one in chunk], behind)
                await self._until_room()

    async def _take(self, taken: Sequence[Record], behind: int) -> None:
        outputs: list[Outgoing] = []
        for record in taken:
            outputs += self._records.outputs_of(record)
            await asyncio.sleep(0)  # a record may have a megabyte
        try:
            await self._commit(outputs, behind)
        except RecordRefusedError as error:
            if len(taken) > 1:
                for record in taken:
                    await self._take([record], record.offset + 1)
            else:
                await self._commit_rejected(taken[0], behind, str(error))

    async def _commit_rejected(self, record: Record, behind: int, reason: str) -> None:
        both, letter = self._records.rejected(record, reason)
        try:
            await self._commit(both, behind)
        except RecordRefusedError:
            await self._commit(letter, behind)

    async def _until_room(self) -> None:
        """Wait until the users of the newest requests may have more of them, or until reading has to stop."""
        while self._ahead.is_full(self._written) and not self._stop.is_set():
            with suppress(*RETRIABLE_ERRORS):
                await self._ahead.catch_up(self._written)
            if self._ahead.is_full(self._written):
                await asyncio.sleep(_WAIT_S)

    async def _commit(self, outputs: Sequence[Outgoing], behind: int) -> None:
        key = records.key(self._at.topic, str(self._at.partition))
        row = RowChange(Table.INTAKE, key, records.encode(Taken(behind, self._records.schema_id)))
        committed = partial(self._committed, outputs)
        await self._partition.context.queue.put(Commit(None, (row,), tuple(outputs), delivered=committed))

    def _committed(self, outputs: Sequence[Outgoing], receipts: Sequence[RecordMetadata]) -> None:
        both = zip(outputs, receipts, strict=True)
        self._written = self._ahead.add(
            (one, receipt) for one, receipt in both if one.topic == self._settings.topic(REQUESTS)
        )


def next_of(partition: Partition, at: TopicPartition) -> int:
    """The offset up to which owners have taken the records of the foreign partition."""
    return _taken_of(partition, at).next


def _taken_of(partition: Partition, at: TopicPartition) -> Taken:
    raw = partition.ownership.store.get(Table.INTAKE, records.key(at.topic, str(at.partition)))
    return Taken(0) if raw is None else records.decode_row(raw, Taken)


def _chunks(consumed: Sequence[ConsumerRecord], position: int) -> list[tuple[Sequence[ConsumerRecord], int]]:
    """The records of each transaction, and the offset behind them."""
    chunks: list[tuple[list[ConsumerRecord], int]] = []
    size = 0
    for one in consumed:
        of_one = record_bytes(one.key, one.value, one.headers)
        size += of_one
        if not chunks or len(chunks[-1][0]) >= _MOST_RECORDS or size > _MOST_BYTES:
            chunks.append(([], 0))
            size = of_one
        chunks[-1] = ([*chunks[-1][0], one], one.offset + 1)
    return [*chunks[:-1], (chunks[-1][0], position)] if chunks else []
