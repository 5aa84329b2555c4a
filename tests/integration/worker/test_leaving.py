"""A worker that leaves hands its partitions on first, and closes after that what may hang."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Iterator

import pytest

from app.local.ports import LOOPBACK
from tests.faults.worker_process import WorkerProcess
from tests.integration.worker.client import Client
from tests.integration.worker.conftest import StartWorker

TOKENS_PER_S = 20.0


@pytest.fixture(scope="module")
def silent() -> Iterator[str]:
    """A Milvus that accepts connections and never answers."""
    with socket.create_server((LOOPBACK, 0)) as listening:
        yield f"http://{LOOPBACK}:{listening.getsockname()[1]}"


@pytest.fixture(scope="module")
def worker(start_worker: StartWorker, silent: str) -> WorkerProcess:
    return start_worker(
        embedder="minilm", milvus_uri=silent, partitions=1, drain_s=600.0, paced_tokens_per_s=TOKENS_PER_S
    )


async def logged(worker: WorkerProcess, text: str) -> None:
    async with asyncio.timeout(120):
        while text not in worker.log.read_text():
            await asyncio.sleep(0.05)


async def test_a_leaving_worker_answers_what_arrives_and_leaves_the_group_before_its_index_has_stopped(
    worker: WorkerProcess, client: Client
) -> None:
    await client.asked(client.user(), max_tokens=1)  # a turn that the index keeps from being done
    slow, quick = client.user(), client.user()
    long = await client.ask(slow, max_tokens=100_000)
    await client.begun(slow, long)
    worker.signal(signal.SIGTERM)
    await logged(worker, "leaving: waiting")
    short = await client.asked(quick, max_tokens=2)
    assert short.end is not None
    assert worker.exit_code is None, "the short answer waited for the long one"
    await client.cancel(slow, long)
    whole = await client.answer(slow, long)
    assert whole.end is not None
    assert whole.end.epoch == short.end.epoch
    assert await asyncio.to_thread(worker.wait, 120.0) == 0
    log = worker.log.read_text()
    assert 0 < log.find("goes on without this worker") < log.find("the worker has left")
