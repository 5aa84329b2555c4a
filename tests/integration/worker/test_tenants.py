"""Limits of tenants on a real worker and a real gateway: the same refusal over Kafka, HTTP, chat and WebSocket."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import httpx
import pytest
from websockets.asyncio.client import connect

from app.reader import Answer
from tests.faults.worker_process import WorkerProcess
from tests.integration.gateway.gateway_process import GatewayProcess
from tests.integration.worker.client import Client
from tests.integration.worker.conftest import StartWorker

KEY = "the-key-of-acme-1"
POLICY = """
[models.small]
path = "small"
engine = "paced"
[models.large]
path = "large"
engine = "paced"

[tenants.acme]
models = ["default", "small"]
priority = "standard"

[tenants.busy]
user_requests_per_min = 2

[tenants."*"]
priority = "batch"
"""
REFUSED = [
    ({"model": "large"}, "model_not_found"),
    ({"priority": "interactive"}, "invalid_request"),
]


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("policy") / "policy.toml"
    path.write_text(POLICY)
    return path


@pytest.fixture(scope="module")
def worker(start_worker: StartWorker, policy: Path) -> WorkerProcess:
    return start_worker(policy=policy, gateway_api_keys=f"{KEY}=acme/*", usage_window_s=1)


def code_of(answer: Answer) -> str | None:
    end = answer.end
    return None if end is None or end.error is None else end.error.code


async def test_each_user_of_a_tenant_has_its_limit_whoever_sends(client: Client) -> None:
    codes: list[str | None] = []
    while codes[-1:] != ["rate_limited"]:  # the third one, if no minute has gone by
        codes.append(code_of(await client.asked("busy/ann", max_tokens=1)))
    assert codes[:2] == [None, None]
    assert code_of(await client.asked("busy/bob", max_tokens=1)) is None


@pytest.mark.parametrize(("fields", "code"), REFUSED)
async def test_the_same_is_refused_over_kafka_http_chat_and_websocket(
    worker: WorkerProcess, client: Client, tmp_path: Path, fields: dict[str, str], code: str
) -> None:
    assert code_of(await client.asked("acme/nina", "hello", **fields)) == code
    headers = {"Authorization": f"Bearer {KEY}"}
    with GatewayProcess(worker.settings, tmp_path / "gateway.log") as gateway:
        async with httpx.AsyncClient(base_url=gateway.url, headers=headers, timeout=60) as http:
            asked = {"prompt": "hello", "user_id": "nina", **fields}
            codes = [(await http.post("/v1/requests", json=asked)).json()["error"]["code"]]
            chat = {"messages": [{"role": "user", "content": "hello"}], "user": "nina", "model": "default", **fields}
            codes.append((await http.post("/v1/chat/completions", json=chat)).json()["error"]["code"])
        async with connect(f"{gateway.url.replace('http', 'ws')}/v1/ws", additional_headers=headers) as socket:
            await socket.send(json.dumps({"type": "ask", "ref": "1", **asked}))
            codes.append(json.loads(await socket.recv())["error"]["code"])
        assert codes == [code] * 3
        assert gateway.stop() == 0


async def test_what_a_tenant_may_use_is_answered_and_listed(
    worker: WorkerProcess, client: Client, tmp_path: Path
) -> None:
    answer = await client.asked("acme/nina", "hello", model="small", priority="standard", max_tokens=1)
    assert answer.segments[0].model_version == "small@1"
    with GatewayProcess(worker.settings, tmp_path / "gateway.log") as gateway:
        async with httpx.AsyncClient(
            base_url=gateway.url, headers={"Authorization": f"Bearer {KEY}"}, timeout=60
        ) as http:
            listed = {model["id"] for model in (await http.get("/v1/models")).json()["data"]}
            assert "small" in listed
            assert "large" not in listed
            assert (await http.get("/v1/models/large")).status_code == 404
        assert gateway.stop() == 0


async def test_another_worker_learns_of_the_usage(
    worker: WorkerProcess, start_worker: StartWorker, client: Client, policy: Path, tmp_path: Path
) -> None:
    """The figures of a worker that starts come from `usage`: the budget of the month is used up by others."""
    policy.write_text(POLICY + '\n[tenants.late]\ncost_per_month = 0.001\n[prices."*"]\nprompt = 1.0\nanswer = 1.0\n')
    async with asyncio.timeout(120):
        while code_of(await client.asked("late/u", "hello", max_tokens=2)) is None:
            await asyncio.sleep(0.2)
        while not await client.records("usage"):
            await asyncio.sleep(0.2)
        await asyncio.sleep(4)  # windows of a second are published one after the other
    worker.kill()
    worker.start()
    worker.wait_owning(worker.settings.partitions)
    async with asyncio.timeout(120):
        while code_of(await client.asked("late/v", "hello", max_tokens=2)) != "rate_limited":
            await asyncio.sleep(0.2)
