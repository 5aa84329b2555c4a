"""Kafka clients for commands and readers: they say in one line what is wrong, and never create a topic by looking."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.client import AIOKafkaClient
from aiokafka.conn import create_conn
from aiokafka.errors import (
    AuthenticationFailedError,
    KafkaError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
)

from app.cluster import Cluster

CONNECT_TIMEOUT_S = 5.0
DELIVERY_TIMEOUT_S = 30.0
_REFUSALS = (AuthenticationFailedError, SaslAuthenticationFailed, UnsupportedSaslMechanismError)


class KafkaUnusableError(Exception):
    """Kafka cannot be used as it is; the message is one line that says what to do."""


class KafkaAwayError(KafkaUnusableError):
    """Kafka does not answer, or not as it should; that may pass by itself."""


async def unreachable(cluster: Cluster) -> KafkaUnusableError:
    """What to tell people when no connection comes about: aiokafka's clients log the cause and do not hand it out."""
    try:
        await _greet(cluster)
    except _REFUSALS as error:
        return KafkaUnusableError(f"Kafka at {cluster} does not let {cluster.username!r} in: {error}")
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


async def partitions_of(cluster: Cluster, topics: Sequence[str]) -> dict[str, int]:
    """How many partitions each of the topics has; raises where the broker or a topic is not there."""
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            found = await _partition_counts(cluster)
    except (KafkaError, OSError, TimeoutError):
        raise await unreachable(cluster) from None
    for topic in topics:
        if topic not in found:
            raise KafkaUnusableError(f"the topic {topic!r} does not exist: create it with `parley topics create`")
    return {topic: found[topic] for topic in topics}


async def _partition_counts(cluster: Cluster) -> dict[str, int]:
    client = AIOKafkaClient(**cluster.options(), request_timeout_ms=int(CONNECT_TIMEOUT_S * 1000))
    try:
        await client.bootstrap()
        # Metadata of all topics: to ask for one that is missing would create it on many brokers.
        told = await client.fetch_all_metadata()
        return {topic: len(told.partitions_for_topic(topic) or ()) for topic in told.topics()}
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


def consumer(cluster: Cluster) -> AIOKafkaConsumer:
    """Reads committed records of partitions that are assigned by hand; commits nothing."""
    return AIOKafkaConsumer(
        **cluster.options(),
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )


def producer(cluster: Cluster, *, linger_ms: int = 0) -> AIOKafkaProducer:
    """Writes each record once, to the partition of its key."""
    return AIOKafkaProducer(
        **cluster.options(),
        acks="all",
        enable_idempotence=True,
        linger_ms=linger_ms,
        request_timeout_ms=int(DELIVERY_TIMEOUT_S * 1000),
    )
