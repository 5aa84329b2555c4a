"""Models that join and leave a running worker, as the policy file changes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from app.reader.rule import Answer
from tests.faults.worker_process import WorkerProcess
from tests.integration.gateway.gateway_process import GatewayProcess
from tests.integration.worker.client import Client
from tests.integration.worker.conftest import StartWorker

ROUTE = """
[[routes]]
name = "acme's"
when = { tenant = ["acme"] }
model = "%s"
"""
SMALL = """
[models.small]
path = "small"
engine = "paced"
paced_tokens_per_s = 40
"""
LARGE = SMALL.replace("small", "large")
BROKEN = '[models.broken]\npath = "/no/such/folder"\n'


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("policy") / "policy.toml"
    path.write_text(SMALL + ROUTE % "small")
    return path


@pytest.fixture(scope="module")
def worker(start_worker: StartWorker, policy: Path) -> WorkerProcess:
    return start_worker(policy=policy, sweep_interval_s=0.5)


async def logged(worker: WorkerProcess, line: str) -> None:
    async with asyncio.timeout(120):
        while line not in worker.tail():
            await asyncio.sleep(0.2)


async def asked(client: Client, **fields: object) -> Answer:
    return await client.asked(client.user(), max_tokens=3, **fields)


async def test_a_model_joins_and_another_leaves_while_it_answers(
    worker: WorkerProcess, client: Client, policy: Path
) -> None:
    assert (await asked(client, tenant="acme")).end.model_version == "small@1"
    assert (await asked(client, model="large")).end.error.code == "model_not_found"
    user = client.user()
    running = await client.ask(user, "a long one", tenant="acme", max_tokens=300)
    await client.begun(user, running)
    policy.write_text(LARGE + ROUTE % "large")
    await logged(worker, "has changed and is in force")
    assert (await asked(client, tenant="acme")).end.model_version == "large@1"
    assert (await asked(client, model="large")).end.model_version == "large@1"
    assert (await asked(client, model="small")).end.error.code == "model_not_found"
    answer = await client.answer(user, running)
    assert (answer.end.finish_reason, len(answer.tokens)) == ("length", 300)
    assert {event.model_version for event in answer.segments} == {"small@1"}
    await logged(worker, "model small@1 has left")


async def test_a_model_that_cannot_be_loaded_leaves_the_former_policy_in_force(
    worker: WorkerProcess, client: Client, policy: Path
) -> None:
    before = policy.read_text()
    policy.write_text(before + BROKEN)
    try:
        await logged(worker, "/no/such/folder")
        assert "the policy before stays in force" in worker.tail()
        assert (await asked(client, tenant="acme")).end.model_version in {"small@1", "large@1"}
    finally:
        policy.write_text(before)


async def test_a_gateway_with_other_settings_lists_what_the_worker_serves_from_its_policys_change_on(
    worker: WorkerProcess, policy: Path, tmp_path: Path
) -> None:
    before = policy.read_text()
    own = worker.settings.model_copy(update={"policy": None, "model": "/srv/models/secret-merger"})
    with GatewayProcess(own, tmp_path / "gateway.log") as gateway:
        async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as http:

            async def listed() -> list[str]:
                return [model["id"] for model in (await http.get("/v1/models")).raise_for_status().json()["data"]]

            first = {"demo", "auto", *({"small", "large"} & {*before.split('"')})}
            async with asyncio.timeout(120):
                while set(await listed()) != first:
                    await asyncio.sleep(0.1)
            policy.write_text(SMALL.replace("small", "newest"))
            try:
                async with asyncio.timeout(120):
                    while await listed() != ["demo", "newest"]:
                        await asyncio.sleep(0.1)
            finally:
                policy.write_text(before)
        assert gateway.stop() == 0
