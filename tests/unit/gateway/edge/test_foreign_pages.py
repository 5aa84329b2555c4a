from __future__ import annotations

import logging
from typing import Any

import pytest

from app.gateway.edge.foreign_pages import ForeignPages

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
