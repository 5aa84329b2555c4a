"""Who is served without keys, by the raw headers that a browser sends."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient, WebSocketDenialResponse
from starlette.websockets import WebSocket

from app.gateway.edge.origins import ForeignPages, LoopbackOnly

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


ALLOWED = "https://chat.example"


async def told(
    caplog: pytest.LogCaptureFixture, *calls: tuple[str, dict[str, str]], refuses_all: bool = True
) -> list[str]:
    async def app(_scope: Any, _receive: Any, _send: Any) -> None:
        pass

    middleware: Any = ForeignPages(app, [ALLOWED], refuses_all=refuses_all)
    with caplog.at_level(logging.WARNING):
        for method, headers in calls:
            raw = [
                (name.encode(), value.encode("latin-1"))
                for name, value in {"host": "127.0.0.1:8080", **headers}.items()
            ]
            await middleware({"type": "http", "method": method, "headers": raw}, None, None)
    return caplog.messages


async def test_a_page_of_another_origin_is_told_once_with_the_remedy(caplog: pytest.LogCaptureFixture) -> None:
    page = ("POST", {"origin": "http://127.0.0.1:5173"})
    own = ("POST", {"origin": "http://127.0.0.1:8080"})
    assert await told(caplog, own, ("GET", {}), ("POST", {"origin": ALLOWED}), page, page) == [
        "a page of http://127.0.0.1:5173 was refused: PARLEY_GATEWAY_ORIGINS=http://127.0.0.1:5173 would let it call"
    ]


async def test_with_keys_it_is_told_when_its_browser_asks_first(caplog: pytest.LogCaptureFixture) -> None:
    proxied = ("POST", {"origin": "https://behind.a.proxy"})
    asking = ("OPTIONS", {"origin": "https://other", "access-control-request-method": "POST"})
    (line,) = await told(caplog, proxied, asking, refuses_all=False)
    assert line.startswith("a page of https://other was refused")


async def test_made_up_origins_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    lines = await told(caplog, *(("GET", {"origin": f"http://{number}\n" + "x" * 9999}) for number in range(99)))
    assert len(lines) == 16
    assert max(map(len, lines)) < 600
    assert not any("\n" in line for line in lines)
