"""Agents over HTTP, with the model of the demo and the policy of the example."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from openai import OpenAI

from app.local.kafka import KafkaCluster
from tests.faults.worker_process import WorkerProcess
from tests.integration.gateway.gateway_process import GatewayProcess
from tests.integration.worker.conftest import module_settings

EXAMPLE = Path(__file__).parents[3] / "deploy" / "examples" / "researcher.py"
PATIENCE_S = 180


@pytest.fixture(scope="module")
def service(kafka: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    folder = tmp_path_factory.mktemp("agents")
    settings = module_settings(
        kafka, folder, engine="torch", model="demo", threads=1, policy=EXAMPLE.with_suffix(".toml")
    )
    with WorkerProcess(settings, folder / "worker.log") as worker:
        worker.wait_owning(settings.partitions)
        with GatewayProcess(settings, folder / "gateway.log") as gateway:
            yield gateway
            assert gateway.stop() == 0


async def test_the_example_shows_who_asks_whom(service: GatewayProcess) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, EXAMPLE, env=os.environ | {"PARLEY": service.url}, stdout=PIPE, stderr=PIPE
    )
    out, err = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    assert (process.returncode, err.decode()) == (0, "")
    lines = out.decode().strip().splitlines()
    asks = next(at for at, line in enumerate(lines) if line.startswith("[asks by order_status: "))
    assert "48213" in lines[asks]
    assert lines[asks + 1].startswith("[is told: ")
    assert "error:" not in lines[asks + 1]
    assert lines[-1].strip()


def test_an_agent_is_a_model_of_openais_clients(service: GatewayProcess) -> None:
    client = OpenAI(base_url=f"{service.url}/v1", api_key="ann")
    assert {one.id for one in client.models.list()} >= {"support", "researcher"}
    said = client.chat.completions.create(model="researcher", messages=[{"role": "user", "content": "Hello!"}])
    assert said.choices[0].message.content
    assert (client.models.retrieve("support")).id == "support"


@pytest.mark.parametrize(
    ("added", "mistake"),
    [
        ({"model": "default"}, "agent: excludes model"),
        ({"agent": "nobody"}, "agent: there is no 'nobody'; there are: researcher, support"),
    ],
)
def test_what_excludes_an_agent_is_told(service: GatewayProcess, added: dict[str, str], mistake: str) -> None:
    asked = {"agent": "support", "prompt": "hi", "max_tokens": 4, **added}
    reply = httpx.post(f"{service.url}/v1/requests", json=asked, headers={"Accept": "text/event-stream"}, timeout=60)
    assert mistake in reply.text
