"""The finish of requests: everything that a request leaves behind, in one Kafka transaction.

A transaction of partition p holds, for each request of its group, the changelog records of its rows, its record on
`turns` or `dead-letters`, and for all of them the `requests` offset with the checkpoint in its metadata; the offsets of
`controls` and `turns` go the same way, and Faust commits nothing. It is either
all there for a read_committed reader or not at all, and a former owner cannot commit one (the transactional id is the
partition's, so its next owner fences it).

    1. begin
    2. send changelog and output records, await every delivery  (commit_transaction itself ignores failed batches)
    3. send the offset and the checkpoint
    4. commit
    5. write rows and changelog offsets to the store, in one batch  (a crash before it is repaired by restoring)
    6. resolve the futures of those who wait for it

What arrives during one transaction forms the next group: with any window the first of a group would only wait longer.

A finish belongs to the ownership under which it was decided. When that ends, for whatever reason, everything in the
queue is dropped: records are taken again, and a sweep or a usage window is decided anew from the rows as they are then.
A tombstone that outlived its ownership could delete what another worker has written since.

A record that the broker refuses for what it is (too large, a timestamp out of bounds) is no trouble of the broker. The
transaction is aborted, the finishes of its group are committed one by one, and the one at fault ends with
`RecordRefusedError`.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.structs import OffsetAndMetadata, RecordMetadata

from app.delivery.changelog import changelog_topic
from app.delivery.checkpoint import Checkpoint, encode_metadata
from app.delivery.clients import RECORD_ERRORS
from app.delivery.offsets import Offsets
from app.delivery.record import REQUESTS, Outgoing, Record
from app.settings import Settings
from tables.records import Change, Table
from tables.store import Fingerprint, PartitionStore

# Fences that are written at most to get above the epoch of a lost tail; a topic that was created anew needs more.
MOST_FENCES = 100_000
# Keeps a transaction short, and far from its timeout, however much has piled up while the broker was away.
GROUP_LIMIT = 256


@dataclass(frozen=True, slots=True)
class Finish:
    """What one record leaves behind. `record` is None where none is finished by it, as in a sweep."""

    record: Record | None = None
    changes: tuple[Change, ...] = ()
    outputs: tuple[Outgoing, ...] = ()


@dataclass(slots=True)
class Waiting:
    finish: Finish
    committed: asyncio.Future[None]
    since: float = field(default_factory=time.monotonic)


class LostError(Exception):
    """The ownership has ended, and it is not known that this finish was committed."""


class RecordRefusedError(Exception):
    """The broker will never take one of the records of this finish."""


@dataclass(slots=True)
class FinishQueue:
    """Finishes of one ownership that wait for the next transaction."""

    waiting: list[Waiting] = field(default_factory=list)
    in_hand: list[Waiting] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    closed: bool = False

    def put(self, finish: Finish) -> asyncio.Future[None]:
        committed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.closed:
            committed.set_exception(LostError())
        else:
            self.waiting.append(Waiting(finish, committed))
            self.arrived.set()
        return committed

    def take(self) -> list[Waiting]:
        """The next group; what was cancelled meanwhile is not in it."""
        group = [entry for entry in self.waiting if not entry.committed.cancelled()]
        group, self.waiting = group[:GROUP_LIMIT], group[GROUP_LIMIT:]
        self.in_hand = group
        if not self.waiting:
            self.arrived.clear()
        return group

    def done(self) -> None:
        """The group that was taken is committed."""
        self.in_hand = []

    @property
    def age_s(self) -> float:
        """For how long the oldest finish has waited for its commit, in seconds; 0 where none waits."""
        oldest = next((entry.since for entry in (*self.in_hand, *self.waiting)), None)
        return 0.0 if oldest is None else time.monotonic() - oldest

    def put_back(self, group: Sequence[Waiting]) -> None:
        self.waiting[:0] = group
        self.in_hand = []
        self.arrived.set()

    def drop(self) -> None:
        """The ownership has ended: end every wait with `LostError`."""
        for entry in self.waiting:
            if not entry.committed.done():
                entry.committed.set_exception(LostError())
                entry.committed.exception()  # those who wait may have been cancelled at the same moment
        self.waiting = []

    def close(self) -> None:
        """Nothing will be committed here any more."""
        self.closed = True
        self.drop()


class Finisher:
    """Commits the finishes of one partition, under one producer, store and epoch."""

    def __init__(
        self,
        settings: Settings,
        partition: int,
        *,
        producer: AIOKafkaProducer,
        store: PartitionStore,
        offsets: Mapping[str, Offsets],
        queue: FinishQueue,
        checkpoint: Callable[[Sequence[int], int], Checkpoint],
        observe: Callable[[Sequence[Finish], float], None] = lambda _finishes, _seconds: None,
    ) -> None:
        self._settings = settings
        self._partition = partition
        self._producer = producer
        self._store = store
        self._offsets = offsets
        self._queue = queue
        self._checkpoint = checkpoint
        self._observe = observe
        self._one_at_a_time = asyncio.Lock()
        self.epoch = -1
        self.committed_at = time.monotonic()
        self.confirmed_at = -math.inf
        """The process's monotonic time at which the broker is known to have taken this producer for the owner's."""

    async def run(self) -> None:
        """Commit group after group until something fails; a failed group is back in the queue then."""
        while True:
            await self._queue.arrived.wait()
            group = self._queue.take()
            if not group:
                continue
            try:
                await self._commit_within_timeout(group)
                self._queue.done()
            except BaseException:
                self._queue.put_back(group)
                raise

    async def _commit_within_timeout(self, group: Sequence[Waiting]) -> None:
        async with self._one_at_a_time, asyncio.timeout(self._settings.finish_timeout_s):
            try:
                await self._commit(group)
            except RECORD_ERRORS as error:
                await self._producer.abort_transaction()
                refused: Exception = error
            else:
                return
        if len(group) > 1:
            for entry in group:
                await self._commit_within_timeout([entry])
        elif not group[0].committed.done():
            group[0].committed.set_exception(RecordRefusedError(str(refused) or type(refused).__name__))

    async def fence(self, fence: Outgoing, mine: set[int], above: int = -1) -> RecordMetadata:
        """Write the fence record and make its offset the epoch, in one transaction; returns the broker's receipt.

        Where the log has lost its tail, so many fences are written that the last one's offset is `above` that again.
        The epoch is in `mine` before the commit, whose outcome may never be learnt.
        """
        async with self._one_at_a_time, asyncio.timeout(self._settings.finish_timeout_s):
            await self._producer.begin_transaction()
            receipts = await self._deliver([fence])
            missing = above - receipts[-1].offset
            if 0 <= missing < MOST_FENCES:
                receipts = await self._deliver([fence] * (missing + 1))
            receipt = receipts[-1]
            self.epoch = receipt.offset
            mine.add(self.epoch)
            await self._commit_offsets({})
        return receipt

    async def _commit(self, group: Sequence[Waiting]) -> None:
        began = time.monotonic()
        finishes = [entry.finish for entry in group]
        finished: dict[str, list[int]] = {}
        for finish in finishes:
            if finish.record is not None:
                finished.setdefault(finish.record.topic, []).append(finish.record.offset)
        changes = [change for finish in finishes for change in finish.changes]
        outputs = [output for finish in finishes for output in finish.outputs]
        await self._producer.begin_transaction()
        receipts = await self._deliver([*map(self._changelog_record, changes), *outputs])
        await self._commit_offsets(finished)
        newest: dict[Table, Fingerprint] = {}
        for change, receipt in zip(changes, receipts, strict=False):  # outputs come after the changes
            newest[change.table] = Fingerprint.of(receipt.offset, change.key, change.value)
        applied = {table: one.offset for table, one in newest.items()}
        self._store.apply(changes, applied, now_ms=time.time_ns() // 1_000_000, prints=newest)
        for topic, done in finished.items():
            self._offsets[topic].finish(done)
        for entry in group:
            if not entry.committed.done():
                entry.committed.set_result(None)
        self._observe(finishes, time.monotonic() - began)

    async def _deliver(self, records: Sequence[Outgoing]) -> list[RecordMetadata]:
        deliveries: list[asyncio.Future[RecordMetadata]] = []
        try:
            for record in records:
                deliveries.append(await self._send(record))  # noqa: PERF401 - what was sent before an error counts
        except RECORD_ERRORS:
            await asyncio.gather(*deliveries, return_exceptions=True)  # an abort must not overtake them
            raise
        return await asyncio.gather(*deliveries)

    async def _send(self, record: Outgoing) -> asyncio.Future[RecordMetadata]:
        return await self._producer.send(
            record.topic,
            record.value,
            key=record.key,
            partition=self._partition if record.partition is None else record.partition,
            headers=list(record.headers),
        )

    async def _commit_offsets(self, finished: Mapping[str, Sequence[int]]) -> None:
        checkpoint = self._checkpoint(finished.get(REQUESTS, ()), self.epoch)
        heads = {self._at(REQUESTS): OffsetAndMetadata(checkpoint.head, encode_metadata(checkpoint))}
        for topic, done in finished.items():
            if topic != REQUESTS:
                heads[self._at(topic)] = OffsetAndMetadata(self._offsets[topic].head(done), "")
        asked_at = time.monotonic()
        await self._producer.send_offsets_to_transaction(heads, self._settings.group)
        await self._producer.commit_transaction()
        self.committed_at, self.confirmed_at = time.monotonic(), asked_at

    def _at(self, topic: str) -> TopicPartition:
        return TopicPartition(self._settings.topic(topic), self._partition)

    def _changelog_record(self, change: Change) -> Outgoing:
        return Outgoing(changelog_topic(self._settings, change.table), change.key, change.value)
