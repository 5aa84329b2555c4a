"""Private values and the history: a real Milvus has placeholders, also for turns from before the policy and anew."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from app.features.guard.stored import hiding_by
from app.local.milvus import MilvusNode
from app.policy.check import read_policy
from app.search.milvus.connection import Milvus
from app.search.milvus.store import MilvusStore
from app.search.reindex import Reindex
from models.embedder import load_embedder
from tests.faults.worker_process import WorkerProcess
from tests.integration.worker.client import Client
from tests.integration.worker.conftest import StartWorker
from tests.integration.worker.test_masking import SAID, found_in
from tests.unit.models.remote.outside import OutsideServer

POLICY = """
[models.outside]
engine = "openai"
urls = ["{url}"]
model = "served-name"

[recall]
budget_ms = 20000
"""
MASK = """
[guard]
pii = "mask"
"""


@pytest.fixture(scope="module")
def policy(outside: OutsideServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("policy") / "policy.toml"
    path.write_text(POLICY.format(url=outside.url))
    return path


@pytest.fixture(scope="module")
def worker(start_worker: StartWorker, milvus: MilvusNode, policy: Path) -> WorkerProcess:
    return start_worker(embedder="minilm", milvus_uri=milvus.uri, milvus_collection="masked", policy=policy)


async def test_the_index_has_placeholders_and_old_turns_are_hidden_when_they_are_recalled(
    worker: WorkerProcess, client: Client, milvus: MilvusNode, outside: OutsideServer, policy: Path
) -> None:
    user = client.user()
    await client.asked(user, SAID, model="outside", conversation_id="before")
    assert found_in("".join(await client.indexed(user, 2)))

    policy.write_text(policy.read_text() + MASK)
    async with asyncio.timeout(120):
        while b"is in force" not in worker.log.read_bytes():
            await asyncio.sleep(0.2)
    outside.bodies.clear()
    await client.asked(user, "What is my mail address?", model="outside", conversation_id="a", recall=3)
    await client.asked(user, "And my card?", model="outside", conversation_id="before")
    assert any("EMAIL_ADDRESS" in str(body) for body in outside.bodies)
    assert found_in(str(outside.bodies)) == []

    other = client.user()
    await client.asked(other, SAID, model="outside")
    assert found_in("".join(await client.indexed(other, 2))) == []

    embedder, connection = load_embedder("minilm"), Milvus(milvus.uri)
    try:
        hide = hiding_by(read_policy(client.settings.model_copy(update={"policy": policy})))
        there = MilvusStore(connection, client.settings.milvus_collection)
        await Reindex(client.settings, there, embedder, lambda _line: None, hide).run()
    finally:
        await connection.close()
        embedder.close()
    for one in (user, other):
        assert found_in("".join(await client.indexed(one, 2))) == []
