"""Write the events of one partition's answers, under one epoch at a time.

Events are sent immediately through an idempotent producer that all partitions share, outside any transaction. An event
counts only after its delivery: before a request is committed, the delivery of all its events is awaited, and a failed
delivery makes the partition start over from what the log holds (partition.py). A writer then gets `LostError`.

An event that no record can hold is the fault of its answer, not of the broker: nothing is sent, and the writer gets
`EventTooLargeError`. If only the broker finds it too large, because the topic's limit was lowered, it was sent among
others; the partition starts over, and `on_refused` names the request, which then ends.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial

import msgspec
from aiokafka import AIOKafkaProducer
from aiokafka.structs import RecordMetadata

from app.delivery.accepted import RequestKey
from app.delivery.clients import RECORD_ERRORS, RETRIABLE_ERRORS
from app.delivery.commits.commit import LostError
from app.delivery.record import HeaderList, Outgoing
from app.delivery.resume.pace import TokenPace
from app.kafka.broker_clock import BrokerClock
from app.wire.codec import encode
from app.wire.event import TokenEvent
from app.wire.record_size import MAX_RECORD_BYTES
from models.interface.generation import Stream


class EventTooLargeError(Exception):
    """An event is larger than a record of Kafka can be; it was not sent."""

    def __init__(self, size: int) -> None:
        super().__init__(f"it takes {size} bytes, and a record holds {MAX_RECORD_BYTES}")


class EventRefusedError(Exception):
    """The broker has refused an event of this answer for its size: `tokens` takes smaller records than it should."""


class TokenLog:
    """The events of one partition; `position` is the offset after the newest delivered one."""

    def __init__(
        self,
        producer: AIOKafkaProducer,
        topic: str,
        partition: int,
        *,
        wire_format: str,
        on_failure: Callable[[BaseException], None],
        on_refused: Callable[[RequestKey], None] = lambda _key: None,
        clock: BrokerClock,
        pace: TokenPace,
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._partition = partition
        self._wire_format = wire_format
        self._on_failure = on_failure
        self._on_refused = on_refused
        self._clock = clock
        self._pace = pace
        self._pending: set[asyncio.Future[RecordMetadata]] = set()
        self._open = asyncio.Event()
        self._sending = 0
        self._none_sending = asyncio.Event()
        self._none_sending.set()
        self.epoch = -1
        self.position = 0

    async def pause(self, delivery: asyncio.Future[RecordMetadata], stream: Stream | None = None) -> None:
        """Wait until an answer may send its next event, after the one with this delivery (pace.py)."""
        await self._pace.end_of_window(stream)
        if self._pace.is_behind:
            await self.delivered([delivery])

    @staticmethod
    async def delivered(deliveries: Sequence[asyncio.Future[RecordMetadata]]) -> None:
        """Wait for the deliveries, which are in the order of their sends. Raises `LostError` if one has failed.

        Those of one topic complete in that order, so once the last has, hardly any other is left to wait for. An answer
        and a partition that is being released may wait for them at the same time: a caller that is cancelled leaves
        them alone.
        """
        try:
            for delivery in reversed(deliveries):
                await (delivery if delivery.done() else asyncio.shield(delivery))
        except RETRIABLE_ERRORS as error:
            raise LostError from error  # `_delivered` has reported it

    def now(self) -> int:
        """The broker's clock, Unix milliseconds."""
        return self._clock.now()

    def open(self, epoch: int) -> None:
        """Allow events under `epoch`, the offset of the fence before them."""
        self.epoch = epoch
        self.position = max(self.position, epoch + 1)
        self._open.set()

    async def hold(self) -> None:
        """Hold back further events, and wait for deliveries in progress: a fence must not overtake them."""
        self._open.clear()
        await self._none_sending.wait()
        if self._pending:
            await asyncio.gather(*self._pending)

    def close(self) -> None:
        """The ownership has ended. Its producer may have failed, and then some deliveries are never resolved."""
        self._pace.undelivered -= len(self._pending)
        self._pending.clear()

    async def send(
        self, event: TokenEvent, key: bytes | None, trace_headers: Sequence[tuple[str, bytes]] = ()
    ) -> asyncio.Future[RecordMetadata]:
        """Hand the event to the producer; the future resolves with its delivery.

        Raises:
            EventTooLargeError: no record can hold it.
            LostError: the producer has failed, and the ownership ends.
        """
        while not self._open.is_set():  # events may be held again before this task runs
            await self._open.wait()
        self._sending += 1
        self._none_sending.clear()
        try:
            sent_at = time.monotonic()
            delivery = await self._send(event, key, trace_headers)
            self._pending.add(delivery)
            self._pace.undelivered += 1
            self._pace.count(len(event.tokens or ()))
            delivery.add_done_callback(partial(self._delivered, sent_at, (event.user_id, event.request_id)))
        finally:
            self._sending -= 1
            if not self._sending:
                self._none_sending.set()
        return delivery

    async def send_beside(
        self, records_of: Callable[[int], Sequence[Outgoing]], key: RequestKey
    ) -> list[asyncio.Future[RecordMetadata]]:
        """Hand records for topics of others to the producer, which `records_of` makes for the epoch in force. Raises as
        `send`.
        """
        while not self._open.is_set():
            await self._open.wait()
        deliveries = []
        for record in records_of(self.epoch):
            delivery = await self._hand_over(record.topic, record.value, record.key, None, record.headers)
            delivery.add_done_callback(partial(self._delivered_beside, key))
            deliveries.append(delivery)
        return deliveries

    def _delivered_beside(self, key: RequestKey, delivery: asyncio.Future[RecordMetadata]) -> None:
        if not delivery.cancelled() and (error := delivery.exception()) is not None:
            self._failed(key, error)

    async def _send(
        self, event: TokenEvent, key: bytes | None, trace_headers: Sequence[tuple[str, bytes]]
    ) -> asyncio.Future[RecordMetadata]:
        stamped = msgspec.structs.replace(event, epoch=self.epoch, timestamp=self.now())
        value, headers = encode(stamped, self._wire_format)
        return await self._hand_over(self._topic, value, key, self._partition, (*headers, *trace_headers))

    async def _hand_over(
        self, topic: str, value: bytes | None, key: bytes | None, partition: int | None, headers: HeaderList
    ) -> asyncio.Future[RecordMetadata]:
        try:
            return await self._producer.send(topic, value, key=key, partition=partition, headers=[*headers])
        except RECORD_ERRORS:
            raise EventTooLargeError(len(value or b"")) from None
        except RETRIABLE_ERRORS as error:
            self._on_failure(error)
            raise LostError from error

    def _delivered(
        self, sent_at: float, key: tuple[str | None, str | None], delivery: asyncio.Future[RecordMetadata]
    ) -> None:
        if delivery in self._pending:
            self._pending.discard(delivery)
            self._pace.undelivered -= 1
        if delivery.cancelled():
            return
        error = delivery.exception()
        if error is not None:
            self._failed(key, error)
        else:
            self._clock.acknowledged(delivery.result(), sent_at)
            self.position = max(self.position, delivery.result().offset + 1)

    def _failed(self, key: tuple[str | None, str | None], error: BaseException) -> None:
        user_id, request_id = key
        if isinstance(error, RECORD_ERRORS) and user_id is not None and request_id is not None:
            self._on_refused((user_id, request_id))
        self._on_failure(error)
