"""The figures of tenants by `usage`, read from a real broker."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest
from aiokafka.errors import KafkaConnectionError

from app.features.quota import usage_feed
from app.features.quota.figures import MINUTE_MS, TenantFigures
from app.features.quota.tenants import Tenants
from app.features.quota.usage_feed import UsageFeed
from app.kafka.clients import producer
from app.policy.file import Policy, TenantRule
from app.settings import Settings
from app.wire.codec import encode
from app.wire.usage import Latencies, UsageWindow


def window(start: int, cost: float) -> UsageWindow:
    none = Latencies(0, 0, 0)
    return UsageWindow(
        window_start=start,
        window_ms=MINUTE_MS,
        tenant="acme",
        model="m@1",
        partition=0,
        revision=1,
        requests=1,
        cost=cost,
        first_token_ms=none,
        duration_ms=none,
        created_at=start,
    )


async def test_windows_count_once_however_often_reading_begins_anew(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage_feed, "_RETRY_S", 0.01)
    # Not the last hour of a month, in which the second window would be of the next one.
    now = int(datetime.now(UTC).replace(day=15, hour=12).timestamp()) * 1000
    first = now - now % MINUTE_MS
    figures = TenantFigures(lambda: now, lambda: (), settings.partitions)
    tenants = Tenants(Policy(tenants={"acme": TenantRule(cost_per_month=100.0)}), figures)
    feed = UsageFeed(settings, tenants)
    read = UsageFeed._read
    begun, is_enough = 0, asyncio.Event()

    async def breaks_off(self: UsageFeed, records: object) -> None:
        nonlocal begun
        await read(self, records)  # type: ignore[arg-type]
        begun += 1
        if begun >= 4 and figures.cost_of_month("acme") >= 3.0:
            is_enough.set()
            await asyncio.Event().wait()  # until the end: a client that is just being stopped would stay open
        raise KafkaConnectionError

    monkeypatch.setattr(UsageFeed, "_read", breaks_off)
    async with producer(settings.cluster) as sends:
        for start, cost in ((first, 1.0), (first + 90 * MINUTE_MS, 2.0)):
            value, headers = encode(window(start, cost), settings.wire_format)
            await sends.send_and_wait(settings.topic("usage"), value, key=b"acme", headers=headers, partition=0)
    task = asyncio.create_task(feed.run())
    try:
        async with asyncio.timeout(120):
            await is_enough.wait()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert figures.cost_of_month("acme") == 3.0
