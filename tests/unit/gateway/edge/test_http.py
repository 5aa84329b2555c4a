"""The headers that every reply has, and URLs that no route sees."""

from __future__ import annotations

import pytest
from httpx import ASGITransport, AsyncClient
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from app.gateway.edge.http import Counting, Utf8Urls
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
