"""Plain replies to readers that take them slowly, not at all, or too many at once."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from app.gateway.answers.sse import EventStream
from app.gateway.edge.bodies import Bodies
from app.gateway.edge.errors import ApiError, json_response
from app.gateway.edge.metrics import GatewayMetrics
from app.gateway.edge.slow_readers import PART_BYTES
from tests.virtual_time import in_virtual_time

LARGE = 10 * PART_BYTES


class Reader:
    """Takes the head and `most` parts; a pause before each."""

    def __init__(self, most: int = 1000, pause_s: float = 0.0) -> None:
        self.got: list[dict[str, Any]] = []
        self._most = most
        self._pause_s = pause_s

    async def send(self, message: dict[str, Any]) -> None:
        await asyncio.sleep(self._pause_s if len(self.got) <= self._most else 3600)
        self.got.append(message)

    async def receive(self) -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    @property
    def body(self) -> bytes:
        return b"".join(message["body"] for message in self.got[1:])


class Caller:
    def __init__(self, most_bytes: int = 64 << 20) -> None:
        self.replies = Bodies(most_bytes, "replies")
        self.metrics = GatewayMetrics()

    def scope(self, method: str = "GET", holder: str = "mallory") -> dict[str, Any]:
        state = {"caller": SimpleNamespace(holder=holder)}
        return {
            "type": "http",
            "method": method,
            "state": state,
            "app": SimpleNamespace(state=SimpleNamespace(gateway=self)),
        }


@in_virtual_time
@pytest.mark.parametrize("size", [0, PART_BYTES - 2, PART_BYTES, LARGE, LARGE + 1])
async def test_a_reply_arrives_whole_at_a_slow_reader(size: int) -> None:
    caller, reader = Caller(), Reader(pause_s=20)
    await json_response("x" * size)(caller.scope(), reader.receive, reader.send)
    assert reader.body == b'"' + b"x" * size + b'"'
    assert max(len(message["body"]) for message in reader.got[1:]) <= PART_BYTES + 2
    assert not reader.got[-1].get("more_body")
    assert not caller.replies.held


@in_virtual_time
async def test_a_reader_that_takes_nothing_is_cut_and_holds_its_share_until_then() -> None:
    caller, reader = Caller(), Reader(most=2)
    sending = asyncio.create_task(json_response("x" * LARGE)(caller.scope(), reader.receive, reader.send))
    await asyncio.sleep(10)
    assert caller.replies.held > LARGE
    await asyncio.sleep(30)
    assert sending.done()
    assert not caller.replies.held
    assert caller.metrics.stalled._value.get() == 1


@in_virtual_time
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_key_whose_readers_are_slow_is_refused_and_no_other(method: str) -> None:
    caller, stuck = Caller(8 * LARGE), []
    for _ in range(20):
        reply = json_response("x" * LARGE, headers={"X-Request-Id": "r"})
        reader, scope = Reader(most=1), caller.scope(method)
        stuck.append((asyncio.create_task(reply(scope, reader.receive, reader.send)), scope))
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    refused = [(task, scope) for task, scope in stuck if task.done()]
    assert 12 <= len(refused) <= 15
    for task, scope in refused:
        error = task.exception()
        assert isinstance(error, ApiError)
        assert error.status == 429
        assert scope["state"].get("done") == (None if method == "GET" else "r")
    other = Reader()
    await json_response("x" * LARGE)(caller.scope(holder="nina"), other.receive, other.send)
    assert len(other.body) > LARGE
    await asyncio.gather(*(task for task, _ in stuck), return_exceptions=True)


@in_virtual_time
async def test_large_pieces_of_streams_count_too() -> None:
    caller, closed = Caller(8 * LARGE), []

    async def chunks() -> Any:
        yield b"x" * LARGE
        yield b"end"

    def stream() -> EventStream:
        return EventStream(chunks(), 30.0, caller.metrics, lambda: closed.append(True))

    readers = [Reader(most=1) for _ in range(20)]
    streams = [asyncio.create_task(stream()(caller.scope(), one.receive, one.send)) for one in readers]
    await asyncio.sleep(5)
    assert 12 <= len(closed) <= 15, "those for which there is no room are cut"
    assert caller.replies.held <= 8 * LARGE
    whole = Reader()
    await stream()(caller.scope(holder="nina"), whole.receive, whole.send)
    assert whole.body == b"x" * LARGE + b"end"
    await asyncio.gather(*streams)
    assert not caller.replies.held
