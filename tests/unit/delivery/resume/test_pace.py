from __future__ import annotations

import asyncio

import pytest

from app.delivery.resume.pace import LONGEST_S, TokenPace
from tests.virtual_time import in_virtual_time


@in_virtual_time
async def test_rare_tokens_open_no_window() -> None:
    pace = TokenPace()
    pace.count(100)
    assert pace.window_s == 0
    async with asyncio.timeout(0):
        await pace.end_of_window()


@in_virtual_time
async def test_windows_grow_with_the_rate_up_to_the_longest() -> None:
    windows = []
    for tokens in (499, 500, 1000, 1_000_000):
        pace = TokenPace()
        pace.count(tokens)
        windows.append(pace.window_s)
    assert windows == [0, pytest.approx(0.005), pytest.approx(0.01), LONGEST_S]


@in_virtual_time
async def test_all_answers_leave_a_window_together_and_the_next_one_opens_another() -> None:
    pace = TokenPace(busy_rate=1, window_s_per_rate=0.01)
    pace.count(2)
    first, second = asyncio.create_task(pace.end_of_window()), asyncio.create_task(pace.end_of_window())
    await first
    await asyncio.sleep(0)
    assert second.done()
    later = asyncio.create_task(pace.end_of_window())
    await asyncio.sleep(0)
    assert not later.done()
    await later


@in_virtual_time
async def test_answer_that_is_cancelled_in_a_window_leaves_it_to_the_others() -> None:
    pace = TokenPace(busy_rate=1, window_s_per_rate=0.01)
    pace.count(2)
    cancelled, other = asyncio.create_task(pace.end_of_window()), asyncio.create_task(pace.end_of_window())
    await asyncio.sleep(0)
    cancelled.cancel()
    async with asyncio.timeout(60):
        await other
    assert cancelled.cancelled()


@in_virtual_time
async def test_rate_fades_within_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    pace = TokenPace()
    pace.count(1000)
    now = asyncio.get_running_loop().time()
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now + 3)
    pace.count(0)
    assert pace.window_s == 0
