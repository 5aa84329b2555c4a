from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.interface.batcher import Batcher, Flush, FlushReason
from tests.unit.models.fake_timers import FakeTimers

BUDGET = 0.25  # sums of it are exact in binary


class Bench:
    """A batcher with a fake clock, and what it flushed at which time."""

    def __init__(self, max_size: int = 4, budget_s: float = BUDGET, *, has_room: bool = False) -> None:
        self.timers = FakeTimers()
        self.has_room = has_room
        self.flushed: list[tuple[float, list[str]]] = []
        self.stats: list[Flush] = []
        self.batcher: Batcher[str] = Batcher(
            max_size, budget_s, lambda: self.has_room, self._flush, timers=self.timers, observe=self.stats.append
        )

    def _flush(self, items: Sequence[str]) -> None:
        self.flushed.append((self.timers.now - 100.0, list(items)))

    def add(self, *items: str, priority: int = 0) -> None:
        for item in items:
            self.batcher.add(item, priority)

    def at(self, seconds: float) -> None:
        self.timers.until(100.0 + seconds)


def test_oldest_item_leaves_exactly_when_it_has_waited_the_budget() -> None:
    bench = Bench()
    bench.add("a")
    bench.at(0.125)
    bench.add("b")
    bench.at(BUDGET - 2**-20)
    assert bench.flushed == []
    bench.at(5)
    assert bench.flushed == [(BUDGET, ["a", "b"])]
    assert bench.stats == [Flush(FlushReason.BUDGET, (0.25, 0.125))]


def test_full_batch_leaves_without_the_budget() -> None:
    bench = Bench(max_size=3)
    bench.add("a", "b")
    bench.at(0.125)
    bench.add("c")
    bench.timers.turn()
    assert bench.flushed == [(0.125, ["a", "b", "c"])]
    assert bench.stats[0].reason is FlushReason.SIZE
    assert bench.timers.pending() == 0


def test_engine_with_room_makes_nothing_wait_and_a_burst_is_one_batch() -> None:
    bench = Bench(has_room=True)
    bench.add("a", "b", "c")
    assert bench.flushed == []
    bench.timers.turn()
    assert bench.flushed == [(0.0, ["a", "b", "c"])]
    assert bench.stats == [Flush(FlushReason.ROOM, (0.0, 0.0, 0.0))]


def test_burst_over_the_size_before_an_engine_with_room_leaves_at_once_in_batches_of_the_size() -> None:
    bench = Bench(max_size=2, has_room=True)
    bench.add("a", "b", "c", "d", "e")
    bench.timers.turn()
    assert [items for _, items in bench.flushed] == [["a", "b"], ["c", "d"], ["e"]]


def test_item_that_joins_after_the_engine_became_full_still_leaves_with_the_burst() -> None:
    bench = Bench(has_room=True)
    bench.add("a")
    bench.has_room = False
    bench.add("b")
    bench.timers.turn()
    assert bench.flushed == [(0.0, ["a", "b"])]


def test_better_priority_leaves_first_and_equals_keep_their_order() -> None:
    bench = Bench(max_size=3)
    bench.add("batch-1", priority=2)
    bench.add("standard-1", "standard-2", priority=1)
    bench.add("interactive", priority=0)
    bench.timers.turn()
    assert bench.flushed == [(0.0, ["interactive", "standard-1", "standard-2"])]
    assert len(bench.batcher) == 1


def test_item_that_was_overtaken_waits_no_longer_than_its_own_budget() -> None:
    bench = Bench(max_size=2)
    bench.add("late", priority=2)
    bench.at(0.125)
    bench.add("a", "b", priority=0)
    bench.at(5)
    assert bench.flushed == [(0.125, ["a", "b"]), (BUDGET, ["late"])]


def test_next_budget_runs_from_the_oldest_that_is_left() -> None:
    bench = Bench(max_size=2)
    bench.add("a", priority=1)
    bench.at(0.125)
    bench.add("b", priority=0)
    bench.add("c", priority=2)
    bench.at(5)
    assert bench.flushed == [(0.125, ["b", "a"]), (0.375, ["c"])]


def test_removed_item_is_not_flushed_and_its_budget_is_forgotten() -> None:
    bench = Bench()
    bench.add("a")
    bench.at(0.125)
    bench.add("b")
    assert bench.batcher.remove("a")
    assert not bench.batcher.remove("a")
    bench.at(5)
    assert bench.flushed == [(0.375, ["b"])]


def test_removal_below_the_size_takes_the_flush_back() -> None:
    bench = Bench(max_size=2)
    bench.add("a", "b")
    bench.batcher.remove("b")
    bench.timers.turn()
    assert bench.flushed == []
    bench.at(5)
    assert bench.flushed == [(BUDGET, ["a"])]


def test_no_budget_leaves_in_the_next_turn() -> None:
    bench = Bench(budget_s=0)
    bench.add("a", "b")
    bench.timers.turn()
    assert bench.flushed == [(0.0, ["a", "b"])]


def test_flush_that_raises_loses_its_own_batch_only() -> None:
    timers = FakeTimers()
    flushed: list[list[str]] = []

    def flush(items: Sequence[str]) -> None:
        if "poison" in items:
            raise RuntimeError("poison")
        flushed.append(list(items))

    batcher: Batcher[str] = Batcher(2, BUDGET, lambda: False, flush, timers=timers)
    for item in ("poison", "a", "b"):
        batcher.add(item)
    with pytest.raises(RuntimeError, match="poison"):
        timers.turn()
    timers.until(105.0)
    assert flushed == [["b"]]


@pytest.mark.parametrize(("size", "budget"), [(0, 1.0), (1, -1.0)])
def test_senseless_limits_are_refused(size: int, budget: float) -> None:
    with pytest.raises(ValueError, match="max_size"):
        Batcher(size, budget, lambda: False, lambda _: None, timers=FakeTimers())


@settings(deadline=None)
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.integers(0, 2)),
            st.tuples(st.just("remove"), st.integers(0, 40)),
            st.tuples(st.just("sleep"), st.integers(1, 40)),
            st.tuples(st.just("room"), st.integers(0, 1)),
        ),
        max_size=60,
    )
)
def test_every_item_leaves_once_within_its_budget_or_is_removed(steps: list[tuple[str, int]]) -> None:
    bench = Bench(max_size=3)
    ids = itertools.count()
    added: list[str] = []
    removed: set[str] = set()
    for what, value in steps:
        if what == "add":
            added.append(str(next(ids)))
            bench.add(added[-1], priority=value)
        elif what == "remove" and bench.batcher.remove(str(value)):
            removed.add(str(value))
        elif what == "sleep":
            bench.at(bench.timers.now - 100.0 + value / 64)
        elif what == "room":
            bench.has_room = bool(value)
    bench.at(bench.timers.now - 100.0 + BUDGET)
    left = [item for _, items in bench.flushed for item in items]
    assert sorted(left, key=int) == [item for item in added if item not in removed]
    assert max((wait for flush in bench.stats for wait in flush.waits), default=0.0) <= BUDGET
    assert all(len(items) <= 3 for _, items in bench.flushed)
    assert bench.timers.pending() == 0


async def test_running_loop_is_the_clock() -> None:
    flushed: asyncio.Queue[list[str]] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    batcher: Batcher[str] = Batcher(8, 0.01, lambda: False, lambda items: flushed.put_nowait(list(items)), timers=loop)
    batcher.add("a")
    assert await asyncio.wait_for(flushed.get(), 60) == ["a"]
