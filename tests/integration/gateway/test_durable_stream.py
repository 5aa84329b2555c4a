"""An answer by the Durable Streams protocol: over HTTP, and read by that protocol's own client."""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.gateway.events import answer, text_of
from tests.integration.gateway.gateway_process import GatewayProcess
from tests.integration.npm import NODE, NPM, installed

HERE = Path(__file__).parent / "npm"
needs_node = pytest.mark.skipif(NODE is None or NPM is None, reason="node is not installed: its client was not run")


async def asked(http: httpx.AsyncClient, tokens: int) -> str:
    reply = await http.post("/v1/requests", json={"prompt": "hello", "max_tokens": tokens})
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
    http: httpx.AsyncClient, gateway: GatewayProcess
) -> None:
    request_id = await asked(http, 60)
    first = await read(gateway, request_id, "sse", "-1", "break")
    second = await read(gateway, request_id, "long-poll", first["offset"])
    whole = await read(gateway, request_id, "none")
    assert not first["closed"]
    assert text(first) + text(second) == text(whole) == text_of(await answer(http, request_id))
    again = await read(gateway, request_id, "none", second["offset"])
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
