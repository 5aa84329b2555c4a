"""A gateway whose tenants ask too much, or whose workers do not come along."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from app.settings import Settings
from tests.conftest import NewSettings
from tests.faults.worker_process import WorkerProcess
from tests.integration.gateway.gateway_process import GatewayProcess
from tests.integration.gateway.test_socket import opened

LONG = 100_000  # tokens: answers that do not end before the test does


async def asked(http: httpx.AsyncClient, user: str, max_tokens: int = 40) -> httpx.Response:
    body = {"prompt": "hello", "max_tokens": max_tokens}
    return await http.post("/v1/requests", json=body, params={"user_id": user})


async def commit_to_the_end(settings: Settings) -> None:
    """As the worker's group does once all have ended."""
    place = TopicPartition(settings.topic("requests"), 0)
    member = AIOKafkaConsumer(**settings.cluster.options(), group_id=settings.group, enable_auto_commit=False)
    await member.start()
    try:
        member.assign([place])
        await member.commit(await member.end_offsets([place]))
    finally:
        await member.stop()


async def test_requests_that_could_not_begin_in_time_are_refused_until_they_could(
    new_settings: NewSettings, tmp_path: Path
) -> None:
    settings: Settings = await new_settings(partitions=1, max_in_flight=3, gateway_start_s=2.0)
    with GatewayProcess(settings, tmp_path / "gateway.log") as gateway:
        async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as http:
            # No worker answers: as many as are answered at once are accepted, and later ones are not.
            assert [(await asked(http, "nina")).status_code for _ in range(3)] == [202] * 3
            async with asyncio.timeout(120):
                while (refused := await asked(http, "nina")).status_code == 202:
                    await asyncio.sleep(0.5)
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "overloaded")
            assert 1 <= int(refused.headers["retry-after"]) <= 61
            body = {"messages": [{"role": "user", "content": "hello"}], "user_id": "nina"}
            assert (await http.post("/v1/chat/completions", json=body)).status_code == 503
            assert (await asked(http, "omar")).status_code == 202
            await commit_to_the_end(settings)
            async with asyncio.timeout(120):
                while (await asked(http, "nina")).status_code == 503:
                    await asyncio.sleep(0.5)


@pytest.mark.parametrize("is_shared", [False, True])
async def test_a_burst_of_one_user_refuses_no_other(
    new_settings: NewSettings, tmp_path: Path, *, is_shared: bool
) -> None:
    settings = await new_settings(
        partitions=1, max_in_flight=2, engine="paced", gateway_start_s=2.0, gateway_requests_per_min=0
    )
    with (
        WorkerProcess(settings, tmp_path / "worker.log") as worker,
        GatewayProcess(settings, tmp_path / "gateway.log", is_shared=is_shared) as gateway,
    ):
        worker.wait_owning(1)
        async with (
            httpx.AsyncClient(base_url=gateway.url, timeout=60) as http,
            opened(gateway, "/v1/ws?user_id=nina", max_queue=None) as socket,
        ):
            for number in range(300):
                ask = {"type": "ask", "ref": str(number), "prompt": "hello", "max_tokens": LONG}
                await socket.send(json.dumps(ask))
            body = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4, "user_id": "omar"}
            for _ in range(4):
                async with asyncio.timeout(120):
                    while (refused := await asked(http, "nina", LONG)).status_code == 202:
                        await asyncio.sleep(0.1)
                assert refused.status_code == 503
                assert (await http.post("/v1/chat/completions", json=body)).status_code == 200


async def test_the_users_of_a_tenant_share_what_it_may_ask(new_settings: NewSettings, tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text("[tenants.acme]\nrequests_per_min = 4\n")
    settings = await new_settings(gateway_api_keys="key-of-acme-01234=acme/*,key-of-other-0123=other/*", policy=policy)
    with GatewayProcess(settings, tmp_path / "gateway.log") as gateway:
        async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as http:
            http.headers["Authorization"] = "Bearer key-of-acme-01234"
            begun = time.monotonic()
            replies = await asyncio.gather(*(asked(http, user) for user in ("nina", "omar", "lena") * 10))
            refilled = (time.monotonic() - begun) * 4 / 60
            accepted = [reply.status_code for reply in replies].count(202)
            assert 4 <= accepted <= 4 + refilled
            refused = [reply for reply in replies if reply.status_code == 429]
            assert len(refused) == 30 - accepted
            assert all(int(reply.headers["retry-after"]) >= 1 for reply in refused)
            http.headers["Authorization"] = "Bearer key-of-other-0123"
            assert (await asked(http, "nina")).status_code == 202


async def test_what_is_refused_for_open_streams_is_not_sent(new_settings: NewSettings, tmp_path: Path) -> None:
    """A client asks again after a 429: what was sent all the same would be answered twice."""
    settings = await new_settings(partitions=1)
    messages = [{"role": "user", "content": "hello"}]
    asks: list[tuple[str, dict[str, Any]]] = [
        ("/v1/chat/completions", {"messages": messages, "stream": True, "n": 2}),
        ("/v1/completions", {"prompt": "hello", "stream": True}),
        ("/v1/responses", {"input": "hello", "stream": True}),
        ("/v1/responses", {"input": "hello", "stream": True, "background": True}),
        ("/v1/requests", {"prompt": "hello"}),
    ]
    constants = {"app.gateway.edge.bounds.STREAMS_OF_USER": 0}
    with GatewayProcess(settings, tmp_path / "gateway.log", constants=constants) as gateway:
        headers = {"accept": "text/event-stream"}
        async with httpx.AsyncClient(base_url=gateway.url, timeout=60, headers=headers) as http:
            replies = [await http.post(path, json=body) for path, body in asks]
            replies.append(await http.get("/v1/chat", params={"prompt": "hello"}))
        assert [reply.status_code for reply in replies] == [429] * 6
        async with opened(gateway) as socket:
            await socket.send(json.dumps({"type": "ask", "prompt": "hello"}))
            assert json.loads(await socket.recv())["type"] == "refused"
    place = TopicPartition(settings.topic("requests"), 0)
    async with AIOKafkaConsumer(**settings.cluster.options()) as member:
        assert await member.end_offsets([place]) == {place: 0}
