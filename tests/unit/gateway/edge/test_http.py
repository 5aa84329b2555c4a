"""The headers that every reply has, and URLs that no route sees."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import msgspec
import pytest
from httpx import ASGITransport, AsyncClient
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from app.gateway.edge.errors import lasting
from app.gateway.edge.http import Counting, Failures, Utf8Urls
from app.gateway.edge.metrics import GatewayMetrics


async def reply(scope: Scope, receive: Receive, send: Send) -> None:
    own = {"Cache-Control": "no-cache"} if scope["path"].endswith("/own") else {}
    await PlainTextResponse("hello", headers=own)(scope, receive, send)


@pytest.mark.parametrize(
    ("path", "caching"),
    [("/v1/conversations", "no-store"), ("/v1/own", "no-cache"), ("/own", "no-cache"), ("/assets/index.js", None)],
)
async def test_replies_of_the_api_are_kept_by_no_cache(path: str, caching: str | None) -> None:
    async with AsyncClient(
        transport=ASGITransport(Counting(reply, GatewayMetrics())), base_url="http://gateway"
    ) as client:
        headers = (await client.get(path)).headers
    assert headers.get("Cache-Control") == caching
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert "default-src 'self'" in headers["Content-Security-Policy"]


@pytest.mark.parametrize(
    ("url", "status"),
    [
        ("/v1/chat?prompt=%ff", 400),
        ("/v1/chat?prompt=%C3", 400),
        ("/v1/chat?%ed%a0%80=1", 400),
        ("/v1/requests/%ff", 400),
        ("/v1/chat?prompt=h%C3%A9%20%EF%BF%BD", 200),
        ("/v1/chat?prompt=%zz&a=%", 200),
        ("/v1/chat", 200),
    ],
)
async def test_a_url_that_is_not_utf8_is_refused(url: str, status: int) -> None:
    async with AsyncClient(transport=ASGITransport(Utf8Urls(reply)), base_url="http://gateway") as client:
        answer = await client.get(url)
    assert answer.status_code == status
    assert status == 200 or answer.json()["error"]["code"] == "invalid_request"


INNER = "the prompt at /srv/secret"


def application(failure: Exception) -> Starlette:
    async def fail(_: Request) -> Response:
        raise failure

    async def begin(_: Request) -> Response:
        async def parts() -> AsyncIterator[bytes]:
            yield b"begun"
            raise failure

        return StreamingResponse(parts())

    async def talk(socket: WebSocket) -> None:
        await socket.accept()
        raise failure

    routes = [Route("/", fail), Route("/stream", begin), WebSocketRoute("/ws", talk)]
    made = Starlette(routes=routes)
    made.add_middleware(Failures)
    return made


def client(failure: Exception) -> httpx.AsyncClient:
    """It raises what the application lets through."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(application(failure)), base_url="http://gateway")


@pytest.mark.parametrize(
    ("failure", "status"),
    [
        (RecursionError(INNER), 400),
        (OverflowError(INNER), 400),
        (UnicodeEncodeError("utf-8", INNER, 0, 1, INNER), 400),
        (msgspec.ValidationError(INNER), 400),
        (KeyError(INNER), 500),
        (RuntimeError(INNER), 500),
        (ExceptionGroup(INNER, [KeyError(INNER)]), 500),
    ],
)
async def test_a_failure_is_the_requests_own_and_quotes_nothing(
    failure: Exception, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with client(failure) as http:
        reply = await http.get("/")
    assert reply.status_code == status
    assert set(reply.json()["error"]) == {"message", "type", "param", "code"}
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert type(failure).__name__ in record.getMessage()
    assert INNER not in reply.text + caplog.text
    assert record.exc_info is None


async def test_a_reply_that_has_begun_ends(caplog: pytest.LogCaptureFixture) -> None:
    async with client(KeyError(INNER)) as http:
        assert (await http.get("/stream")).content == b"begun"
    assert "KeyError" in caplog.text


def test_a_websocket_is_closed_as_failed() -> None:
    with TestClient(application(KeyError(INNER))) as http, http.websocket_connect("/ws") as socket:
        with pytest.raises(WebSocketDisconnect) as closed:
            socket.receive_text()
        assert closed.value.code == 1011


async def test_work_that_fails_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.gateway.edge.errors._AGAIN_S", 0)
    runs = 0

    async def work() -> None:
        nonlocal runs
        runs += 1
        if runs < 3:
            raise KeyError(INNER)
        await asyncio.Event().wait()

    task = asyncio.create_task(lasting("work", work))
    async with asyncio.timeout(60):
        while runs < 3:
            await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
