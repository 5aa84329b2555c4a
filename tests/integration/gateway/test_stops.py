"""A gateway ends quietly at SIGTERM and Ctrl-C, whatever it is doing: exit code 0, and no line that alarms."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.local.ports import free_port
from app.settings import Settings
from tests.conftest import NewSettings
from tests.environment import environment_of
from tests.integration.gateway.gateway_process import GatewayProcess
from tests.integration.worker.client import Client
from tests.warm_start import warm_starts

SIGNALS = [signal.SIGTERM, signal.SIGINT]
ALARMS = re.compile(r"ERROR|CRITICAL|Traceback|Warning\b|Exception|Aborted|never awaited|never retrieved")
READERS = 4
Start = Callable[[Settings], GatewayProcess]


@pytest.fixture
def cold() -> Iterator[None]:
    """A start as people have it."""
    with warm_starts(on=False):
        yield


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    gateways: list[GatewayProcess] = []

    def start(settings: Settings) -> GatewayProcess:
        gateways.append(GatewayProcess(settings, tmp_path / f"gateway-{len(gateways)}.log").start())
        return gateways[-1]

    yield start
    for gateway in gateways:
        gateway.kill()


async def assert_quiet(gateway: GatewayProcess) -> str:
    assert gateway._process is not None
    code = await asyncio.to_thread(gateway._process.wait, 60)
    log = gateway.log.read_text()
    assert code == 0, log
    assert not ALARMS.search(log), log
    return log


@pytest.fixture
async def waiting(new_settings: NewSettings, start: Start) -> AsyncIterator[Callable[..., Any]]:
    """Starts a gateway with requests that no worker answers, as streams or not."""
    tasks: list[asyncio.Task[None]] = []

    async def begin(*, streams: bool, **values: Any) -> GatewayProcess:
        gateway = start(await new_settings(**values))
        body = {"model": "default", "messages": [{"role": "user", "content": "hello"}], "stream": streams}

        async def ask() -> None:
            async with httpx.AsyncClient(timeout=60) as http:
                with suppress(httpx.HTTPError):
                    await http.post(f"{gateway.url}/v1/chat/completions", json=body)

        tasks.extend(asyncio.create_task(ask()) for _ in range(READERS))
        async with Client(gateway.settings) as topics, asyncio.timeout(120):
            while len(await topics.records("requests")) < READERS:
                await asyncio.sleep(0.05)
        return gateway

    yield begin
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.usefixtures("cold")
@pytest.mark.parametrize("number", SIGNALS)
async def test_an_idle_gateway_stops(settings: Settings, start: Start, number: signal.Signals) -> None:
    gateway = await asyncio.to_thread(start, settings)
    os.kill(gateway.pid, number)
    await assert_quiet(gateway)


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("streams", [True, False])
async def test_a_busy_gateway_stops(waiting: Callable[..., Any], streams: bool, number: signal.Signals) -> None:
    gateway = await waiting(streams=streams, drain_s=1.0)
    os.kill(gateway.pid, number)
    await assert_quiet(gateway)


@pytest.mark.parametrize("number", SIGNALS)
async def test_a_second_signal_does_not_wait(waiting: Callable[..., Any], number: signal.Signals) -> None:
    gateway = await waiting(streams=False, drain_s=600.0)
    os.kill(gateway.pid, number)
    with suppress(httpx.TransportError):  # of two signals that come before it hears one it would hear one
        while True:
            await asyncio.to_thread(httpx.get, f"{gateway.url}/healthz", timeout=60)
    with suppress(ProcessLookupError):
        os.kill(gateway.pid, number)
    await assert_quiet(gateway)


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("after_s", [0.1, 0.5, 1.0, 2.0])
async def test_a_start_is_interrupted(
    settings: Settings, tmp_path: Path, after_s: float, number: signal.Signals
) -> None:
    environment = environment_of(settings.model_copy(update={"gateway_port": free_port()}))
    command = [str(Path(sys.executable).with_name("parley")), "gateway"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment, cwd=tmp_path, text=True
    )
    try:
        begun = Path(f"/proc/{process.pid}/status")
        while not int(re.findall(r"SigCgt:\s*([0-9a-f]+)", begun.read_text())[0], 16) >> (signal.SIGTERM - 1) & 1:
            time.sleep(0.01)  # until the program decides what SIGTERM does
        time.sleep(after_s)
        process.send_signal(number)
        out, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, out
    assert not ALARMS.search(out), out
