"""An answer by the Durable Streams protocol: over HTTP, and read by that protocol's own client."""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import NewSettings
from tests.integration.gateway.events import answer, text_of
from tests.integration.gateway.gateway_process import GatewayProcess
from tests.integration.npm import NODE, NPM, installed
from tests.integration.scripted_worker import ScriptedWorker, scripted_worker

HERE = Path(__file__).parent / "npm"
needs_node = pytest.mark.skipif(NODE is None or NPM is None, reason="node is not installed: its client was not run")


@pytest.fixture
async def pausing(new_settings: NewSettings) -> AsyncIterator[ScriptedWorker]:
    async with scripted_worker(await new_settings(gateway_wait_s=0.1)) as worker:
        yield worker


@pytest.fixture
def its_gateway(pausing: ScriptedWorker, tmp_path: Path) -> Iterator[GatewayProcess]:
    with GatewayProcess(pausing.settings, tmp_path / "its_gateway.log") as gateway:
        yield gateway


async def asked(http: httpx.AsyncClient, tokens: int, prompt: str = "hello") -> str:
    reply = await http.post("/v1/requests", json={"prompt": prompt, "max_tokens": tokens})
    request_id: str = reply.json()["request_id"]
    return request_id


def path_of(request_id: str) -> str:
    return f"/v1/requests/{request_id}/stream"


async def read(gateway: GatewayProcess, request_id: str, mode: str, *more: str) -> dict[str, Any]:
    """What Durable Streams' client has read."""
    await asyncio.to_thread(installed, HERE)
    process = await asyncio.create_subprocess_exec(
        str(NODE),
        str(HERE / "durable_stream.mjs"),
        gateway.url + path_of(request_id),
        mode,
        *more,
        stdout=PIPE,
        stderr=PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, err.decode()
    found: dict[str, Any] = json.loads(out)
    return found


def text(found: dict[str, Any]) -> str:
    return "".join(one.get("text") or "" for batch in found["batches"] for one in batch["items"])


@needs_node
@pytest.mark.parametrize("mode", ["sse", "long-poll"])
async def test_its_client_follows_an_answer_to_the_end(
    http: httpx.AsyncClient, gateway: GatewayProcess, mode: str
) -> None:
    request_id = await asked(http, 60)
    found = await read(gateway, request_id, mode)
    assert found["closed"]
    assert text(found) == text_of(await answer(http, request_id))
    indexes = [
        index
        for batch in found["batches"]
        for one in batch["items"]
        for index in range(one["index"], one["index"] + len(one.get("tokens") or ()))
    ]
    assert indexes == list(range(60))


@needs_node
async def test_its_client_goes_on_at_an_offset_and_reads_what_is_there(
    pausing: ScriptedWorker, its_gateway: GatewayProcess
) -> None:
    async with httpx.AsyncClient(base_url=its_gateway.url, timeout=60) as http:
        request_id = await asked(http, 60, "one two pause four")
        first = await read(its_gateway, request_id, "sse", "-1", "break")
        pausing.goes_on.set()
        second = await read(its_gateway, request_id, "long-poll", first["offset"])
        whole = await read(its_gateway, request_id, "none")
        again = await read(its_gateway, request_id, "none", second["offset"])
    assert not first["closed"]
    assert text(first) in ("one ", "one two ")
    assert text(first) + text(second) == text(whole) == "one two pause four "
    assert (text(again), again["closed"]) == ("", True)


@needs_node
async def test_its_client_goes_on_at_another_gateway(
    http: httpx.AsyncClient, gateway: GatewayProcess, tmp_path: Path
) -> None:
    request_id = await asked(http, 60)
    first = await read(gateway, request_id, "sse", "-1", "break")
    with GatewayProcess(gateway.settings, tmp_path / "gateway.log", is_shared=False) as other:
        second = await read(other, request_id, "sse", first["offset"])
    assert text(first) + text(second) == text_of(await answer(http, request_id))


async def test_offsets_sort_and_the_end_closes_the_stream(http: httpx.AsyncClient) -> None:
    request_id = await asked(http, 3)
    await answer(http, request_id)
    whole = await http.get(path_of(request_id))
    offset = whole.headers["stream-next-offset"]
    assert (whole.status_code, offset, whole.headers["stream-closed"]) == (200, "0000000000000004", "true")
    assert [one["type"] for one in whole.json()][-1] == "done"
    for live, status in (("long-poll", 204), (None, 200)):
        behind = await http.get(path_of(request_id), params={"offset": offset} | ({"live": live} if live else {}))
        assert (behind.status_code, behind.headers["stream-next-offset"]) == (status, offset)
        assert behind.headers["stream-closed"] == "true"
    last = await http.get(path_of(request_id), params={"offset": "0000000000000003", "live": "sse"})
    assert [line for line in last.text.splitlines() if line.startswith("event:")] == ["event: data", "event: control"]
    now = await http.get(path_of(request_id), params={"offset": "now"})
    assert (now.json(), now.headers["stream-next-offset"]) == ([], offset)


@pytest.mark.parametrize(
    ("query", "param"), [("offset=3", "offset"), ("offset=x", "offset"), ("offset=-2", "offset"), ("live=poll", "live")]
)
async def test_what_is_no_offset_or_no_mode_is_refused(http: httpx.AsyncClient, query: str, param: str) -> None:
    reply = await http.get(f"{path_of(await asked(http, 1))}?{query}")
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)


async def test_an_unknown_answer_and_that_of_another_user_are_not_found(http: httpx.AsyncClient) -> None:
    request_id = await asked(http, 1)
    await answer(http, request_id)
    assert (await http.get(path_of("no-such-request"))).status_code == 404
    assert (await http.get(path_of(request_id), params={"user_id": "somebody"})).status_code == 404
