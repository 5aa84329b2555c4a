from __future__ import annotations

import asyncio
import itertools
import random
from collections import defaultdict
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.delivery.lanes import OVERTAKE, Lanes
from models.interface.fair_slots import Payers, further, payers_of
from tests.examples import examples
from tests.virtual_time import in_virtual_time

items = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2)), max_size=40)  # lane, priority


async def idle() -> None:
    await asyncio.sleep(0)


class Stage:
    """Runs items for random turns of the event loop, and remembers what ran when."""

    def __init__(self, limit: int, seed: int) -> None:
        self.lanes: Lanes[tuple[int, int]] = Lanes(limit, self._failed)
        self.began: list[tuple[int, int]] = []
        self.running: set[tuple[int, int]] = set()
        self.most = 0
        self.errors: list[BaseException] = []
        self._random = random.Random(seed)

    def add(self, item: tuple[int, int], priority: int = 0) -> None:
        self.lanes.add(item[0], item, partial(self._answer, item), priority)

    async def _answer(self, item: tuple[int, int]) -> None:
        assert item[0] not in {lane for lane, _ in self.running}, "two of one lane at once"
        self.began.append(item)
        self.running.add(item)
        self.most = max(self.most, len(self.running))
        try:
            for _ in range(self._random.randrange(4)):
                await asyncio.sleep(0)
            if item[1] % 7 == 6:
                raise ValueError(item)
        finally:
            self.running.discard(item)

    def _failed(self, error: BaseException) -> None:
        self.errors.append(error)

    async def idle(self) -> None:
        while self.lanes.running:
            await asyncio.sleep(0)


@examples(0.6)
@given(items, st.integers(1, 4), st.integers(0, 1000))
@in_virtual_time
async def test_order_in_a_lane_whatever_the_priorities_and_failures(
    added: list[tuple[int, int]], limit: int, seed: int
) -> None:
    stage = Stage(limit, seed)
    for number, (lane, priority) in enumerate(added):
        stage.add((lane, number), priority)
        if number % 3 == 0:
            await asyncio.sleep(0)
    await stage.idle()
    by_lane = defaultdict(list)
    for lane, number in stage.began:
        by_lane[lane].append(number)
    assert all(numbers == sorted(numbers) for numbers in by_lane.values())
    assert sorted(number for _, number in stage.began) == list(range(len(added)))
    assert stage.most <= limit
    assert len(stage.errors) == sum(number % 7 == 6 for number in range(len(added)))
    assert (stage.lanes.waiting, stage.lanes.running) == (0, 0)


@examples(0.6)
@given(items, st.integers(1, 4), st.data())
@in_virtual_time
async def test_what_is_withdrawn_never_runs_and_the_rest_does(
    added: list[tuple[int, int]], limit: int, data: st.DataObject
) -> None:
    stage = Stage(limit, seed=1)
    everything = [(lane, number) for number, (lane, _) in enumerate(added)]
    for item, (_, priority) in zip(everything, added, strict=True):
        stage.add(item, priority)
    await asyncio.sleep(0)
    gone = []
    for item in data.draw(st.permutations(everything)):
        if data.draw(st.booleans()) and stage.lanes.withdraw(item[0], item):
            assert item not in stage.began
            gone.append(item)
    await stage.idle()
    assert sorted(stage.began + gone) == sorted(everything)


@in_virtual_time
async def test_a_lane_that_is_long_takes_one_slot() -> None:
    release = asyncio.Event()
    began = []

    async def answer(item: str) -> None:
        began.append(item)
        await release.wait()

    lanes: Lanes[str] = Lanes(2, pytest.fail)
    for number in range(5):
        lanes.add("chatty", f"chatty-{number}", partial(answer, f"chatty-{number}"))
    lanes.add("quiet", "quiet-0", partial(answer, "quiet-0"))
    await asyncio.sleep(0)
    assert began == ["chatty-0", "quiet-0"]
    await lanes.cancel()


