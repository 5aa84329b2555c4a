"""A real page in a real Chromium, before a real gateway and a worker with the `paced` engine.

One Chromium serves all tests of a process of pytest, each with contexts of its own. So its tests share an event loop.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, async_playwright, expect

from app.local.kafka import KafkaCluster
from app.settings import Settings
from tests.faults.worker_process import WorkerProcess
from tests.integration.conftest import starts
from tests.integration.gateway.gateway_process import GatewayProcess
from tests.integration.worker.conftest import module_settings

__all__ = ["starts"]

# For hangs: five seconds, the default, are less than a busy machine may take.
PATIENCE_MS = 60_000
expect.set_options(timeout=PATIENCE_MS)

# Nothing of a browser under test may look for the world outside.
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents and pytest_asyncio.is_async_test(item):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest.fixture(scope="session")
def chromium() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("not run: there is no Chromium here (on Debian: apt install chromium)")
    return found


@pytest.fixture(scope="module")
def settings(chromium: str, kafka: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Answers do not end by themselves, however slow the machine is."""
    own: dict[str, Any] = {"partitions": 1, "paced_tokens_per_s": 25.0, "max_tokens": 20_000}
    return module_settings(kafka, tmp_path_factory.mktemp("settings"), **own)


@pytest.fixture(scope="module")
def start_worker(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], WorkerProcess]]:
    workers: list[WorkerProcess] = []

    def start() -> WorkerProcess:
        folder = tmp_path_factory.mktemp("worker")
        own = settings.model_copy(update={"data_dir": folder / "data"})
        workers.append(WorkerProcess(own, folder / "worker.log").start())
        workers[-1].wait_owning(settings.partitions)
        return workers[-1]

    yield start
    for worker in workers:
        worker.kill()


@pytest.fixture(scope="module")
def worker(start_worker: Callable[[], WorkerProcess]) -> WorkerProcess:
    return start_worker()


@pytest.fixture(scope="module")
def gateway(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with GatewayProcess(settings, tmp_path_factory.mktemp("gateway") / "gateway.log") as gateway:
        yield gateway


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared_browser(chromium: str) -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=FLAGS, timeout=2 * PATIENCE_MS)
        yield browser
        await browser.close()


@pytest_asyncio.fixture(loop_scope="session")
async def browser(shared_browser: Browser) -> AsyncIterator[Browser]:
    """Without a context when the test begins, and again when it has ended."""
    yield shared_browser
    for context in shared_browser.contexts:
        await context.close()
    assert shared_browser.is_connected()


@pytest_asyncio.fixture(loop_scope="session")
async def context(browser: Browser) -> AsyncIterator[BrowserContext]:
    """One person's browser; what its pages complain of fails the test."""
    context = await browser.new_context(viewport={"width": 1100, "height": 760})
    context.set_default_timeout(PATIENCE_MS)
    complaints: list[Any] = []
    context.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    context.on("weberror", lambda error: complaints.append(error.error))
    yield context
    await context.close()
    assert complaints == []


@pytest.fixture
def pictures(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Where screenshots go: `--basetemp` keeps them."""
    return tmp_path
