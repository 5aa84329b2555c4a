"""What an edit has replaced, or a message rolled back, is not found: a real worker that dies, Milvus, a gateway."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.local.kafka import KafkaCluster
from app.local.milvus import MilvusNode
from tests.faults.worker_process import WorkerProcess
from tests.integration.commands.terminal import Terminal
from tests.integration.gateway.gateway_process import GatewayProcess
from tests.integration.worker.client import Client
from tests.integration.worker.conftest import module_settings

USER, PATIENCE_S = "nina", 120.0


@pytest.fixture
def worker(kafka: KafkaCluster, milvus: MilvusNode, tmp_path: Path) -> Iterator[WorkerProcess]:
    index = {"embedder": "minilm", "milvus_uri": milvus.uri, "milvus_collection": f"replaced_{tmp_path.name}"}
    settings = module_settings(kafka, tmp_path, partitions=1, **index)
    with WorkerProcess(settings, tmp_path / "worker.log") as worker:
        worker.wait_owning(settings.partitions)
        yield worker


async def found(http: httpx.AsyncClient, **narrow: Any) -> dict[str, Any]:
    """What replaces each turn that is found."""
    hits = (await http.get("/v1/search", params={"q": "jackets and bicycles", "limit": 50, **narrow})).json()["hits"]
    return {hit["request_id"]: hit["replaced_by"] for hit in hits}


async def until_found(http: httpx.AsyncClient, ids: set[str], **narrow: Any) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while {*(await found(http, **narrow))} != ids:
            await asyncio.sleep(0.2)


async def test_what_was_replaced_or_rolled_back_is_found_nowhere(worker: WorkerProcess, tmp_path: Path) -> None:
    asked = {"conversation_id": "c1", "max_tokens": 4}
    async with Client(worker.settings) as client:
        first = (await client.asked(USER, "which jackets are there?", **asked)).request_id
        second = (await client.asked(USER, "which bicycles are blue?", **asked)).request_id
        back = await client.ask(USER, "bicycles to be forgotten", **{**asked, "max_tokens": 100_000})
        await client.begun(USER, back)
        third = (await client.asked(USER, "and jackets?", **asked, while_busy="rollback")).request_id
        edit = {"conversation_id": "c2", "max_tokens": 60, "replaces": [second, third], "recall": 5}
        fork = {"conversation_id": "c1", "request_id": second, "index": 0}
        edited = await client.ask(USER, "which bicycles are red?", **edit, **{"from": fork})
        await client.begun(USER, edited)
        worker.kill()
        await asyncio.to_thread(worker.start)
        end = (await client.answer(USER, edited)).end
        assert end is not None
        assert end.finish_reason == "length"
        await client.turns_of(USER, 5)
        with GatewayProcess(worker.settings, tmp_path / "gateway.log") as gateway:
            async with httpx.AsyncClient(base_url=gateway.url, timeout=120, params={"user_id": USER}) as http:
                everything, by = {first, second, third, edited}, {"request_id": edited, "conversation_id": "c2"}
                await until_found(http, everything, include_replaced="true")
                assert await found(http) == {first: None, edited: None}
                assert await found(http, conversation_id="c1") == {first: None}
                versions = await found(http, include_replaced="true")
                assert versions == {first: None, second: by, third: by, edited: None}
                listed = (await http.get("/v1/conversations")).json()["conversations"]
                assert {one["conversation_id"]: one["turns"] for one in listed} == {"c1": 3, "c2": 1}
                (turn,) = (await http.get("/v1/conversations/c2")).json()["turns"]
                assert turn["replaces"] == [second, third]
                plans = [
                    event.notice.details
                    for event in (await client.answer(USER, edited)).events
                    if event.notice is not None and event.notice.code == "plan"
                ]
                recalled = {one["request_id"] for plan in plans for one in plan.get("recalled") or ()}
                assert recalled <= {first}
                searched = await Terminal(worker.settings, tmp_path).run("search", "-u", USER, "--json", "bicycles")
                assert second not in searched.out
                assert edited in searched.out
                await http.delete("/v1/conversations/c2")
                await until_found(http, {first, second, third})
