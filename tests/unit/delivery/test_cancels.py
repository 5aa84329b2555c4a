from __future__ import annotations

import asyncio

import pytest

from app.delivery import cancels as module
from app.delivery.cancels import Cancels
from models.interface.fair_slots import further

KEY = ("ann", "r1")
MOST = 64
MOST_OF_USER = further(0, MOST)


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", MOST)


async def test_a_cancel_is_used_once_and_settled_by_its_taker() -> None:
    settled: list[int] = []
    cancels = Cancels()
    cancels.remember(KEY, lambda: settled.append(1))
    settle = cancels.pop(KEY)
    assert settle is not None
    assert cancels.pop(KEY) is None
    assert not settled
    settle()
    assert settled == [1]


async def test_a_second_cancel_settles_the_first() -> None:
    settled: list[int] = []
    cancels = Cancels()
    cancels.remember(KEY, lambda: settled.append(1))
    cancels.remember(KEY, lambda: settled.append(2))
    assert settled == [1]
    settle = cancels.pop(KEY)
    assert settle is not None
    settle()
    assert settled == [1, 2]


async def test_an_old_cancel_is_settled_and_forgotten() -> None:
    settled = asyncio.Event()
    cancels = Cancels()
    cancels.remember(KEY, settled.set, for_s=0.0)
    await settled.wait()
    assert cancels.pop(KEY) is None


async def test_an_old_cancel_is_remembered_while_its_request_may_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_AGAIN_S", 0.001)
    settled, asked = asyncio.Event(), iter((True, True, False))
    cancels = Cancels()
    cancels.remember(KEY, settled.set, lambda: next(asked), for_s=0.0)
    await settled.wait()
    assert next(asked, None) is None
    assert cancels.pop(KEY) is None


async def test_requests_of_one_id_are_told_apart_by_user() -> None:
    cancels = Cancels()
    cancels.remember(KEY, lambda: None)
    assert cancels.pop(("bob", "r1")) is None
    assert cancels.pop(KEY) is not None


async def test_flood_of_one_user_forgets_its_own_oldest_and_nobody_elses() -> None:
    cancels, settled = Cancels(), []
    cancels.remember(("bob", "r"), lambda: settled.append("bob"))
    for number in range(3 * MOST_OF_USER):
        cancels.remember(("ann", f"r{number}"), lambda number=number: settled.append(number))
    assert 2 * MOST_OF_USER <= len(settled) <= 2 * MOST_OF_USER + 1
    assert settled == list(range(len(settled)))
    assert cancels.pop(("bob", "r")) is not None
    assert cancels.pop(("ann", f"r{2 * MOST_OF_USER + 1}")) is not None


async def test_flood_of_a_tenants_many_users_forgets_its_own_oldest_and_nobody_elses() -> None:
    cancels, settled = Cancels(), []
    cancels.remember(("bigcorp/bob", "r"), lambda: settled.append("bob"))
    for number in range(2 * MOST):
        cancels.remember((f"acme/u{number}", "r"), lambda number=number: settled.append(number))
    assert settled == list(range(len(settled)))
    assert cancels.pop(("bigcorp/bob", "r")) is not None


async def test_flood_of_many_users_is_bounded() -> None:
    cancels, settled = Cancels(), []
    for number in range(MOST + 10):
        cancels.remember((f"user-{number}", "r"), lambda number=number: settled.append(number))
    assert settled == list(range(10))


async def test_cancels_that_were_used_no_longer_count_for_their_user() -> None:
    cancels, settled = Cancels(), []
    for number in range(2 * MOST_OF_USER):
        cancels.remember(("ann", f"used{number}"), lambda: settled.append("used"))
        assert cancels.pop(("ann", f"used{number}")) is not None
    for number in range(MOST_OF_USER):
        cancels.remember(("ann", f"r{number}"), lambda: settled.append("remembered"))
    assert not settled
