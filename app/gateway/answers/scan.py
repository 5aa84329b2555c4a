"""A bounded read of one partition: from a time, or a number of records before its end, up to its end."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator

from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from app.gateway.errors import ApiError
from app.kafka.clients import KafkaUnusableError, consumer, start
from app.kafka.cluster import Cluster
from app.wire.error import ErrorCode

log = logging.getLogger(__name__)

_POLL_MS = 200
_MOST_AT_ONCE = 500
"""Records per batch, after which other tasks of the event loop run."""


async def scan(
    cluster: Cluster,
    place: TopicPartition,
    most: int,
    *,
    since_ms: int | None = None,
) -> AsyncGenerator[ConsumerRecord, None]:
    """The last records of `place`, at most `most`; raises `ApiError`. Close it if you leave it early."""
    records = consumer(cluster)
    records.assign([place])
    try:
        await start(records)
        try:
            end = (await records.end_offsets([place]))[place]
            first = max((await records.beginning_offsets([place]))[place], end - most)
            if since_ms is not None:
                found = (await records.offsets_for_times({place: since_ms}))[place]
                first = max(first, end if found is None else found.offset)
            records.seek(place, first)
            position = first
            while position < end:
                for record in (await records.getmany(timeout_ms=_POLL_MS, max_records=_MOST_AT_ONCE)).get(place, ()):
                    position = record.offset + 1
                    yield record
                position = max(position, await records.position(place))
        finally:
            await records.stop()
    except (KafkaError, KafkaUnusableError) as error:
        log.warning("%s[%d] cannot be read: %s", place.topic, place.partition, error)
        raise ApiError(ErrorCode.UNAVAILABLE, "Kafka cannot be read now", retry_after_s=5) from None
