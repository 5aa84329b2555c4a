"""Work that ends with its caller."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.requests import Request

from app.gateway.edge.errors import ApiError
from app.gateway.edge.while_connected import while_connected
from tests.virtual_time import in_virtual_time


def request_of(messages: asyncio.Queue[dict[str, Any]]) -> Request:
    scope = {"type": "http", "method": "GET", "path": "/", "headers": [], "query_string": b"", "server": ("a", 1)}
    return Request(scope, messages.get)


@in_virtual_time
async def test_the_result_comes_through() -> None:
    async def work() -> int:
        return 7

    assert await while_connected(request_of(asyncio.Queue()), work()) == 7


@in_virtual_time
async def test_a_failure_comes_through() -> None:
    async def work() -> None:
        raise ApiError("not_found", "gone")

    with pytest.raises(ApiError, match="gone"):
        await while_connected(request_of(asyncio.Queue()), work())


@in_virtual_time
async def test_work_is_cancelled_when_the_client_leaves() -> None:
    messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    ended = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    working = asyncio.create_task(while_connected(request_of(messages), work()))
    messages.put_nowait({"type": "http.request", "body": b"", "more_body": False})
    await asyncio.sleep(0.01)
    assert not ended.is_set()
    messages.put_nowait({"type": "http.disconnect"})
    with pytest.raises(ApiError) as left:
        await working
    assert left.value.status == 499
    assert ended.is_set()


@in_virtual_time
async def test_work_is_cancelled_with_the_request() -> None:
    ended = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    working = asyncio.create_task(while_connected(request_of(asyncio.Queue()), work()))
    await asyncio.sleep(0.01)
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    assert ended.is_set()
