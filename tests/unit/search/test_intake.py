from __future__ import annotations

import asyncio
import itertools

from app.search.intake import RowDeletion, Write, WriteQueue
from app.search.rows import rows_of
from tables.erasures import Scope
from tests.unit.search.test_rows import turn

FAR = 1e9


class Bench:
    """An intake whose clock is moved by hand; `tick` wakes all waiters."""

    def __init__(self, batch_rows: int = 4, delay_s: float = 60.0) -> None:
        self.now = 0.0
        self.intake = WriteQueue(batch_rows, delay_s, lambda: self.now)
        self._ids = itertools.count()
        self.writes: list[Write] = []

    def write(self, count: int = 1, answer: str = "yes", partition: int = 0) -> None:
        for _ in range(count):
            one = turn(prompt=str(next(self._ids)), answer=answer)
            self.writes.append(Write(one, rows_of(one), lambda _refusal: None, partition, self.now))
            self.intake.add(self.writes[-1])

    def forgotten(self) -> list[bool]:
        return [entry.forgotten for entry in self.writes]

    def erase(self) -> None:
        self.intake.add(RowDeletion(Scope("ann"), 1, 1, lambda: None, 0, self.now))

    async def next_batch(self, until: float = FAR) -> list[str] | str | None:
        taken = await asyncio.wait_for(self.intake.next_batch(until), 60)
        if taken is None:
            return None
        return "erasure" if isinstance(taken, RowDeletion) else [write.turn.prompt for write in taken]


async def test_full_batch_is_taken_without_delay_and_the_rest_waits() -> None:
    bench = Bench(batch_rows=4)
    bench.write(3)
    assert await bench.next_batch() == ["0", "1"]
    assert len(bench.intake) == 1


async def test_turns_of_one_row_fill_a_batch_by_their_rows() -> None:
    bench = Bench(batch_rows=4)
    bench.write(5, answer="")
    assert await bench.next_batch() == ["0", "1", "2", "3"]


async def test_turn_with_more_rows_than_a_batch_is_a_batch() -> None:
    bench = Bench(batch_rows=1)
    bench.write(2)
    assert await bench.next_batch() == ["0"]


async def test_oldest_turn_waits_no_longer_than_the_delay() -> None:
    bench = Bench(delay_s=0.05)
    bench.write()
    waiting = asyncio.create_task(bench.next_batch())
    await asyncio.sleep(0)
    assert not waiting.done()
    bench.now = 0.05
    assert await waiting == ["0"]


async def test_turn_that_completes_the_batch_wakes_the_taker() -> None:
    bench = Bench(batch_rows=4)
    waiting = asyncio.create_task(bench.next_batch())
    await asyncio.sleep(0)
    bench.write()
    await asyncio.sleep(0)
    assert not waiting.done()
    bench.write()
    assert await waiting == ["0", "1"]


async def test_an_erasure_is_next_and_ends_no_batch() -> None:
    bench = Bench(batch_rows=4)
    bench.write()
    bench.erase()
    bench.write()
    assert await bench.next_batch() == "erasure"
    assert await bench.next_batch() == ["0", "1"]


async def test_large_texts_end_a_batch_early() -> None:
    bench = Bench(batch_rows=10_000)
    bench.write(100, answer="x" * 65_535)
    assert len(await bench.next_batch() or []) == 31


async def test_nothing_by_then_is_an_empty_batch() -> None:
    bench = Bench()
    bench.now = 5
    assert await bench.next_batch(until=5) == []
    bench.write()
    assert await bench.next_batch(until=5) == []
    assert len(bench.intake) == 1


async def test_closed_intake_gives_what_waits_and_then_none() -> None:
    bench = Bench(batch_rows=100)
    bench.write(2)
    bench.intake.close()
    assert await bench.next_batch() == ["0", "1"]
    assert await bench.next_batch() is None


async def test_revoked_partitions_are_forgotten() -> None:
    bench = Bench(batch_rows=100)
    for partition in (0, 1, 2):
        bench.write(partition=partition)
    bench.intake.revoke({0, 2})
    bench.intake.close()
    assert await bench.next_batch() == ["1"]


async def test_oldest_is_the_time_of_the_first_that_waits() -> None:
    bench = Bench()
    assert bench.intake.oldest is None
    bench.now = 7
    bench.write()
    bench.now = 9
    bench.write()
    assert bench.intake.oldest == 7


async def test_what_waits_when_its_user_is_erased_is_done_in_its_order_and_not_written() -> None:
    bench = Bench(batch_rows=4)
    bench.write(2)
    bench.intake.forget(Scope("unknown"), 1 << 60)
    bench.intake.forget(Scope("ann/b:c", "another"), 1 << 60)
    bench.intake.forget(Scope("ann/b:c"), 1_699_999_999_999)
    assert bench.forgotten() == [False, False]
    bench.intake.forget(Scope("ann/b:c", "c"), 1_700_000_000_000)
    assert bench.forgotten() == [True, True]
    bench.erase()
    assert await bench.next_batch() == "erasure"
    assert await bench.next_batch() == ["0", "1"]
