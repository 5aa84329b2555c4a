"""What nobody expected about one request: its caller gets an error without inner text, and the log one line."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import msgspec
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocket, WebSocketDisconnect

from app.gateway.edge.errors import lasting
from app.gateway.edge.failures import Failures

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
    async with asyncio.timeout(10):
        while runs < 3:
            await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
