"""One ownership of a partition: from the fence that begins it to the trouble or the revocation that ends it.

Taking over:

    1. Start the partition's transactional producer. The broker fences the former owner and settles what it left open.
    2. Read the checkpoint. A worker that owned the partition until now, and finds the epoch of somebody else in it,
       was replaced meanwhile and has no business here any more.
    3. Restore the store from the changelogs.
    4. Write the fence, in a transaction that commits the checkpoint under the new epoch.
    5. Read what was said before the fence, of requests that have no end yet.

There is no other way to begin: a crash, a rebalance and a broker that was away all end in these steps. What was under
way when trouble came is dropped and found again in the log.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.structs import OffsetAndMetadata

from app.delivery.changelog import changelogs, restore
from app.delivery.checkpoint import Checkpoint, decode_checkpoint
from app.delivery.claim import Claim
from app.delivery.clients import TROUBLE, Clients
from app.delivery.finish import Finisher, FinishQueue
from app.delivery.observer import UNOBSERVED, Observer
from app.delivery.offsets import Offsets
from app.delivery.record import REQUESTS, SOURCES, Outgoing, Record
from app.delivery.said import RequestKey, read_said
from app.delivery.token_producer import TokenProducer, stop_producer
from app.delivery.tokens import TokenLog
from app.reader.answer import Answer
from app.settings import Settings
from app.wire.codec import encode
from app.wire.event import EventType, TokenEvent
from tables import records
from tables.records import Table
from tables.store import PartitionStore

# A changelog keeps tombstones for a day (Kafka's delete.retention.ms); half of it leaves room for a slow restore.
TOMBSTONES_KEPT_MS = 12 * 3600 * 1000


OpenStore = Callable[..., PartitionStore]
"""As `PartitionStore.open`."""


class FencedError(Exception):
    """Another worker has taken the partition over."""


@dataclass(frozen=True, slots=True)
class Place:
    """Which partition, with what."""

    number: int
    settings: Settings
    clients: Clients
    token_producer: TokenProducer
    queue: FinishQueue
    open_store: OpenStore = PartitionStore.open
    observer: Observer = UNOBSERVED

    def topic_partition(self, topic: str) -> TopicPartition:
        return TopicPartition(self.settings.topic(topic), self.number)

    @property
    def store_path(self) -> Path:
        return self.settings.data_dir / "tables" / f"{self.settings.group}-{self.number}"


@dataclass(frozen=True, slots=True)
class Start:
    """Where to begin: the checkpoint, and the first offset of each topic that is not finished."""

    checkpoint: Checkpoint
    heads: Mapping[str, int]


class Ownership:
    """What the owner of a partition holds. Made by `take_over` alone."""

    def __init__(
        self, place: Place, producer: AIOKafkaProducer, tokens: TokenLog, store: PartitionStore, start: Start
    ) -> None:
        self.place = place
        self.tokens = tokens
        self.store = store
        self.offsets = {
            topic: Offsets.resume(head, start.checkpoint.ahead if topic == REQUESTS else ())
            for topic, head in start.heads.items()
        }
        self.claims: dict[RequestKey, Claim] = {}
        self.refused: set[RequestKey] = set()
        self.erasing: dict[str, int] = {}  # users whose rows are being deleted, with the time of their erasure
        self.said: dict[RequestKey, Answer] = {}
        self.restored = 0
        self._fencing = asyncio.Lock()
        self._producer = producer
        self._inherited = start.checkpoint.tokens_offset
        self._inherited_floor = start.checkpoint.floor
        self._first_epoch: int | None = None
        self._resume_until: int | None = None  # None: not known yet, so everything inherited is still needed
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.finisher = Finisher(
            place.settings,
            place.number,
            producer=producer,
            store=store,
            offsets=self.offsets,
            queue=place.queue,
            tokens_from=self._tokens_from,
            observe=partial(place.observer.committed, place.number),
        )

    @property
    def epoch(self) -> int:
        return self.tokens.epoch

    async def run(self) -> None:
        """Commit finishes until something fails, and raise that."""
        committing = asyncio.ensure_future(self.finisher.run())
        try:
            await asyncio.wait({committing, self._failed}, return_when=asyncio.FIRST_COMPLETED)
            for ended in (self._failed, committing):
                if ended.done():
                    ended.result()
        finally:
            committing.cancel()
            with suppress(asyncio.CancelledError, *TROUBLE):
                await committing

    def fail(self, error: BaseException) -> None:
        """Nothing said or finished from now on can be trusted to be in the log: end this ownership."""
        if not self._failed.done():
            self._failed.set_exception(error)
            # Nobody waits for it where the ownership ends at the same moment.
            self._failed.exception()

    def take(self, record: Record) -> bool:
        """Open the record; False where it was taken or finished before."""
        tokens_from = self._inherited if self.resuming else self.tokens.position
        return self.offsets[record.topic].take(record.offset, tokens_from, record.after)

    @property
    def resuming(self) -> bool:
        """Whether a request of a former owner may still come."""
        if self.said and self._resume_until is not None and self._next_request >= self._resume_until:
            self.said.clear()
        return self._resume_until is None or bool(self.said)

    @property
    def _next_request(self) -> int:
        return self.offsets[REQUESTS].next

    def known(self, key: RequestKey) -> bool:
        """Whether the request is running or has ended within the time of deduplication."""
        return key in self.claims or key in self.refused or self.store.get(Table.ENDED, records.key(*key)) is not None

    async def write_fence(self, mine: set[int]) -> None:
        """Begin a new epoch. Its number is added to `mine` before it can be committed."""
        value, headers = encode(TokenEvent(type=EventType.FENCE), self.place.settings.wire_format)
        fence = Outgoing(self.place.settings.topic("tokens"), None, value, headers)
        async with self._fencing:
            await self.tokens.hold()
            epoch = await self.finisher.fence(fence, mine)
            self._first_epoch = epoch if self._first_epoch is None else self._first_epoch
            self.tokens.open(epoch)

    async def end(self) -> None:
        """Let everything go. The broker aborts a transaction that is still open when the next owner starts."""
        await stop_producer(self._producer)
        self.store.close()

    def _tokens_from(self, finished: Sequence[int]) -> tuple[int, int]:
        """Where a successor begins to read what was said, and the newest epoch known that began before that."""
        if self.resuming:
            return self._inherited, self._inherited_floor
        began = self.offsets[REQUESTS].tokens_from(finished)
        since = self.tokens.position if began is None else began
        seen = self._first_epoch is not None and since > self._first_epoch
        return since, self._first_epoch if seen and self._first_epoch is not None else self._inherited_floor

    async def restore(self, reader: AIOKafkaConsumer) -> None:
        logs = changelogs(self.place.settings, self.place.number)
        self.restored = await restore(reader, self.store, logs)

    async def recall(self, reader: AIOKafkaConsumer, former: Checkpoint) -> None:
        """Read what was said before the fence, and up to which request it may matter."""
        requests = self.place.topic_partition("requests")
        said = await read_said(
            reader,
            self.place.topic_partition("tokens"),
            start=former.tokens_offset,
            floor=former.floor,
            fence=self.epoch,
        )
        self.said = {key: answer for key, answer in said.items() if not self.known(key)}
        self._resume_until = (await reader.end_offsets([requests]))[requests]


async def take_over(place: Place, mine: set[int]) -> Ownership:
    """Become the owner. `mine` are the epochs that this worker has had without a break; empty at an assignment.

    Raises:
        FencedError: somebody else has owned the partition since.
        TROUBLE: the broker could not be reached; nothing is held, try again.
        StoreLockedError: the data directory is another process's.
    """
    if mine:
        _check_unbroken(await _committed(place), mine, place)
    producer = place.clients.transactional_producer(place.number)
    reader = place.clients.log_reader()
    store: PartitionStore | None = None
    try:
        await asyncio.gather(producer.start(), reader.start())
        start = await _start(place, reader, mine)
        store = open_store(place)
        ownership = _own(place, producer, await place.token_producer.current(), store, start)
        await ownership.restore(reader)
        await ownership.write_fence(mine)
        await ownership.recall(reader, start.checkpoint)
        await reader.stop()
    except BaseException:
        await _give_up(store, producer, reader)
        raise
    mine.clear()
    mine.add(ownership.epoch)
    return ownership


async def _give_up(store: PartitionStore | None, producer: AIOKafkaProducer, reader: AIOKafkaConsumer) -> None:
    """The store first, since the rest can be cancelled: one that stays open locks the next owner out."""
    if store is not None:
        store.close()
    await stop_producer(producer)
    await reader.stop()


async def _committed(place: Place) -> Checkpoint:
    return _checkpoint((await place.clients.committed(place.number))[REQUESTS])


def _checkpoint(committed: OffsetAndMetadata) -> Checkpoint:
    return decode_checkpoint(committed.offset, committed.metadata or "")


async def _start(place: Place, reader: AIOKafkaConsumer, mine: set[int]) -> Start:
    committed = await place.clients.committed(place.number)
    checkpoint = _checkpoint(committed[REQUESTS])
    if mine:
        _check_unbroken(checkpoint, mine, place)
    # Ours from here on, whatever becomes of the fence's transaction: nobody else can commit before the next take-over.
    mine.add(checkpoint.epoch)
    first = await reader.beginning_offsets([place.topic_partition(topic) for topic in SOURCES])
    heads = {topic: max(committed[topic].offset, first[place.topic_partition(topic)]) for topic in SOURCES}
    return Start(checkpoint, heads)


def _check_unbroken(checkpoint: Checkpoint, mine: set[int], place: Place) -> None:
    if checkpoint.epoch not in mine:
        raise FencedError(
            f"partition {place.number} was taken over by another worker (epoch {checkpoint.epoch}, own {max(mine)})"
        )


def open_store(place: Place) -> PartitionStore:
    now_ms = time.time_ns() // 1_000_000
    return place.open_store(place.store_path, now_ms=now_ms, tombstones_kept_ms=TOMBSTONES_KEPT_MS)


def _own(
    place: Place,
    producer: AIOKafkaProducer,
    token_producer: AIOKafkaProducer,
    store: PartitionStore,
    start: Start,
) -> Ownership:
    def failed(error: BaseException) -> None:
        place.token_producer.retire(token_producer)
        ownership.fail(error)

    tokens = TokenLog(
        token_producer,
        place.settings.topic("tokens"),
        place.number,
        wire_format=place.settings.wire_format,
        on_failure=failed,
    )
    ownership = Ownership(place, producer, tokens, store, start)
    return ownership
