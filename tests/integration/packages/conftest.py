"""A worker with the `paced` engine, another one to take over, and a gateway, for all tests of this folder."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from app.local.kafka import KafkaCluster
from app.settings import Settings
from tests.faults.proxy import Proxy
from tests.faults.worker_process import WorkerProcess
from tests.integration.commands.stored import turn, write
from tests.integration.gateway.gateway_process import GatewayProcess
from tests.integration.worker.conftest import module_settings

MOVED = "the whole answer, as its turn has it"


@pytest.fixture(scope="package")
def settings(kafka: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return module_settings(kafka, tmp_path_factory.mktemp("settings"), paced_tokens_per_s=40.0, gateway_wait_s=2.0)


@pytest.fixture(scope="package")
def gateway(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with GatewayProcess(settings, tmp_path_factory.mktemp("gateway") / "gateway.log") as gateway:
        yield gateway


class Workers:
    """One that answers; `replace` kills it once another one waits to take over."""

    def __init__(self, settings: Settings, folders: pytest.TempPathFactory) -> None:
        self._settings = settings
        self._folders = folders
        self._working = self._started()
        self._working.wait_owning(settings.partitions)

    def _started(self) -> WorkerProcess:
        folder = self._folders.mktemp("worker")
        own = self._settings.model_copy(update={"data_dir": folder / "data"})
        return WorkerProcess(own, folder / "worker.log").start()

    def kill(self) -> None:
        """Its answers go on elsewhere, some time later."""
        self._working.kill()
        self._working = self._started()

    def stop(self) -> None:
        self._working.kill()


@pytest.fixture(scope="package")
def workers(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    workers = Workers(settings, tmp_path_factory)
    yield workers
    workers.stop()


@pytest.fixture
def moved(kafka: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A gateway of the topics to which users have moved. It starts with the move: a minute later it looks for what is
    asked for on its `tokens` alone.
    """
    settings = module_settings(kafka, tmp_path_factory.mktemp("settings"), gateway_wait_s=2.0)
    with GatewayProcess(settings, tmp_path_factory.mktemp("gateway") / "gateway.log") as gateway:
        yield gateway


async def move(proxy: Proxy, moved: GatewayProcess, request_id: str) -> None:
    """As docs/operations/partitions.md: the answer has ended meanwhile, and its turn alone is on the new topics."""
    await write(moved.settings, turn("nina", request_id, "hello", MOVED, time.time_ns() // 1_000_000))
    proxy.target_port = moved.settings.gateway_port
    proxy.reset()


async def hang_until_reconnected(proxy: Proxy) -> None:
    """As a gateway that is suspended: the connections stay, and nothing comes."""
    proxy.silent, before = True, proxy.connections
    while proxy.connections == before:
        await asyncio.sleep(0.05)
    proxy.silent = False
