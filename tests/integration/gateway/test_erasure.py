"""An erasure reaches everything that serves text, and stays: answers under way, tables, Milvus, gateways."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete

from app.kafka.clients import consumer
from app.local.kafka import KafkaCluster
from app.local.milvus import MilvusNode
from app.search.milvus.connection import Milvus
from app.search.milvus.store import turns_where
from app.settings import Settings
from tests.faults.worker_process import WorkerProcess
from tests.integration.gateway.gateway_process import GatewayProcess
from tests.integration.worker.client import Client
from tests.integration.worker.conftest import module_settings

USER = "nina"
PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def worker(
    kafka: KafkaCluster, milvus: MilvusNode, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WorkerProcess]:
    folder = tmp_path_factory.mktemp("worker")
    settings = module_settings(
        kafka,
        folder,
        embedder="minilm",
        milvus_uri=milvus.uri,
        milvus_collection=f"erasure_{folder.name.replace('-', '_')}",
        paced_tokens_per_s=20.0,
    )
    with WorkerProcess(settings, folder / "worker.log") as worker:
        worker.wait_owning(settings.partitions)
        yield worker


@pytest.fixture
async def client(worker: WorkerProcess) -> AsyncIterator[Client]:
    async with Client(worker.settings) as client:
        yield client


async def rows(settings: Settings, user: str) -> list[str]:
    milvus = Milvus(settings.milvus_uri)
    try:
        if not await milvus.call("has_collection", settings.milvus_collection):
            return []  # the worker makes it with its first row
        found = await milvus.call(
            "query", settings.milvus_collection, filter=turns_where(user), output_fields=["turn_id"], limit=1000
        )
        return sorted(row["turn_id"] for row in found)
    finally:
        await milvus.close()


async def forget_controls(settings: Settings) -> None:
    """Delete every record of `controls`, as its retention does after seven days."""
    places = [TopicPartition(settings.topic("controls"), number) for number in range(settings.partitions)]
    reader, admin = consumer(settings.cluster), AIOKafkaAdminClient(**settings.cluster.options())
    reader.assign(places)
    await reader.start()
    await admin.start()
    try:
        ends = await reader.end_offsets(places)
        await admin.delete_records({place: RecordsToDelete(before_offset=end) for place, end in ends.items()})
        assert await reader.beginning_offsets(places) == ends
    finally:
        await admin.close()
        await reader.stop()


async def erased(http: httpx.AsyncClient, **about: str) -> dict:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            status = (await http.get(f"/v1/users/{USER}/erasure", params=http.params.merge(about))).json()
            if status["status"] == "done":
                return status
            assert status["remaining"]
            await asyncio.sleep(0.1)


async def nothing_is_served(http: httpx.AsyncClient, request_ids: list[str]) -> None:
    assert (await http.get("/v1/conversations")).json()["conversations"] == []
    assert (await http.get("/v1/search", params={"q": "hello"})).json()["hits"] == []
    for request_id in request_ids:
        found = await http.get(f"/v1/requests/{request_id}")
        assert found.status_code == 404 or not found.json().get("text"), found.text
        assert (await http.get(f"/v1/requests/{request_id}/tool-results")).json()["results"] == []


async def test_an_erasure_under_six_answers_leaves_nothing_and_stays_after_its_record_is_gone(
    client: Client, worker: WorkerProcess, tmp_path: Path
) -> None:
    settings = worker.settings
    before = await client.asked(USER, "hello, my number is 4711", max_tokens=3)
    other = await client.asked("omar", "hello from another user", max_tokens=3)
    async with asyncio.timeout(PATIENCE_S):
        while len(await rows(settings, USER)) < 2 or len(await rows(settings, "omar")) < 2:
            await asyncio.sleep(0.1)
    running = [await client.ask(USER, "hello", conversation_id=f"c{n}", max_tokens=100_000) for n in range(6)]
    async with asyncio.timeout(PATIENCE_S):
        while any((USER, one) not in client.reader.rule.answers for one in running):
            await asyncio.sleep(0.05)
    gateway = GatewayProcess(settings, tmp_path / "gateway.log")
    ids = [before.request_id, *running]
    with gateway:
        async with httpx.AsyncClient(base_url=gateway.url, timeout=120, params={"user_id": USER}) as http:
            assert (await http.get(f"/v1/users/{USER}/erasure")).json()["status"] == "none"
            assert (await http.delete(f"/v1/users/{USER}")).status_code == 202
            status = await erased(http)
            texts = {"requests", "tokens", "turns", "tool-calls", "tool-results", "dead-letters"}
            assert set(status["logs"]) == {"changelogs", *texts}
            ends = [(await client.answer(USER, one)).end for one in running]
            assert {end.finish_reason for end in ends if end is not None} == {"cancelled"}
            await nothing_is_served(http, ids)

    await client.turns_of(USER, 7)
    assert [turn.answer for turn in await client.turns(USER) if turn.request_id in running] == [""] * 6
    assert await rows(settings, USER) == []
    assert len(await rows(settings, "omar")) == 2
    await forget_controls(settings)
    with GatewayProcess(settings, tmp_path / "gateway.log") as again:
        async with httpx.AsyncClient(base_url=again.url, timeout=120, params={"user_id": USER}) as http:
            assert (await http.get(f"/v1/users/{USER}/erasure")).json()["status"] == "done"
            await nothing_is_served(http, ids)
            omar = await http.get("/v1/conversations", params={"user_id": "omar"})
            assert len(omar.json()["conversations"]) == 1
    after = await client.asked(USER, "who am I", max_tokens=2)
    assert after.end is not None
    assert after.end.usage is not None
    assert after.end.usage.prompt_tokens == len("\nuser: who am I"), "nothing is remembered"
    assert other.end is not None


async def test_only_oneself_can_be_asked_about(worker: WorkerProcess, tmp_path: Path) -> None:
    settings = worker.settings.model_copy(update={"gateway_api_keys": "a-key-of-sixteen=nina"})
    with GatewayProcess(settings, tmp_path / "gateway.log") as gateway:
        async with httpx.AsyncClient(
            base_url=gateway.url, headers={"authorization": "Bearer a-key-of-sixteen"}, timeout=60
        ) as http:
            assert (await http.get("/v1/users/omar/erasure")).status_code == 403
            assert (await http.get("/v1/users/nina/erasure")).status_code == 200
