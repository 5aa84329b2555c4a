"""Rows of the tables, read from their changelogs by a process that owns no partition."""

from __future__ import annotations

from collections.abc import AsyncIterator

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from app.delivery.commits.changelog import changelog_topic
from app.kafka.clients import consumer, start
from app.settings import Settings
from tables.records import Erased, GuardSecret, Table, decode_row, key_parts

_POLL_MS = 500


async def erasure_marks(settings: Settings) -> dict[str, int]:
    """When each user was last erased, Unix milliseconds. Raises `KafkaError` and `KafkaUnusableError`."""
    marks: dict[str, int] = {}
    async for record in _rows(settings, Table.ERASED):
        (user_id,) = key_parts(record.key)
        marks[user_id] = max(marks.get(user_id, 0), decode_row(record.value, Erased).at)
    return marks


async def guard_secrets(settings: Settings) -> dict[int, bytes]:
    """The secret of each partition's placeholders. Raises `KafkaError` and `KafkaUnusableError`."""
    found = {}
    async for record in _rows(settings, Table.GUARD):
        found[record.partition] = decode_row(record.value, GuardSecret).secret
    return found


async def up_to_end(records: AIOKafkaConsumer, partitions: list[TopicPartition]) -> AsyncIterator[ConsumerRecord]:
    """The records from the consumer's position up to the present end of these partitions."""
    ends = await records.end_offsets(partitions)
    while any([await records.position(at) < end for at, end in ends.items()]):
        for batch in (await records.getmany(timeout_ms=_POLL_MS)).values():
            for record in batch:
                yield record


async def _rows(settings: Settings, table: Table) -> AsyncIterator[ConsumerRecord]:
    """The records of the table's changelog that put a row."""
    records = consumer(settings.cluster)
    try:
        await start(records)
        topic = changelog_topic(settings, table)
        if topic not in await records.topics():
            return
        partitions = [TopicPartition(topic, number) for number in range(settings.partitions)]
        records.assign(partitions)
        await records.seek_to_beginning(*partitions)
        async for record in up_to_end(records, partitions):
            if record.key is not None and record.value is not None:
                yield record
    finally:
        await records.stop()
