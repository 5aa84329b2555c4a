"""An erasure while Milvus or the partition's owner is suspended: rows that were on their way do not come back."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import httpx

from app.local.milvus import MilvusNode
from app.settings import Settings
from tests.conftest import NewSettings
from tests.faults.worker_process import WorkerProcess
from tests.integration.gateway.gateway_process import GatewayProcess
from tests.integration.gateway.test_erasure import PATIENCE_S, USER, erased, nothing_is_served, rows
from tests.integration.worker.client import Client

SUSPENDED_S = float(os.environ.get("SUSPENDED_S", "8"))
"""A minute in the long version."""
SESSION_S = 3.0


async def erasing_settings(new_settings: NewSettings, node: MilvusNode) -> Settings:
    return await new_settings(
        engine="paced",
        embedder="minilm",
        milvus_uri=node.uri,
        paced_tokens_per_s=20.0,
        session_timeout_s=SESSION_S,
    )


def http_of(gateway: GatewayProcess) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=gateway.url, timeout=120, params={"user_id": USER})


async def indexed(settings: Settings, user: str, count: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while len(await rows(settings, user)) < count:
            await asyncio.sleep(0.1)


async def six_running(client: Client) -> list[str]:
    running = [await client.ask(USER, "hello", conversation_id=f"c{n}", max_tokens=100_000) for n in range(6)]
    async with asyncio.timeout(PATIENCE_S):
        while any((USER, one) not in client.reader.rule.answers for one in running):
            await asyncio.sleep(0.05)
    return running


async def test_milvus_is_suspended_in_the_midst_of_an_erasure(
    new_settings: NewSettings, start_milvus: Callable[[], MilvusNode], tmp_path: Path
) -> None:
    node = await asyncio.to_thread(start_milvus)
    settings = await erasing_settings(new_settings, node)
    with (
        WorkerProcess(settings, tmp_path / "worker.log") as worker,
        GatewayProcess(settings, tmp_path / "gw.log") as gw,
    ):
        await asyncio.to_thread(worker.wait_owning, settings.partitions)
        async with Client(settings) as client, http_of(gw) as http:
            before = await client.asked(USER, "hello, my number is 4711", max_tokens=3)
            await client.asked("omar", "hello from another user", max_tokens=3)
            await indexed(settings, USER, 2)
            await indexed(settings, "omar", 2)
            running = await six_running(client)
            node.suspend()
            late = await client.asked(USER, "this turn waits for Milvus", max_tokens=2)
            await client.turns_of(USER, 2)
            assert (await http.delete(f"/v1/users/{USER}")).status_code == 202
            await asyncio.sleep(SUSPENDED_S)
            status = (await http.get(f"/v1/users/{USER}/erasure")).json()
            assert (status["status"], bool(status["remaining"])) == ("erasing", True)
            node.resume()
            await erased(http)
            await nothing_is_served(http, [before.request_id, late.request_id, *running])
            await client.turns_of(USER, 8)
            await asyncio.sleep(2)
            assert await rows(settings, USER) == []
            assert len(await rows(settings, "omar")) == 2


async def test_the_owner_is_killed_in_the_midst_of_an_erasure_of_a_conversation(
    new_settings: NewSettings, start_milvus: Callable[[], MilvusNode], tmp_path: Path
) -> None:
    node = await asyncio.to_thread(start_milvus)
    settings = await erasing_settings(new_settings, node)
    with GatewayProcess(settings, tmp_path / "gw.log") as gw, WorkerProcess(settings, tmp_path / "one.log") as one:
        await asyncio.to_thread(one.wait_owning, settings.partitions)
        async with Client(settings) as client, http_of(gw) as http:
            told = [
                await client.asked(USER, "hello, my number is 4711", conversation_id=name, max_tokens=3)
                for name in ("gone", "kept")
            ]
            await indexed(settings, USER, 4)
            running = [
                await client.ask(USER, "go on", conversation_id=name, max_tokens=most)
                for name, most in (("gone", 100_000), ("kept", 150))
            ]
            async with asyncio.timeout(PATIENCE_S):
                while any((USER, name) not in client.reader.rule.answers for name in running):
                    await asyncio.sleep(0.05)
            node.suspend()
            assert (await http.delete("/v1/conversations/gone")).status_code == 200
            cut_short = await client.answer(USER, running[0])
            one.kill()
            node.resume()
            with WorkerProcess(settings, tmp_path / "two.log") as two:
                await asyncio.to_thread(two.wait_owning, settings.partitions)
                await erased(http, conversation_id="gone")
                goes_on = await client.answer(USER, running[1])
                await client.turns_of(USER, 4)
                await indexed(settings, USER, 4)
                assert {row.partition("/")[2].rpartition(":")[0] for row in await rows(settings, USER)} == {
                    told[1].request_id,
                    running[1],
                }
                listed = (await http.get("/v1/conversations")).json()["conversations"]
                assert [(it["conversation_id"], it["turns"]) for it in listed] == [("kept", 2)]
                assert (await http.get("/v1/conversations/gone")).json()["turns"] == []
                assert (await http.get(f"/v1/requests/{told[0].request_id}")).status_code == 404
                hits = (await http.get("/v1/search", params={"q": "my number"})).json()["hits"]
                assert {hit["conversation_id"] for hit in hits} == {"kept"}
                anew, new = [
                    await client.asked(USER, "who am I", conversation_id=name, max_tokens=2)
                    for name in ("gone", "never")
                ]
    assert cut_short.end is not None
    assert cut_short.end.finish_reason == "cancelled"
    assert goes_on.end is not None
    assert goes_on.end.finish_reason == "length"
    assert anew.end is not None
    assert new.end is not None
    assert anew.end.usage == new.end.usage, "it begins anew"


async def test_the_former_owner_wakes_up_after_the_erasure_with_turns_in_hand(
    new_settings: NewSettings, start_milvus: Callable[[], MilvusNode], tmp_path: Path
) -> None:
    node = await asyncio.to_thread(start_milvus)
    settings = await erasing_settings(new_settings, node)
    second = settings.model_copy(update={"data_dir": tmp_path / "second"})
    with WorkerProcess(settings, tmp_path / "one.log") as one, GatewayProcess(settings, tmp_path / "gw.log") as gw:
        await asyncio.to_thread(one.wait_owning, settings.partitions)
        async with Client(settings) as client, http_of(gw) as http:
            await client.asked(USER, "the first turn opens the collection", max_tokens=2)
            await indexed(settings, USER, 2)
            node.suspend()
            held = [await client.asked(USER, f"turn {n} waits in the first worker", max_tokens=2) for n in range(3)]
            await client.turns_of(USER, 4)
            one.signal(signal.SIGSTOP)
            node.resume()
            with WorkerProcess(second, tmp_path / "two.log") as two:
                await asyncio.to_thread(two.wait_owning, settings.partitions)
                assert (await http.delete(f"/v1/users/{USER}")).status_code == 202
                await erased(http)
                assert await rows(settings, USER) == []
                one.signal(signal.SIGCONT)
                for _ in range(20):
                    await asyncio.sleep(0.5)
                    assert await rows(settings, USER) == [], "the former owner has brought rows back"
                await nothing_is_served(http, [answer.request_id for answer in held])
                after = await client.asked(USER, "who am I", max_tokens=2)
                assert after.end is not None
                await indexed(settings, USER, 2)
