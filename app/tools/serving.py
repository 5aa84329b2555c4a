"""A plain consumer of `tool-calls` that writes to `tool-results`.

Calls run at once and end in any order, so a slow one holds back no other. The offset that is committed is that of the
first call whose result is not written yet (offsets.py). After a crash, the calls from there on run again.

Only the broker's errors keep an offset where it is, and the result is sent again until they pass. What the broker
rejects for its size is an error that the model reads: each restart would run all later calls of all users again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError, KafkaTimeoutError

from app.delivery.clients import RECORD_ERRORS
from app.delivery.commits.handover import Offsets
from app.kafka.clients import producer as producer_for
from app.kafka.clients import start, stop
from app.kafka.readable import ReadableConsumer
from app.settings import Settings

log = logging.getLogger(__name__)

Result = tuple[bytes, list[tuple[str, bytes]]]
Answer = Callable[..., Awaitable[Result | None]]
Refuse = Callable[..., Result]

_AT_ONCE = 64
_POLL_MS = 500
_AGAIN_S = 1.0


class ToolServer:
    """`answer` turns the value and the headers of a call into those of its result, or into None for none; `refuse` into
    those of an error, whose words it gets.
    """

    def __init__(self, settings: Settings, group: str, answer: Answer, refuse: Refuse) -> None:
        self._settings = settings
        self._group = group
        self._answer = answer
        self._refuse = refuse
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
        try:
            result = await self._answer(record.value, record.headers)
            if result is not None and not await self._write(producer, record, result):
                result = self._refuse(record.value, record.headers, "error: the result is larger than the topic takes")
                await self._write(producer, record, result)
        except KafkaError:
            raise
        except Exception:
            log.exception("the call at %s[%d]@%d has no result", record.topic, record.partition, record.offset)
        offsets.finish([record.offset])

    async def _write(self, producer: AIOKafkaProducer, record: ConsumerRecord, result: Result) -> bool:
        """False if no record can hold it. Raises `KafkaError` for what sending again does not mend."""
        value, headers = result
        while True:
            try:
                await producer.send_and_wait(
                    self._settings.topic("tool-results"), value, key=record.key, headers=headers
                )
            except RECORD_ERRORS as error:
                log.warning("a result of %d bytes is refused: %s", len(value), error)
                return False
            except KafkaError as error:
                if not error.retriable and not isinstance(error, KafkaTimeoutError):
                    raise
                log.warning("a result is written again: %r", error)
                await asyncio.sleep(_AGAIN_S)
            else:
                return True

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
