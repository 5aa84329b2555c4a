"""A plain consumer of `tool-calls` that writes to `tool-results`.

Calls run at once and end in any order, so a slow one holds back no other. The offset that is committed is that of the
first call whose result is not written yet (offsets.py). After a crash, the calls from there on run again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from app.delivery.commits.handover import Offsets
from app.kafka.clients import producer as producer_for
from app.kafka.clients import start, stop
from app.kafka.readable import ReadableConsumer
from app.settings import Settings

log = logging.getLogger(__name__)

Answer = Callable[..., Awaitable[tuple[bytes, list[tuple[str, bytes]]] | None]]

_AT_ONCE = 64
_POLL_MS = 500


class ToolServer:
    """`answer` turns the value and the headers of a call into those of its result, or into None for none."""

    def __init__(self, settings: Settings, group: str, answer: Answer) -> None:
        self._settings = settings
        self._group = group
        self._answer = answer
        self._offsets: dict[TopicPartition, Offsets] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def serve(self) -> None:
        """Answer calls until cancelled; raises `KafkaUnusableError`."""
        consumer = ReadableConsumer(
            **self._settings.cluster.options(),
            group_id=self._group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        producer = producer_for(self._settings.cluster)
        await start(producer)
        try:
            await start(consumer)
            consumer.subscribe([self._settings.topic("tool-calls")], listener=_Forgetful(self._offsets))
            await self._follow(consumer, producer)
        finally:
            for task in self._running:
                task.cancel()
            await asyncio.gather(*self._running, return_exceptions=True)
            await stop(consumer)
            await stop(producer)

    async def _follow(self, consumer: AIOKafkaConsumer, producer: AIOKafkaProducer) -> None:
        committed: dict[TopicPartition, int] = {}
        while True:
            for at, records in (await consumer.getmany(timeout_ms=_POLL_MS)).items():
                for record in records:
                    offsets = self._offsets.setdefault(at, Offsets(next=record.offset))
                    if offsets.add(record.offset, 0):
                        await self._slots.acquire()
                        self._begin(producer, offsets, record)
            heads = {at: offsets.head() for at, offsets in self._offsets.items()}
            if heads != committed:
                with suppress(KafkaError):  # a rebalance: the next owner of the partition commits
                    await consumer.commit(heads)
                    committed = heads

    def _begin(self, producer: AIOKafkaProducer, offsets: Offsets, record: ConsumerRecord) -> None:
        task = asyncio.create_task(self._handle(producer, offsets, record))
        self._running.add(task)
        task.add_done_callback(self._ended)

    async def _handle(self, producer: AIOKafkaProducer, offsets: Offsets, record: ConsumerRecord) -> None:
        answered = await self._answer(record.value, record.headers)
        if answered is not None:
            value, headers = answered
            topic = self._settings.topic("tool-results")
            await producer.send_and_wait(topic, value, key=record.key, headers=headers)
        offsets.finish([record.offset])

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._slots.release()
        if not task.cancelled() and (error := task.exception()) is not None:
            # The offset stays where it is, so the call runs again when the partition is assigned anew.
            log.error("a tool's result could not be written: %r", error)


class _Forgetful(ConsumerRebalanceListener):
    """Partitions that come back begin at their committed offset again."""

    def __init__(self, offsets: dict[TopicPartition, Offsets]) -> None:
        self._offsets = offsets

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        for at in revoked:
            self._offsets.pop(at, None)

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None: ...
