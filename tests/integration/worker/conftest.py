"""A worker of its own for each module, with the `paced` engine: everything is real but the model."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from app.kafka.topics import create_topics
from app.local.kafka import KafkaCluster
from app.local.milvus import MilvusNode
from app.settings import Settings
from tests.conftest import delete_topics, running_milvus
from tests.faults.worker_process import WorkerProcess
from tests.integration.worker.client import Client
from tests.unit.models.remote.outside import OutsideServer, outside_server_in_a_thread

PARTITIONS = 2
"""Each costs the broker and the worker some 50 ms of a processor at a start."""


def module_settings(kafka: KafkaCluster, folder: Path, **values: Any) -> Settings:
    unique = uuid.uuid4().hex[:8]
    defaults = {
        "broker": kafka.broker_setting,
        "topic_prefix": f"w{unique}-",
        "data_dir": folder / "data",
        "partitions": PARTITIONS,
        "engine": "paced",
        "embedder": "none",
        "paced_tokens_per_s": 100.0,
        "session_timeout_s": 30.0,  # a machine that is busy stops a process for seconds
    }
    settings = Settings(_env_file=None, **{**defaults, **values})
    asyncio.run(create_topics(settings))
    return settings


StartWorker = Callable[..., WorkerProcess]


@pytest.fixture(scope="module")
def start_worker(kafka: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartWorker]:
    """Starts workers on topics of their own, which own all partitions when it returns."""
    workers: list[WorkerProcess] = []

    def start(**values: Any) -> WorkerProcess:
        folder = tmp_path_factory.mktemp("worker")
        worker = WorkerProcess(module_settings(kafka, folder, **values), folder / "worker.log")
        workers.append(worker.start())
        worker.wait_owning(worker.settings.partitions)
        return worker

    yield start
    for worker in workers:
        worker.kill()
    asyncio.run(delete_topics(*(worker.settings for worker in workers)))


@pytest.fixture(scope="module")
def worker(start_worker: StartWorker) -> WorkerProcess:
    return start_worker()


@pytest.fixture(scope="module")
def own_milvus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MilvusNode]:
    """One that may be suspended."""
    with running_milvus(tmp_path_factory.mktemp("milvus")) as node:
        yield node


@pytest.fixture
async def client(worker: WorkerProcess) -> AsyncIterator[Client]:
    async with Client(worker.settings) as client:
        yield client


@pytest.fixture(scope="module")
def outside() -> Iterator[OutsideServer]:
    """An outside server that repeats what a user says."""
    with outside_server_in_a_thread() as server:
        server.echo = True
        yield server
