"""Kafka clients for commands and readers: they explain failures in one line and never auto-create topics."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient
from aiokafka.conn import create_conn
from aiokafka.errors import (
    AuthenticationFailedError,
    KafkaError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
)

from app.kafka.cluster import Cluster
from app.kafka.readable import ReadableConsumer

CONNECT_TIMEOUT_S = 5.0
DELIVERY_TIMEOUT_S = 30.0
_REFUSALS = (AuthenticationFailedError, SaslAuthenticationFailed, UnsupportedSaslMechanismError)


class KafkaUnusableError(Exception):
    """Kafka cannot be used as it is; the message is one line with the remedy."""


class KafkaAwayError(KafkaUnusableError):
    """Kafka does not answer, or not as expected; this may be temporary."""


async def unreachable(cluster: Cluster) -> KafkaUnusableError:
    """Why no connection was made. aiokafka's clients log the cause and do not return it."""
    try:
        await _greet(cluster)
    except _REFUSALS as error:
        return KafkaUnusableError(f"Kafka at {cluster} rejects the login of {cluster.username!r}: {error}")
    except ssl.SSLError as error:
        return KafkaUnusableError(f"TLS with Kafka at {cluster} failed: {error}; see the PARLEY_KAFKA_ settings")
    except (KafkaError, OSError, TimeoutError):
        pass
    return KafkaAwayError(f"no Kafka answers at {cluster}: start one with `parley local up`, or set PARLEY_BROKER")


async def _greet(cluster: Cluster) -> None:
    options = cluster.options()
    host, _, port = options.pop("bootstrap_servers")[0].rpartition(":")
    async with asyncio.timeout(CONNECT_TIMEOUT_S):
        (await create_conn(host, int(port), **options)).close()


CREATE = "create it with `parley topics create`"


async def partitions_of(cluster: Cluster, topics: Sequence[str], remedy: str = CREATE) -> dict[str, int]:
    """The number of partitions of each topic. Raises if the broker is away, or a topic is missing (`remedy`)."""
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            counts = await _partition_counts(cluster)
    except (KafkaError, OSError, TimeoutError):
        raise await unreachable(cluster) from None
    for topic in topics:
        if topic not in counts:
            raise KafkaUnusableError(f"the topic {topic!r} does not exist: {remedy}")
    return {topic: counts[topic] for topic in topics}


async def _partition_counts(cluster: Cluster) -> dict[str, int]:
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
            raise KafkaUnusableError(f"the connection to Kafka was lost: {error}") from None
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
