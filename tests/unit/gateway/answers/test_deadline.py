from __future__ import annotations

import asyncio

from app.gateway.answers.deadline import Deadline
from tests.virtual_time import in_virtual_time


@in_virtual_time
async def test_a_deadline_passes_once_for_a_write_that_takes_too_long() -> None:
    rings: list[int] = []
    timer = Deadline(lambda: rings.append(1))
    timer.set(0.02)
    await asyncio.sleep(0.1)
    assert (rings, timer.has_passed) == ([1], True)


@in_virtual_time
async def test_a_deadline_counts_each_write_alone_and_no_pause_between_them() -> None:
    timer = Deadline(lambda: None)
    for _ in range(4):
        timer.set(0.05)
        await asyncio.sleep(0.02)
        timer.clear()
    await asyncio.sleep(0.1)
    timer.set(0.05)
    timer.clear()
    await asyncio.sleep(0.1)
    assert not timer.has_passed
    timer.close()


@in_virtual_time
async def test_a_deadline_notices_a_late_write_after_quick_ones() -> None:
    timer = Deadline(lambda: None)
    timer.set(0.05)
    timer.clear()
    await asyncio.sleep(0.04)
    timer.set(0.05)
    await asyncio.sleep(0.2)
    assert timer.has_passed


@in_virtual_time
async def test_a_deadline_that_is_set_earlier_passes_earlier() -> None:
    timer = Deadline(lambda: None)
    timer.set(60)
    timer.set(0.01)
    await asyncio.sleep(0.1)
    assert timer.has_passed
