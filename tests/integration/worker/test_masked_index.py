"""Private values and the history: a real Milvus has placeholders, also for turns from before the policy and anew."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
from tests.unit.models.remote.outside import OutsideServer, outside_server_in_a_thread

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
def outside() -> Iterator[OutsideServer]:
    with outside_server_in_a_thread() as server:
        server.echo = True
        yield server


@pytest.fixture(scope="module")
def policy(outside: OutsideServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("policy") / "policy.toml"
    path.write_text(POLICY.format(url=outside.url))
    return path


@pytest.fixture(scope="module")
def worker(start_worker: StartWorker, milvus: MilvusNode, policy: Path) -> WorkerProcess:
    return start_worker(embedder="minilm", milvus_uri=milvus.uri, milvus_collection="masked", policy=policy)


async def rows(client: Client, node: MilvusNode, user: str, count: int) -> list[str]:
    """The user's texts in Milvus, once there are so many."""
    milvus = Milvus(node.uri)
    try:
        async with asyncio.timeout(60):
            while len(found := await _rows(client, milvus, user)) < count:
                await asyncio.sleep(0.2)
        return [row["text"] for row in found]
    finally:
        await milvus.close()


async def _rows(client: Client, milvus: Milvus, user: str) -> list[Any]:
    try:
        found: list[Any] = await milvus.call(
            "query", client.settings.milvus_collection, filter=f'user_id == "{user}"', output_fields=["text"]
        )
    except Exception:  # noqa: BLE001 - the first row makes the collection
        return []
    return found


async def test_the_index_has_placeholders_and_old_turns_are_hidden_when_they_are_recalled(
    worker: WorkerProcess, client: Client, milvus: MilvusNode, outside: OutsideServer, policy: Path
) -> None:
    user = client.user()
    await client.asked(user, SAID, model="outside", conversation_id="before")
    assert found_in("".join(await rows(client, milvus, user, 2)))

    policy.write_text(policy.read_text() + MASK)
    async with asyncio.timeout(60):
        while b"is in force" not in worker.log.read_bytes():
            await asyncio.sleep(0.2)
    outside.bodies.clear()
    await client.asked(user, "What is my mail address?", model="outside", conversation_id="a", recall=3)
    await client.asked(user, "And my card?", model="outside", conversation_id="before")
    assert any("EMAIL_ADDRESS" in str(body) for body in outside.bodies)
    assert found_in(str(outside.bodies)) == []

    other = client.user()
    await client.asked(other, SAID, model="outside")
    assert found_in("".join(await rows(client, milvus, other, 2))) == []

    embedder, connection = load_embedder("minilm"), Milvus(milvus.uri)
    try:
        hide = hiding_by(read_policy(client.settings.model_copy(update={"policy": policy})))
        there = MilvusStore(connection, client.settings.milvus_collection)
        await Reindex(client.settings, there, embedder, lambda _line: None, hide).run()
    finally:
        await connection.close()
        embedder.close()
    for one in (user, other):
        assert found_in("".join(await rows(client, milvus, one, 2))) == []
