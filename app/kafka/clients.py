"""Kafka clients for commands and readers: they explain failures in one line and never auto-create topics."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError

from app.kafka.cluster import Cluster
from app.kafka.connection import CONNECT_TIMEOUT_S, unreachable
from app.kafka.errors import KafkaAwayError, KafkaSetupError, KafkaUnusableError
from app.kafka.readable import ReadableConsumer

DELIVERY_TIMEOUT_S = 30.0
CREATE = "create it with `parley topics create`"
__all__ = ["KafkaAwayError", "KafkaSetupError", "KafkaUnusableError", "unreachable"]


async def partitions_of(cluster: Cluster, topics: Sequence[str]) -> dict[str, int]:
    """The number of partitions of each topic. Raises if the broker is away, or a topic is missing."""
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            counts = await partition_counts(cluster)
    except (KafkaError, OSError, TimeoutError):
        raise await unreachable(cluster) from None
    for topic in topics:
        if topic not in counts:
            raise KafkaSetupError(f"the topic {topic!r} does not exist: {CREATE}")
    return {topic: counts[topic] for topic in topics}


async def partition_counts(cluster: Cluster) -> dict[str, int]:
    """Of all topics that there are."""
    client = AIOKafkaClient(**cluster.options(), request_timeout_ms=int(CONNECT_TIMEOUT_S * 1000))
    try:
        await client.bootstrap()
        # Metadata of all topics: asking for a missing one would create it on many brokers.
        metadata = await client.fetch_all_metadata()
        return {topic: len(metadata.partitions_for_topic(topic) or ()) for topic in metadata.topics()}
    finally:
        await stop(client)


async def start(client: AIOKafkaConsumer | AIOKafkaProducer) -> None:
    """Start the client; if that fails, it is stopped and an explained error is raised."""
    try:
        await client.start()
    except BaseException as error:
        await stop(client)
        if isinstance(error, (KafkaError, OSError, TimeoutError)):
            raise KafkaAwayError(f"the connection to Kafka was lost: {error}") from None
        raise


async def stop(client: AIOKafkaConsumer | AIOKafkaProducer | AIOKafkaClient | AIOKafkaAdminClient) -> None:
    """Stop the client. aiokafka drops a cancellation that comes meanwhile: it cancels tasks of its own, and cannot tell
    the one from the other. A command would go on after Ctrl-C. It is raised here once the client has stopped.
    """
    task = asyncio.current_task()
    assert task is not None, "runs in a task"
    before = task.cancelling()
    await (client.close() if isinstance(client, AIOKafkaClient | AIOKafkaAdminClient) else client.stop())
    if task.cancelling() > before:
        raise asyncio.CancelledError


@asynccontextmanager
async def admin_of(cluster: Cluster) -> AsyncIterator[AIOKafkaAdminClient]:
    """A client for topics and offsets, started."""
    admin = AIOKafkaAdminClient(**cluster.options())
    try:
        await admin.start()
        yield admin
    finally:
        await stop(admin)


def consumer(cluster: Cluster) -> AIOKafkaConsumer:
    """A read_committed consumer with a manual assignment; commits nothing, and skips what cannot be decoded."""
    return ReadableConsumer(
        **cluster.options(),
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )


def producer(cluster: Cluster, *, linger_ms: int = 0) -> AIOKafkaProducer:
    """An idempotent producer that partitions by key."""
    return AIOKafkaProducer(
        **cluster.options(),
        acks="all",
        enable_idempotence=True,
        linger_ms=linger_ms,
        request_timeout_ms=int(DELIVERY_TIMEOUT_S * 1000),
    )
