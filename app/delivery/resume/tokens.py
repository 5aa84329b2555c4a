"""Write the events of one partition's answers, under one epoch at a time.

Events are sent immediately through an idempotent producer that all partitions share, outside any transaction. An event
counts only after its delivery: before a request is committed, the delivery of all its events is awaited, and a failed
delivery makes the partition start over from what the log holds (partition.py).

While a worker has many undelivered events, an answer waits for the delivery of its last event before it sends the next
one, and the tokens that the engine draws meanwhile become one event. Every event costs the worker, the broker and each
reader the same, however many tokens it holds. The first token never waits: it has no event before it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec
from aiokafka import AIOKafkaProducer
from aiokafka.structs import RecordMetadata

from app.delivery.clock import BrokerClock
from app.wire.codec import encode
from app.wire.event import TokenEvent

BUSY = 16


@dataclass(slots=True)
class Undelivered:
    """How many events of all partitions of a worker are sent and not delivered yet; from `busy_at` on it is busy."""

    count: int = 0
    busy_at: int = BUSY

    @property
    def is_busy(self) -> bool:
        return self.count >= self.busy_at


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
        clock: BrokerClock,
        undelivered: Undelivered,
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._partition = partition
        self._wire_format = wire_format
        self._on_failure = on_failure
        self._clock = clock
        self._undelivered = undelivered
        self._pending: set[asyncio.Future[RecordMetadata]] = set()
        self._open = asyncio.Event()
        self._sending = 0
        self._none_sending = asyncio.Event()
        self._none_sending.set()
        self.epoch = -1
        self.position = 0

    @property
    def is_busy(self) -> bool:
        """Whether an answer should wait for the delivery of its last event before it sends the next one."""
        return self._undelivered.is_busy

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
        self._undelivered.count -= len(self._pending)
        self._pending.clear()

    async def send(
        self, event: TokenEvent, key: bytes | None, trace_headers: Sequence[tuple[str, bytes]] = ()
    ) -> asyncio.Future[RecordMetadata]:
        """Hand the event to the producer; the future resolves with its delivery."""
        while not self._open.is_set():  # events may be held again before this task runs
            await self._open.wait()
        self._sending += 1
        self._none_sending.clear()
        try:
            sent_at = time.monotonic()
            delivery = await self._send(event, key, trace_headers)
            self._pending.add(delivery)
            self._undelivered.count += 1
            delivery.add_done_callback(partial(self._delivered, sent_at))
        finally:
            self._sending -= 1
            if not self._sending:
                self._none_sending.set()
        return delivery

    async def _send(
        self, event: TokenEvent, key: bytes | None, trace_headers: Sequence[tuple[str, bytes]]
    ) -> asyncio.Future[RecordMetadata]:
        stamped = msgspec.structs.replace(event, epoch=self.epoch, timestamp=self.now())
        value, headers = encode(stamped, self._wire_format)
        headers.extend(trace_headers)
        return await self._producer.send(self._topic, value, key=key, partition=self._partition, headers=headers)

    def _delivered(self, sent_at: float, delivery: asyncio.Future[RecordMetadata]) -> None:
        if delivery in self._pending:
            self._pending.discard(delivery)
            self._undelivered.count -= 1
        if delivery.cancelled():
            return
        error = delivery.exception()
        if error is not None:
            self._on_failure(error)
        else:
            self._clock.acknowledged(delivery.result(), sent_at)
            self.position = max(self.position, delivery.result().offset + 1)
