"""A worker with the demo model, and a gateway before it, for clients of OpenAI's API."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import httpx
import pytest
from openai import AsyncOpenAI

from app.local.kafka import KafkaCluster
from tests.faults.worker_process import WorkerProcess
from tests.integration.gateway.gateway_process import GatewayProcess
from tests.integration.worker.conftest import module_settings

HELLO = [{"role": "user", "content": "Hello!"}]
ORIGIN = "https://chat.example"
STATUS = {
    "name": "order_status",
    "description": "Where an order is.",
    "parameters": {"type": "object", "properties": {"order_number": {"type": "string"}}, "required": ["order_number"]},
}
TOOL = {"type": "function", "function": STATUS}
ASKED = [{"role": "user", "content": "Where is my order 48213?"}]


@pytest.fixture(scope="package")
def worker(kafka: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProcess]:
    folder = tmp_path_factory.mktemp("worker")
    settings = module_settings(kafka, folder, engine="torch")
    with WorkerProcess(settings, folder / "worker.log") as worker:
        worker.wait_owning(settings.partitions)
        yield worker


@pytest.fixture(scope="package")
def gateway(worker: WorkerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    settings = worker.settings.model_copy(update={"gateway_origins": ORIGIN, "embedder": "minilm"})
    with GatewayProcess(settings, tmp_path_factory.mktemp("gateway") / "gateway.log") as gateway:
        yield gateway
        assert gateway.stop() == 0


@pytest.fixture
async def http(gateway: GatewayProcess) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as client:
        yield client


@pytest.fixture
async def client(gateway: GatewayProcess) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="any", max_retries=0) as client:
        yield client
