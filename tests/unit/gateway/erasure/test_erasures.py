from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.gateway.erasure.erased_times import ErasedTimes
from app.gateway.erasure.erasures import ErasureBook
from app.gateway.erasure.report import report
from app.settings import Settings
from app.settings.kafka import COMPACTION_LAG_S
from app.wire.codec import FORWARDED, encode
from app.wire.control import Cancel, Erase, EraseConversation
from tables import records
from tables.erasures import ErasedUntil, Scope
from tables.records import Erased

SETTINGS = Settings(_env_file=None, partitions=2)


class Record:
    topic, offset = "t", 0

    def __init__(
        self, key: bytes, value: bytes | None, partition: int = 0, timestamp: int = 0, headers: Any = ()
    ) -> None:
        self.key, self.value, self.partition, self.timestamp, self.headers = key, value, partition, timestamp, headers


def mark(at: int, partition: int, *, done: bool = False, user: str = "ann", conversation: str | None = None) -> Record:
    return Record(Scope(user, conversation).key, records.encode(Erased(at, indexed=at if done else 0)), partition)


def control(control: Erase | EraseConversation | Cancel, at: int, key: bytes = b"ann", headers: Any = ()) -> Record:
    return Record(key, encode(control)[0], timestamp=at, headers=headers)


class Bench:
    def __init__(self) -> None:
        self.erased: list[tuple[Scope, int]] = []
        self.erasures = ErasureBook(SETTINGS, 2, lambda scope, at: self.erased.append((scope, at)), lambda *_: None)

    def marks(self, *batch: Record) -> None:
        self.erasures._read_marks(batch)

    def controls(self, *batch: Record) -> None:
        self.erasures._read_controls(batch)

    def report(self, conversation: str | None = None) -> dict[str, Any]:
        return report(self.erasures, Scope("ann", conversation), SETTINGS, 2)


def test_erasure_counts_before_any_worker_has_met_it() -> None:
    bench = Bench()
    bench.controls(control(Erase(user_id="ann"), at=1000))
    assert bench.erasures.at("ann", "c") == 1000
    assert bench.erased == [(Scope("ann"), 1000)]
    assert bench.erasures.at("bob", "c") == 0


def test_erasure_counts_as_long_as_its_mark_stands_in_the_table() -> None:
    bench = Bench()
    bench.marks(mark(1000, 0, done=True), mark(1000, 1, done=True))
    assert bench.erasures.at("ann", "c") == 1000
    bench.marks(Record(records.key("ann"), None))
    assert bench.erasures.at("ann", "c") == 0


def test_older_erasure_does_not_take_a_newer_one_back() -> None:
    bench = Bench()
    bench.marks(mark(2000, 0))
    bench.controls(control(Erase(user_id="ann"), at=1000))
    bench.marks(mark(1000, 1, done=True))
    assert bench.erasures.at("ann", "c") == 2000


@pytest.mark.parametrize(
    "other",
    [
        control(Cancel(user_id="ann", request_id="r"), at=1000),
        control(Erase(user_id="ann"), at=1000, key=b"mallory"),
        control(Erase(user_id="ann"), at=1000, headers=((FORWARDED, b"1@5"),)),
        Record(b"ann", b"rubbish"),
        Record(b"ann", None),
    ],
)
def test_other_controls_erase_nobody(other: Record) -> None:
    bench = Bench()
    bench.controls(other)
    assert bench.erased == []


def test_record_that_is_no_mark_is_left_out() -> None:
    bench = Bench()
    bench.marks(Record(b"rubbish", b"{}"), Record(records.key("ann"), b"rubbish"), mark(1000, 0, user="bob"))
    assert bench.erased == [(Scope("bob"), 1000)]


def test_report_tells_what_is_still_to_be_done() -> None:
    bench = Bench()
    assert bench.report() == {"status": "none", "erased_at": None, "remaining": [], "logs": {}}
    bench.controls(control(Erase(user_id="ann"), at=1000))
    reported = bench.report()
    assert (reported["status"], reported["erased_at"]) == ("erasing", 1000)
    assert [(part["part"], part["partitions_done"]) for part in reported["remaining"]] == [("memory", 0), ("search", 0)]
    bench.marks(mark(1000, 0), mark(1000, 1, done=True))
    assert [(part["part"], part["partitions_done"]) for part in bench.report()["remaining"]] == [("search", 1)]
    bench.marks(mark(1000, 0, done=True))
    reported = bench.report()
    assert (reported["status"], reported["remaining"]) == ("done", [])
    assert reported["logs"]["changelogs"] == 1000 + COMPACTION_LAG_S * 1000
    assert reported["logs"]["turns"] > reported["logs"]["requests"] > 1000


def test_second_erasure_begins_anew() -> None:
    bench = Bench()
    bench.marks(mark(1000, 0, done=True), mark(1000, 1, done=True))
    bench.controls(control(Erase(user_id="ann"), at=2000))
    assert bench.report()["status"] == "erasing"
    bench.marks(mark(1000, 0, done=True))
    assert bench.report()["status"] == "erasing", "that was the first one"
    bench.marks(mark(2000, 0, done=True), mark(2000, 1, done=True))
    assert bench.report()["status"] == "done"


def test_erasure_of_a_conversation_counts_for_it_alone_and_for_its_user_too() -> None:
    bench = Bench()
    bench.controls(control(EraseConversation(user_id="ann", conversation_id="c"), at=1000))
    assert (bench.erasures.at("ann", "c"), bench.erasures.at("ann", "d")) == (1000, 0)
    assert bench.erasures.under_way("ann") == {"c": 1000}
    bench.controls(control(Erase(user_id="ann"), at=500))
    assert (bench.erasures.at("ann", "c"), bench.erasures.at("ann", "d")) == (1000, 500)
    bench.marks(*(mark(1000, partition, done=True, conversation="c") for partition in (0, 1)))
    assert (bench.erasures.under_way("ann"), bench.report("c")["status"]) == ({}, "done")
    assert (bench.report()["status"], bench.report("d")["status"]) == ("erasing", "none")
    bench.marks(Record(Scope("ann", "c").key, None))
    assert bench.erasures.at("ann", "c") == 500


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.sampled_from(["", "x", "\ud800", None]), st.integers(1, 9), st.booleans())
    )
)
def test_a_gateway_remembers_what_the_tables_do(changes: list[tuple[str, str | None, int, bool]]) -> None:
    known, theirs = ErasedTimes(), ErasedUntil()
    for user, conversation, at, is_expired in changes:
        scope = Scope(user, conversation)
        if is_expired:
            known.forget(scope)
            theirs.forget(scope)
        else:
            assert known.add(scope, at) == theirs.add(scope, at)
    for user in "ab":
        for name in ("", "x", "\ud800"):
            assert known.at(user, name) == theirs.at(user, name)
            assert known.of(Scope(user, name)) == theirs.of(Scope(user, name))
        assert known.of(Scope(user)) == theirs.of(Scope(user))


def test_marks_of_many_deletions_take_little() -> None:
    """A user may delete a thousand conversations a day, whose marks live for days."""
    known = ErasedTimes()
    tracemalloc.start()
    try:
        for number in range(8000):
            known.add(Scope("ann", f"{number}" + "\U0001f600" * 250), 1_790_000_000_000 + number)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size < 8000 * 250
    assert known.at("ann", "7" + "\U0001f600" * 250) == 1_790_000_000_007
