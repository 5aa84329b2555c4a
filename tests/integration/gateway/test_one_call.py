"""A request and the stream of its answer in one call: `POST /v1/requests` that accepts events, `GET /v1/chat`."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

import httpx
import pytest

from tests.integration.gateway.events import Sent, answer, blocks, read, text_of
from tests.integration.gateway.gateway_process import GatewayProcess
from tests.integration.scripted_worker import ScriptedWorker
from tests.integration.waiting import until

EVENTS = {"Accept": "text/event-stream"}
CURL = shutil.which("curl")


async def posted(http: httpx.AsyncClient, *, headers: dict[str, str] | None = None, **body: Any) -> list[Sent]:
    body = {"prompt": "hello", "max_tokens": 5, **body}
    return [one async for one in read(http, "/v1/requests", "POST", json=body, headers={**EVENTS, **(headers or {})})]


async def got(http: httpx.AsyncClient, headers: dict[str, str] | None = None, **query: Any) -> list[Sent]:
    return [one async for one in read(http, "/v1/chat", params=query, headers=headers or {})]


async def test_a_post_that_accepts_events_is_answered_with_the_stream(http: httpx.AsyncClient) -> None:
    body = {"prompt": "hello", "max_tokens": 5, "no_such_field": 1}
    async with http.stream("POST", "/v1/requests", json=body, headers=EVENTS) as reply:
        assert (reply.status_code, reply.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
        assert reply.headers["x-parley-ignored"] == "no_such_field"
        request_id = reply.headers["x-request-id"]
        assert reply.headers["location"] == f"/v1/requests/{request_id}"
        sent = [one async for one in blocks(reply)]
    assert {one.event["request_id"] for one in sent} == {request_id}
    assert [one.id for one in sent][-1] == "5"
    assert sent == await answer(http, request_id)


@pytest.mark.parametrize(
    ("accept", "status"),
    [
        ("application/json", 202),
        ("*/*", 202),
        ("application/json, text/event-stream;q=0.5", 202),
        ("text/event-stream;q=0", 202),
        ("text/event-stream, application/json;q=0.9", 200),
        ("Text/Event-Stream", 200),
    ],
)
async def test_the_form_of_the_reply_is_the_one_that_the_caller_prefers(
    http: httpx.AsyncClient, accept: str, status: int
) -> None:
    body = {"prompt": "hello", "max_tokens": 1}
    async with http.stream("POST", "/v1/requests", json=body, headers={"Accept": accept}) as reply:
        assert reply.status_code == status


@pytest.mark.parametrize("name", ["prompt", "query"])
async def test_a_get_asks_and_streams(http: httpx.AsyncClient, name: str) -> None:
    sent = await got(http, **{name: "hello", "max_tokens": "7", "user_id": "gaby", "conversation_id": "talk"})
    assert [(one.event["user_id"], one.event["conversation_id"]) for one in sent] == [("gaby", "talk")] * len(sent)
    assert (sent[-1].event["finish_reason"], sent[-1].id) == ("length", "7")
    assert sent == await answer(http, sent[0].event["request_id"], params={"user_id": "gaby"})


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("", "prompt"),
        ("prompt=", "prompt"),
        ("prompt=a&prompt=b", "prompt"),
        ("prompt=a&query=b", "query"),
        ("prompt=a&max_tokens=many", "max_tokens"),
        ("prompt=a&max_tokens=0", "max_tokens"),
        ("prompt=a&messages=b", "messages"),
        ("prompt=a&reasoning=high", "reasoning"),
        ("prompt=a&request_id=%20", "request_id"),
    ],
)
async def test_a_get_that_cannot_be_asked_names_the_parameter(http: httpx.AsyncClient, query: str, param: str) -> None:
    reply = await http.get(f"/v1/chat?{query}")
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)


async def test_a_get_whose_url_is_not_utf8_asks_nothing(http: httpx.AsyncClient) -> None:
    for url in ("/v1/chat?prompt=%ff", "/v1/chat?prompt=hello&user_id=%C3"):
        reply = await http.get(url)
        assert (reply.status_code, reply.json()["error"]["code"]) == (400, "invalid_request")
        assert "not UTF-8" in reply.json()["error"]["message"]


async def test_parameters_without_effect_are_named(http: httpx.AsyncClient) -> None:
    async with http.stream("GET", "/v1/chat", params={"prompt": "a", "max_tokens": 1, "odd": "x"}) as reply:
        assert reply.headers["x-parley-ignored"] == "odd"


async def test_a_reconnect_continues_and_asks_nothing_again(http: httpx.AsyncClient) -> None:
    for ask, request_id in ((posted, "once-posted"), (got, "once-got")):
        fields: dict[str, Any] = {"prompt": "hello", "request_id": request_id, "max_tokens": 6}
        whole = await ask(http, **fields)
        place = next(number for number, one in enumerate(whole) if one.id)
        rest = await ask(http, headers={"Last-Event-ID": whole[place].id}, **fields)
        assert rest == whole[place + 1 :]
    behind = {"Last-Event-ID": "7"}
    assert (await http.get("/v1/chat", params=fields, headers=behind)).status_code == 204


async def test_a_reconnect_without_a_request_id_asks_nothing(http: httpx.AsyncClient) -> None:
    gone = {"Last-Event-ID": "2"}
    assert (await http.get("/v1/chat", params={"prompt": "hello"}, headers=gone)).status_code == 204
    refused = await http.post("/v1/requests", json={"prompt": "hello"}, headers={**EVENTS, **gone})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "request_id")


async def test_who_leaves_the_stream_does_not_cancel_the_answer(http: httpx.AsyncClient) -> None:
    async with http.stream("GET", "/v1/chat", params={"prompt": "hello", "max_tokens": 80}) as reply:
        first = await anext(aiter(blocks(reply)))
    sent = await answer(http, first.event["request_id"])
    assert (sent[-1].event["finish_reason"], sent[-1].id) == ("length", "80")


async def test_a_head_asks_nothing(http: httpx.AsyncClient) -> None:
    reply = await http.head("/v1/chat", params={"prompt": "hello", "user_id": "heather"})
    assert reply.status_code == 405
    assert "x-parley-request-id" not in reply.headers


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "http://elsewhere.example"},
        {"Host": "rebound.example"},
    ],
)
async def test_a_page_of_another_site_cannot_ask(http: httpx.AsyncClient, headers: dict[str, str]) -> None:
    reply = await http.get("/v1/chat", params={"prompt": "hello"}, headers=headers)
    assert reply.status_code == 403


async def test_the_prompt_of_a_get_is_not_in_the_log(http: httpx.AsyncClient, gateway: GatewayProcess) -> None:
    await got(http, prompt="a-rare-secret", max_tokens=1)
    assert "a-rare-secret" not in gateway.log.read_text()


@pytest.mark.skipif(CURL is None, reason="curl is not installed")
def test_curl_prints_the_stream(gateway: GatewayProcess) -> None:
    assert CURL is not None
    body = json.dumps({"prompt": "hello", "max_tokens": 4})
    post = ["-H", "accept: text/event-stream", "-H", "content-type: application/json", "-d", body]
    for arguments in ([f"{gateway.url}/v1/chat?prompt=hello&max_tokens=4"], [f"{gateway.url}/v1/requests", *post]):
        done = subprocess.run([CURL, "-sSN", *arguments], capture_output=True, text=True, timeout=180, check=True)
        events = [json.loads(line[6:]) for line in done.stdout.splitlines() if line.startswith("data: ")]
        assert events[-1]["finish_reason"] == "length"
        assert sum(len(one.get("tokens") or ()) for one in events) == 4


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_headers_and_comments_leave_while_the_request_waits(
    scripted: ScriptedWorker, guarded: GatewayProcess, method: str
) -> None:
    call: tuple[str, dict[str, Any]] = ("/v1/chat", {"params": {"prompt": "wait"}})
    if method == "POST":
        call = ("/v1/requests", {"json": {"prompt": "wait"}})
    headers = {**EVENTS, "Authorization": "Bearer key-of-nina-0123"}
    async with (
        httpx.AsyncClient(base_url=guarded.url, timeout=60) as http,
        http.stream(method, call[0], headers=headers, **call[1]) as reply,
    ):
        lines = (line async for line in reply.aiter_lines() if line)
        assert [await anext(lines) for _ in range(2)] == ["retry: 1000", ": waiting"]
        await until(lambda: bool(scripted.requests))
        comments = 0
        while comments < 3:  # longer than an unknown id is waited for
            comments += await anext(lines) == ": waiting"
        request_id = reply.headers["x-request-id"]
        assert [one.request_id for one in scripted.requests] == [request_id]
        ended = await http.delete(f"/v1/requests/{request_id}", headers=headers)
        assert ended.status_code == 202
        rest = [line async for line in lines]
    assert any('"finish_reason":"cancelled"' in line for line in rest)


@pytest.mark.asyncio(loop_scope="module")
async def test_with_keys_a_get_asks_for_the_holder_of_its_key(
    scripted: ScriptedWorker, guarded: GatewayProcess
) -> None:
    async with httpx.AsyncClient(base_url=guarded.url, timeout=60) as http:
        query = {"prompt": "hello there"}
        assert (await http.get("/v1/chat", params=query)).status_code == 401
        assert (await http.get("/v1/chat", params={**query, "key": "key-of-nina-0123"})).status_code == 401
        nina = {"Authorization": "Bearer key-of-nina-0123"}
        assert (await http.get("/v1/chat", params={**query, "user_id": "omar"}, headers=nina)).status_code == 403
        assert text_of(await got(http, nina, **query)) == "hello there "
    assert [one.user_id for one in scripted.requests] == ["nina"]
