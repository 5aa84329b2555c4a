from __future__ import annotations

import json
import logging
from dataclasses import dataclass

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocket, WebSocketDisconnect

from app.gateway.edge.access_log import AccessLog
from app.gateway.edge.http import RequestIds

SECRET = "sk-very-secret"


@dataclass
class Holder:
    holder: str = "acme/*"


def authenticate(connection: HTTPConnection) -> None:
    connection.state.caller = Holder()


async def answer(request: Request) -> Response:
    authenticate(request)
    return PlainTextResponse("hello")


async def fail(_request: Request) -> Response:
    raise RuntimeError(SECRET)


async def talk(socket: WebSocket) -> None:
    await socket.accept()
    authenticate(socket)
    await socket.send_text("hé")
    await socket.close()


async def refuse(socket: WebSocket) -> None:
    await socket.close()


def lines_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "parley.access"]


@pytest.fixture(autouse=True)
def _logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "parley.access")


@pytest.fixture
def client() -> TestClient:
    routes = [Route("/v1/answer/{name:path}", answer), Route("/fail", fail)]
    sockets = [WebSocketRoute("/talk", talk), WebSocketRoute("/refuse", refuse)]
    middleware = [Middleware(AccessLog), Middleware(RequestIds)]
    return TestClient(Starlette(routes=[*routes, *sockets], middleware=middleware), raise_server_exceptions=False)


def test_a_request_is_one_line_without_headers_and_query(client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    headers = {"Authorization": f"Bearer {SECRET}", "X-Request-Id": "mine"}
    client.get(f"/v1/answer/7?access_token={SECRET}", headers=headers)
    (line,) = lines_of(caplog)
    assert SECRET not in line
    found = json.loads(line)
    assert found.pop("ms") >= 0
    assert found.pop("at").endswith("Z")
    assert found == {
        "from": "testclient",
        "caller": "acme/*",
        "method": "GET",
        "path": "/v1/answer/7",
        "status": 200,
        "bytes": 5,
        "request_id": "mine",
    }


def test_a_path_cannot_add_a_line(client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    client.get("/v1/answer/a%0a%7b%22status%22:200%7d")
    (line,) = lines_of(caplog)
    assert "\n" not in line
    assert json.loads(line)["path"] == '/v1/answer/a\n{"status":200}'


def test_failures_and_unknown_paths_are_written_without_a_caller(
    client: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    client.get("/fail")
    client.post("/nowhere")
    assert SECRET not in "".join(lines_of(caplog))
    found = [json.loads(line) for line in lines_of(caplog)]
    assert [(one["method"], one["status"], one["caller"]) for one in found] == [("GET", 500, None), ("POST", 404, None)]


def test_a_websocket_is_written_once_it_is_over(client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    with client.websocket_connect(f"/talk?key={SECRET}") as socket:
        assert socket.receive_text() == "hé"
    with pytest.raises(WebSocketDisconnect), client.websocket_connect("/refuse"):
        pass
    found = [json.loads(line) for line in lines_of(caplog)]
    assert [(one["path"], one["status"], one["bytes"], one["caller"]) for one in found] == [
        ("/talk", 101, 3, "acme/*"),
        ("/refuse", 403, 0, None),
    ]
