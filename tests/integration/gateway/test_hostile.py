"""One bad request is one bad answer: whatever a caller sends, it gets an error of its own, and nobody else notices."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import socket
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.process.log_limit import PERIOD_S
from tests.conftest import NewSettings
from tests.integration.gateway.events import answer
from tests.integration.gateway.gateway_process import GatewayProcess
from tests.integration.gateway.test_socket import opened

CHAT, TEXT, RESPONSES, ASK = "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/requests"
HI = [{"role": "user", "content": "hi"}]
DEEP = '{"a":' * 3000 + "1" + "}" * 3000


def arguments(text: str) -> list[dict[str, Any]]:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": text}}
    return [*HI, {"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c", "content": "x"}]


def tool(**parameters: Any) -> list[dict[str, Any]]:
    return [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", **parameters}}}]


def with_raw(body: dict[str, Any], name: str, value: str) -> bytes:
    """The body with a field whose value is this text, which need not be what Python can write."""
    return json.dumps(body)[:-1].encode() + f', "{name}": {value}}}'.encode()


BODIES: dict[str, tuple[str, bytes]] = {
    **{
        f"{name} {value[:6]} {len(value)}": (CHAT, with_raw({"messages": HI, "max_tokens": 1}, name, value))
        for name in ("documents", "n", "seed", "temperature", "max_tokens", "logit_bias", "metadata", "unknown", "stop")
        for value in ("1e999", "9" * 4400, "[1e999]", "-1e-999999", '"\\ud800"', "[" * 3000 + "]" * 3000)
    },
    "schema deep": (CHAT, json.dumps({"messages": HI, "structured_outputs": {"json": DEEP}}).encode()),
    "guided deep": (CHAT, json.dumps({"messages": HI, "guided_json": DEEP}).encode()),
    "arguments deep": (CHAT, json.dumps({"messages": arguments("[" * 1200)}).encode()),
    "arguments closed": (CHAT, json.dumps({"messages": arguments("[" * 600 + "]" * 5000)}).encode()),
    "arguments digits": (CHAT, json.dumps({"messages": arguments("9" * 5000)}).encode()),
    "multiple of": (
        CHAT,
        json.dumps({"messages": HI, "tools": tool(properties={"x": {"multipleOf": 10**400 // 9}})}).encode(),
    ),
    "tool is no function": (CHAT, json.dumps({"messages": HI, "tools": [{"function": {"a": [[]]}}]}).encode()),
    "choice of a list": (CHAT, with_raw({"messages": HI, "tools": tool()}, "tool_choice", '{"type": []}')),
    "text id out of range": (TEXT, json.dumps({"prompt": [2**62, -1]}).encode()),
    "many prompts": (TEXT, json.dumps({"prompt": ["a"] * 129}).encode()),
    "items": (
        RESPONSES,
        json.dumps({"input": [{"type": "function_call", "call_id": "c", "name": "n"}] * 8000}).encode(),
    ),
    "item of an object": (
        RESPONSES,
        json.dumps({"input": [{"type": "message", "role": "user", "content": [{}]}]}).encode(),
    ),
    "conversation of surrogates": (RESPONSES, with_raw({"input": "hi"}, "conversation", '"\\udfff"')),
    "previous": (RESPONSES, json.dumps({"input": "hi", "previous_response_id": "resp_" + "." * 500}).encode()),
    "ask deep": (ASK, with_raw({"prompt": "hi"}, "metadata", "[" * 900 + "]" * 900)),
    "ask stop when": (ASK, with_raw({"prompt": "hi"}, "stop_when", '{"mean_logprob_below": -1e308, "over": 1e20}')),
    "ask nul": (ASK, json.dumps({"prompt": "hi", "conversation_id": "\x00" * 1000}).encode()),
    "no object": (ASK, b"[]"),
    "not utf-8": (ASK, b'{"prompt": "\xff\xfe"}'),
    "empty": (CHAT, b""),
    "brackets": (CHAT, b"[" * 1_000_000),
    "quotes": (CHAT, b'"' * 1_000_000),
    "objects": (CHAT, with_raw({"messages": HI}, "metadata", "[" + ",".join(["[]"] * 24_000) + "]")),
}
PATHS = [
    "/assets/%00",
    "/assets/..%2f..%2fetc%2fpasswd",
    "/v1/models/" + "a/" * 4000,
    "/v1/models/%ff%fe",
    "/v1/requests/%00/events",
    "/v1/requests/x?user_id=" + "u" * 20_000,
    "/v1/requests/x/events?starting_after=" + "9" * 5000,
    "/v1/conversations/%ff" + "c" * 8000,
    "/v1/search?q=x&limit=" + "9" * 400,
    "/v1/search?q=x&since=" + "9" * 30,
    "/v1/search?" + "&" * 20_000,
    "/v1/search?" + "a=1&" * 6_000,
    "/v1/search?q=%ff%00",
    "/v1/admin/tenants/%00",
    "/" + "%2e%2e/" * 3000,
]


def is_error(reply: httpx.Response) -> bool:
    """Whether it is an error of the caller, or no error, and quotes nothing of ours."""
    return reply.status_code < 500 and "Traceback" not in reply.text and "/app/" not in reply.text


@pytest.mark.parametrize("name", BODIES)
async def test_a_body_is_its_own_error(http: httpx.AsyncClient, name: str) -> None:
    path, body = BODIES[name]
    for content, headers in ((body, {}), (gzip.compress(body), {"content-encoding": "gzip"})):
        reply = await http.post(path, content=content, headers={"content-type": "application/json", **headers})
        assert is_error(reply), reply.text
        if reply.status_code >= 400:
            assert set(reply.json()["error"]) == {"message", "type", "param", "code"}


async def test_a_body_may_begin_with_a_byte_order_mark_and_one_that_is_no_json_says_where(
    http: httpx.AsyncClient,
) -> None:
    json_type = {"content-type": "application/json"}
    body = '{"prompt": "hi", "user_id": "marked"}'.encode("utf-8-sig")
    assert (await http.post("/v1/requests", content=body, headers=json_type)).status_code == 202
    for wrong, where in (
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b'{"prompt": "hi",}', "byte 16"),
        (b'{"prompt": "\\ud83d and more"}', "byte 18"),
    ):
        reply = await http.post("/v1/requests", content=wrong, headers=json_type)
        assert reply.status_code == 400
        assert where in reply.json()["error"]["message"], reply.text


@pytest.mark.parametrize("path", PATHS)
async def test_a_path_is_its_own_error(http: httpx.AsyncClient, path: str) -> None:
    for method in ("GET", "HEAD", "DELETE"):
        reply = await http.request(method, httpx.URL(str(http.base_url)).copy_with(raw_path=path.encode()))
        assert is_error(reply) or reply.status_code == 503, f"{reply.status_code} {reply.text}"


async def test_a_message_of_a_websocket_is_its_own_error(gateway: GatewayProcess) -> None:
    async with opened(gateway, "/v1/ws?user_id=hostile", max_size=2**24) as socket:
        sent = [body for path, body in BODIES.values() if path == ASK]
        for body in sent:
            await socket.send(body.replace(b"{", b'{"type": "ask", ', 1).decode("utf-8", "replace"))
            assert json.loads(await socket.recv())["type"] in {"refused", "asked"}
        await socket.send(json.dumps({"type": "ask", "ref": "good", "prompt": "hi", "max_tokens": 3}))
        async with asyncio.timeout(120):
            while (event := json.loads(await socket.recv()))["type"] != "done":
                assert event["type"] != "error"


async def test_streams_of_others_go_on_meanwhile_and_the_log_is_quiet(
    gateway: GatewayProcess, http: httpx.AsyncClient
) -> None:
    before = len(gateway.log.read_bytes())
    asked = (await http.post(ASK, json={"prompt": "hi", "max_tokens": 200})).json()
    reading = asyncio.create_task(answer(http, asked["request_id"]))
    headers = {"content-type": "application/json"}
    for path, body in BODIES.values():
        await http.post(path, content=body, headers=headers)
    events = await reading
    assert events[-1].event["type"] == "done"
    assert events[-1].event["index"] == 200
    log = gateway.log.read_bytes()[before:]
    assert b"Traceback" not in log
    assert b"ERROR" not in log
    assert gateway.is_running


async def test_what_is_no_http_is_logged_like_all_else_and_once_in_a_while(
    new_settings: NewSettings, tmp_path: Path
) -> None:
    settings = await new_settings(gateway_api_keys="key-of-nina-01234=nina")
    with GatewayProcess(settings, tmp_path / "gateway.log") as gateway:
        ports = (gateway.settings.gateway_port, gateway.settings.gateway_metrics_port)
        begun = time.monotonic()
        for number in range(60):
            with socket.create_connection(("127.0.0.1", ports[number % 2]), timeout=60) as peer:
                peer.sendall(b"\x16\x03\x01 private\r\n\r\n")
                assert b" 400 " in peer.recv(4096)
        most = 4 + 2 * (time.monotonic() - begun) / PERIOD_S
        lines = [line for line in gateway.log.read_text().splitlines() if "Invalid HTTP" in line]
    assert 1 <= len(lines) <= most
    for line in lines:
        assert re.match(r"\d{4}-\d\d-\d\d [\d:,]+ uvicorn\.error: Invalid HTTP", line)
    assert "private" not in gateway.log.read_text()
