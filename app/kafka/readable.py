"""A consumer for readers: it skips what cannot be decoded.

Only a worker answers for a record with a dead letter. A mere reader of a topic goes on behind a record that
cannot be decoded; `reading` has logged it as a WARNING, with its partition, its offset and the cause.
"""

from __future__ import annotations

from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from app.kafka.reading import cause_of


class ReadableConsumer(AIOKafkaConsumer):
    """Its positions pass skipped records, which leave holes in the offsets, as transactions do."""

    async def getone(self, *partitions: TopicPartition) -> ConsumerRecord:
        while cause_of(record := await super().getone(*partitions)):
            pass
        return record

    async def getmany(self, *partitions: TopicPartition, **options: Any) -> dict[TopicPartition, list[ConsumerRecord]]:
        batches = await super().getmany(*partitions, **options)
        readable = {at: [one for one in batch if not cause_of(one)] for at, batch in batches.items()}
        return {at: batch for at, batch in readable.items() if batch}
