"""Real parts for the tests: one Kafka and one Milvus for all, fresh topics for every test."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from aiokafka.admin import AIOKafkaAdminClient

from app.kafka.topics import create_topics
from app.local.kafka import KafkaCluster
from app.local.milvus import MilvusNode
from app.local.ports import free_port
from app.settings import PREFIX, Settings
from tests.shared_servers import shared_kafka, shared_milvus

PARTITIONS = 4

NewSettings = Callable[..., Awaitable[Settings]]


def pytest_configure() -> None:
    # What the developer has set for a worker must not reach the tests.
    for name in [name for name in os.environ if name.startswith(PREFIX)]:
        del os.environ[name]
    # A machine that is busy with something else is no failure of an example.
    slow_is_fine = [hypothesis.HealthCheck.too_slow]
    quiet = hypothesis.settings(deadline=None, suppress_health_check=slow_is_fine)
    # The same examples in each run, so that a change does not fail for what it has not touched.
    hypothesis.settings.register_profile("test", quiet, derandomize=True)
    # Others in each run, and more: `make search`.
    hypothesis.settings.register_profile("search", quiet, max_examples=1000, print_blob=True)
    hypothesis.settings.load_profile("test")
    # Ends like Ctrl-C, so that the fixtures stop their servers.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # A shell starts what it runs in the background with SIGINT ignored, and programs under test would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def running_milvus(folder: Path) -> Iterator[MilvusNode]:
    node = MilvusNode(folder, free_port())
    try:
        node.start()
        yield node
    finally:
        node.kill()


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """A broker that all tests share: never stop it, take `start_kafka` for that."""
    folder = tmp_path_factory.mktemp("kafka")
    if (shared := shared_kafka(folder)) is not None:
        yield shared
        return
    cluster = KafkaCluster(folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.kill()


@pytest.fixture(scope="session")
def milvus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MilvusNode]:
    """A Milvus that all tests share: never stop it, take `start_milvus` for that."""
    folder = tmp_path_factory.mktemp("milvus")
    if (shared := shared_milvus(folder)) is not None:
        yield shared
        return
    with running_milvus(folder) as node:
        yield node


@pytest.fixture
def start_kafka(tmp_path: Path) -> Iterator[Callable[..., KafkaCluster]]:
    """Starts clusters of the test's own, to be stopped and killed: `start_kafka(brokers=3)`."""
    clusters: list[KafkaCluster] = []

    def start(brokers: int = 1) -> KafkaCluster:
        cluster = KafkaCluster(tmp_path / f"kafka-{len(clusters)}", brokers)
        clusters.append(cluster)
        cluster.start()
        return cluster

    yield start
    for cluster in clusters:
        cluster.kill()


@pytest.fixture
def start_milvus(tmp_path: Path) -> Iterator[Callable[[], MilvusNode]]:
    """Starts servers of the test's own, to be stopped, killed and suspended."""
    nodes: list[MilvusNode] = []

    def start() -> MilvusNode:
        node = MilvusNode(tmp_path / f"milvus-{len(nodes)}", free_port())
        nodes.append(node)
        node.start()
        return node

    yield start
    for node in nodes:
        node.kill()


async def delete_topics(*those: Settings) -> None:
    """A broker that all tests share would run out of files."""
    for settings in those:
        admin = AIOKafkaAdminClient(**settings.cluster.options())
        await admin.start()
        await admin.delete_topics(
            [name for name in await admin.list_topics() if name.startswith(settings.topic_prefix)]
        )
        await admin.close()


@pytest.fixture
async def new_settings(kafka: KafkaCluster, tmp_path: Path) -> AsyncIterator[NewSettings]:
    """Settings with topics, a consumer group and a data folder that no other test uses; the topics exist."""
    made: list[Settings] = []

    async def new(**values: Any) -> Settings:
        unique = uuid.uuid4().hex[:8]
        defaults = {
            "broker": kafka.broker_setting,
            "topic_prefix": f"t{unique}-",
            "app_id": f"parley-{unique}",
            "data_dir": tmp_path / f"data-{unique}",
            "milvus_collection": f"turns_{unique}",
            "partitions": PARTITIONS,
        }
        settings = Settings(_env_file=None, **{**defaults, **values})
        await create_topics(settings)
        if settings.broker == kafka.broker_setting and unique in settings.topic_prefix:
            made.append(settings)
        return settings

    yield new
    await delete_topics(*made)


@pytest.fixture
async def settings(new_settings: NewSettings) -> Settings:
    """As `new_settings` gives them; `milvus_uri` leads nowhere."""
    return await new_settings(milvus_uri=f"http://127.0.0.1:{free_port()}")


@pytest.fixture
async def settings_with_milvus(new_settings: NewSettings, milvus: MilvusNode) -> Settings:
    return await new_settings(milvus_uri=milvus.uri)
