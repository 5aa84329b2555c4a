"""Milvus dies, hangs, or was never there."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Iterator
from statistics import median

import pytest

from app.local.milvus import MilvusNode
from app.search.milvus.connection import Milvus
from app.search.milvus.store import MilvusStore
from tests.integration.search.history import Bench, rows_of, turn
from tests.integration.waiting import until

StartMilvus = Callable[[], MilvusNode]


@pytest.fixture
def hung() -> Iterator[str]:
    """A server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


async def test_nothing_is_lost_or_doubled_when_the_server_is_killed_and_comes_back(
    start_milvus: StartMilvus, collection: str
) -> None:
    node = start_milvus()
    async with Bench(MilvusStore(Milvus(node.uri), collection), batch_rows=16) as bench:
        for number in range(150):
            bench.submit(turn("ann", f"r{number}"))
            if number == 50:
                await bench.settled(30)
                node.kill()
            if number == 100:
                await until(lambda: bool(bench.writer.stats().trouble))
                node.spawn()
            await asyncio.sleep(0.005)
        await bench.settled(150)
        assert len(await rows_of(Milvus(node.uri), collection)) == 300
        stats = bench.writer.stats()
    assert bench.done == [f"r{n}" for n in range(150)]
    assert bench.rejected == {}
    assert stats.retries > 0
    assert (stats.trouble, stats.backlog, stats.lag_s) == ("", 0, 0)


async def test_server_that_comes_late_is_waited_for(
    start_milvus: StartMilvus, collection: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    node = start_milvus()
    node.kill()
    async with Bench(MilvusStore(Milvus(node.uri), collection)) as bench:
        bench.submit(turn("ann", "r1"))
        await asyncio.sleep(1)
        assert bench.writer.backlog == 1
        assert bench.writer.stats().lag_s >= 1
        node.spawn()
        await bench.settled(1)
    lines = [record.getMessage() for record in caplog.records if record.name.startswith("app.search")]
    assert len(lines) == 2, "one line when it begins, one when it is over"
    assert node.uri in lines[0]


async def test_hung_server_stops_neither_the_intake_nor_the_loop_nor_the_end(hung: str, collection: str) -> None:
    loop = asyncio.get_running_loop()
    hung_s = 0.3
    async with Bench(MilvusStore(Milvus(hung, timeout_s=hung_s), collection)) as bench:
        waits = []
        for number in range(200):
            began = loop.time()
            bench.submit(turn("ann", f"r{number}"))
            await asyncio.sleep(0.005)
            waits.append(loop.time() - began)
        async with asyncio.timeout(120):
            while bench.writer.stats().retries < 2:
                await asyncio.sleep(0.05)
        assert bench.writer.backlog == 200
        assert "no answer in time" in bench.writer.stats().trouble
        async with asyncio.timeout(120):
            await bench.writer.stop(0.2)
    assert bench.done == []
    assert median(waits) < hung_s, "they do not wait for the server"


async def test_server_that_stops_answering_for_a_while_gets_every_row(
    start_milvus: StartMilvus, collection: str
) -> None:
    node = start_milvus()
    async with Bench(MilvusStore(Milvus(node.uri, timeout_s=5), collection)) as bench:
        bench.submit(turn("ann", "before"))
        await bench.settled(1)
        node.suspend()
        bench.submit(*(turn("ann", f"r{n}") for n in range(10)))
        async with asyncio.timeout(120):
            while not bench.writer.stats().retries:
                await asyncio.sleep(0.05)
        node.resume()
        await bench.settled(11)
        assert len(await rows_of(Milvus(node.uri), collection)) == 22
