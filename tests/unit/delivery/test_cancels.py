from __future__ import annotations

import asyncio

from app.delivery.cancels import Cancels

KEY = ("ann", "r1")


async def test_a_cancel_is_used_once_and_settled_by_its_taker() -> None:
    settled: list[int] = []
    cancels = Cancels()
    cancels.remember(KEY, lambda: settled.append(1))
    settle = cancels.take(KEY)
    assert settle is not None
    assert cancels.take(KEY) is None
    assert not settled
    settle()
    assert settled == [1]


async def test_a_second_cancel_settles_the_first() -> None:
    settled: list[int] = []
    cancels = Cancels()
    cancels.remember(KEY, lambda: settled.append(1))
    cancels.remember(KEY, lambda: settled.append(2))
    assert settled == [1]
    settle = cancels.take(KEY)
    assert settle is not None
    settle()
    assert settled == [1, 2]


async def test_an_old_cancel_is_settled_and_forgotten() -> None:
    settled = asyncio.Event()
    cancels = Cancels()
    cancels.remember(KEY, settled.set, for_s=0.0)
    await settled.wait()
    assert cancels.take(KEY) is None


async def test_requests_of_one_id_are_told_apart_by_user() -> None:
    cancels = Cancels()
    cancels.remember(KEY, lambda: None)
    assert cancels.take(("bob", "r1")) is None
    assert cancels.take(KEY) is not None
