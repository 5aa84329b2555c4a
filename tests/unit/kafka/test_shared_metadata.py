"""SharedMetadata: one client of a worker fetches it, and the others copy it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka.client import AIOKafkaClient
from aiokafka.cluster import ClusterMetadata

from app.kafka import shared_metadata
from app.kafka.shared_metadata import SharedMetadata

TOPICS = ("requests", "tokens")


class Client:
    def __init__(self, *, fails: bool = False) -> None:
        self._topics: set[str] = set()
        self.cluster = ClusterMetadata()
        self.updates = 0
        self._fails = fails

    async def force_metadata_update(self) -> bool:
        self.updates += 1
        if not self._fails:
            self.cluster._partitions = {topic: {} for topic in self._topics}
        return not self._fails


async def shared(metadata: SharedMetadata, **how: bool) -> Client:
    client = Client(**how)
    await metadata.share(cast(Any, client))
    return client


async def test_the_second_client_gets_what_the_first_one_found() -> None:
    metadata = SharedMetadata(TOPICS)
    first, second = await shared(metadata), await shared(metadata)
    assert (first.updates, second.updates) == (1, 0)
    assert second.cluster.topics() == set(TOPICS)
    assert second._topics == set(TOPICS), "the client would ask about a topic that it does not list"


async def test_old_metadata_is_refreshed(monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = SharedMetadata(TOPICS)
    await shared(metadata)
    monkeypatch.setattr(shared_metadata, "_FRESH_S", 0.0)
    assert (await shared(metadata)).updates == 1


async def test_metadata_that_could_not_be_fetched_is_not_shared() -> None:
    metadata = SharedMetadata(TOPICS)
    await shared(metadata, fails=True)
    second = await shared(metadata)
    assert second.updates == 1
    assert second.cluster.topics() == set(TOPICS)


async def test_the_clients_have_the_private_names_that_are_used() -> None:
    """Another aiokafka could lack them, and each client would silently ask again."""
    client = AIOKafkaClient(bootstrap_servers="127.0.0.1:1")
    assert isinstance(client._topics, set)
    for name in shared_metadata._FIELDS:
        assert hasattr(client.cluster, name), name


def test_a_starting_client_asks_about_one_topic_at_most() -> None:
    client = SimpleNamespace(_topics=set())
    SharedMetadata(TOPICS).prepare(cast(Any, client))
    assert client._topics == {"requests"}
