"""The Kafka clients of a simulated process: calls that take time, get lost, and fail before or after their effect."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from aiokafka import TopicPartition
from aiokafka.errors import (
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    OutOfOrderSequenceNumber,
    ProducerClosed,
)
from aiokafka.structs import OffsetAndMetadata, RecordMetadata

from app.delivery.clients import Clients
from app.delivery.record import SOURCES
from app.kafka.reading import UnreadableRecord
from app.settings import Settings
from app.wire.ids import partition_for
from app.wire.record_size import MAX_RECORD_BYTES
from tests.simulation.broker import Broker, Entry, Log, Transaction
from tests.simulation.world import SteppedLoop

T = TypeVar("T")

REQUEST_TIMEOUT_S = 40.0
_RETRY_S = 0.1
_MOST_READ = 50


class Link(Protocol):
    """A process's way to the broker."""

    broker: Broker
    loop: SteppedLoop

    @property
    def up(self) -> bool: ...

    @property
    def cut(self) -> bool:
        """The process is gone, and nothing that it has sent is under way any more."""


async def call(link: Link, effect: Callable[[], T]) -> T:
    """One request and its reply; retried while the broker is away, as aiokafka does."""
    world = link.broker.world
    answered: asyncio.Future[T] = link.loop.create_future()
    expires = world.now + REQUEST_TIMEOUT_S

    def reply(error: BaseException | None, result: Any = None) -> None:
        def take() -> None:
            if not answered.done():
                if error is None:
                    answered.set_result(result)
                else:
                    answered.set_exception(error)

        world.after(world.latency(), lambda: link.loop.call_soon(take) and None)

    def arrive() -> None:
        if link.cut:
            return
        if not link.up:
            if world.now > expires:
                reply(KafkaTimeoutError())
            else:
                world.after(_RETRY_S, arrive)
            return
        chance = world.random.random()
        if chance < link.broker.trouble / 2:
            reply(KafkaConnectionError("lost before its effect"))
            return
        try:
            result = effect()
        except KafkaError as error:
            reply(error)
            return
        reply(KafkaConnectionError("lost after its effect") if chance < link.broker.trouble else None, result)

    if not link.loop.dead:  # coroutines that are closed run their last lines, which no dead process does
        world.after(world.latency(), arrive)
    return await answered


