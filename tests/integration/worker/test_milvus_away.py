"""A Milvus that hangs and an engine that is full delay only the requests that need them."""

from __future__ import annotations

import asyncio
import time

import pytest

from app.local.milvus import MilvusNode
from app.search.milvus.connection import Milvus
from app.search.vector_store import IndexAwayError
from tests.faults.worker_process import WorkerProcess
from tests.integration.worker.client import Client
from tests.integration.worker.conftest import StartWorker

MAX_IN_FLIGHT = 4
# What a worker holds of one partition's turns before it lets the rest wait in Kafka.
INTAKE = 8 * MAX_IN_FLIGHT

# Of the quickest: what others of the machine take away, they do not take from each of many.
AS_QUICK = 4.0


@pytest.fixture(scope="module")
def worker(start_worker: StartWorker, own_milvus: MilvusNode) -> WorkerProcess:
    return start_worker(embedder="minilm", milvus_uri=own_milvus.uri, max_in_flight=MAX_IN_FLIGHT, partitions=1)


async def answer_s(client: Client, count: int) -> float:
    """Seconds of the quickest answer, of `count` asked one after the other."""
    took = []
    for _ in range(count):
        began = time.monotonic()
        await client.asked(client.user(), max_tokens=1)
        took.append(time.monotonic() - began)
    return min(took)


async def rows(client: Client, uri: str) -> int:
    """0 while a Milvus that was resumed does not answer yet."""
    milvus = Milvus(uri)
    try:
        counted = await milvus.call("query", client.settings.milvus_collection, filter="", output_fields=["count(*)"])
        return int(counted[0]["count(*)"])
    except IndexAwayError:
        return 0
    finally:
        await milvus.close()


async def test_a_stuck_milvus_delays_no_answer_while_ten_times_its_intake_flows_by(
    client: Client, own_milvus: MilvusNode
) -> None:
    await answer_s(client, 5)
    with_milvus = await answer_s(client, 15)
    own_milvus.suspend()
    try:
        users = [client.user() for _ in range(10 * INTAKE)]
        ids = [await client.ask(user, max_tokens=1) for user in users]
        for user, request_id in zip(users, ids, strict=True):
            await client.answer(user, request_id)
        without = await answer_s(client, 15)
    finally:
        own_milvus.resume()
    print(f"an answer takes {without / with_milvus:.2f} times as long while Milvus is stuck")
    assert without < AS_QUICK * with_milvus
    expected = 2 * (5 + 15 + 15 + len(users))
    async with asyncio.timeout(120):
        while await rows(client, own_milvus.uri) < expected:
            await asyncio.sleep(0.5)


async def cancel_s(client: Client, count: int) -> float:
    """The least seconds from a cancel to the end of its answer."""
    took = []
    for _ in range(count):
        user = client.user()
        request_id = await client.ask(user, max_tokens=20_000)
        await asyncio.sleep(0.3)
        began = time.monotonic()
        await client.cancel(user, request_id)
        await client.answer(user, request_id)
        took.append(time.monotonic() - began)
    return min(took)


async def test_a_cancel_is_as_quick_while_the_engine_is_full(client: Client) -> None:
    idle = await cancel_s(client, 10)
    full = [(user := client.user(), await client.ask(user, max_tokens=20_000)) for _ in range(INTAKE // 2)]
    busy = await cancel_s(client, 10)
    for user, request_id in full:
        await client.cancel(user, request_id)
    for user, request_id in full:
        await client.answer(user, request_id)
    print(f"a cancel takes {busy / idle:.2f} times as long while the engine is full")
    assert busy < AS_QUICK * idle
