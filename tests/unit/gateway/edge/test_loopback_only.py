"""Who is served without keys, by the raw headers that a browser sends."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient, WebSocketDenialResponse
from starlette.websockets import WebSocket

from app.gateway.edge.loopback_only import LoopbackOnly

PATHS = ("/", "/v1/models", "/metrics", "/healthz", "/assets/a.js")


async def _serve(_request: Any) -> PlainTextResponse:
    return PlainTextResponse("served")


async def _talk(socket: WebSocket) -> None:
    await socket.accept()
    await socket.close()


@pytest.fixture
def client() -> TestClient:
    app = Starlette(
        routes=[*(Route(path, _serve, methods=["GET", "POST"]) for path in PATHS), WebSocketRoute("/ws", _talk)]
    )
    return TestClient(LoopbackOnly(app), base_url="http://127.0.0.1:8080")


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.com"},
        {"host": "a`b.evil.com"},
        {"host": "a{b.evil.com"},
        {"host": 'a"b.evil.com'},
        {"host": "127.0.0.1.evil.com"},
        {"host": "127.0.0.1:80@evil.com"},
        {"host": "localhost.evil.com"},
        {"host": "localhost:8080:8080"},
        {"host": ""},
        {"host": "[::1"},
        {"host": "0.0.0.0:8080"},
        {"origin": "https://evil.com"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:3000"},
        {"origin": "http://127.0.0.1:8080.evil.com"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "document"},
    ],
    ids=str,
)
def test_a_request_of_another_site_is_refused_on_each_path(
    client: TestClient, path: str, headers: dict[str, str]
) -> None:
    reply = client.get(path, headers=headers)
    assert (reply.status_code, reply.json()["error"]["code"]) == (403, "unauthorized")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"host": "localhost"},
        {"host": "LOCALHOST:8080"},
        {"host": "[::1]:8080"},
        {"host": "127.8.0.1"},
        {"origin": "http://127.0.0.1:8080", "sec-fetch-site": "same-origin"},
        {"sec-fetch-site": "none"},
    ],
    ids=str,
)
def test_programs_and_own_pages_are_served(client: TestClient, headers: dict[str, str]) -> None:
    for path in PATHS:
        assert client.get(path, headers=headers).text == "served"


def test_a_link_of_another_page_opens_the_chat_page_alone(client: TestClient) -> None:
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert client.get("/", headers=link).status_code == 200
    assert client.post("/", headers=link).status_code == 403
    assert client.get("/metrics", headers=link).status_code == 403


def test_two_hosts_are_refused(client: TestClient) -> None:
    hosts = [("host", "127.0.0.1:8080"), ("host", "evil.com")]
    assert client.get("/metrics", headers=hosts).status_code == 403


def test_a_websocket_of_another_page_is_refused(client: TestClient) -> None:
    with client.websocket_connect("ws://127.0.0.1:8080/ws", headers={"origin": "http://127.0.0.1:8080"}):
        pass
    with (
        pytest.raises(WebSocketDenialResponse),
        client.websocket_connect("ws://127.0.0.1:8080/ws", headers={"origin": "https://evil.com"}),
    ):
        pass
