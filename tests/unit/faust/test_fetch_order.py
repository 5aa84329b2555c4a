from __future__ import annotations

from dataclasses import dataclass

from aiokafka import TopicPartition

from app.faust.fetch_order import FetchOrder

TP = TopicPartition("requests", 0)


@dataclass
class Fetched:
    offset: int


def fetched(handed: FetchOrder, *offsets: int) -> None:
    handed.fetched(TP, [Fetched(offset) for offset in offsets])


def test_each_record_is_handed_out_behind_the_one_that_was_fetched_before_it() -> None:
    handed = FetchOrder()
    fetched(handed, 3, 4, 7)
    assert [handed.before(TP, offset) for offset in (3, 4, 7)] == [-1, 3, 4]
    assert len(handed) == 0


def test_record_that_was_dropped_before_this_one_is_still_known_to_have_been_fetched() -> None:
    handed = FetchOrder()
    fetched(handed, 3, 4, 7)
    assert handed.before(TP, 7) == 4


def test_memory_of_dropped_records_is_bounded_by_what_is_on_its_way() -> None:
    handed = FetchOrder()
    for first in range(0, 1_000_000, 1000):
        fetched(handed, first, first + 1, first + 2)
        handed.before(TP, first + 2)  # two of three were dropped
        assert len(handed) == 0


def test_records_fetched_again_after_a_seek_are_told_from_late_ones() -> None:
    handed = FetchOrder()
    fetched(handed, 99, 100)
    fetched(handed, 50, 51)
    assert handed.before(TP, 100) == 99, "late, and out of order"
    assert handed.before(TP, 50) == -1, "what was fetched before a seek is not the record before"
    assert handed.before(TP, 51) == 50


def test_unknown_record_forgets_nothing() -> None:
    handed = FetchOrder()
    fetched(handed, 3, 4)
    assert handed.before(TP, 77) == -1
    assert handed.before(TP, 4) == 3
