"""The index of a worker: what it reads of `turns`, with an embedder and without."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from aiokafka.admin import AIOKafkaAdminClient

from app.local.milvus import MilvusNode
from app.wire.record_size import MAX_RECORD_BYTES
from tests.faults.worker_process import WorkerProcess
from tests.integration.unreadable import bomb, named, produce
from tests.integration.worker.client import PATIENCE_S, Client
from tests.integration.worker.conftest import StartWorker


async def committed(client: Client) -> set[str]:
    """The topics of which the group has committed something."""
    admin = AIOKafkaAdminClient(**client.settings.cluster.options())
    await admin.start()
    try:
        offsets = await admin.list_consumer_group_offsets(client.settings.group)
    finally:
        await admin.close()
    return {at.topic.removeprefix(client.settings.topic_prefix) for at, known in offsets.items() if known.offset >= 0}


@pytest.fixture(scope="module")
def worker(start_worker: StartWorker, own_milvus: MilvusNode) -> WorkerProcess:
    return start_worker(embedder="none", milvus_uri=own_milvus.uri)


@pytest.fixture
def indexing(worker: WorkerProcess) -> Iterator[WorkerProcess]:
    """The same worker with an embedder; not started."""
    settings = worker.settings.model_copy(update={"embedder": "minilm"})
    process = WorkerProcess(settings, worker.log.with_name("indexing.log"))
    yield process
    process.kill()


async def test_turns_wait_on_their_topic_until_a_worker_has_an_index(
    worker: WorkerProcess, indexing: WorkerProcess, client: Client
) -> None:
    user = client.user()
    prompts = {"asked without an index", "and again"}
    for prompt in prompts:
        await client.asked(user, prompt, max_tokens=2)
    await client.turns_of(user, 2)
    async with asyncio.timeout(PATIENCE_S):  # the broker ends a transaction topic by topic
        while not (known := await committed(client)):
            await asyncio.sleep(0.1)
    assert known == {"requests"}
    assert worker.stop() == 0
    indexing.start().wait_owning(indexing.settings.partitions)
    assert prompts <= set(await client.indexed(user, 4))
    partition = client.partition(user)
    places = [await produce(client.settings, "turns", partition, make(b"{}")) for make in (named, bomb)]
    places.append((await client.send("turns", b"x" * (MAX_RECORD_BYTES - 200), user))[1])
    for offset in places:
        await client.dead_letter("turns", partition, offset)
    await client.asked(user, "behind garbage", max_tokens=2)
    assert "behind garbage" in await client.indexed(user, 6)
