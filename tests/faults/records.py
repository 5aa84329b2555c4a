"""All records of a topic, as any user can read them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from aiokafka import AIOKafkaConsumer, TopicPartition

from app.settings import Settings
from app.wire.codec import decode
from app.wire.turn import Turn

Key = tuple[str, str]
"""The user and the request."""


class Fetched(Protocol):
    """What a verdict reads of a consumer's record."""

    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Sequence[tuple[str, bytes]]: ...


Records = Iterable[Fetched]


async def read_topic(settings: Settings, topic: str) -> list[Fetched]:
    """All committed records of a topic, partition by partition, in offset order."""
    consumer = AIOKafkaConsumer(
        **settings.cluster.options(), isolation_level="read_committed", auto_offset_reset="earliest"
    )
    await consumer.start()
    try:
        partitions = [TopicPartition(settings.topic(topic), number) for number in range(settings.partitions)]
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        found: list[Fetched] = []
        for partition in partitions:
            consumer.pause(*partitions)
            consumer.resume(partition)
            await consumer.seek_to_beginning(partition)
            while await consumer.position(partition) < ends[partition]:
                for records in (await consumer.getmany(partition, timeout_ms=200)).values():
                    found.extend(records)
        return found
    finally:
        await consumer.stop()


def turn_of(record: Fetched) -> Turn:
    return decode(Turn, record.value, record.headers)
