"""Kafka clients for commands and readers: they say in one line what is wrong, and never create a topic by looking."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError

CONNECT_TIMEOUT_S = 5.0
DELIVERY_TIMEOUT_S = 30.0


class KafkaUnusableError(Exception):
    """Kafka cannot be used as it is; the message is one line that says what to do."""


async def partitions_of(servers: Sequence[str], topics: Sequence[str]) -> dict[str, int]:
    """How many partitions each of the topics has; raises where the broker or a topic is not there."""
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            found = await _partition_counts(servers)
    except (KafkaError, OSError, TimeoutError):
        where = ", ".join(servers)
        raise KafkaUnusableError(
            f"no Kafka answers at {where}: start one with `parley local up`, or set PARLEY_BROKER"
        ) from None
    for topic in topics:
        if topic not in found:
            raise KafkaUnusableError(f"the topic {topic!r} does not exist: create it with `parley topics create`")
    return {topic: found[topic] for topic in topics}


async def _partition_counts(servers: Sequence[str]) -> dict[str, int]:
    client = AIOKafkaClient(bootstrap_servers=list(servers), request_timeout_ms=int(CONNECT_TIMEOUT_S * 1000))
    try:
        await client.bootstrap()
        # Metadata of all topics: to ask for one that is missing would create it on many brokers.
        cluster = await client.fetch_all_metadata()
        return {topic: len(cluster.partitions_for_topic(topic) or ()) for topic in cluster.topics()}
    finally:
        await client.close()


async def start(client: AIOKafkaConsumer | AIOKafkaProducer) -> None:
    """Start the client; where that fails nothing of it is left."""
    try:
        await client.start()
    except BaseException as error:
        await client.stop()
        if isinstance(error, (KafkaError, OSError, TimeoutError)):
            raise KafkaUnusableError(f"Kafka went away: {error}") from None
        raise


def consumer(servers: Sequence[str]) -> AIOKafkaConsumer:
    """Reads committed records of partitions that are assigned by hand; commits nothing."""
    return AIOKafkaConsumer(
        bootstrap_servers=list(servers),
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )


def producer(servers: Sequence[str], *, linger_ms: int = 0) -> AIOKafkaProducer:
    """Writes each record once, to the partition of its key."""
    return AIOKafkaProducer(
        bootstrap_servers=list(servers),
        acks="all",
        enable_idempotence=True,
        linger_ms=linger_ms,
        request_timeout_ms=int(DELIVERY_TIMEOUT_S * 1000),
    )
