"""One worker with the `paced` engine, and one gateway before it, for all tests of this folder."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from app.local.kafka import KafkaCluster
from tests.conftest import NewSettings
from tests.faults.worker_process import WorkerProcess
from tests.integration.gateway.gateway_process import GatewayProcess
from tests.integration.scripted_worker import ScriptedWorker, scripted_worker
from tests.integration.worker.conftest import module_settings


@pytest.fixture(scope="package")
def worker(kafka: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProcess]:
    folder = tmp_path_factory.mktemp("worker")
    settings = module_settings(kafka, folder, paced_tokens_per_s=60.0, gateway_wait_s=2.0)
    with WorkerProcess(settings, folder / "worker.log") as worker:
        worker.wait_owning(settings.partitions)
        yield worker


@pytest.fixture(scope="package")
def gateway(worker: WorkerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with GatewayProcess(worker.settings, tmp_path_factory.mktemp("gateway") / "gateway.log") as gateway:
        yield gateway
        assert gateway.stop() == 0


@pytest.fixture
async def http(gateway: GatewayProcess) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as client:
        yield client


@pytest.fixture
async def scripted(new_settings: NewSettings) -> AsyncIterator[ScriptedWorker]:
    """A worker without a model, for a gateway that knows the keys of nina and omar."""
    keys = "key-of-nina-0123=nina,key-of-omar-0123=omar"
    async with scripted_worker(await new_settings(gateway_wait_s=0.1, gateway_api_keys=keys)) as worker:
        yield worker


@pytest.fixture
def guarded(scripted: ScriptedWorker, tmp_path: Path) -> Iterator[GatewayProcess]:
    constants = {"app.gateway.answers.follow.KEEP_ALIVE_S": 0.1}
    with GatewayProcess(scripted.settings, tmp_path / "gateway.log", constants=constants) as gateway:
        yield gateway
        assert gateway.stop() == 0
