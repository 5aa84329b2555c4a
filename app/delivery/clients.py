"""The Kafka clients of delivery, and what their errors mean."""

from __future__ import annotations

from dataclasses import dataclass

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import (
    CoordinatorLoadInProgressError,
    InvalidProducerEpoch,
    InvalidTimestampError,
    KafkaError,
    MessageSizeTooLargeError,
    ProducerFenced,
    RecordListTooLargeError,
)
from aiokafka.structs import OffsetAndMetadata

from app.delivery.record import SOURCES
from app.settings import Settings
from app.wire.limits import MAX_RECORD_BYTES

# What a broker that is away, or a producer that has lost its place, makes aiokafka raise: a fatal transaction state
# shows as a bare AssertionError. None of them says what became of the records, so the log itself is asked.
TROUBLE = (KafkaError, AssertionError, TimeoutError, OSError)

FENCED = (ProducerFenced, InvalidProducerEpoch)

# What a broker, or the client before it, refuses of one record: to try the same record again would never help.
RECORD_ERRORS = (MessageSizeTooLargeError, RecordListTooLargeError, InvalidTimestampError)

_TRANSACTION_TIMEOUT_MS = 30_000


@dataclass(frozen=True, slots=True)
class Clients:
    """Makes clients for one worker; whoever asks for one starts and stops it."""

    settings: Settings

    def transactional_producer(self, partition: int) -> AIOKafkaProducer:
        """The one writer of a partition: starting it fences whoever was it before (KIP-98, KIP-890)."""
        return AIOKafkaProducer(
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

    def log_reader(self, wait_ms: int = 10) -> AIOKafkaConsumer:
        """Reads partitions that are assigned by hand, committed records alone, from where it is told.

        `wait_ms`: how long the broker may hold a fetch that finds nothing; whoever stays at the end asks so often.
        """
        return AIOKafkaConsumer(
            **self.settings.cluster.options(),
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            fetch_max_wait_ms=wait_ms,
            max_partition_fetch_bytes=4 * MAX_RECORD_BYTES,
            retry_backoff_ms=20,
        )

    def end_reader(self) -> AIOKafkaConsumer:
        """Tells where partitions end, with what open transactions have written."""
        return AIOKafkaConsumer(
            **self.settings.cluster.options(),
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_uncommitted",
            fetch_max_wait_ms=10,
            retry_backoff_ms=20,
        )

    async def committed(self, partition: int) -> dict[str, OffsetAndMetadata]:
        """What the partition's owner committed last, by topic; offset -1 where it never did."""
        partitions = {name: TopicPartition(self.settings.topic(name), partition) for name in SOURCES}
        admin = AIOKafkaAdminClient(**self.settings.cluster.options())
        await admin.start()
        try:
            found = await admin.list_consumer_group_offsets(self.settings.group, partitions=list(partitions.values()))
        finally:
            await admin.close()
        missing = [name for name, topic_partition in partitions.items() if topic_partition not in found]
        if missing:
            # A coordinator that has just started answers without them; that is not "nothing was committed".
            raise CoordinatorLoadInProgressError(f"no committed offsets told of {', '.join(missing)}")
        return {name: found[topic_partition] for name, topic_partition in partitions.items()}
