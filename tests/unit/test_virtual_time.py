from __future__ import annotations

import asyncio
import time

import pytest

from tests.virtual_time import in_virtual_time


@in_virtual_time
async def test_hours_pass_at_once_and_in_order() -> None:
    order: list[str] = []

    async def after(seconds: float) -> None:
        await asyncio.sleep(seconds)
        order.append(f"{seconds}")

    began, loop = time.monotonic(), asyncio.get_running_loop()
    await asyncio.gather(after(3600), after(60), after(0.001))
    assert order == ["0.001", "60", "3600"]
    assert loop.time() == pytest.approx(3600, abs=0.1)
    assert time.monotonic() - began < loop.time() / 60


@in_virtual_time
async def test_a_step_takes_no_time_however_long_it_computes() -> None:
    async with asyncio.timeout(0.01) as deadline:
        time.sleep(0.05)
        await asyncio.sleep(0.009)
    assert not deadline.expired()


def test_a_test_that_waits_for_ever_fails() -> None:
    @in_virtual_time
    async def waits() -> None:
        await asyncio.Event().wait()

    with pytest.raises(AssertionError, match="never comes"):
        waits()
