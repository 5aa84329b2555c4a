"""Streams whose answers wait for minutes: headers come soon, comments keep them alive, and errors become events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import openai
import pytest
from openai import AsyncOpenAI

from app.wire.event import ErrorInfo, EventType, TokenEvent
from app.wire.ids import partition_for
from app.wire.request import Request
from tests.conftest import NewSettings
from tests.integration.gateway.gateway_process import GatewayProcess
from tests.integration.scripted_worker import ScriptedWorker, scripted_worker
from tests.integration.waiting import until

ERROR = ErrorInfo("overloaded", "the queue is full")
BODIES: dict[str, dict[str, object]] = {
    "chat/completions": {"messages": [{"role": "user", "content": "hang"}]},
    "completions": {"prompt": "hang"},
    "responses": {"input": "hang"},
}


@pytest.fixture
async def worker(new_settings: NewSettings) -> AsyncIterator[ScriptedWorker]:
    settings = await new_settings(gateway_wait_s=0.1)
    async with scripted_worker(settings) as worker:
        yield worker


@pytest.fixture
def gateway(worker: ScriptedWorker, tmp_path: Path) -> Iterator[GatewayProcess]:
    constants = {"app.gateway.openai.exchange.STATUS_S": 1.0}
    with GatewayProcess(worker.settings, tmp_path / "gateway.log", constants=constants) as gateway:
        yield gateway
        assert gateway.stop() == 0


async def received(worker: ScriptedWorker) -> Request:
    await until(lambda: bool(worker.requests))
    (request,) = worker.requests
    return request


async def fail(worker: ScriptedWorker, request: Request) -> None:
    partition = partition_for(request.user_id, worker.settings.partitions)
    event = TokenEvent(
        type=EventType.ERROR,
        request_id=request.request_id,
        user_id=request.user_id,
        conversation_id=request.conversation_id,
        epoch=await worker.fence(partition),
    )
    await worker.end(partition, event, 0, error=ERROR)


@pytest.mark.parametrize("route", BODIES)
async def test_headers_come_before_the_first_event_and_an_error_is_an_event(
    worker: ScriptedWorker, gateway: GatewayProcess, route: str
) -> None:
    async with (
        httpx.AsyncClient(base_url=gateway.url, timeout=60) as http,
        http.stream("POST", f"/v1/{route}", json={**BODIES[route], "stream": True}) as reply,
    ):
        assert reply.status_code == 200
        lines = reply.aiter_lines()
        assert await anext(lines) == ": waiting"
        request = await received(worker)
        assert reply.headers["x-request-id"] == request.request_id
        await fail(worker, request)
        rest = [line async for line in lines]
    assert any(ERROR.message in line for line in rest if line.startswith("data: "))


async def test_openais_client_waits_and_raises_the_error(worker: ScriptedWorker, gateway: GatewayProcess) -> None:
    async with AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="any", max_retries=0) as client:
        stream = await client.chat.completions.create(
            model="demo", messages=[{"role": "user", "content": "hang"}], stream=True
        )
        await fail(worker, await received(worker))
        with pytest.raises(openai.APIError, match=ERROR.message):
            [chunk async for chunk in stream]


async def test_an_error_at_once_is_still_a_status(worker: ScriptedWorker, tmp_path: Path) -> None:
    body = {"messages": [{"role": "user", "content": "fail"}], "stream": True}
    constants = {"app.gateway.openai.exchange.STATUS_S": 60.0}
    with GatewayProcess(worker.settings, tmp_path / "patient.log", constants=constants) as gateway:
        async with httpx.AsyncClient(base_url=gateway.url, timeout=120) as http:
            assert (await http.post("/v1/chat/completions", json=body)).status_code == 500
    assert worker.requests


async def test_a_client_that_leaves_while_its_stream_waits_cancels_its_answer(
    worker: ScriptedWorker, gateway: GatewayProcess
) -> None:
    body = {**BODIES["chat/completions"], "stream": True}
    async with (
        httpx.AsyncClient(base_url=gateway.url, timeout=60) as http,
        http.stream("POST", "/v1/chat/completions", json=body) as reply,
    ):
        assert await anext(reply.aiter_lines()) == ": waiting"
    await until(lambda: bool(worker.controls))
    assert [one.request_id for one in worker.controls] == [(await received(worker)).request_id]


async def test_the_events_of_a_request_begin_at_once(worker: ScriptedWorker, gateway: GatewayProcess) -> None:
    async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as http:
        asked = (await http.post("/v1/requests", json={"prompt": "hang"})).json()
        async with http.stream("GET", asked["events"]) as reply:
            assert reply.status_code == 200
            assert (await anext(reply.aiter_lines())).startswith("retry:")
        await until(lambda: bool(worker.requests))
