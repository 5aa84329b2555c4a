"""A blocked event loop is counted, and the code that blocks it is named."""

from __future__ import annotations

import asyncio
import time

import pytest
from prometheus_client import CollectorRegistry

from app.telemetry.loop_lag import BLOCKED_S, EVERY_S, LoopLag


def hold_the_loop(until: float) -> None:
    while time.monotonic() < until:
        sum(range(1000))


async def test_a_block_is_counted_and_its_code_is_named(caplog: pytest.LogCaptureFixture) -> None:
    registry = CollectorRegistry()
    lag = LoopLag(registry)
    lag.start()
    await asyncio.sleep(EVERY_S / 2)

    async def work() -> None:
        hold_the_loop(time.monotonic() + BLOCKED_S + 4 * EVERY_S)

    await asyncio.create_task(work(), name="request-7")
    await asyncio.sleep(EVERY_S)
    await lag.stop()
    assert registry.get_sample_value("parley:event_loop_blocked_total") == 1
    during, after = (record.getMessage() for record in caplog.records)
    assert "task 'request-7'" in during
    assert "(hold_the_loop)" in during
    assert "was blocked for" in after


async def test_a_loop_that_is_free_is_not_mentioned(caplog: pytest.LogCaptureFixture) -> None:
    lag = LoopLag(CollectorRegistry())
    lag.start()
    await asyncio.sleep(2 * EVERY_S)
    await lag.stop()
    assert not caplog.records
