"""Requests for later, over HTTP, with the model of the demo."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from app.local.kafka import KafkaCluster
from tests.faults.worker_process import WorkerProcess
from tests.integration.gateway.gateway_process import GatewayProcess
from tests.integration.worker.conftest import module_settings

EXAMPLE = Path(__file__).parents[3] / "deploy" / "examples" / "reminder.py"
PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def patient(kafka: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    folder = tmp_path_factory.mktemp("waits")
    policy = folder / "policy.toml"
    policy.write_text("[waits]\n")
    settings = module_settings(kafka, folder, model="demo", gateway_wait_s=2.0, policy=policy)
    with WorkerProcess(settings, folder / "worker.log") as worker:
        worker.wait_owning(settings.partitions)
        with GatewayProcess(settings, folder / "gateway.log") as gateway:
            yield gateway
            assert gateway.stop() == 0


async def test_what_is_to_come_is_listed_and_cancelled(patient: GatewayProcess) -> None:
    not_before = int(time.time() * 1000) + 2 * 86_400_000
    async with httpx.AsyncClient(base_url=patient.url, timeout=60) as http:
        asked = {"request_id": "later", "prompt": "when?", "not_before": not_before}
        assert (await http.post("/v1/requests", json=asked)).status_code == 202
        async with asyncio.timeout(PATIENCE_S):
            while not (listed := (await http.get("/v1/waits")).json()["waits"]):
                await asyncio.sleep(0.1)
        assert [(one["request_id"], one["until"]) for one in listed] == [("later", not_before)]
        answer = (await http.get("/v1/requests/later")).json()
        assert answer["status"] == "waiting"
        assert [(one["kind"], one["until"]) for one in answer["waiting"]] == [("timer", not_before)]
        assert (await http.delete("/v1/requests/later")).json()["status"] == "cancelling"
        async with asyncio.timeout(PATIENCE_S):
            while (await http.get("/v1/requests/later")).json()["status"] != "done":
                await asyncio.sleep(0.1)
            while (await http.get("/v1/waits")).json()["waits"]:
                await asyncio.sleep(0.1)


async def test_the_example_prints_its_reminder(patient: GatewayProcess) -> None:
    begun = time.time()
    command = (sys.executable, EXAMPLE, "Where is my order 17?", "3")
    process = await asyncio.create_subprocess_exec(
        *command, env=os.environ | {"PARLEY": patient.url}, stdout=PIPE, stderr=PIPE
    )
    out, err = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    assert (process.returncode, err.decode()) == (0, "")
    assert out.decode().strip()
    assert time.time() - begun >= 3.0
