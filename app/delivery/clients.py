"""The Kafka clients of delivery, and the meaning of their errors."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import (
    CoordinatorLoadInProgressError,
    InvalidTimestampError,
    KafkaError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
)
from aiokafka.structs import OffsetAndMetadata

from app.delivery.commits.changelog import changelog_topic
from app.delivery.record import SOURCES
from app.kafka.clients import admin_of, partition_counts, stop
from app.kafka.shared_metadata import SharedMetadata, SharingConsumer, SharingProducer
from app.settings import Settings
from app.wire.record_size import MAX_RECORD_BYTES
from tables.records import Table

log = logging.getLogger(__name__)

# Raised by aiokafka when a broker is unreachable or a producer was fenced; a fatal transaction state raises a bare
# AssertionError. None of these says whether the records were written, so the next owner reads the log to find out.
RETRIABLE_ERRORS = (KafkaError, AssertionError, TimeoutError, OSError)

# The broker, or the client itself, rejects this one record. Sending it again would not help.
RECORD_ERRORS = (MessageSizeTooLargeError, RecordListTooLargeError, InvalidTimestampError)

_TRANSACTION_TIMEOUT_MS = 30_000
_STOP_S = 2.0
_FETCHER_MS = 200
"""aiokafka's default."""


@dataclass(frozen=True, slots=True)
class Clients:
    """Creates the clients of one worker; the caller starts and stops them."""

    settings: Settings
    _metadata: SharedMetadata = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        topics = [
            *self.settings.own_topics(),
            *(changelog_topic(self.settings, table) for table in Table),
        ]
        object.__setattr__(self, "_metadata", SharedMetadata(topics))

    def transactional_producer(self, partition: int) -> AIOKafkaProducer:
        """The only writer of a partition: starting it fences its predecessor (KIP-98, KIP-890)."""
        return SharingProducer(
            self._metadata,
            **self.settings.cluster.options(),
            transactional_id=f"{self.settings.group}-{partition}",
            transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS,
            linger_ms=0,
            retry_backoff_ms=5,
            max_request_size=2 * MAX_RECORD_BYTES,
        )

    def token_producer(self) -> AIOKafkaProducer:
        return AIOKafkaProducer(
            **self.settings.cluster.options(),
            enable_idempotence=True,
            acks="all",
            linger_ms=0,
            retry_backoff_ms=20,
            max_request_size=MAX_RECORD_BYTES,
        )

    def log_reader(self, wait_ms: int = 10, retry_ms: int = 20) -> AIOKafkaConsumer:
        """A consumer with a manual assignment, read_committed.

        `wait_ms`: how long the broker may hold a fetch at the end of the log, and how long aiokafka's fetcher sleeps.
        `retry_ms`: between two tries; before each, the metadata of all partitions is fetched.
        """
        return SharingConsumer(self._metadata, **self._reading(wait_ms, retry_ms))

    def foreign_reader(self, wait_ms: int) -> AIOKafkaConsumer:
        """As `log_reader`, for a topic that is not Parley's."""
        return AIOKafkaConsumer(**self._reading(wait_ms, retry_ms=100))

    async def partition_counts(self, topics: Sequence[str]) -> dict[str, int]:
        """How many partitions these topics have; 0 for one that does not exist."""
        there = await partition_counts(self.settings.cluster)
        return {topic: there.get(topic, 0) for topic in topics}

    def end_reader(self) -> AIOKafkaConsumer:
        """A consumer that finds the ends of partitions, including records of open transactions."""
        return AIOKafkaConsumer(**{**self._reading(10, 20), "isolation_level": "read_uncommitted"})

    def _reading(self, wait_ms: int, retry_ms: int) -> dict[str, Any]:
        return {
            **self.settings.cluster.options(),
            "enable_auto_commit": False,
            "auto_offset_reset": "earliest",
            "isolation_level": "read_committed",
            "fetch_max_wait_ms": wait_ms,
            "consumer_timeout_ms": max(_FETCHER_MS, wait_ms),
            "max_partition_fetch_bytes": 4 * MAX_RECORD_BYTES,
            "retry_backoff_ms": retry_ms,
        }

    async def committed(self, partition: int) -> dict[str, OffsetAndMetadata]:
        """The offsets that the partition's owner committed last, by topic; -1 for a topic without a commit."""
        partitions = {name: TopicPartition(self.settings.topic(name), partition) for name in SOURCES}
        async with admin_of(self.settings.cluster) as admin:
            offsets = await admin.list_consumer_group_offsets(self.settings.group, partitions=list(partitions.values()))
        missing = [name for name, topic_partition in partitions.items() if topic_partition not in offsets]
        if missing:
            # A coordinator that has just started leaves topics out; that does not mean "nothing was committed".
            raise CoordinatorLoadInProgressError(f"the coordinator left out the offsets of {', '.join(missing)}")
        return {name: offsets[topic_partition] for name, topic_partition in partitions.items()}


async def start_client(client: AIOKafkaProducer | AIOKafkaConsumer) -> None:
    """Start it; one that cannot be started is stopped."""
    try:
        await client.start()
    except BaseException:
        await stop_client(client)
        raise


async def stop_client(client: AIOKafkaProducer | AIOKafkaConsumer) -> None:
    """Stop within two seconds, whatever the state of the broker and the client: a rebalance waits for it."""
    try:
        async with asyncio.timeout(_STOP_S):
            await stop(client)
    except RETRIABLE_ERRORS as error:
        log.debug("a client that is not needed any more did not stop cleanly: %r", error)