@in_virtual_time
async def test_nothing_is_overtaken_for_ever() -> None:
    began: list[int] = []

    async def answer(item: int) -> None:
        began.append(item)

    lanes: Lanes[int] = Lanes(1, pytest.fail)
    lanes.add("first", -1, partial(answer, -1))
    lanes.add("patient", -2, partial(answer, -2), priority=2)
    for number in range(3 * OVERTAKE):
        lanes.add(number, number, partial(answer, number), priority=0)
    while lanes.running:
        await asyncio.sleep(0)
    assert began.index(-2) <= 2 * OVERTAKE + 1
    assert began.index(-2) > OVERTAKE


@in_virtual_time
async def test_cancel_ends_what_runs_and_begins_nothing_more() -> None:
    stage = Stage(1, seed=0)
    ended = asyncio.Event()

    async def answer() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    stage.lanes.add(0, (0, 0), answer)
    stage.lanes.add(1, (1, 1), answer)
    await asyncio.sleep(0)
    await stage.lanes.cancel()
    assert ended.is_set()
    assert (stage.lanes.running, stage.lanes.waiting, stage.errors) == (0, 0, [])


@in_virtual_time
async def test_a_user_with_many_conversations_delays_no_other_user() -> None:
    go_on = asyncio.Event()
    began: list[str] = []

    async def answer(item: str) -> None:
        began.append(item)
        await go_on.wait()

    lanes: Lanes[str] = Lanes(2, pytest.fail)
    for number in range(500):
        lanes.add(("greedy", number), f"greedy-{number}", partial(answer, f"greedy-{number}"), payers=["greedy"])
    for number in range(3):
        lanes.add(("quiet", number), f"quiet-{number}", partial(answer, f"quiet-{number}"), payers=["quiet"])
    await asyncio.sleep(0)
    assert began == ["greedy-0", "quiet-0"]
    go_on.set()
    while lanes.running:
        await asyncio.sleep(0)
    places = [began.index(f"quiet-{number}") for number in range(3)]
    assert max(places) < 100, places
    assert sorted(began) == sorted([*(f"greedy-{n}" for n in range(500)), *(f"quiet-{n}" for n in range(3))])
    assert not lanes._users


class SharedSlots:
    """Items of tenants' users. One occupies its slot, lends it, comes back for it and then runs until it ends."""

    def __init__(self, limit: int, payers: list[Payers]) -> None:
        self.lanes: Lanes[int] = Lanes(limit, pytest.fail)
        self.payers = payers
        self.events = {what: [asyncio.Event() for _ in payers] for what in ("lend", "come back", "end")}
        self.occupying: list[int] = []
        self.hurried: set[int] = set()
        self.waiting: set[int] = set()
        self._limit = limit

    def add(self, item: int, priority: int) -> None:
        self.waiting.add(item)
        self.lanes.add(item, item, partial(self._answer, item), priority, self.payers[item])

    async def _answer(self, item: int) -> None:
        await self._occupy(item, "lend")
        async with self.lanes.without_slot():
            await self.events["come back"][item].wait()
            self.waiting.add(item)
        await self._occupy(item, "end")

    async def _occupy(self, item: int, until: str) -> None:
        self.waiting.discard(item)
        if item in self.hurried:
            return
        assert self.has_room(item), "it was given more than its share"
        self.occupying.append(item)
        await self.events[until][item].wait()
        self.occupying.remove(item)

    def has_room(self, item: int) -> bool:
        free = self._limit - len(self.occupying)
        for payer in self.payers[item]:
            free = further(sum(payer in self.payers[one] for one in self.occupying), free)
        return free > 0

    def change(self, item: int, what: str) -> None:
        match what:
            case "hurry" if item in self.waiting:
                self.hurried.add(item)
                self.lanes.hurry(item, item)
            case "withdraw" if self.lanes.withdraw(item, item):
                self.waiting.discard(item)
            case "lend" | "come back" | "end":
                self.events[what][item].set()


tenants = st.sampled_from(["", "acme", "umbrella"])


