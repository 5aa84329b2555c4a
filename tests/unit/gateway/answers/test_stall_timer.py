from __future__ import annotations

import asyncio

from app.gateway.answers.stall_timer import StallTimer


async def test_stall_timer_rings_once_for_a_write_that_takes_too_long() -> None:
    rings: list[int] = []
    timer = StallTimer(0.02, lambda: rings.append(1))
    timer.begin()
    await asyncio.sleep(0.1)
    assert (rings, timer.has_rung) == ([1], True)


async def test_stall_timer_counts_each_write_alone_and_no_pause_between_them() -> None:
    timer = StallTimer(0.05, lambda: None)
    for _ in range(4):
        timer.begin()
        await asyncio.sleep(0.02)
        timer.end()
    await asyncio.sleep(0.1)
    timer.begin()
    timer.end()
    await asyncio.sleep(0.1)
    assert not timer.has_rung
    timer.close()


async def test_stall_timer_notices_a_late_write_after_quick_ones() -> None:
    timer = StallTimer(0.05, lambda: None)
    timer.begin()
    timer.end()
    await asyncio.sleep(0.04)
    timer.begin()
    await asyncio.sleep(0.2)
    assert timer.has_rung
