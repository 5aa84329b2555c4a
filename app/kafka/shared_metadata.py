"""Cluster metadata that all clients of a worker share.

A client requests the metadata of a topic before it first uses it, and the response lists all partitions of the topic.
Each partition of a worker has clients of its own, so with n partitions the worker would decode n lists of n partitions:
with 256 partitions that took most of a take-over's 20 s.

Stale metadata does no harm: the broker rejects the request, and aiokafka then refreshes the metadata and retries.

Uses private names of aiokafka, whose version is pinned (app/faust/pins.py).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.client import AIOKafkaClient

_FRESH_S = 5.0
_MAX_AGE_MS = 3_600_000
_FIELDS = ("_brokers", "controller", "_partitions", "_broker_partitions", "unauthorized_topics", "internal_topics")


class SharedMetadata:
    """The metadata of `topics`, which must be all that the clients use."""

    def __init__(self, topics: Collection[str]) -> None:
        self._topics = frozenset(topics)
        self._newest: dict[str, Any] = {}
        self._fetched_at = 0.0
        self._one_at_a_time = asyncio.Lock()

    def prepare(self, client: AIOKafkaClient) -> None:
        """Call before the start: a client without topics requests the metadata of the whole cluster at each retry."""
        client._topics = {min(self._topics)}  # noqa: SLF001

    def remember(self, client: AIOKafkaClient) -> None:
        client._topics = set(self._topics)  # noqa: SLF001

    async def share(self, client: AIOKafkaClient) -> None:
        """Copy the metadata into a started client, or refresh it through that client if it is a few seconds old."""
        async with self._one_at_a_time:
            self.remember(client)
            if self._newest and time.monotonic() - self._fetched_at < _FRESH_S:
                for name, value in self._newest.items():  # a client replaces these, and never changes them
                    setattr(client.cluster, name, value)
            elif await client.force_metadata_update():
                self._newest = {name: getattr(client.cluster, name) for name in _FIELDS}
                self._fetched_at = time.monotonic()


class SharingConsumer(AIOKafkaConsumer):
    def __init__(self, metadata: SharedMetadata, **options: Any) -> None:
        super().__init__(metadata_max_age_ms=_MAX_AGE_MS, **options)
        self._shared_metadata = metadata

    async def start(self) -> None:
        self._shared_metadata.prepare(self._client)
        await super().start()
        await self._shared_metadata.share(self._client)

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """An assignment makes the client forget all other topics, so it would request their metadata again."""
        super().assign(partitions)
        self._shared_metadata.remember(self._client)


class SharingProducer(AIOKafkaProducer):
    def __init__(self, metadata: SharedMetadata, **options: Any) -> None:
        super().__init__(metadata_max_age_ms=_MAX_AGE_MS, **options)
        self._shared_metadata = metadata

    async def start(self) -> None:
        self._shared_metadata.prepare(self.client)
        await super().start()
        await self._shared_metadata.share(self.client)
