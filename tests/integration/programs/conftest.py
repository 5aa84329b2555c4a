"""A worker whose policy names the topics and fields of other people's programs, and a gateway."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from app.local.kafka import KafkaCluster
from tests.faults.worker_process import WorkerProcess
from tests.integration.gateway.gateway_process import GatewayProcess
from tests.integration.worker.client import Client
from tests.integration.worker.conftest import module_settings

POLICY = (Path(__file__).parent / "policy.toml").read_text()


@dataclass(frozen=True)
class Place:
    worker: WorkerProcess
    gateway: GatewayProcess
    run: str

    def topic(self, name: str) -> str:
        return f"{name}-{self.run}"

    @property
    def kafka(self) -> str:
        return self.worker.settings.cluster.servers[0]


@pytest.fixture(scope="package")
def place(kafka: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder, run = tmp_path_factory.mktemp("programs"), uuid.uuid4().hex[:8]
    (folder / "policy.toml").write_text(POLICY.replace("-RUN", f"-{run}"))
    settings = module_settings(kafka, folder, policy=folder / "policy.toml", paced_tokens_per_s=40.0)
    with (
        WorkerProcess(settings, folder / "worker.log") as worker,
        GatewayProcess(settings, folder / "gateway.log") as gateway,
    ):
        worker.wait_owning(settings.partitions)
        yield Place(worker, gateway, run)


@pytest.fixture
async def client(place: Place) -> AsyncIterator[Client]:
    async with Client(place.worker.settings) as client:
        yield client
