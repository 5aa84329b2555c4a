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
    6. tell the waiting

What arrives during one transaction forms the next group: with any window the first of a group would only wait longer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.structs import OffsetAndMetadata

from app.delivery.changelog import changelog_topic
from app.delivery.checkpoint import Checkpoint, encode_metadata
from app.delivery.offsets import Offsets
from app.delivery.record import REQUESTS, Outgoing, Record
from app.settings import Settings
from tables.records import Change, Table
from tables.store import PartitionStore

# Keeps a transaction short, and far from its timeout, however much has piled up while the broker was away.
GROUP_LIMIT = 256


@dataclass(frozen=True, slots=True)
class Finish:
    """What one record leaves behind. `record` is None where none is finished by it: a sweep, a part of a sweep."""

    record: Record | None = None
    changes: tuple[Change, ...] = ()
    outputs: tuple[Outgoing, ...] = ()


@dataclass(slots=True)
class Waiting:
    finish: Finish
    committed: asyncio.Future[None]
    since: float = field(default_factory=time.monotonic)


class LostError(Exception):
    """The partition is somebody else's now, and this finish was not committed here."""


@dataclass(slots=True)
class FinishQueue:
    """Finishes that wait for the next transaction. It outlives the producers that commit them."""

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

    def drop_records(self) -> None:
        """Forget the finishes of records: these are about to be taken again. The others stay."""
        for entry in self.waiting:
            if entry.finish.record is not None:
                entry.committed.cancel()
        self.waiting = [entry for entry in self.waiting if not entry.committed.cancelled()]

    def close(self) -> None:
        """Nothing will be committed here any more; whoever waits is told."""
        self.closed = True
        for entry in self.waiting:
            if not entry.committed.done():
                entry.committed.set_exception(LostError())
        self.waiting = []


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
        tokens_from: Callable[[Sequence[int]], tuple[int, int]],
        observe: Callable[[Sequence[Finish], float], None] = lambda _finishes, _seconds: None,
    ) -> None:
        self._settings = settings
        self._partition = partition
        self._producer = producer
        self._store = store
        self._offsets = offsets
        self._queue = queue
        self._tokens_from = tokens_from
        self._observe = observe
        self._one_at_a_time = asyncio.Lock()
        self.epoch = -1
        self.committed_at = time.monotonic()

    async def run(self) -> None:
        """Commit group after group until something fails; a failed group is back in the queue then."""
        while True:
            await self._queue.arrived.wait()
            group = self._queue.take()
            if not group:
                continue
            try:
                async with self._one_at_a_time, asyncio.timeout(self._settings.finish_timeout_s):
                    await self._commit(group)
                    self._queue.done()
            except BaseException:
                self._queue.put_back(group)
                raise

    async def fence(self, fence: Outgoing, mine: set[int]) -> int:
        """Write the fence record and make its offset the epoch, in one transaction; returns the epoch.

        The epoch is in `mine` before the commit, whose outcome may never be learnt.
        """
        async with self._one_at_a_time, asyncio.timeout(self._settings.finish_timeout_s):
            await self._producer.begin_transaction()
            (self.epoch,) = await self._deliver([fence])
            mine.add(self.epoch)
            await self._commit_offsets({})
        return self.epoch

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
        offsets = await self._deliver([*map(self._changelog_record, changes), *outputs])
        await self._commit_offsets(finished)
        applied: dict[Table, int] = {}
        for change, offset in zip(changes, offsets, strict=False):  # outputs come after the changes
            applied[change.table] = max(offset, applied.get(change.table, -1))
        self._store.apply(changes, applied, now_ms=time.time_ns() // 1_000_000)
        for topic, done in finished.items():
            self._offsets[topic].finish(done)
        for entry in group:
            if not entry.committed.done():
                entry.committed.set_result(None)
        self._observe(finishes, time.monotonic() - began)

    async def _deliver(self, records: Sequence[Outgoing]) -> list[int]:
        deliveries = [
            await self._producer.send(r.topic, r.value, key=r.key, partition=self._partition, headers=list(r.headers))
            for r in records
        ]
        return [metadata.offset for metadata in await asyncio.gather(*deliveries)]

    async def _commit_offsets(self, finished: Mapping[str, Sequence[int]]) -> None:
        requests = finished.get(REQUESTS, ())
        tokens_offset, floor = self._tokens_from(requests)
        checkpoint = Checkpoint(
            head=self._offsets[REQUESTS].head(requests),
            epoch=self.epoch,
            tokens_offset=tokens_offset,
            floor=floor,
            ahead=tuple(self._offsets[REQUESTS].ahead(requests)),
        )
        heads = {self._at(REQUESTS): OffsetAndMetadata(checkpoint.head, encode_metadata(checkpoint))}
        for topic, done in finished.items():
            if topic != REQUESTS:
                heads[self._at(topic)] = OffsetAndMetadata(self._offsets[topic].head(done), "")
        await self._producer.send_offsets_to_transaction(heads, self._settings.group)
        await self._producer.commit_transaction()
        self.committed_at = time.monotonic()

    def _at(self, topic: str) -> TopicPartition:
        return TopicPartition(self._settings.topic(topic), self._partition)

    def _changelog_record(self, change: Change) -> Outgoing:
        return Outgoing(changelog_topic(self._settings, change.table), change.key, change.value)
