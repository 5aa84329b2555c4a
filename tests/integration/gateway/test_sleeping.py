"""What callers of the gateway learn of an answer that sleeps."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai import AsyncOpenAI

from app.local.kafka import KafkaCluster
from tests.faults.worker_process import WorkerProcess
from tests.integration.gateway.events import Sent, answer, text_of
from tests.integration.gateway.gateway_process import GatewayProcess
from tests.integration.npm import NODE, NPM, installed
from tests.integration.worker.client import Client
from tests.integration.worker.conftest import module_settings
from tests.integration.worker.test_tools_over_kafka import KAFKA, calls_of, expected, result

SDK = Path(__file__).parents[2] / "clients" / "npm"
PATIENCE_S = 120.0
ASLEEP_S = 1.0


@pytest.fixture(scope="module")
def sleepy(kafka: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    folder = tmp_path_factory.mktemp("sleeping")
    policy = folder / "policy.toml"
    policy.write_text("[waits]\npark_after_s = 0.2\n")
    settings = module_settings(kafka, folder, policy=policy, partitions=1, gateway_asleep_s=ASLEEP_S)
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


async def waits_of(http: httpx.AsyncClient, request_id: str) -> list[Any]:
    """What the answer waits for, once it sleeps: that is a commit later than the notice."""
    async with asyncio.timeout(PATIENCE_S):
        while (found := await status_of(http, request_id))["status"] != "waiting":
            await asyncio.sleep(0.1)
    return list(found["waiting"])


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
    assert await waits_of(http, request_id) == [wait]
    assert (await status_of(http, request_id))["text"] == text_of(first)

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
            assert await waits_of(later, request_id) == [first[-1].event["notice"]["details"]]
    assert (await http.delete(f"/v1/requests/{request_id}")).json()["status"] == "cancelling"
    assert (await answer(http, request_id))[-1].event["finish_reason"] == "cancelled"


async def test_until_is_waiting_or_nothing(http: httpx.AsyncClient) -> None:
    reply = await http.get("/v1/requests/any/events", params={"until": "done"})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "until")


async def requests_of(topics: Client, user: str) -> list[str]:
    """The ids of the user's requests, without the records that wake them."""
    return [
        json.loads(record.value)["request_id"]
        for record in await topics.records("requests")
        if record.key == user.encode() and "woken" not in dict(record.headers)
    ]


@pytest.fixture
async def client(sleepy: GatewayProcess, topics: Client) -> AsyncIterator[AsyncOpenAI]:
    """With its default of two retries."""
    user = topics.user()
    query = {"user_id": user}
    async with AsyncOpenAI(base_url=f"{sleepy.url}/v1", api_key="any", default_query=query, max_retries=2) as client:
        yield client


async def goes_on(client: AsyncOpenAI, http: httpx.AsyncClient, topics: Client) -> dict[str, Any]:
    """What becomes of the one request of the user, with the results of its calls."""
    http.params = http.params.merge(dict(client.default_query))
    user = user_of(http)
    (request_id,) = await requests_of(topics, user)
    for number, content in enumerate(("packed", "sent")):
        await result(topics, (await calls_of(topics, user, number + 1))[number], content)
    (last,) = (await answer(http, request_id))[-1:]
    assert (last.event["type"], last.event["finish_reason"]) == ("done", "length")
    assert await requests_of(topics, user) == [request_id]
    return await status_of(http, request_id)


MESSAGES: Any = [{"role": "user", "content": "hello"}]
CALL: Any = {"model": "demo", "extra_body": {"max_tokens": 2, **KAFKA}}
TEXT = expected("hello", ["packed", "sent"], [1, 1])[0]