@examples(0.6)
@given(st.lists(st.tuples(tenants, st.integers(0, 3), st.integers(0, 2)), max_size=60), st.integers(1, 12), st.data())
@in_virtual_time
async def test_no_payer_is_given_more_than_its_share_and_no_slot_stays_free_in_vain(
    added: list[tuple[str, int, int]], limit: int, data: st.DataObject
) -> None:
    slots = SharedSlots(limit, [payers_of(tenant, f"{tenant}/{user}") for tenant, user, _ in added])
    for item, (_, _, priority) in enumerate(added):
        slots.add(item, priority)
    for item in data.draw(st.permutations([*range(len(added))] * 3)):
        slots.change(item, data.draw(st.sampled_from(["lend", "come back", "end", "hurry", "withdraw"])))
        await asyncio.sleep(0.01)
        assert not [one for one in slots.waiting if slots.has_room(one)], "a slot is free for them"
    for event in itertools.chain(*slots.events.values()):
        event.set()
    await asyncio.sleep(1)
    assert (slots.lanes.running, slots.lanes.waiting, slots.waiting) == (0, 0, set())
    assert slots.lanes._slots.free == limit
    assert not slots.lanes._slots._held
    assert not slots.lanes.are_short


@in_virtual_time
async def test_items_that_come_back_for_their_slots_wait_for_them() -> None:
    together, ends = asyncio.Event(), asyncio.Event()
    running: list[str] = []

    async def answer(item: str) -> None:
        async with lanes.without_slot():
            await together.wait()
        running.append(item)
        await ends.wait()
        running.remove(item)

    async def other() -> None:
        running.append("quiet")

    lanes: Lanes[str] = Lanes(4, pytest.fail)
    items = [f"greedy-{number}" for number in range(20)]
    for number, item in enumerate(items):
        lanes.add(number, item, partial(answer, item), payers=["greedy"])
    await asyncio.sleep(1)
    lanes.hurry(8, items[8])
    together.set()
    await asyncio.sleep(1)
    assert sorted(running) == ["greedy-0", "greedy-1", "greedy-2", "greedy-8"], "8 was stopped and needs no slot"
    lanes.add("quiet", "quiet", other, payers=["quiet"])
    await asyncio.sleep(1)
    assert running[-1] == "quiet"
    lanes.hurry(7, items[7])
    await asyncio.sleep(1)
    assert running[-1] == "greedy-7", "it was stopped while it waited for its slot"
    ends.set()
    await asyncio.sleep(1)
    assert (running, lanes.running, lanes._slots.free) == (["quiet"], 0, 4)


@in_virtual_time
async def test_cancel_ends_what_waits_for_its_slot_again() -> None:
    back = asyncio.Event()

    async def answer() -> None:
        async with lanes.without_slot():
            await back.wait()

    lanes: Lanes[str] = Lanes(1, pytest.fail)
    lanes.add("a", "a", answer)
    await asyncio.sleep(1)
    lanes.add("b", "b", asyncio.Event().wait)
    back.set()
    await asyncio.sleep(1)
    assert lanes.are_short
    await lanes.cancel()
    assert (lanes.running, lanes.are_short) == (0, False)


@in_virtual_time
async def test_a_request_that_is_withdrawn_counts_for_its_user_no_more() -> None:
    lanes: Lanes[str] = Lanes(1, pytest.fail)
    lanes.add("a", "a", idle, payers=["nina"])
    lanes.add("b", "b", idle, payers=["nina"])
    assert lanes.withdraw("b", "b")
    assert lanes._users == {"nina": 1}
    await lanes.cancel()
    assert not lanes._users


@in_virtual_time
async def test_lanes_are_short_while_an_item_waits_for_a_slot_and_not_for_its_lane() -> None:
    lanes: Lanes[str] = Lanes(2, pytest.fail)

    async def lends() -> None:
        await asyncio.sleep(1)
        async with lanes.without_slot():
            await asyncio.Event().wait()

    short = []
    for lane, work in (("a", asyncio.Event().wait), ("b", lends), ("b", lends), ("c", lends)):
        lanes.add(lane, lane, work)
        short.append(lanes.are_short)
    await asyncio.sleep(1.5)
    short.append(lanes.are_short)
    assert short == [False, False, False, True, False]
    await lanes.cancel()


