"""What callers of the gateway learn of an answer that sleeps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.local.kafka import KafkaCluster
from tests.faults.worker_process import WorkerProcess
from tests.integration.gateway.events import Sent, answer, text_of
from tests.integration.gateway.gateway_process import GatewayProcess
from tests.integration.worker.client import Client
from tests.integration.worker.conftest import module_settings
from tests.integration.worker.test_tools_over_kafka import KAFKA, calls_of, expected, result

PATIENCE_S = 60
ASLEEP_S = 1.0


@pytest.fixture(scope="module")
def sleepy(kafka: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    folder = tmp_path_factory.mktemp("sleeping")
    policy = folder / "policy.toml"
    policy.write_text("[waits]\npark_after_s = 0.2\n")
    settings = module_settings(kafka, folder, policy=policy, partitions=1)
    with WorkerProcess(settings, folder / "worker.log") as worker:
        worker.wait_owning(settings.partitions)
        with GatewayProcess(settings, folder / "gateway.log") as gateway:
            yield gateway
            assert gateway.stop() == 0


@pytest.fixture
async def topics(sleepy: GatewayProcess) -> AsyncIterator[Client]:
    async with Client(sleepy.settings) as client:
        yield client


@pytest.fixture
async def http(sleepy: GatewayProcess, topics: Client) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=sleepy.url, timeout=PATIENCE_S, params={"user_id": topics.user()}) as client:
        yield client


def user_of(http: httpx.AsyncClient) -> str:
    return str(http.params["user_id"])


async def asked(http: httpx.AsyncClient) -> str:
    reply = await http.post("/v1/requests", json={"prompt": "hello", "max_tokens": 2, **KAFKA})
    assert reply.status_code == 202, reply.text
    request_id: str = reply.json()["request_id"]
    return request_id


async def status_of(http: httpx.AsyncClient, request_id: str) -> dict[str, Any]:
    reply: dict[str, Any] = (await http.get(f"/v1/requests/{request_id}")).json()
    return reply


async def until_waiting(http: httpx.AsyncClient, request_id: str, place: str | None = None) -> list[Sent]:
    headers = {} if place is None else {"Last-Event-ID": place}
    return await answer(http, request_id, params={"until": "waiting"}, headers=headers)


async def test_a_stream_ends_where_the_answer_waits_and_the_status_says_for_what(
    http: httpx.AsyncClient, topics: Client
) -> None:
    request_id = await asked(http)
    first = await until_waiting(http, request_id)
    (call,) = await calls_of(topics, user_of(http))
    wait = {"kind": "tool", "wait_id": call.tool_call_id, "name": "look_up", "until": call.expires_at}
    assert (first[-1].event["notice"]["code"], first[-1].event["notice"]["details"]) == ("waiting", wait)
    place = next(one.id for one in reversed(first) if one.id)
    again = await until_waiting(http, request_id, place)
    assert [one.event["notice"]["details"] for one in again] == [wait]
    async with asyncio.timeout(PATIENCE_S):
        while (found := await status_of(http, request_id))["status"] != "waiting":
            await asyncio.sleep(0.1)
    assert (found["waiting"], found["text"]) == ([wait], text_of(first))

    following = asyncio.create_task(answer(http, request_id, headers={"Last-Event-ID": place}))
    await result(topics, call, "packed")
    _, call = await calls_of(topics, user_of(http), 2)
    async with asyncio.timeout(PATIENCE_S):
        while (second := await until_waiting(http, request_id, place))[-1].event["notice"]["details"] == wait:
            await asyncio.sleep(0.1)
    assert second[-1].event["notice"]["details"]["wait_id"] == call.tool_call_id
    assert text_of(second)
    await result(topics, call, "sent")
    rest = await following
    codes = [one.event["notice"]["code"] for one in rest if one.event["type"] == "notice"]
    assert [code for code in codes if code in {"waiting", "woken"}] == ["waiting", "woken", "waiting", "woken"]
    assert text_of(first) + text_of(rest) == expected("hello", ["packed", "sent"], [1, 1])[0]

    last = await until_waiting(http, request_id)
    assert (last[-1].event["type"], text_of(last)) == ("done", text_of(first) + text_of(rest))
    behind = str(int(last[-1].id or 0) + 1)
    reply = await http.get(
        f"/v1/requests/{request_id}/events", params={"until": "waiting"}, headers={"Last-Event-ID": behind}
    )
    assert reply.status_code == 204
    assert (await status_of(http, request_id))["status"] == "done"


async def test_a_gateway_that_comes_later_knows_that_it_waits(
    http: httpx.AsyncClient, sleepy: GatewayProcess, topics: Client, tmp_path: Path
) -> None:
    request_id = await asked(http)
    first = await until_waiting(http, request_id)
    with GatewayProcess(sleepy.settings, tmp_path / "other.log") as other:
        async with httpx.AsyncClient(base_url=other.url, timeout=PATIENCE_S, params=http.params) as later:
            said = await until_waiting(later, request_id)
            assert [one.event for one in said if one.id] == [one.event for one in first if one.id]
            assert said[-1].event["notice"] == first[-1].event["notice"]
            assert (await status_of(later, request_id))["waiting"] == [first[-1].event["notice"]["details"]]
    assert (await http.delete(f"/v1/requests/{request_id}")).json()["status"] == "cancelling"
    assert (await answer(http, request_id))[-1].event["finish_reason"] == "cancelled"


async def test_until_is_waiting_or_nothing(http: httpx.AsyncClient) -> None:
    reply = await http.get("/v1/requests/any/events", params={"until": "done"})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "until")
