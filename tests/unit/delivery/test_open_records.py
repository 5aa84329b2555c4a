"""A user's share of a partition's memory, and what is parked beyond it."""

from __future__ import annotations

from app.delivery.open_records import WAITING_BYTES, OpenRecords, Share
from app.delivery.record import REQUESTS, TURNS, Record


def record(offset: int, user: bytes | None = b"ann", topic: str = REQUESTS, value: bytes = b"v") -> Record:
    return Record(topic, 0, offset, 1000 + offset, user, value)


def fill(records: OpenRecords, *offsets: int, user: bytes = b"ann") -> None:
    """As a partition does."""
    for offset in offsets:
        one = record(offset, user)
        (records.park if records.exceeds(one) else records.hold)(one)


def test_a_user_has_a_share_and_others_are_read_on() -> None:
    records = OpenRecords(Share(4, 10_000))
    fill(records, *range(10))
    assert (records.active(REQUESTS), records.parked, records.count(REQUESTS)) == (4, 6, 10)
    assert not records.exceeds(record(10, b"bob"))
    assert not records.exceeds(record(10, b"ann", TURNS))
    assert not records.exceeds(record(10, None))


def test_what_is_behind_a_parked_request_of_its_user_is_parked_too() -> None:
    records = OpenRecords(Share(2, 10_000))
    fill(records, 0, 1, 2)
    records.remove(record(0))
    records.remove(record(1))
    assert records.exceeds(record(3)), "its conversation may have a request among those parked"


def test_parked_requests_are_due_when_half_of_the_share_has_ended() -> None:
    records = OpenRecords(Share(4, 10_000))
    fill(records, *range(6))
    for offset, due in ((0, {}), (1, {b"ann": 4})):
        records.remove(record(offset))
        assert records.due() == due
        assert records.wanted.is_set() == bool(due)
    assert records.unpark(b"ann").offset == 4
    assert records.next_parked(b"ann") == 5


def test_a_request_that_waits_for_tools_is_in_no_share_and_its_memory_counts() -> None:
    records = OpenRecords(Share(2, 10_000))
    fill(records, 0, 1)
    before = records.size(REQUESTS)
    for offset in (0, 1):
        records.lend(record(offset))
    assert (records.active(REQUESTS), records.lent_by(b"ann"), records.lent_by(b"bob")) == (0, 2, 0)
    assert records.size(REQUESTS) == before + 2 * WAITING_BYTES
    assert not records.exceeds(record(2))
    records.reclaim(record(0))
    assert (records.active(REQUESTS), records.lent_by(b"ann")) == (1, 1)


def test_a_users_bytes_are_bounded_and_one_request_always_fits() -> None:
    records = OpenRecords(Share(100, 1000))
    large = record(0, value=b"x" * 5000)
    assert not records.exceeds(large)
    records.hold(large)
    assert records.exceeds(record(1))
    records.park(record(1))
    records.remove(large)
    assert records.due() == {b"ann": 1}


def test_all_open_records_come_in_the_order_of_their_offsets() -> None:
    records = OpenRecords(Share(2, 10_000))
    fill(records, 0, 2, 4)
    fill(records, 1, user=b"bob")
    records.add_early(record(3, b"eve"))
    assert [(one.offset, parked) for one, parked in records.all()] == [
        (0, False),
        (1, False),
        (2, False),
        (3, False),
        (4, True),
    ]
    assert records.oldest_request == 1000
