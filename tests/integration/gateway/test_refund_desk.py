"""The example of a desk that is a program, with the model of the demo."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.local.kafka import KafkaCluster
from tests.faults.worker_process import WorkerProcess
from tests.integration.gateway.gateway_process import GatewayProcess
from tests.integration.worker.client import Client
from tests.integration.worker.conftest import module_settings
from tests.integration.worker.test_tools_over_kafka import calls_of

EXAMPLE = Path(__file__).parents[3] / "deploy" / "examples" / "refund_desk.py"
PATIENCE_S = 180


def refund(amount: int) -> dict[str, Any]:
    """A request whose answer calls for a refund of that much: the schema leaves the model no choice."""
    schema = {"type": "object", "properties": {"amount": {"const": amount}}, "required": ["amount"]}
    tool = {"type": "function", "function": {"name": "refund", "parameters": schema}}
    choice = {"type": "function", "function": {"name": "refund"}}
    prompt = "My order 17 came broken. I want my money back."
    return {"prompt": prompt, "tools": [tool], "tool_mode": "kafka", "tool_choice": choice}


@pytest.fixture(scope="module")
def gateway(kafka: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    folder = tmp_path_factory.mktemp("refunds")
    policy = folder / "policy.toml"
    policy.write_text('[waits]\n[tools.refund]\napprove = { by = "desk" }\n')
    settings = module_settings(kafka, folder, engine="torch", model="demo", threads=1, policy=policy)
    worker = WorkerProcess(settings, folder / "worker.log")
    constants = {"app.gateway.answers.approvals._CURRENT_S": 60.0}
    with worker, GatewayProcess(settings, folder / "gateway.log", constants=constants) as gateway:
        worker.wait_owning(settings.partitions)
        yield gateway


@pytest.fixture
async def desk(gateway: GatewayProcess) -> AsyncIterator[Process]:
    """The example, as it runs."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, EXAMPLE, env=os.environ | {"PARLEY": gateway.url}, stdout=PIPE, stderr=PIPE
    )
    yield process
    process.terminate()
    _, errors = await process.communicate()
    assert (process.returncode, errors.decode()) == (-signal.SIGTERM, "")


async def test_it_decides_by_the_amount_and_leaves_the_rest_to_people(gateway: GatewayProcess, desk: Process) -> None:
    assert desk.stdout is not None
    async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as http, Client(gateway.settings) as client:
        for user, amount in (("people", 300), ("nina", 20), ("omar", 5000)):
            body = refund(amount)
            assert (await http.post("/v1/requests", json=body, params={"user_id": user})).status_code == 202
        lines = [await asyncio.wait_for(desk.stdout.readline(), PATIENCE_S) for _ in range(2)]
        assert {line.decode().strip() for line in lines} == {"nina 20 approved", "omar 5000 rejected"}
        (call,) = await calls_of(client, "nina")
        assert json.loads(call.arguments) == {"amount": 20}
        async with asyncio.timeout(PATIENCE_S):
            while "people" not in {one["user_id"] for one in (await listed(http))["approvals"]}:
                await asyncio.sleep(0.1)


async def listed(http: httpx.AsyncClient) -> dict[str, Any]:
    return dict((await http.get("/v1/approvals")).raise_for_status().json())
