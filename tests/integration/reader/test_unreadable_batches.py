"""Batches that no client can decode, in topics that are only read: readers skip them, with one WARNING each."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path

import httpx
import msgspec
import pytest
from aiokafka import TopicPartition

from app.commands.scan import records_since
from app.features.quota.figures import MINUTE_MS, TenantFigures
from app.features.quota.tenants import Tenants
from app.features.quota.usage_feed import UsageFeed
from app.kafka.clients import consumer, producer
from app.policy.file import Policy, TenantRule
from app.reader import TokenReader
from app.reader.position import AtTime, seek
from app.settings import Settings
from app.wire.codec import encode
from app.wire.event import EventType, TokenEvent
from app.wire.request import Request
from app.wire.usage import Latencies, UsageWindow
from tests.integration.commands.terminal import Terminal
from tests.integration.gateway.gateway_process import GatewayProcess
from tests.integration.scripted_worker import scripted_worker
from tests.integration.unreadable import UNREADABLE, produce

PARTITION = 2
CAUSE = "cannot be decoded"


async def spoil(settings: Settings, topic: str, value: bytes = b"{}", partition: int = PARTITION) -> list[int]:
    """Write each kind of unreadable record; returns their offsets. `value` is what they would have."""
    return [await produce(settings, topic, partition, unreadable.raw(value)) for unreadable in UNREADABLE]


def warned(text: str, settings: Settings, topic: str, offsets: list[int], partition: int = PARTITION) -> None:
    for offset in offsets:
        assert text.count(f"{settings.topic(topic)}[{partition}] offset {offset} {CAUSE}: ") == 1, text
    assert text.count(CAUSE) == len(offsets)


async def test_readers_of_tokens_go_on(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    event = TokenEvent(
        type=EventType.TOKEN, request_id="r-1", user_id="ann", index=0, tokens=(1,), text="forged", epoch=1 << 40
    )
    async with (
        scripted_worker(settings) as worker,
        TokenReader(settings.cluster, settings.topic("tokens")) as tokens,
    ):
        following = tokens.follow("ann", "r-1")
        offsets = await spoil(settings, "tokens", msgspec.json.encode(event))
        await worker.answer(Request(request_id="r-1", user_id="ann", prompt="one two"), PARTITION)
        async with asyncio.timeout(120):
            assert "".join([update.text async for update in following]) == "one two "
    warned(caplog.text, settings, "tokens", offsets)


async def test_a_gateway_goes_on(settings: Settings, tmp_path: Path) -> None:
    async with scripted_worker(settings) as worker:
        controls = await spoil(settings, "controls")
        with GatewayProcess(settings, tmp_path / "gateway.log") as gateway:
            offsets = await spoil(settings, "tokens")
            await worker.answer(Request(request_id="r-1", user_id="ann", prompt="one two"), PARTITION)
            async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as http:
                events = await http.get("/v1/requests/r-1/events", params={"user_id": "ann"})
            assert '"done"' in events.text
            assert gateway.stop() == 0
        log = (tmp_path / "gateway.log").read_text()
    warned("".join(line for line in log.splitlines(True) if "tokens[" in line), settings, "tokens", offsets)
    warned("".join(line for line in log.splitlines(True) if "controls[" in line), settings, "controls", controls)
    assert "retrying" not in log


async def test_tail_goes_on(settings: Settings, tmp_path: Path) -> None:
    offsets = await spoil(settings, "tokens")
    async with scripted_worker(settings) as worker:
        await worker.answer(Request(request_id="r-1", user_id="ann", prompt="one"), PARTITION)
    tail = await Terminal(settings, tmp_path, os.environ.get("PYTHONPATH", "")).run(
        "tail", "tokens", "--from-beginning", "--no-follow"
    )
    assert tail.code == 0
    types = [json.loads(line)["value"]["type"] for line in tail.out.splitlines()]
    assert types == ["fence", "notice", "token", "done"]
    warned(tail.err, settings, "tokens", offsets)


async def test_scans_of_commands_go_on(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    offsets = await spoil(settings, "audit")
    async with producer(settings.cluster) as sends:
        await sends.send_and_wait(settings.topic("audit"), b"behind", partition=PARTITION)
    assert [one.value async for one in records_since(settings, "audit", 0)] == [b"behind"]
    warned(caplog.text, settings, "audit", offsets)


async def test_one_by_one_they_are_skipped_too(settings: Settings) -> None:
    await spoil(settings, "turns")
    async with producer(settings.cluster) as sends:
        await sends.send_and_wait(settings.topic("turns"), b"behind", partition=PARTITION)
    async with consumer(settings.cluster) as records:
        at = TopicPartition(settings.topic("turns"), PARTITION)
        records.assign([at])
        await seek(records, [at], AtTime(0))
        async with asyncio.timeout(120):
            assert (await records.getone(at)).value == b"behind"


async def test_usage_is_counted_behind_them(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    now = time.time_ns() // 1_000_000
    figures = TenantFigures(lambda: now, lambda: (), settings.partitions)
    feed = UsageFeed(settings, Tenants(Policy(tenants={"acme": TenantRule(cost_per_month=100.0)}), figures))
    start, none = now - now % MINUTE_MS, Latencies(0, 0, 0)
    window = UsageWindow(
        window_start=start,
        window_ms=MINUTE_MS,
        tenant="acme",
        model="m@1",
        partition=0,
        revision=1,
        requests=1,
        cost=1.0,
        first_token_ms=none,
        duration_ms=none,
        created_at=start,
    )
    value, headers = encode(window, settings.wire_format)
    offsets = await spoil(settings, "usage", value)
    async with producer(settings.cluster) as sends:
        await sends.send_and_wait(settings.topic("usage"), value, key=b"acme", headers=headers, partition=PARTITION)
    reading = asyncio.create_task(feed.run())
    try:
        async with asyncio.timeout(120):
            while not figures.cost_of_month("acme"):
                await asyncio.sleep(0.02)
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
    assert figures.cost_of_month("acme") == 1.0
    warned(caplog.text, settings, "usage", offsets)