async def test_a_completion_that_waits_ends_as_waiting_once_and_goes_on(
    client: AsyncOpenAI, http: httpx.AsyncClient, topics: Client
) -> None:
    with pytest.raises(openai.ConflictError) as caught:
        await client.chat.completions.create(messages=MESSAGES, **CALL)
    assert (caught.value.code, caught.value.response.headers["x-should-retry"]) == ("waiting", "false")
    where = caught.value.response.headers["location"]
    found = await goes_on(client, http, topics)
    assert (where, found["text"]) == (f"/v1/requests/{found['request_id']}", TEXT)


async def test_a_stream_of_chunks_that_waits_ends_in_the_error(
    client: AsyncOpenAI, http: httpx.AsyncClient, topics: Client
) -> None:
    stream = await client.chat.completions.create(messages=MESSAGES, stream=True, **CALL)
    parts: list[str] = []

    async def read_all() -> None:
        async for chunk in stream:
            parts.extend(choice.delta.content or "" for choice in chunk.choices)

    with pytest.raises(openai.APIError) as caught:
        await read_all()
    await stream.close()
    assert caught.value.code == "waiting"
    assert "".join(parts) == expected("hello", [], [1])[0]
    assert (await goes_on(client, http, topics))["text"] == TEXT


async def test_of_several_choices_none_is_cancelled(client: AsyncOpenAI, topics: Client) -> None:
    with pytest.raises(openai.ConflictError):
        await client.chat.completions.create(messages=MESSAGES, n=2, **CALL)
    user = dict(client.default_query)["user_id"]
    assert len(await requests_of(topics, user)) == 2
    assert [one for one in await topics.records("controls") if one.key == user.encode()] == []


@pytest.mark.parametrize("background", [False, True])
async def test_a_response_that_waits_is_in_progress(
    client: AsyncOpenAI, http: httpx.AsyncClient, topics: Client, *, background: bool
) -> None:
    own: Any = {"model": "demo", "input": "hello", "max_output_tokens": 2, "extra_body": KAFKA}
    if background:
        created = await client.responses.create(background=True, **own)
        await calls_of(topics, dict(client.default_query)["user_id"])
    else:
        created, error = None, None
        async for event in await client.responses.create(stream=True, **own):
            created = event.response if event.type == "response.created" else created
            error = event if event.type == "error" else None
        assert (error and error.code) == "waiting"
    assert created is not None
    async with asyncio.timeout(PATIENCE_S):
        while "waiting" not in ((waiting := await client.responses.retrieve(created.id)).model_extra or {})["parley"]:
            await asyncio.sleep(0.1)
    assert waiting.status == "in_progress"
    (wait,) = (waiting.model_extra or {})["parley"]["waiting"]
    assert (wait["kind"], wait["name"]) == ("tool", "look_up")
    await goes_on(client, http, topics)
    ended = await client.responses.retrieve(created.id)
    assert (ended.status, ended.output_text) == ("incomplete", TEXT)
    assert "waiting" not in (ended.model_extra or {})["parley"]


async def test_a_whole_response_that_waits_is_a_conflict(
    client: AsyncOpenAI, http: httpx.AsyncClient, topics: Client
) -> None:
    with pytest.raises(openai.ConflictError):
        await client.responses.create(model="demo", input="hello", max_output_tokens=2, extra_body=KAFKA)
    assert (await goes_on(client, http, topics))["text"] == TEXT


@pytest.mark.skipif(NODE is None or NPM is None, reason="node is not installed: the AI SDK was not run")
async def test_the_ai_sdk_shows_the_error_and_asks_once_in_each_way(sleepy: GatewayProcess, topics: Client) -> None:
    user = topics.user()
    await asyncio.to_thread(installed, SDK)
    command = [str(NODE), str(SDK / "waiting.mjs"), sleepy.url, user]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    stream, whole = [json.loads(line) for line in out.decode().splitlines()]
    assert stream["text"] == expected("hello", [], [1])[0], err.decode()
    assert ["it is at /v1/requests/" in error for error in (*stream["errors"], *whole["errors"])] == [True, True]
    assert whole["status"] == 409
    assert len(await requests_of(topics, user)) == 2
