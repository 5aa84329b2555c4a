"""A blocked event loop is counted, and the code that blocks it is named."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry

from app.telemetry import loop_lag
from app.telemetry.loop_lag import BLOCKED_S, EVERY_S, LoopLag

PATIENCE_S = 60.0


class Clock:
    """Stands still but where the test moves it: a machine that is busy blocks the loop, too."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(loop_lag, "time", SimpleNamespace(monotonic=clock.monotonic))
    return clock


def hold_the_loop(holds: Callable[[], object]) -> None:
    until = time.monotonic() + PATIENCE_S
    while holds() and time.monotonic() < until:
        time.sleep(0.01)


async def test_a_block_is_counted_and_its_code_is_named(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    registry = CollectorRegistry()
    lag = LoopLag(registry)
    lag.start()
    await asyncio.sleep(0)

    async def work() -> None:
        clock.now += EVERY_S + BLOCKED_S + 0.5
        hold_the_loop(lambda: not caplog.records)

    await asyncio.create_task(work(), name="request-7")
    async with asyncio.timeout(PATIENCE_S):
        while len(caplog.records) < 2:
            await asyncio.sleep(0.01)
    await lag.stop()
    assert registry.get_sample_value("parley:event_loop_blocked_total") == 1
    during, after = (record.getMessage() for record in caplog.records)
    assert "task 'request-7'" in during
    assert "(hold_the_loop)" in during
    assert "was blocked for" in after


async def test_a_loop_that_is_hardly_late_is_not_mentioned(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    lag = LoopLag(CollectorRegistry())
    lag.start()
    await asyncio.sleep(0)
    clock.now += EVERY_S + 0.9 * BLOCKED_S
    await asyncio.sleep(2.5 * EVERY_S)
    await lag.stop()
    assert not caplog.records
