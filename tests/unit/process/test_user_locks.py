from __future__ import annotations

import asyncio

from app.process.user_locks import UserLocks


async def test_user_locks_exclude_tasks_of_the_same_user_only() -> None:
    locks, order = UserLocks(), []

    async def step(user: str, name: str) -> None:
        async with locks.of(user):
            order.append(f"{name} begins")
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            order.append(f"{name} ends")

    await asyncio.gather(step("ann", "first"), step("ann", "second"), step("bob", "other"))
    assert order.index("first ends") < order.index("second begins")
    assert order.index("other begins") < order.index("first ends")


async def test_user_locks_do_not_grow_with_the_number_of_users() -> None:
    locks = UserLocks()
    for number in range(100):
        async with locks.of(f"user-{number}"):
            assert len(locks) == 1
    assert len(locks) == 0
