"""An event stream before readers that stall and leave."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

from app.gateway.answers.sse import EventStream, server_sent
from app.gateway.edge.metrics import GatewayMetrics
from tests.virtual_time import in_virtual_time


class Reader:
    """The other side: takes `most` pieces and then no more; the test makes it leave."""

    def __init__(self, most: int = 1000) -> None:
        self.got: list[dict[str, Any]] = []
        self.most = most
        self.leaves = asyncio.Event()

    async def send(self, message: dict[str, Any]) -> None:
        if len(self.got) >= self.most:
            await asyncio.Event().wait()
        self.got.append(message)

    async def receive(self) -> dict[str, Any]:
        await self.leaves.wait()
        return {"type": "http.disconnect"}


class Source:
    def __init__(self, pieces: int | None) -> None:
        self.pieces = pieces
        self.made = 0
        self.closed = False

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        try:
            while self.pieces is None or self.made < self.pieces:
                self.made += 1
                yield b"data: x\n\n"
                await asyncio.sleep(0)
        finally:
            self.closed = True


async def stream(source: Source, reader: Reader, stall_s: float = 60.0) -> tuple[GatewayMetrics, list[str]]:
    metrics, closed = GatewayMetrics(), []
    reply = EventStream(source.chunks(), stall_s, metrics, lambda: closed.append("closed"))
    async with asyncio.timeout(60):
        await reply({}, reader.receive, reader.send)
    return metrics, closed


@in_virtual_time
async def test_all_is_sent_and_then_the_end() -> None:
    source, reader = Source(3), Reader()
    _, closed = await stream(source, reader)
    assert [message["body"] for message in reader.got[1:]] == [b"data: x\n\n"] * 3 + [b""]
    assert reader.got[-1]["more_body"] is False
    assert (closed, source.closed) == (["closed"], True)


@in_virtual_time
async def test_a_reader_that_takes_nothing_is_dropped_and_nothing_more_is_made_for_it() -> None:
    source, reader = Source(None), Reader(most=5)
    metrics, closed = await stream(source, reader, stall_s=0.05)
    assert source.made == 5
    assert source.closed
    assert metrics.stalled._value.get() == 1
    assert closed == ["closed"]
    assert all(message.get("more_body", True) for message in reader.got)


@in_virtual_time
async def test_a_reader_that_leaves_ends_the_stream() -> None:
    source, reader = Source(None), Reader()
    asyncio.get_running_loop().call_later(0.05, reader.leaves.set)
    _, closed = await stream(source, reader)
    assert (closed, source.closed) == (["closed"], True)


def test_an_event_is_one_line_however_its_reader_splits_lines() -> None:
    text = "".join(map(chr, (*range(0x250), *range(0x2000, 0x2070), 0x1F600)))
    event = server_sent({"text": text}, event_id=3).decode()
    number, data = event.removesuffix("\n\n").splitlines()
    assert number == "id: 3"
    assert json.loads(data.removeprefix("data: ")) == {"text": text}
