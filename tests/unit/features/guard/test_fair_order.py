"""Who is next, without a clock: pieces end when the test lets them."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import pairwise

import pytest

from app.features.guard.fair_order import Asker, BusyError, FairOrder, Patience
from tests.virtual_time import in_virtual_time


class Bench:
    """Jobs whose pieces note their asker, each for one step of the loop."""

    def __init__(self, patience_s: float = 1e9) -> None:
        self.turns = FairOrder(patience_s)
        self.order: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []

    def ask(self, name: str, pieces: int, *, tenant: str = "", patience: Patience = Patience.BEGUN) -> None:
        self.tasks.append(asyncio.ensure_future(self._work(Asker(name, tenant, patience=patience), pieces)))

    async def _work(self, asker: Asker, pieces: int) -> None:
        with self.turns.job(asker, pieces) as job:
            for _ in range(pieces):
                async with job.turn():
                    self.order.append(asker.user)
                    await asyncio.sleep(0)

    async def done(self) -> list[str]:
        async with asyncio.timeout(60):
            await asyncio.gather(*self.tasks, return_exceptions=True)
        return self.order


@in_virtual_time
async def test_a_sentence_has_its_turn_within_two_pieces_of_a_long_queue() -> None:
    bench = Bench()
    for _ in range(50):
        bench.ask("mallory", 40)
    await asyncio.sleep(0)
    bench.ask("nina", 1)
    order = await bench.done()
    assert order.index("nina") <= 2


@in_virtual_time
async def test_users_and_tenants_have_equal_shares() -> None:
    bench = Bench()
    for number in range(8):
        bench.ask(f"crowd{number}", 30, tenant="large")
    bench.ask("nina", 30, tenant="small")
    for _ in range(5):
        bench.ask("bob", 30)
        bench.ask("bob", 30)
    order = await bench.done()
    at_the_end_of_ninas = Counter(order[: len(order) - order[::-1].index("nina")])
    crowd = sum(at_the_end_of_ninas[f"crowd{number}"] for number in range(8))
    assert abs(crowd - 30) <= 2
    assert abs(at_the_end_of_ninas["bob"] - 30) <= 2


@in_virtual_time
async def test_a_user_s_own_jobs_end_in_order() -> None:
    bench = Bench()
    ended: list[int] = []
    for number in range(4):
        bench.ask("mallory", 5)
        bench.tasks[-1].add_done_callback(lambda _task, number=number: ended.append(number))  # type: ignore[misc]
    await bench.done()
    assert ended == [0, 1, 2, 3]


@in_virtual_time
async def test_the_index_waits_for_others_but_not_for_ever() -> None:
    bench = Bench()
    bench.ask("ann", 1)
    bench.ask("index", 4, patience=Patience.BACKGROUND)
    for number in range(10):
        bench.ask(f"user{number}", 10)
    order = await bench.done()
    places = [at for at, name in enumerate(order) if name == "index"]
    assert len(places) == 4
    assert places[-1] < 60
    assert all(later - earlier >= 4 for earlier, later in pairwise(places))


@in_virtual_time
async def test_who_is_gone_has_no_more_turns() -> None:
    bench = Bench()
    bench.ask("mallory", 1000)
    bench.ask("waiting", 1000)
    bench.ask("nina", 3)
    await asyncio.sleep(0)
    bench.tasks[0].cancel()
    bench.tasks[1].cancel()
    order = await bench.done()
    assert order.count("nina") == 3
    assert len(order) < 10
    bench.ask("bob", 2)  # no turn was lost
    assert (await bench.done()).count("bob") == 2


@in_virtual_time
async def test_a_cancel_in_the_step_in_which_the_turn_comes_loses_no_turn() -> None:
    turns = FairOrder(1e9)
    entered = asyncio.Event()

    async def work(user: str) -> None:
        with turns.job(Asker(user), 1) as job:
            async with job.turn():
                await entered.wait()

    first, second = asyncio.ensure_future(work("a")), asyncio.ensure_future(work("b"))
    await asyncio.sleep(0)
    entered.set()
    await first
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    async with asyncio.timeout(60):
        await work("c")


@in_virtual_time
async def test_the_time_of_others_does_not_count() -> None:
    turns = FairOrder(1e9)

    async def slow() -> None:
        with turns.job(Asker("mallory"), 20) as job:
            for _ in range(20):
                async with job.turn():
                    await asyncio.sleep(0.05)

    async def nina() -> str:
        with turns.job(Asker("nina"), 3, limit_s=0.3) as job:
            for _ in range(3):
                async with job.turn():
                    await asyncio.sleep(0)
        return "in time"

    others = [asyncio.ensure_future(slow()) for _ in range(3)]
    await asyncio.sleep(0)
    assert await nina() == "in time"
    with turns.job(Asker("nina"), 2, limit_s=0.05) as job, pytest.raises(TimeoutError):
        async with job.turn():
            await asyncio.sleep(9)
    for one in others:
        one.cancel()


@in_virtual_time
async def test_only_new_requests_are_refused_and_only_for_their_own_users_load() -> None:
    turns = FairOrder(patience_s=1.0)  # a piece is believed to take 0.05 s
    with turns.job(Asker("mallory", patience=Patience.BEGUN), 1000):
        with pytest.raises(BusyError, match=r"^too many texts wait for the guard, about 50 s; try again later$"):
            turns.job(Asker("mallory"), 1).__enter__()
        for asker in (Asker("nina"), Asker("mallory", patience=Patience.BACKGROUND), Asker("x", "acme")):
            with turns.job(asker, 10):
                pass
        with pytest.raises(BusyError), turns.job(Asker("nina"), 30):
            pass


def test_one_piece_that_was_held_up_refuses_nobody_and_pieces_that_are_slow_do(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("app.features.guard.fair_order.time.monotonic", lambda: now)

    async def work(turns: FairOrder, seconds: list[float]) -> None:
        nonlocal now
        for took in seconds:
            with turns.job(Asker("nina"), 1) as job:
                async with job.turn():
                    now += took

    def is_refused(turns: FairOrder) -> bool:
        with turns.job(Asker("bob", patience=Patience.BEGUN), 40):
            try:
                with turns.job(Asker("nina"), 5):
                    return False
            except BusyError:
                return True

    for seconds, refused in (([0.1] * 5 + [60.0], False), ([0.1] * 5 + [5.0] * 10, True)):
        turns = FairOrder(10.0)
        asyncio.run(work(turns, seconds))
        assert is_refused(turns) is refused
