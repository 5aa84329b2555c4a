"""One worker with the `paced` engine, and one gateway before it, for all tests of this folder."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import httpx
import pytest
import pytest_asyncio

from app.local.kafka import KafkaCluster
from app.settings import Settings
from tests.faults.worker_process import WorkerProcess
from tests.integration.gateway.gateway_process import GatewayProcess
from tests.integration.scripted_worker import ScriptedWorker, scripted_worker
from tests.integration.worker.conftest import module_settings


@pytest.fixture(scope="package")
def worker(kafka: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProcess]:
    folder = tmp_path_factory.mktemp("worker")
    settings = module_settings(kafka, folder, paced_tokens_per_s=60.0, gateway_wait_s=60.0)
    with WorkerProcess(settings, folder / "worker.log") as worker:
        worker.wait_owning(settings.partitions)
        yield worker


@pytest.fixture(scope="package")
def gateway(worker: WorkerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    log, constants = tmp_path_factory.mktemp("gateway") / "gateway.log", {"app.gateway.openai.exchange.STATUS_S": 60.0}
    with GatewayProcess(worker.settings, log, constants=constants) as gateway:  # an error comes as a status
        yield gateway
        assert gateway.stop() == 0


@pytest.fixture
async def http(gateway: GatewayProcess) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def keyed(kafka: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """The keys of nina and omar."""
    keys = "key-of-nina-0123=nina,key-of-omar-0123=omar"
    own = {"gateway_wait_s": 0.1, "gateway_requests_per_min": 0, "gateway_api_keys": keys}
    return module_settings(kafka, tmp_path_factory.mktemp("keyed"), **own)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_worker(keyed: Settings) -> AsyncIterator[ScriptedWorker]:
    async with scripted_worker(keyed) as worker:
        yield worker


@pytest.fixture
def scripted(shared_worker: ScriptedWorker) -> ScriptedWorker:
    """A worker without a model. It lives in the event loop of its module, as the tests that take it have to."""
    shared_worker.requests.clear()
    shared_worker.controls.clear()
    return shared_worker


@pytest.fixture(scope="module")
def guarded(keyed: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A gateway before it."""
    constants = {"app.gateway.answers.follow.KEEP_ALIVE_S": 0.1, "app.gateway.openai.stored_responses._CANCEL_S": 60.0}
    with GatewayProcess(keyed, tmp_path_factory.mktemp("gateway") / "gateway.log", constants=constants) as gateway:
        yield gateway
        assert gateway.stop() == 0
