"""Responses in the background over HTTP: who may have them, who leaves, what is waited for, what is gone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete

from app.settings.kafka import TopicName
from app.wire.ids import new_request_id, partition_for
from tests.integration.gateway.events import blocks
from tests.integration.gateway.gateway_process import GatewayProcess
from tests.integration.scripted_worker import ScriptedWorker
from tests.integration.waiting import until

NINA = {"Authorization": "Bearer key-of-nina-0123"}
OMAR = {"Authorization": "Bearer key-of-omar-0123"}


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def client(scripted: ScriptedWorker, guarded: GatewayProcess) -> AsyncIterator[httpx.AsyncClient]:
    del scripted
    async with httpx.AsyncClient(base_url=guarded.url, timeout=180, headers=NINA) as client:
        yield client


async def create(client: httpx.AsyncClient, **body: Any) -> dict[str, Any]:
    reply = await client.post("/v1/responses", json={"background": True, **body})
    assert reply.status_code == 200, reply.text
    created: dict[str, Any] = reply.json()
    return created


async def events(client: httpx.AsyncClient, name: str, after: int | None = None) -> list[dict[str, Any]]:
    query = {"stream": "true"} if after is None else {"stream": "true", "starting_after": str(after)}
    async with client.stream("GET", f"/v1/responses/{name}", params=query) as reply:
        assert reply.status_code == 200, await reply.aread()
        return [one.event async for one in blocks(reply)]


async def ended(client: httpx.AsyncClient, name: str) -> dict[str, Any]:
    async with asyncio.timeout(120):
        while (response := (await client.get(f"/v1/responses/{name}")).json())["status"] in {"queued", "in_progress"}:
            await asyncio.sleep(0.02)
    found: dict[str, Any] = response
    return found


async def test_the_response_of_another_user_does_not_exist(client: httpx.AsyncClient) -> None:
    name = (await create(client, input="one two"))["id"]
    await ended(client, name)
    path = f"/v1/responses/{name}"
    calls = [("GET", path), ("GET", f"{path}?stream=true"), ("GET", f"{path}/input_items"), ("DELETE", path)]
    for method, of in [*calls, ("POST", f"{path}/cancel")]:
        assert (await client.request(method, of, headers=OMAR)).status_code == 404, of
        assert (
            await client.request(method, of, headers={"Authorization": "Bearer unknown-0123456"})
        ).status_code == 401
    assert (await client.get(path)).status_code == 200


UNKNOWN = (
    "resp_", "x", "resp_unknown", f"resp_{new_request_id()}", f"resp_talk.{new_request_id()}", "resp_%00", "resp_a%2Fb",
)  # fmt: skip


async def test_unknown_ids_are_not_found_and_wrong_numbers_are_refused(client: httpx.AsyncClient) -> None:
    asked = (await client.post("/v1/requests", json={"prompt": "one"})).json()
    for name in (*UNKNOWN, f"resp_{asked['request_id']}"):
        for path in (f"/v1/responses/{name}", f"/v1/responses/{name}?stream=true", f"/v1/responses/{name}/input_items"):
            reply = await client.get(path)
            assert (reply.status_code, reply.json()["error"]["code"]) == (404, "not_found"), path
    path = f"/v1/responses/{(await create(client, input='one'))['id']}"
    for query in ("stream=true&starting_after=-1", "stream=true&starting_after=x", "stream=perhaps"):
        assert (await client.get(f"{path}?{query}")).status_code == 400, query
    for query in ("limit=0", "limit=101", "order=up", "after=none"):
        assert (await client.get(f"{path}/input_items?{query}")).status_code == 400, query


async def test_who_leaves_does_not_cancel_and_finds_the_rest(
    scripted: ScriptedWorker, client: httpx.AsyncClient
) -> None:
    body = {"input": "one two wait", "background": True, "stream": True}
    seen = []
    async with client.stream("POST", "/v1/responses", json=body) as reply:
        async for one in blocks(reply):
            seen.append(one.event)
            if one.event["type"] == "response.output_text.delta":
                break
    name, last = seen[0]["response"]["id"], seen[-1]["sequence_number"]
    rest = asyncio.create_task(events(client, name, last))
    await asyncio.sleep(0)
    cancelled = (await client.post(f"/v1/responses/{name}/cancel")).json()
    assert (cancelled["status"], cancelled["output"][0]["content"][0]["text"]) == ("cancelled", "one two ")
    assert [one["sequence_number"] for one in [*seen, *await rest]] == list(range(len(seen) + len(rest.result())))
    assert [*seen, *rest.result()] == await events(client, name)
    assert rest.result()[-1]["response"] == cancelled
    assert (await client.post(f"/v1/responses/{name}/cancel")).json() == cancelled
    assert len(scripted.controls) == 1, "the reader that left cancelled nothing"


async def test_created_and_queued_leave_at_once_and_comments_while_it_waits(
    scripted: ScriptedWorker, client: httpx.AsyncClient
) -> None:
    body = {"input": "wait", "background": True, "stream": True}
    async with client.stream("POST", "/v1/responses", json=body) as reply:
        lines = (line async for line in reply.aiter_lines() if line)
        first = [await anext(lines) for _ in range(4)]
        assert [line for line in first if line.startswith("event")] == [
            "event: response.created", "event: response.queued",
        ]  # fmt: skip
        name = json.loads(first[1].removeprefix("data: "))["response"]["id"]
        await until(lambda: bool(scripted.requests))
        comments = 0
        while comments < 3:  # longer than an unknown id is waited for
            comments += await anext(lines) == ": waiting"
    assert (await client.get(f"/v1/responses/{name}")).json()["status"] == "queued"
    assert (await client.post(f"/v1/responses/{name}/cancel")).json()["status"] == "cancelled"


async def test_another_gateway_waits_for_a_response_that_it_has_not_sent(
    scripted: ScriptedWorker, client: httpx.AsyncClient, guarded: GatewayProcess, tmp_path: Path
) -> None:
    name = (await create(client, input="wait", metadata={"topic": "test"}))["id"]
    await until(lambda: bool(scripted.requests))
    with GatewayProcess(guarded.settings, tmp_path / "other.log") as other:
        async with httpx.AsyncClient(base_url=other.url, timeout=180, headers=NINA) as there:
            assert (await there.get(f"/v1/responses/{name}")).json()["metadata"] == {"topic": "test"}
            reading = asyncio.create_task(events(there, name))
            await asyncio.sleep(1.0)  # many times the wait for an unknown id
            assert not reading.done()
            await client.post(f"/v1/responses/{name}/cancel")
            assert await reading == await events(client, name)


async def test_an_error_is_an_end(client: httpx.AsyncClient) -> None:
    name = (await create(client, input="one fail"))["id"]
    response = await ended(client, name)
    assert (response["status"], response["error"]["code"]) == ("failed", "engine_error")
    assert response["output"][0]["content"][0]["text"] == "one "
    last = (await events(client, name))[-1]
    assert (last["type"], last["response"]) == ("response.failed", response)


async def test_a_deletion_cancels_and_outlives_the_gateway(
    scripted: ScriptedWorker, client: httpx.AsyncClient, guarded: GatewayProcess, tmp_path: Path
) -> None:
    name, kept = (await create(client, input="one wait"))["id"], (await create(client, input="one two"))["id"]
    before = await ended(client, kept)
    deleted = await client.delete(f"/v1/responses/{name}")
    assert deleted.json() == {"id": name, "object": "response", "deleted": True}
    await until(lambda: bool(scripted.controls))
    with GatewayProcess(guarded.settings, tmp_path / "other.log") as other:
        async with httpx.AsyncClient(base_url=other.url, timeout=180, headers=NINA) as there:
            for one in (client, there):
                for _ in range(2):
                    assert (await one.get(f"/v1/responses/{name}")).status_code == 404
                    assert (await one.delete(f"/v1/responses/{name}")).status_code == 404
                assert (await one.get(f"/v1/responses/{kept}")).json() == before


async def test_an_erased_user_has_no_responses(client: httpx.AsyncClient) -> None:
    client.headers.update(OMAR)
    name = (await create(client, input="one two"))["id"]
    await ended(client, name)
    assert (await client.delete("/v1/users/omar")).status_code == 202
    assert (await client.get(f"/v1/responses/{name}")).status_code == 404


async def test_responses_of_an_erased_conversation_are_gone_and_others_stay(
    scripted: ScriptedWorker, client: httpx.AsyncClient, guarded: GatewayProcess, tmp_path: Path
) -> None:
    names = []
    for conversation in ("conv_a", "conv_b"):
        names.append((await create(client, input="one two", conversation=conversation))["id"])
        kept = await ended(client, names[-1])
    deleted = await client.delete("/v1/conversations/conv_a")
    assert (deleted.status_code, deleted.json()) == (
        200,
        {"id": "conv_a", "object": "conversation.deleted", "deleted": True},
    )
    with GatewayProcess(guarded.settings, tmp_path / "other.log") as other:
        async with httpx.AsyncClient(base_url=other.url, timeout=180, headers=NINA) as there:
            for one in (client, there):
                assert (await one.get(f"/v1/responses/{names[0]}")).status_code == 404
                assert (await one.get(f"/v1/responses/{names[1]}")).json() == kept
    again = await ended(client, (await create(client, input="three", conversation="conv_a"))["id"])
    assert again["output"][0]["content"][0]["text"] == "three "


async def test_what_has_left_tokens_is_gone(
    scripted: ScriptedWorker, client: httpx.AsyncClient, guarded: GatewayProcess, tmp_path: Path
) -> None:
    settings = scripted.settings
    partition = TopicPartition(settings.topic(TopicName.TOKENS), partition_for("nina", settings.partitions))
    began = await scripted.fence(partition.partition) + 1
    name = (await create(client, input="one two three"))["id"]
    await ended(client, name)
    admin = AIOKafkaAdminClient(**settings.cluster.options())
    await admin.start()
    try:
        await admin.delete_records({partition: RecordsToDelete(before_offset=began + 3)})
    finally:
        await admin.close()
    with GatewayProcess(guarded.settings, tmp_path / "other.log") as other:
        async with httpx.AsyncClient(base_url=other.url, timeout=180, headers=NINA) as there:
            for query in ({}, {"stream": "true"}):
                reply = await there.get(f"/v1/responses/{name}", params=query)
                assert (reply.status_code, "expired" in reply.text) == (404, True)
