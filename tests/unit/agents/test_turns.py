from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agents.turns import Turns
from app.delivery.partition import State
from app.delivery.record import TURNS, Record
from app.search.index import Indexed, NoIndex
from app.settings import Settings
from app.wire.codec import encode
from app.wire.dead_letters import cause_from
from app.wire.turn import Timing, Turn
from tables.erasures import Scope
from tables.records import Erased, Table
from tests.integration.search.history import turn
from tests.unit.delivery.fake_partition import NOW, FakePartition, Own

SETTINGS = Settings(_env_file=None, index_ttl_s=1000)


class Sink(NoIndex):
    def __init__(self) -> None:
        self.partitions: list[int] = []
        self.turns: list[tuple[Turn, Indexed]] = []
        self.erasures: list[tuple[Scope, int]] = []
        self.expired: list[int] = []
        self.revoked: list[set[int]] = []

    def submit(self, turn: Turn, done: Indexed, partition: int = 0) -> None:
        self.turns.append((turn, done))
        self.partitions.append(partition)

    def erase(self, scope: Scope, until_ms: int, ended_ms: int, done: Callable[[], object], partition: int = 0) -> None:
        self.erasures.append((scope, until_ms))
        done()

    def expire(self, before_ms: int) -> None:
        self.expired.append(before_ms)

    def revoke(self, partitions: Any) -> None:
        self.revoked.append(set(partitions))


def turns_of(settings: Settings, sink: Sink) -> Turns:
    return Turns(settings, sink)


class Bench:
    def __init__(self) -> None:
        self.partition = FakePartition()
        self.sink = Sink()
        self.turns = turns_of(SETTINGS, self.sink)

    def receive(self, value: Turn | bytes, offset: int = 0) -> Record:
        raw = value if isinstance(value, bytes) else encode(value)[0]
        record = Record(TURNS, 3, offset, NOW, b"ann", raw)
        self.turns.receive(self.partition.real, record)
        return record


async def test_turn_is_finished_once_it_is_indexed() -> None:
    bench = Bench()
    record = bench.receive(turn("ann", "r1"))
    await bench.partition.idle()
    assert bench.partition.finished == []
    assert (bench.sink.turns[0][0], bench.sink.partitions) == (turn("ann", "r1"), [3])
    bench.sink.turns[0][1](None)
    await bench.partition.idle()
    assert [(commit.record, commit.outputs) for commit in bench.partition.finished] == [(record, ())]


async def test_turn_that_can_never_be_indexed_is_a_dead_letter_and_finished_in_one() -> None:
    bench = Bench()
    record = bench.receive(turn("ann", "r1"))
    bench.sink.turns[0][1]("its text has no embedding")
    await bench.partition.idle()
    (commit,) = bench.partition.finished
    cause = cause_from(commit.outputs[0].headers)
    assert commit.record is record
    assert cause is not None
    assert cause.message == "its text has no embedding"


async def test_turn_of_an_ownership_that_has_ended_is_left_to_the_next_owner() -> None:
    bench = Bench()
    bench.receive(turn("ann", "r1"))
    bench.receive(turn("ann", "r2"))
    bench.partition.ownership = Own()
    bench.sink.turns[0][1](None)
    bench.partition.state = State.TAKING_OVER
    bench.sink.turns[1][1](None)
    await bench.partition.idle()
    assert bench.partition.finished == []
    bench.turns.release(3)
    assert bench.sink.revoked == [{3}]


@pytest.mark.parametrize(("asked", "is_indexed"), [(NOW - 1, False), (NOW, False), (NOW + 1, True)])
async def test_turn_that_was_asked_before_an_erasure_is_finished_and_not_indexed(asked: int, is_indexed: bool) -> None:
    bench = Bench()
    bench.partition.put(Table.ERASED, Erased(NOW), "ann")
    bench.receive(turn("ann", "r1", created_at=NOW + 5000, timing=Timing(requested_at=asked)))
    await bench.partition.idle()
    assert (len(bench.sink.turns), len(bench.partition.finished)) == (int(is_indexed), int(not is_indexed))


async def test_turn_without_text_is_finished_and_not_indexed() -> None:
    bench = Bench()
    bench.receive(turn("ann", "r1", prompt="", answer=""))
    await bench.partition.idle()
    assert (len(bench.sink.turns), len(bench.partition.finished)) == (0, 1)


async def test_record_that_is_no_turn_is_a_dead_letter() -> None:
    bench = Bench()
    bench.receive(b"rubbish")
    await bench.partition.idle()
    assert bench.partition.finished[0].outputs[0].topic == "dead-letters"


def test_deletion_is_repeated_now_and_then_for_an_hour_after_an_erasure() -> None:
    bench = Bench()
    mark = Erased(NOW, indexed=NOW)
    repeated = []
    for age_s in range(0, 3 * 3600, 30):
        bench.partition.ownership.clock.ms = NOW + age_s * 1000
        bench.turns.erase_again(bench.partition.real, [(Scope("ann"), mark)])
        if bench.sink.erasures:
            repeated.append(age_s)
            assert bench.sink.erasures == [(Scope("ann"), NOW)]
            bench.sink.erasures.clear()
        if age_s > 7200:
            break
    assert repeated == [60, 600, 3600]


def test_deletion_is_repeated_at_once_by_an_owner_that_comes_late() -> None:
    bench = Bench()
    bench.partition.ownership.clock.ms = NOW + 700_000
    for _ in range(3):
        bench.turns.erase_again(bench.partition.real, [(Scope("ann"), Erased(NOW, indexed=NOW))])
    assert bench.sink.erasures == [(Scope("ann"), NOW)]


def test_deletion_that_was_never_done_is_not_repeated() -> None:
    bench = Bench()
    bench.partition.ownership.clock.ms = NOW + 700_000
    bench.turns.erase_again(bench.partition.real, [("ann", Erased(NOW))])
    assert bench.sink.erasures == [], "the record of the erasure is still open"


def test_rows_expire_by_the_brokers_clock() -> None:
    bench = Bench()
    bench.turns.expire(bench.partition.real)
    assert bench.sink.expired == [NOW - 1_000_000]


def test_rows_live_for_ever_where_the_settings_say_so() -> None:
    bench = Bench()
    turns_of(Settings(_env_file=None, index_ttl_s=0), bench.sink).expire(bench.partition.real)
    assert bench.sink.expired == []
