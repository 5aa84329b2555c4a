"""Rows of the tables, read from their changelogs by a process that owns no partition."""

from __future__ import annotations

from collections.abc import AsyncIterator

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from app.delivery.commits.changelog import changelog_topic
from app.kafka.clients import consumer, start, stop
from app.settings import Settings
from tables.erasures import ErasedUntil, Scope
from tables.records import Erased, GuardSecret, Table, decode_row

_POLL_MS = 100
"""The end of a partition may be a marker of a transaction, for which a poll waits in vain."""


async def erasure_marks(settings: Settings) -> ErasedUntil:
    """When users and conversations were last erased. Raises `KafkaError` and `KafkaUnusableError`."""
    marks = ErasedUntil()
    async for record in _rows(settings, Table.ERASED):
        marks.add(Scope.of_key(record.key), decode_row(record.value, Erased).at)
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
        await stop(records)
