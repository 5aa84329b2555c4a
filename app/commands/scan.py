"""Read a topic from some time to its present end."""

from __future__ import annotations

from collections.abc import AsyncIterator

from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from app.kafka.clients import KafkaUnusableError, consumer, partitions_of, start, stop
from app.reader.position import AtTime, seek
from app.search.kept_rows import up_to_end
from app.settings import Settings


async def records_since(
    settings: Settings, name: str, since: int, partition: int | None = None
) -> AsyncIterator[ConsumerRecord]:
    """The committed records of a topic, or of one partition, from `since` on, Unix milliseconds; in their order.

    Raises `KafkaUnusableError`.
    """
    topic = settings.topic(name)
    count = (await partitions_of(settings.cluster, [topic]))[topic]
    records = consumer(settings.cluster)
    records.assign([TopicPartition(topic, one) for one in range(count) if partition in {None, one}])
    await start(records)
    try:
        assigned = records.assignment()
        await seek(records, assigned, AtTime(since))
        async for record in up_to_end(records, list(assigned)):
            yield record
    except KafkaError as error:
        raise KafkaUnusableError(f"the topic {topic!r} cannot be read: {error}") from None
    finally:
        await stop(records)
