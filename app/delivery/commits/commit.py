"""Group commit: everything that requests leave behind, in one Kafka transaction.

A transaction of partition p holds, for each request of its group, the changelog records of its rows, its record on
`turns` or `dead-letters` and its record on `audit`, and for all of them the `requests` offset with the handover in
its metadata. The offsets of `controls` and `turns` are committed in the same way; Faust commits nothing. A
read_committed consumer sees all of it or nothing, and a former owner cannot commit: the transactional id belongs to the
partition, so the next owner fences it.

1. Begin.
2. Send the changelog and output records and await every delivery (commit_transaction itself ignores failed batches).
3. Send the offset and the handover.
4. Commit.
5. Write rows and changelog offsets to the store, in one batch. A crash before this is repaired by restoring.
6. Resolve the futures of the callers.

Commits that arrive during a transaction form the next group. While a worker commits often, its groups wait for one
another (pacer.py); a lone commit never waits.

A commit belongs to the ownership under which it was decided. When that ownership ends, the whole queue is dropped:
records are processed again, and a sweep or a usage window is decided anew from the rows as they are then. A tombstone
that outlived its ownership could delete what another worker has written since.

If the broker rejects a single record (too large, timestamp out of bounds), that is no failure of the broker. The
transaction is aborted, the members of the group are committed one by one, and the one at fault ends with
`RecordRefusedError`.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.structs import OffsetAndMetadata, RecordMetadata

from app.delivery.clients import RECORD_ERRORS
from app.delivery.commits.audit_chain import extend, head_of, keyed
from app.delivery.commits.changelog import changelog_topic
from app.delivery.commits.handover import Handover, Offsets, encode_metadata
from app.delivery.commits.pacer import CommitPacer
from app.delivery.record import REQUESTS, Outgoing, Record
from app.settings import Settings
from app.wire.audit import AuditRecord
from app.wire.record_size import record_bytes
from tables.records import RowChange, Table
from tables.store import Fingerprint, PartitionStore
from tables.store_errors import StoreError

# Fences written at most to get above the epoch of a lost tail; a topic that was created anew needs more.
MOST_FENCES = 100_000
# Keep a transaction far shorter than its timeout, even after an outage of the broker. One commit may have more.
MOST_RECORDS = 1000
MOST_BYTES = 8 << 20
# Records that are sent in one step of the event loop.
_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class Commit:
    """What one record leaves behind. `record` is None if no record is finished by it, as in a sweep. The records of
    `audit` get their place in the chain when they are committed. `delivered` is called with their places. `instead` are
    the outputs if Kafka rejects one of these.
    """

    record: Record | None = None
    changes: tuple[RowChange, ...] = ()
    outputs: tuple[Outgoing, ...] = ()
    audit: tuple[AuditRecord, ...] = ()
    delivered: Callable[[Sequence[RecordMetadata]], None] | None = None
    instead: tuple[Outgoing, ...] = ()

    def beside(self, outputs: Sequence[Outgoing]) -> Commit:
        """With these outputs, too."""
        return replace(self, outputs=(*self.outputs, *outputs))

    @property
    def records(self) -> int:
        """What it adds to a transaction; its offset counts as one."""
        return 1 + len(self.changes) + len(self.outputs) + len(self.audit)

    @property
    def bytes(self) -> int:
        """Of its records; those of `audit` are small."""
        rows = sum(record_bytes(row.key, row.value) for row in self.changes)
        return rows + sum(record_bytes(output.key, output.value, output.headers) for output in self.outputs)


@dataclass(slots=True)
class Waiting:
    commit: Commit
    committed: asyncio.Future[None]
    since: float = field(default_factory=time.monotonic)


class LostError(Exception):
    """The ownership has ended before this commit was confirmed."""


class RecordRefusedError(Exception):
    """The broker rejects one of the records of this commit, and always will."""


@dataclass(slots=True)
class CommitQueue:
    """The commits of one ownership that wait for the next transaction."""

    waiting: list[Waiting] = field(default_factory=list)
    in_hand: list[Waiting] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    urgent: asyncio.Event = field(default_factory=asyncio.Event)
    closed: bool = False

    def put(self, commit: Commit) -> asyncio.Future[None]:
        committed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.closed:
            committed.set_exception(LostError())
        else:
            self.waiting.append(Waiting(commit, committed))
            self.arrived.set()
        return committed

    def hurry(self) -> None:
        """Something waits for these commits: begin the next transaction without waiting for more of them."""
        if self.waiting:
            self.urgent.set()

    def next_group(self) -> list[Waiting]:
        """Take the next group, as large as one transaction may be, without commits that were cancelled meanwhile."""
        waiting = [entry for entry in self.waiting if not entry.committed.cancelled()]
        group, self.waiting = _split(waiting)
        self.in_hand = group
        if not self.waiting:  # what is left is as urgent as before
            self.arrived.clear()
            self.urgent.clear()
        return group

    def keys_of(self, table: Table) -> set[bytes]:
        """The rows of the table that commits on their way will write or delete."""
        entries = (*self.in_hand, *self.waiting)
        return {change.key for entry in entries for change in entry.commit.changes if change.table is table}

    def done(self) -> None:
        """Mark the taken group as committed."""
        self.in_hand = []

    @property
    def age_s(self) -> float:
        """How long the oldest commit has waited, in seconds; 0 if none waits."""
        oldest = next((entry.since for entry in (*self.in_hand, *self.waiting)), None)
        return 0.0 if oldest is None else time.monotonic() - oldest

    def put_back(self, group: Sequence[Waiting]) -> None:
        self.waiting[:0] = group
        self.in_hand = []
        self.arrived.set()

    def drop(self) -> None:
        """The ownership has ended: fail every waiter with `LostError`."""
        for entry in self.waiting:
            if not entry.committed.done():
                entry.committed.set_exception(LostError())
                entry.committed.exception()  # a waiter may have been cancelled at the same moment
        self.waiting = []

    def close(self) -> None:
        """Reject all further commits."""
        self.closed = True
        self.drop()


def _split(waiting: Sequence[Waiting]) -> tuple[list[Waiting], list[Waiting]]:
    """The commits of one transaction, at least one, and the rest."""
    records = size = 0
    for number, entry in enumerate(waiting):
        records += entry.commit.records
        size += entry.commit.bytes
        if number and (records > MOST_RECORDS or size > MOST_BYTES):
            return list(waiting[:number]), list(waiting[number:])
    return list(waiting), []


@dataclass(eq=False)
class GroupCommitter:
    """Commits the queue of one partition, with one producer, store and epoch."""

    settings: Settings
    partition: int
    _: KW_ONLY
    producer: AIOKafkaProducer
    store: PartitionStore
    offsets: Mapping[str, Offsets]
    queue: CommitQueue
    pacer: CommitPacer
    handover: Callable[[Sequence[int], int], Handover]
    observe: Callable[[Sequence[Commit], float], None] = lambda _commits, _seconds: None
    epoch: int = field(default=-1, init=False)
    confirmed_at: float = field(default=-math.inf, init=False)
    """The last monotonic time at which the broker confirmed this producer as the owner's."""
    _one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def run(self) -> None:
        """Commit group after group until one fails; a failed group returns to the queue."""
        while True:
            await self.queue.arrived.wait()
            await self.pacer.wait(self.queue.urgent)
            group = self.queue.next_group()
            if not group:
                continue
            try:
                await self._commit_within_timeout(group)
                self.queue.done()
            except BaseException:
                self.queue.put_back(group)
                raise

    async def _commit_within_timeout(self, group: Sequence[Waiting]) -> None:
        async with self._one_at_a_time, asyncio.timeout(self.settings.commit_timeout_s):
            try:
                prepared = self._prepare([entry.commit for entry in group])
            except StoreError:
                raise
            except Exception as error:  # noqa: BLE001 - of one of these commits; nothing is begun yet
                refused: Exception = error
            else:
                try:
                    await self._commit(group, prepared)
                except RECORD_ERRORS as error:
                    await self.producer.abort_transaction()
                    refused = error
                else:
                    return
        if len(group) > 1:
            for entry in group:
                await self._commit_within_timeout([entry])
        elif not group[0].committed.done():
            group[0].committed.set_exception(RecordRefusedError(str(refused) or type(refused).__name__))

    async def fence(self, fence: Outgoing, mine: set[int], above: int = -1) -> RecordMetadata:
        """Write the fence record and use its offset as the epoch, in one transaction. Returns the broker's receipt.

        If the log has lost its tail, write fences until the last one's offset exceeds `above`. The epoch is added to
        `mine` before the commit, because its outcome may never become known.
        """
        async with self._one_at_a_time, asyncio.timeout(self.settings.commit_timeout_s):
            await self.producer.begin_transaction()
            receipts = await self._deliver([fence])
            missing = above - receipts[-1].offset
            if 0 <= missing < MOST_FENCES:
                receipts = await self._deliver([fence] * (missing + 1))
            receipt = receipts[-1]
            self.epoch = receipt.offset
            mine.add(self.epoch)
            await self._commit_offsets({})
        return receipt

    def _prepare(self, commits: Sequence[Commit]) -> tuple[list[RowChange], list[Outgoing]]:
        """The rows and the records of these commits."""
        key, audit = keyed(self.store, (one for commit in commits for one in commit.audit), self.settings)
        head, links = extend(head_of(self.store), audit, self.settings)
        changes = [*(change for commit in commits for change in commit.changes), *key, *head]
        outputs = [*(output for commit in commits for output in commit.outputs), *links]
        return changes, outputs

    async def _commit(self, group: Sequence[Waiting], prepared: tuple[list[RowChange], list[Outgoing]]) -> None:
        began = time.monotonic()
        commits = [entry.commit for entry in group]
        finished: dict[str, list[int]] = {}
        for commit in commits:
            if commit.record is not None:
                finished.setdefault(commit.record.topic, []).append(commit.record.offset)
        changes, outputs = prepared
        await self.producer.begin_transaction()
        receipts = await self._deliver([*map(self._changelog_record, changes), *outputs])
        await self._commit_offsets(finished)
        newest: dict[Table, Fingerprint] = {}
        for change, receipt in zip(changes, receipts, strict=False):  # outputs follow the changes
            newest[change.table] = Fingerprint.of(receipt.offset, change.key, change.value)
        applied = {table: one.offset for table, one in newest.items()}
        self.store.apply(changes, applied, now_ms=time.time_ns() // 1_000_000, prints=newest)
        for topic, done in finished.items():
            self.offsets[topic].finish(done)
        of_outputs = iter(receipts[len(changes) :])
        for entry in group:
            delivered = [*itertools.islice(of_outputs, len(entry.commit.outputs))]
            if entry.commit.delivered is not None:
                entry.commit.delivered(delivered)
            if not entry.committed.done():
                entry.committed.set_result(None)
        self.observe(commits, time.monotonic() - began)

    async def _deliver(self, records: Sequence[Outgoing]) -> list[RecordMetadata]:
        deliveries: list[asyncio.Future[RecordMetadata]] = []
        try:
            for number, record in enumerate(records, start=1):
                deliveries.append(await self._send(record))
                if number % _AT_ONCE == 0:
                    await asyncio.sleep(0)
        except RECORD_ERRORS:
            await asyncio.gather(*deliveries, return_exceptions=True)  # an abort must not overtake the sends
            raise
        return await _receipts_of(deliveries)

    async def _send(self, record: Outgoing) -> asyncio.Future[RecordMetadata]:
        return await self.producer.send(
            record.topic,
            record.value,
            key=record.key,
            partition=None if record.by_key else self.partition if record.partition is None else record.partition,
            headers=list(record.headers),
            timestamp_ms=record.timestamp,
        )

    async def _commit_offsets(self, finished: Mapping[str, Sequence[int]]) -> None:
        handover = self.handover(finished.get(REQUESTS, ()), self.epoch)
        heads = {self._at(REQUESTS): OffsetAndMetadata(handover.head, encode_metadata(handover))}
        for topic, done in finished.items():
            if topic != REQUESTS:
                offsets = self.offsets[topic]
                ahead = Handover(offsets.head(done), self.epoch, ahead=tuple(offsets.ahead(done)))
                heads[self._at(topic)] = OffsetAndMetadata(ahead.head, encode_metadata(ahead))
        asked_at = time.monotonic()
        await self.producer.send_offsets_to_transaction(heads, self.settings.group)
        await self.producer.commit_transaction()
        self.confirmed_at = asked_at

    def _at(self, topic: str) -> TopicPartition:
        return TopicPartition(self.settings.topic(topic), self.partition)

    def _changelog_record(self, change: RowChange) -> Outgoing:
        return Outgoing(changelog_topic(self.settings, change.table), change.key, change.value)


async def _receipts_of(deliveries: Sequence[asyncio.Future[RecordMetadata]]) -> list[RecordMetadata]:
    """One after the other: most share a request to the broker, and are there once the first of them is.
    `asyncio.gather` adds a callback to each, which is much of what a busy worker does.
    """
    try:
        return [await delivery for delivery in deliveries]
    except BaseException:
        for delivery in deliveries:
            delivery.add_done_callback(_retrieve)
        raise


def _retrieve(delivery: asyncio.Future[RecordMetadata]) -> None:
    """Its error is known by another delivery of the same transaction."""
    if not delivery.cancelled():
        delivery.exception()
