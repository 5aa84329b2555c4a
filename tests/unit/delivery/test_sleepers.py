"""How many answers of a user sleep, as they are decided; and what one more costs where many do."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from app.delivery.sleepers import Sleepers
from app.features.open_calls import OpenCalls
from app.features.waits.sleep import has_room
from app.policy.file import WaitRules
from tables.asleep import Head, KeptAnswer, Sleep, Sleeper
from tables.records import RowChange
from tables.store import PartitionStore

ASLEEP = Head(state=Sleep.ASLEEP, conversation_id="c", until=1, at=1, slept_at=1, since=1)
AWAKE = replace(ASLEEP, state=Sleep.AWAKE)
RULES = WaitRules(per_user=100_000, per_tenant=1_000_000)


def _sleeper(head: Head = ASLEEP) -> Sleeper:
    return Sleeper(head, b"{}", KeptAnswer(1, b"u"))


def _open(path: Path) -> PartitionStore:
    return PartitionStore.open(path, now_ms=0, tombstones_kept_ms=1 << 60)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_counted_is_what_sleeps_at_any_moment(seed: int, tmp_path: Path) -> None:
    """Decisions are committed late, in their order; some keys had rows before this ownership."""
    chance, store = random.Random(seed), _open(tmp_path)
    keys = [(user, f"r{number}") for user in ("u", "v") for number in range(4)]
    sleeping: dict[tuple[str, str], Head] = {}
    for key in chance.sample(keys, 4):
        sleeping[key] = chance.choice([ASLEEP, AWAKE])
        store.apply(_sleeper(sleeping[key]).rows(*key), {}, now_ms=0)
    sleepers = Sleepers(store)
    sleepers.begin()
    put: list[tuple[tuple[str, str], Sleeper | None, tuple[RowChange, ...]]] = []
    for _ in range(200):
        key = chance.choice(keys)
        match chance.choice(["sleep", "wake", "end", "commit", "count", "count"]):
            case "sleep":
                sleeping[key] = ASLEEP
                put.append((key, _sleeper(), sleepers.put(key, _sleeper())))
            case "wake" if key in sleeping:
                sleeping[key] = AWAKE
                rows = (sleepers.decide(key, AWAKE),)
                put.append((key, sleepers.under_way[key], rows))
            case "end":
                sleeping.pop(key, None)
                put.append((key, None, sleepers.end(key)))
            case "commit" if put:
                of, _, rows = put.pop(0)
                store.apply(rows, {}, now_ms=0)
                if all(of != later for later, _, _ in put):
                    sleepers.settle([(of, sleepers.under_way[of])])
            case _:
                expected = sum(head is ASLEEP for (user, _), head in sleeping.items() if user == key[0])
                assert sleepers.asleep_of(key[0]) == expected
    store.close()


def _cost_of_a_sleep(path: Path, asleep: int) -> float:
    """Processor seconds of what a sleep adds: the question for room, its rows, the end of its commit."""
    store = _open(path)
    for begin in range(0, asleep, 1000):
        numbers = range(begin, min(asleep, begin + 1000))
        store.apply([row for number in numbers for row in _sleeper().rows("u", f"r{number}")], {}, now_ms=0)
    sleepers = Sleepers(store)
    sleepers.begin()
    calls = OpenCalls(store, sleepers)
    assert has_room(sleepers, calls, RULES, "u", None)
    costs = []
    for turn in range(9):
        began = time.process_time()
        for number in range(100):
            key = ("u", f"later-{turn}-{number}")
            assert has_room(sleepers, calls, RULES, "u", None)
            sleepers.put(key, sleeper := _sleeper())
            sleepers.settle([(key, sleeper)])
        costs.append(time.process_time() - began)
    store.close()
    return min(costs)


def test_ten_thousand_sleepers_cost_a_sleep_no_more_than_ten(tmp_path: Path) -> None:
    few, many = _cost_of_a_sleep(tmp_path / "few", 10), _cost_of_a_sleep(tmp_path / "many", 10_000)
    assert many < 2 * few, (few, many)