@in_virtual_time
async def test_lane_has_a_queue_while_an_item_waits_for_another_one() -> None:
    lanes: Lanes[str] = Lanes(2, pytest.fail)
    lanes.add("a", "first", idle)
    assert not lanes.has_queue("a")
    lanes.add("a", "second", idle)
    assert lanes.has_queue("a")
    assert not lanes.has_queue("b")
    assert (lanes.front("a"), lanes.front("b")) == ("first", None)
    lanes.withdraw("a", "second")
    assert not lanes.has_queue("a")
    await lanes.cancel()


@in_virtual_time
async def test_item_of_a_lane_without_items_cannot_be_withdrawn() -> None:
    lanes: Lanes[str] = Lanes(1, pytest.fail)
    assert not lanes.withdraw("empty", "item")


@in_virtual_time
async def test_waiting_counts_what_has_not_begun() -> None:
    lanes: Lanes[str] = Lanes(1, pytest.fail)
    for item in ("first", "second", "third", "fourth"):
        lanes.add("a", item, idle)
    assert lanes.waiting == 3
    lanes.withdraw("a", "third")
    assert lanes.waiting == 2
    await lanes.cancel()
    assert lanes.waiting == 0


@in_virtual_time
async def test_error_of_an_item_is_reported_and_its_lane_goes_on() -> None:
    errors: list[BaseException] = []
    answered: list[str] = []

    async def answer(item: str) -> None:
        if item == "bad":
            raise ValueError(item)
        answered.append(item)

    lanes: Lanes[str] = Lanes(1, errors.append)
    lanes.add("a", "bad", partial(answer, "bad"))
    lanes.add("a", "good", partial(answer, "good"))
    while not answered:
        await asyncio.sleep(0)
    assert [str(error) for error in errors] == ["bad"]


@in_virtual_time
async def test_an_item_that_waits_lends_its_slot_and_keeps_its_lane() -> None:
    waiting, began = asyncio.Event(), []

    async def answer(item: str) -> None:
        began.append(item)
        if item == "a1":
            async with lanes.without_slot():
                await waiting.wait()
            began.append("a1 again")

    lanes: Lanes[str] = Lanes(1, lambda _error: None)
    for item in ("a1", "a2", "b1"):
        lanes.add(item[0], item, partial(answer, item))
    await asyncio.sleep(0.01)
    assert began == ["a1", "b1"]
    waiting.set()
    await asyncio.sleep(0.01)
    assert began == ["a1", "b1", "a1 again", "a2"]
    assert lanes.running == 0


@in_virtual_time
async def test_an_item_that_hurries_waits_for_its_lane_and_for_no_slot() -> None:
    began: list[str] = []
    ends = {item: asyncio.Event() for item in ("a1", "a2", "a3", "b1", "c1")}

    async def answer(item: str) -> None:
        began.append(item)
        await ends[item].wait()

    lanes: Lanes[str] = Lanes(1, lambda _error: None)
    for item in ends:
        lanes.add(item[0], item, partial(answer, item))
    lanes.hurry("a", "a2")
    lanes.hurry("b", "b1")
    await asyncio.sleep(0.01)
    assert began == ["a1", "b1"], "the front of a lane runs beside the one that has the slot, the others wait"
    ends["a1"].set()
    await asyncio.sleep(0.01)
    assert began == ["a1", "b1", "a2", "c1"]
    ends["a2"].set()
    await asyncio.sleep(0.01)
    assert began[-1] == "c1", "the one behind it needs a slot"
    for end in ends.values():
        end.set()
    await asyncio.sleep(0.01)
    assert (began[-1], lanes.running, lanes.waiting) == ("a3", 0, 0)