class Pipe:
    """Records on their way in the order in which they were sent; once one has failed, no later one arrives."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._queue: deque[tuple[Callable[[], int], asyncio.Future[RecordMetadata], TopicPartition, float]] = deque()
        self._moving = False
        self.broken: BaseException | None = None

    def send(self, at: TopicPartition, effect: Callable[[], int]) -> asyncio.Future[RecordMetadata]:
        delivery: asyncio.Future[RecordMetadata] = self._link.loop.create_future()
        if self._link.loop.dead:
            return delivery
        if self.broken is not None:
            delivery.set_exception(self.broken)
            delivery.exception()
            return delivery
        self._queue.append((effect, delivery, at, self._link.broker.world.now + REQUEST_TIMEOUT_S))
        self._move(self._link.broker.world.latency())
        return delivery

    async def flush(self) -> None:
        """Wait until nothing is on its way; its sender may have given up waiting."""
        while self._queue:
            await asyncio.sleep(0.005)

    def _move(self, delay: float) -> None:
        if not self._moving and self._queue:
            self._moving = True
            self._link.broker.world.after(delay, self._arrive)

    def _arrive(self) -> None:
        self._moving = False
        world = self._link.broker.world
        if self._link.cut:
            return
        if not self._link.up:
            if world.now > self._queue[0][3]:
                self._break(KafkaTimeoutError())
            else:
                self._move(_RETRY_S)
            return
        for _ in range(world.random.randint(1, len(self._queue))):
            effect, delivery, at, _ = self._queue[0]
            if world.random.random() < self._link.broker.trouble:
                # The client gives up; what it has sent may arrive all the same, and late.
                if world.random.random() < 0.5:
                    world.after(10 * world.latency(), lambda effect=effect: self._late(effect))
                self._break(KafkaTimeoutError())
                return
            self._queue.popleft()
            try:
                offset = effect()
            except KafkaError as error:
                self._queue.appendleft((effect, delivery, at, 0.0))
                self._break(error)
                return
            self._tell(delivery, self._link.broker.receipt(at, offset))
        self._move(world.latency())

    def _late(self, effect: Callable[[], int]) -> None:
        if self._link.up and not self._link.cut:
            try:
                effect()
            except KafkaError:
                return

    def _break(self, error: BaseException) -> None:
        self.broken = KafkaError(f"the producer has failed before: {error!r}")
        while self._queue:
            self._tell(self._queue.popleft()[1], error)

    def _tell(self, delivery: asyncio.Future[RecordMetadata], outcome: RecordMetadata | BaseException) -> None:
        def take() -> None:
            if delivery.done():
                return
            if isinstance(outcome, BaseException):
                delivery.set_exception(outcome)
                delivery.exception()
            else:
                delivery.set_result(outcome)

        world = self._link.broker.world
        world.after(world.latency(), lambda: self._link.loop.call_soon(take) and None)


class SimProducer:
    """The idempotent producer of token events."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._pipe = Pipe(link)
        self._closed = False
        self._elections = link.broker.elections

    async def start(self) -> None:
        if not self._link.up:
            raise KafkaConnectionError("the broker is away")
        await call(self._link, lambda: None)

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None,
        partition: int | None,
        headers: Any,
        timestamp_ms: int | None = None,
    ) -> asyncio.Future[RecordMetadata]:
        if self._closed:
            raise ProducerClosed
        if partition is None:
            partition = partition_for((key or b"").decode(), self._link.broker.foreign[topic])
        size = sum(len(name) + len(one or b"") for name, one in headers or ())
        if len(value or b"") + len(key or b"") + size > MAX_RECORD_BYTES:
            raise MessageSizeTooLargeError
        at = TopicPartition(topic, partition)
        timestamp = None if timestamp_ms is None else timestamp_ms / 1000
        return self._pipe.send(at, lambda: self._append(at, key, value, headers, timestamp))

    async def stop(self) -> None:
        if self._closed:
            return
        await self._pipe.flush()
        self._closed = True

    def _append(
        self, at: TopicPartition, key: bytes | None, value: bytes | None, headers: Any, timestamp: float | None
    ) -> int:
        if self._elections != self._link.broker.elections:
            raise OutOfOrderSequenceNumber
        return self._link.broker.append(at, key, value, tuple(headers or ()), timestamp=timestamp)


class SimTransactionalProducer(SimProducer):
    def __init__(self, link: Link, name: str) -> None:
        super().__init__(link)
        self._name = name
        self._epoch = -1
        self._in_transaction = False
        self._failed: BaseException | None = None

    async def start(self) -> None:
        await super().start()
        self._epoch = await call(self._link, lambda: self._link.broker.init_producer(self._name))

    async def begin_transaction(self) -> None:
        self._check()
        assert not self._in_transaction
        self._in_transaction = True

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: str
    ) -> None:
        self._check()
        await self._call(lambda: self._transaction().offsets.update(offsets))

    async def abort_transaction(self) -> None:
        self._check()
        await self._pipe.flush()
        await self._call(lambda: self._link.broker.abort_transaction(self._name, self._epoch))
        self._in_transaction = False

    async def commit_transaction(self) -> None:
        self._check()
        await self._pipe.flush()
        await self._call(lambda: self._link.broker.end_transaction(self._name, self._epoch))
        self._in_transaction = False

    async def _call(self, effect: Callable[[], T]) -> T:
        try:
            return await call(self._link, effect)
        except KafkaError as error:
            self._failed = error
            raise

    def _check(self) -> None:
        if self._closed:
            raise ProducerClosed
        if self._failed is not None:
            raise AssertionError("the producer is in a fatal state")

    def _append(
        self, at: TopicPartition, key: bytes | None, value: bytes | None, headers: Any, timestamp: float | None
    ) -> int:
        return self._link.broker.append(at, key, value, tuple(headers or ()), self._transaction(), timestamp)

    def _transaction(self) -> Transaction:
        return self._link.broker.transaction_of(self._name, self._epoch)


