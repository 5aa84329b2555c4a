"""Whose turn it is when more is asked than can be done at once."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from app.gateway.callers.fair_queue import PLACES, FairQueue
from app.gateway.edge.errors import ApiError


class Bench:
    """Work that runs until the test ends it."""

    def __init__(self, at_once: int) -> None:
        self.queue = FairQueue(at_once, "searches", most_waiting=5)
        self.running: list[str] = []
        self._ends: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def ask(self, user_id: str, name: str) -> None:
        self._ends[name] = asyncio.Event()
        self.tasks[name] = asyncio.create_task(self._work(user_id, name))
        await self.settle()

    async def _work(self, user_id: str, name: str) -> None:
        async with self.queue.turn(user_id):
            self.running.append(name)
            try:
                await self._ends[name].wait()
            finally:
                self.running.remove(name)

    async def end(self, name: str) -> None:
        self._ends[name].set()
        await self.settle()

    async def leave(self, name: str) -> None:
        self.tasks[name].cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.tasks[name]
        await self.settle()

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)


async def test_one_user_never_has_all_turns() -> None:
    bench = Bench(4)
    for number in range(5):
        await bench.ask("nina", f"n{number}")
    assert bench.running == ["n0", "n1"]
    await bench.ask("omar", "o0")
    assert bench.running == ["n0", "n1", "o0"]


async def test_the_next_turn_is_of_the_user_with_the_fewest_running() -> None:
    bench = Bench(2)
    for number in range(3):
        await bench.ask("nina", f"n{number}")
    await bench.ask("omar", "o0")
    await bench.ask("lena", "l0")
    assert bench.running == ["n0", "o0"]
    await bench.end("n0")
    assert bench.running == ["o0", "n1"]
    await bench.end("o0")
    assert bench.running == ["n1", "l0"]


async def test_what_has_had_a_turn_gets_the_next_one_however_many_wait() -> None:
    queue = FairQueue(1, "searches", most_waiting=0)
    async with queue.turn("nina", goes_on=True):
        with pytest.raises(ApiError):
            async with queue.turn("nina"):
                pass


async def test_the_users_of_a_tenant_share_its_turns() -> None:
    bench = Bench(4)
    for number in range(4):
        await bench.ask(f"acme/u{number}", f"a{number}")
    assert bench.running == ["a0", "a1", "a2", "a3"]
    await bench.ask("acme/u4", "a4")
    await bench.ask("other/u0", "o0")
    await bench.end("a0")
    assert bench.running == ["a1", "a2", "a3", "o0"]


async def test_what_is_cancelled_gives_its_turn_and_its_place_back() -> None:
    bench = Bench(2)
    for name in ("n0", "n1", "n2"):
        await bench.ask("nina", name)
    await bench.leave("n1")
    await bench.leave("n0")
    assert bench.running == ["n2"]
    await bench.leave("n2")
    assert bench.queue._running.total() == bench.queue._tenants.total() == len(bench.queue._waiting) == 0
    assert bench.queue._places.free == PLACES


async def test_a_turn_that_was_given_to_one_that_left_goes_on_to_the_next() -> None:
    bench = Bench(1)
    await bench.ask("nina", "n0")
    await bench.ask("omar", "o0")
    await bench.ask("lena", "l0")
    bench._ends["n0"].set()
    await asyncio.sleep(0)
    bench.tasks["o0"].cancel()
    await bench.settle()
    await bench.settle()
    assert bench.running == ["l0"]


async def test_a_user_with_too_many_waiting_is_refused_and_others_are_not() -> None:
    bench = Bench(2)
    for number in range(6):
        await bench.ask("nina", f"n{number}")
    with pytest.raises(ApiError) as refused:
        async with bench.queue.turn("nina"):
            pass
    assert (refused.value.status, refused.value.retry_after_s) == (429, 2.0)
    await bench.ask("omar", "o0")
    assert "o0" in bench.running


async def test_a_tenants_many_users_leave_places_and_turns_to_others() -> None:
    queue, began = FairQueue(4, "searches"), []

    async def ask(user_id: str) -> None:
        async with queue.turn(user_id):
            began.append(user_id)
            await asyncio.sleep(0)

    flood = [asyncio.create_task(ask(f"acme/u{number}")) for number in range(20_000)]
    await asyncio.sleep(0)
    others = [asyncio.create_task(ask(name)) for name in ("nina", "omar", "bigcorp/ceo")]
    await asyncio.gather(*others)
    assert len(began) <= 20, "they wait for the searches that run, not for those that wait"
    ends = await asyncio.gather(*flood, return_exceptions=True)
    refused = [end for end in ends if end is not None]
    assert {(one.status, one.retry_after_s) for one in refused if isinstance(one, ApiError)} == {(429, 2.0)}
    assert len(ends) - len(refused) == 4 + PLACES * 3 // 4
    assert (queue._places.free, queue._waiting) == (PLACES, {})


async def test_where_all_places_are_held_by_others_nobody_has_asked_too_much() -> None:
    bench = Bench(1)
    for number in range(PLACES + 1):
        await bench.ask(f"u{number}", f"n{number}")
    with pytest.raises(ApiError) as refused:
        async with bench.queue.turn("nina"):
            pass
    assert refused.value.status == 503
    for task in bench.tasks.values():
        task.cancel()
    await asyncio.gather(*bench.tasks.values(), return_exceptions=True)
    assert bench.queue._waiting == {}
