"""What a gateway refuses, and how it ends; no worker is needed for that."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import jwt
import pytest

from app.local.kafka import KafkaCluster
from app.settings import Settings
from tests.conftest import NewSettings
from tests.environment import environment_of
from tests.integration.gateway.events import read
from tests.integration.gateway.gateway_process import GatewayProcess
from tests.integration.worker.conftest import module_settings
from tests.with_constants import command_with

SECRET = "a secret that has well over 32 bytes"
NINA = {"Authorization": "Bearer key-of-nina-0123"}
OMAR = {"Authorization": "Bearer key-of-omar-0123"}


@pytest.fixture(scope="module")
def gateway(kafka: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    keys = {"gateway_api_keys": "key-of-nina-0123=nina,key-of-omar-0123=omar", "jwt_secret": SECRET}
    folder = tmp_path_factory.mktemp("guarded")
    settings = module_settings(kafka, folder, gateway_wait_s=0.2, gateway_requests_per_min=30, **keys)
    with GatewayProcess(settings, folder / "gateway.log") as gateway:
        yield gateway
        assert "development mode" not in gateway.log.read_text()


@pytest.fixture
async def guarded(gateway: GatewayProcess) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as http:
        yield http


async def test_nobody_gets_in_without_a_key_nor_to_what_is_anothers(guarded: httpx.AsyncClient) -> None:
    asked = await guarded.post("/v1/requests", json={"prompt": "mine"}, headers=NINA)
    request_id = asked.json()["request_id"]
    mine = f"/v1/requests/{request_id}"
    assert (await guarded.get(mine, headers=NINA)).json()["status"] == "queued"
    token = jwt.encode({"sub": "nina", "exp": time.time() + 600}, SECRET)
    assert (await guarded.get(mine, headers={"Authorization": f"Bearer {token}"})).status_code == 200

    paths = [("GET", mine), ("GET", f"{mine}/events"), ("DELETE", mine), ("GET", "/v1/models"), ("GET", "/v1/me"),
             ("GET", "/v1/search?q=x"), ("GET", "/v1/conversations"), ("GET", "/v1/conversations/default"),
             ("DELETE", "/v1/users/nina"), ("POST", "/v1/requests"), ("POST", "/v1/chat/completions")]  # fmt: skip
    for method, path in paths:
        for headers in ({}, {"Authorization": "Bearer of-an-unknown-user-012345"}):
            reply = await guarded.request(method, path, headers=headers)
            assert (reply.status_code, reply.json()["error"]["code"]) == (401, "unauthorized"), path

    for unknown in (mine, "/v1/requests/unknown-request"):
        assert (await guarded.get(unknown, headers=OMAR)).status_code == 404
        told = [one.event["error"]["code"] async for one in read(guarded, f"{unknown}/events", headers=OMAR)]
        assert told == ["not_found"]
    for method, path in (("DELETE", "/v1/users/nina"), ("GET", f"{mine}?user_id=nina"), ("GET", "/v1/me?user_id=nina")):
        assert (await guarded.request(method, path, headers=OMAR)).status_code == 403
    reply = await guarded.post("/v1/requests", json={"prompt": "not mine", "user_id": "nina"}, headers=OMAR)
    assert reply.status_code == 403


async def test_a_user_that_asks_too_much_is_told_when_to_come_again(guarded: httpx.AsyncClient) -> None:
    more = (guarded.post("/v1/requests", json={"prompt": "more"}, headers=NINA) for _ in range(80))
    replies = await asyncio.gather(*more)  # at once: a slow machine would be allowed one every two seconds
    assert {reply.status_code for reply in replies} == {202, 429}
    refused = next(reply for reply in replies if reply.status_code == 429)
    assert refused.json()["error"]["code"] == "rate_limited"
    assert int(refused.headers["retry-after"]) >= 1
    assert (await guarded.post("/v1/requests", json={"prompt": "one"}, headers=OMAR)).status_code == 202


async def test_with_keys_the_metrics_are_on_a_port_of_their_own(new_settings: NewSettings, tmp_path: Path) -> None:
    settings = await new_settings(gateway_api_keys="key-of-nina-0123=nina")
    with GatewayProcess(settings, tmp_path / "gateway.log") as gateway:
        async with httpx.AsyncClient(timeout=60) as http:
            assert (await http.get(f"{gateway.url}/metrics", headers=NINA)).status_code == 404
            assert (await http.get(f"{gateway.url}/healthz")).status_code == 200
            stats = (await http.get(gateway.metrics_url)).text
            assert "parley_gateway_connections 1.0" in stats
            operators = gateway.metrics_url.removesuffix("/metrics")
            assert (await http.get(f"{operators}/readyz")).json() == {"status": "ok"}
            assert (await http.get(f"{operators}/v1/me", headers=NINA)).status_code == 404
        assert gateway.stop() == 0


async def test_a_slow_body_and_many_large_ones_cost_a_bounded_memory(new_settings: NewSettings, tmp_path: Path) -> None:
    settings = await new_settings(gateway_api_keys="key-of-nina-0123=nina")
    constants = {"app.gateway.edge.bounds.BODIES_BYTES": 3 * 1024 * 1024}
    with GatewayProcess(settings, tmp_path / "gateway.log", constants=constants) as gateway:
        host, port = gateway.url.removeprefix("http://").split(":")
        head = f"POST /v1/requests HTTP/1.1\r\nHost: a\r\nAuthorization: {NINA['Authorization']}\r\n"
        head += "Content-Type: application/json\r\nContent-Length: 900000\r\n\r\n"

        async def half_sent() -> asyncio.StreamReader:
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(head.encode() + b" " * 800_000)
            senders.append(writer)
            return reader

        senders: list[asyncio.StreamWriter] = []
        async with asyncio.timeout(120):
            replies = [await half_sent() for _ in range(4)]
            ended = {asyncio.create_task(reader.readline()) for reader in replies}
            refused = 0
            while refused < 2:
                done, ended = await asyncio.wait(ended, return_when=asyncio.FIRST_COMPLETED)
                assert all(b"429" in one.result() for one in done), "no other caller has sent anything"
                refused += len(done)
            while "parley_gateway_body_bytes 1.6e+06" not in await figures(gateway):
                await asyncio.sleep(0.05)
            for writer in senders:
                writer.close()
            await asyncio.gather(*ended)
            while "parley_gateway_body_bytes 0.0" not in await figures(gateway):
                await asyncio.sleep(0.05)
        assert gateway.stop() == 0
        assert "Traceback" not in gateway.log.read_text()


async def figures(gateway: GatewayProcess) -> str:
    return (await asyncio.to_thread(httpx.get, gateway.metrics_url, timeout=60)).text


@pytest.fixture
async def open_edge(settings: Settings, tmp_path: Path) -> AsyncIterator[GatewayProcess]:
    with GatewayProcess(settings, tmp_path / "gateway.log") as gateway:
        yield gateway


async def test_what_is_no_request_is_refused_in_one_form(open_edge: GatewayProcess) -> None:
    async with httpx.AsyncClient(base_url=open_edge.url, timeout=60) as http:
        refused = {
            "not JSON": (
                await http.post("/v1/requests", content="{", headers={"content-type": "application/json"}),
                400,
            ),
            "a form of another site": (await http.post("/v1/requests", content='{"prompt": "x"}'), 415),
            "a bomb of small values": (
                await http.post("/v1/requests", json={"prompt": "x", "metadata": {"a": [{}] * 200_000}}),
                413,
            ),
            "metadata that are too large": (
                await http.post("/v1/requests", json={"prompt": "x", "metadata": {"a": "x" * 17_000}}),
                400,
            ),
            "an index of 4,400 digits": (
                await http.get("/v1/requests/a/events", headers={"Last-Event-ID": "9" * 4400}),
                400,
            ),
            "too large": (await http.post("/v1/requests", json={"prompt": "x" * 1_100_000}), 413),
            "neither prompt nor messages": (await http.post("/v1/requests", json={}), 400),
            "a lone surrogate": (
                await http.post(
                    "/v1/requests", content=b'{"prompt": "\\ud800"}', headers={"content-type": "application/json"}
                ),
                400,
            ),
            "a user that is too long": (await http.get("/v1/me", params={"user_id": "x" * 129}), 400),
            "a request id with a space": (await http.get("/v1/requests/a%20b"), 400),
            "a place that is no number": (await http.get("/v1/requests/a/events", headers={"Last-Event-ID": "x"}), 400),
            "no such path": (await http.get("/v2/requests"), 404),
            "no such method": (await http.put("/v1/requests"), 405),
            "a limit of nothing": (await http.get("/v1/search", params={"q": "x", "limit": 0}), 400),
            "a name that leads here": (await http.get("/v1/me", headers={"Host": "parley.example"}), 403),
        }
        for what, (reply, status) in refused.items():
            assert reply.status_code == status, (what, reply.text)
            assert reply.json()["error"]["message"], what
        assert (await http.get("/readyz")).json() == {"status": "ok"}
        stats = (await http.get("/metrics")).text
        assert 'parley_gateway_replies_total{method="POST",route="/v1/requests",status="413"} 2.0' in stats


async def test_sigterm_ends_it_cleanly_and_cuts_streams_without_an_end(open_edge: GatewayProcess) -> None:
    async with httpx.AsyncClient(base_url=open_edge.url, timeout=60) as http:
        request_id = (await http.post("/v1/requests", json={"prompt": "no worker answers"})).json()["request_id"]
        async with http.stream("GET", f"/v1/requests/{request_id}/events") as stream:
            lines = stream.aiter_lines()
            assert await anext(lines) == "retry: 1000"
            os.kill(open_edge.pid, signal.SIGTERM)
            assert {line async for line in lines if line} <= {": waiting"}
    assert await asyncio.to_thread(open_edge.stop) == 0
    assert "development mode" in open_edge.log.read_text()


@pytest.mark.parametrize(
    ("change", "code", "reported"),
    [
        ({"gateway_host": "0.0.0.0"}, 2, "PARLEY_GATEWAY_API_KEYS"),
        ({"jwt_secret": "short"}, 2, "PARLEY_JWT_SECRET"),
        ({"broker": "kafka://127.0.0.1:1"}, 1, "no Kafka answers"),
    ],
)
async def test_a_gateway_that_cannot_be_says_why_in_one_line(
    settings: Settings, change: dict[str, str], code: int, reported: str
) -> None:
    command = command_with({"app.kafka.patience.START_WAIT_S": 0.2}, "parley", "gateway")
    environment = environment_of(settings.model_copy(update=change))
    ended = await asyncio.to_thread(subprocess.run, command, env=environment, capture_output=True, text=True)
    assert ended.returncode == code
    *waits, line = ended.stderr.splitlines()
    assert reported in line
    assert [reported in wait for wait in waits] == [True] * (code == 1)