class SimReader:
    """A consumer of partitions that are assigned by hand; `committed`: it is read_committed."""

    def __init__(self, link: Link, *, committed: bool = True) -> None:
        self._link = link
        self._committed = committed
        self._positions: dict[TopicPartition, int] = {}

    async def start(self) -> None:
        if not self._link.up:
            raise KafkaConnectionError("the broker is away")
        await call(self._link, lambda: None)

    async def stop(self) -> None:
        await asyncio.sleep(self._link.broker.world.latency())

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        self._positions = dict.fromkeys(partitions, 0)

    def pause(self, *_partitions: TopicPartition) -> None:
        return None

    def resume(self, *_partitions: TopicPartition) -> None:
        return None

    def seek(self, at: TopicPartition, offset: int) -> None:
        self._positions[at] = offset

    async def position(self, at: TopicPartition) -> int:
        return self._positions[at]

    async def end_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        broker = self._link.broker
        if not self._committed:
            return await call(self._link, lambda: {at: broker.log(at).end for at in partitions})
        return await call(self._link, lambda: {at: broker.log(at).stable_end for at in partitions})

    async def beginning_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        broker = self._link.broker
        return await call(self._link, lambda: {at: broker.log(at).start for at in partitions})

    async def getmany(
        self, at: TopicPartition, *, timeout_ms: int, max_records: int = 1000
    ) -> dict[TopicPartition, list[Entry | UnreadableRecord]]:
        world = self._link.broker.world
        most = world.random.randint(1, min(max_records, _MOST_READ))
        until = world.now + timeout_ms / 1000
        log = self._link.broker.log(at)
        read = log.read if self._committed else log.read_uncommitted
        began = self._positions[at]
        try:
            records, position = await call(self._link, lambda: read(began, most))
            while not records and position == began and world.now < until:
                await self._growth(log, until)
                records, position = await call(self._link, lambda: read(began, most))
        except KafkaError:
            await asyncio.sleep(timeout_ms / 1000)
            return {}
        self._positions[at] = position
        return {at: [one.consumed for one in records]} if records else {}

    async def _growth(self, log: Log, until: float) -> None:
        """Returns when the log grows, or at that time: the broker holds a fetch that finds nothing."""
        grown = asyncio.Event()

        def wake() -> None:
            self._link.loop.call_soon(grown.set)

        log.readers.append(wake)
        timer = self._link.loop.call_at(until, grown.set)
        try:
            await grown.wait()
        finally:
            timer.cancel()
            log.readers.remove(wake)


class SimClients(Clients):
    def __init__(self, settings: Settings, link: Link) -> None:
        super().__init__(settings)
        object.__setattr__(self, "link", link)

    link: Link

    def transactional_producer(self, partition: int) -> Any:
        return SimTransactionalProducer(self.link, f"{self.settings.app_id}-{partition}")

    def token_producer(self) -> Any:
        return SimProducer(self.link)

    def log_reader(self, wait_ms: int = 10) -> Any:
        return SimReader(self.link)

    def foreign_reader(self, wait_ms: int) -> Any:
        return SimReader(self.link)

    async def partition_counts(self, topics: Sequence[str]) -> dict[str, int]:
        foreign = self.link.broker.foreign
        return await call(self.link, lambda: {topic: foreign.get(topic, 0) for topic in topics})

    def end_reader(self) -> Any:
        return SimReader(self.link, committed=False)

    async def committed(self, partition: int) -> dict[str, OffsetAndMetadata]:
        if not self.link.up:
            raise KafkaConnectionError("the broker is away")
        names = {name: TopicPartition(self.settings.topic(name), partition) for name in SOURCES}
        committed = self.link.broker.committed
        none = OffsetAndMetadata(-1, "")
        return await call(self.link, lambda: {name: committed.get(at, none) for name, at in names.items()})
