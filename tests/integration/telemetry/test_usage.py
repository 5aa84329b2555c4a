"""Usage windows on a real Kafka, whose workers are killed, replaced and joined while they count."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient

from app.local.kafka import KafkaCluster
from app.settings import Settings
from app.wire.codec import decode
from app.wire.usage import UsageWindow
from tests.faults.worker_process import WorkerProcess
from tests.integration.commands.terminal import Terminal
from tests.integration.worker.client import Client
from tests.integration.worker.conftest import module_settings

TENANTS = (None, "acme", "globex")
REQUESTS = 60
PRICES = "paced=1/10"

Key = tuple[int, str, str, int]


async def usage(client: Client) -> dict[Key, list[UsageWindow]]:
    """All committed revisions, by window."""
    found: dict[Key, list[UsageWindow]] = {}
    for record in await client.records("usage"):
        window = decode(UsageWindow, record.value, record.headers)
        assert record.partition == window.partition
        assert record.key == window.tenant.encode()
        key = (window.window_start, window.tenant, window.model, window.partition)
        found.setdefault(key, []).append(window)
    return found


async def counted(client: Client, turns: int) -> dict[Key, list[UsageWindow]]:
    """The windows once they hold so many requests."""
    async with asyncio.timeout(120):
        while True:
            windows = await usage(client)
            if sum(revisions[-1].requests for revisions in windows.values()) >= turns:
                return windows
            await asyncio.sleep(0.3)


async def ask_many(client: Client, count: int, pause_s: float) -> list[tuple[str, str]]:
    users = [client.user() for _ in range(6)]
    asked = []
    for number in range(count):
        user = users[number % len(users)]
        tenant = TENANTS[number % len(TENANTS)]
        asked.append((user, await client.ask(user, f"question {number}", max_tokens=4, tenant=tenant)))
        await asyncio.sleep(pause_s)
    return asked


@pytest.fixture
def first(kafka: KafkaCluster, tmp_path: Path) -> Iterator[WorkerProcess]:
    """A worker with windows of a second, whose topics were made before there was `usage`."""
    settings = module_settings(kafka, tmp_path, usage_window_s=1, prices=PRICES)
    asyncio.run(delete(settings, settings.topic("usage")))
    with WorkerProcess(settings, tmp_path / "first.log") as worker:
        worker.wait_owning(settings.partitions)
        yield worker


async def delete(settings: Settings, topic: str) -> None:
    admin = AIOKafkaAdminClient(**settings.cluster.options())
    await admin.start()
    await admin.delete_topics([topic])
    while topic in await admin.list_topics():
        await asyncio.sleep(0.05)
    await admin.close()


async def test_kills_and_rebalances_count_each_turn_once_and_tell_each_revision_once(
    first: WorkerProcess, tmp_path: Path
) -> None:
    settings = first.settings
    second = WorkerProcess(settings.model_copy(update={"data_dir": tmp_path / "other"}), tmp_path / "second.log")
    try:
        async with Client(settings) as client:
            asking = asyncio.ensure_future(ask_many(client, REQUESTS, 0.08))
            await asyncio.sleep(1.6)
            first.kill()
            first.start()
            await asyncio.sleep(0.8)
            second.start()  # a rebalance
            await asyncio.to_thread(second.wait_joined)
            await asyncio.sleep(0.8)
            second.kill()
            for user, request in await asking:
                await client.answer(user, request)
            asked = Counter(user for user, _ in await asking)
            turns = [turn for user, count in asked.items() for turn in await client.turns_of(user, count)]
            assert len(turns) == REQUESTS
            windows = await counted(client, len(turns))
            for key, revisions in windows.items():
                assert [one.revision for one in revisions] == list(range(1, len(revisions) + 1)), key
            newest = [revisions[-1] for revisions in windows.values()]
            assert sum(window.requests for window in newest) == len(turns)
            assert sum(window.completion_tokens for window in newest) == 4 * len(turns)
            by_tenant: Counter[str] = Counter()
            for window in newest:
                by_tenant[window.tenant] += window.requests
            assert by_tenant == Counter(turn.tenant or "" for turn in turns)
            ended = await Terminal(settings, tmp_path).run("usage", "--json")
            reported = json.loads(ended.out)
            assert sum(one["requests"] for one in reported) == len(turns)
            prompt = sum(turn.usage.prompt_tokens for turn in turns)
            assert abs(sum(one["cost"] for one in reported) - (prompt * 1 + 4 * len(turns) * 10) / 1000) < 1e-6
            shown = await Terminal(settings, tmp_path).run("usage", "--tenant", "globex", "--model", "paced@1")
            assert "globex" in shown.out
            assert "acme" not in shown.out
    finally:
        second.kill()
