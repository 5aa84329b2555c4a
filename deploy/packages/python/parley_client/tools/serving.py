"""A consumer of `tool-calls` that writes to `tool-results`, over aiokafka alone.

Calls run at once and end in any order. The offset that is committed is that of the first call whose result is not
written yet: after a crash the calls from there on run again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aiokafka import AIOKafkaProducer, ConsumerRecord, TopicPartition

log = logging.getLogger("parley_client.tools")

Answer = Callable[..., Awaitable[tuple[bytes, list[tuple[str, bytes]]] | None]]

_AT_ONCE = 64
_POLL_MS = 500
_AGAIN_S = 1.0


class _Book:
    """The calls of one partition: those that run, and the offset behind all that were read."""

    def __init__(self) -> None:
        self.running: set[int] = set()
        self.next = 0

    @property
    def committable(self) -> int:
        return min(self.running, default=self.next)


async def serve(answer: Answer, brokers: str, group: str, prefix: str, options: Mapping[str, Any]) -> None:
    """Answer calls until cancelled."""
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener  # noqa: PLC0415 - an extra
    from aiokafka.errors import KafkaError  # noqa: PLC0415

    books: dict[TopicPartition, _Book] = {}
    tasks: set[asyncio.Task[None]] = set()
    slots = asyncio.Semaphore(_AT_ONCE)

    class Forgetful(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
            for at in revoked:
                books.pop(at, None)

        def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None: ...

    async def handle(book: _Book, record: ConsumerRecord) -> None:
        try:
            await _handle(answer, producer, f"{prefix}tool-results", record)
            book.running.discard(record.offset)
        except KafkaError as error:  # its offset stays, so the call runs again when the partition is assigned anew
            log.error("a tool's result could not be written: %r", error)
        finally:
            slots.release()

    producer = AIOKafkaProducer(bootstrap_servers=brokers, enable_idempotence=True, **options)
    how = {"group_id": group, "enable_auto_commit": False, "auto_offset_reset": "earliest"}
    consumer = AIOKafkaConsumer(bootstrap_servers=brokers, isolation_level="read_committed", **how, **options)
    await producer.start()
    try:
        await consumer.start()
        consumer.subscribe([f"{prefix}tool-calls"], listener=Forgetful())
        while True:
            for at, records in (await consumer.getmany(timeout_ms=_POLL_MS)).items():
                book = books.setdefault(at, _Book())
                for record in records:
                    await slots.acquire()
                    book.running.add(record.offset)
                    book.next = record.offset + 1
                    task = asyncio.create_task(handle(book, record))
                    tasks.add(task)
                    task.add_done_callback(tasks.discard)
            if heads := {at: book.committable for at, book in books.items() if book.next}:
                with suppress(KafkaError):  # a rebalance: the next owner of the partition commits
                    await consumer.commit(heads)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await consumer.stop()
        await producer.stop()


async def _handle(answer: Answer, producer: AIOKafkaProducer, topic: str, record: ConsumerRecord) -> None:
    """Write the result; again while the broker's error may pass."""
    from aiokafka.errors import KafkaError, KafkaTimeoutError, MessageSizeTooLargeError  # noqa: PLC0415

    answered = await answer(record.value, record.headers)
    while answered is not None:
        value, headers = answered
        try:
            await producer.send_and_wait(topic, value, key=record.key, headers=headers)
        except MessageSizeTooLargeError:
            log.error("a result of %d bytes is larger than the topic takes: the call ends by its time", len(value))
            return
        except KafkaError as error:
            if not error.retriable and not isinstance(error, KafkaTimeoutError):
                raise
            await asyncio.sleep(_AGAIN_S)
        else:
            return
