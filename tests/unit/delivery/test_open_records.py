"""What owners may hold of a partition's memory, and what is parked beyond it."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.delivery.open_records import PARKED_BYTES, WAITING_BYTES, Capacity, OpenRecords
from app.delivery.record import REQUESTS, TURNS, Record

MIB = 1024 * 1024


def record(offset: int, user: bytes | None = b"ann", topic: str = REQUESTS, value: bytes = b"v") -> Record:
    return Record(topic, 0, offset, 1000 + offset, user, value)


def room(records: int, size: int = MIB) -> OpenRecords:
    return OpenRecords(Capacity({REQUESTS: records, TURNS: 4}, size))


def fill(records: OpenRecords, offsets: Iterable[int], user: bytes | None = b"ann", value: bytes = b"v") -> list[int]:
    """As a partition does; returns the offsets that are held."""
    held = []
    for offset in offsets:
        one = record(offset, user, value=value)
        if records.exceeds(one):
            records.park(one)
        else:
            records.hold(one)
            held.append(offset)
    return held


def test_a_user_has_a_share_and_others_are_read_on() -> None:
    records = room(16)
    assert fill(records, range(20)) == list(range(12))
    assert (records.parked, records.count(REQUESTS)) == (8, 20)
    assert not records.exceeds(record(20, b"bob"))
    assert not records.exceeds(record(20, b"ann", TURNS))
    assert not records.exceeds(record(20, None))


@pytest.mark.parametrize("value", [b"v", b"x" * 30_000])
def test_a_tenants_many_users_leave_room_to_others(value: bytes) -> None:
    records = room(64)
    for number in range(200):
        fill(records, [number], b"acme/u%d" % number, value)
    assert records.parked > 100
    assert fill(records, [200], b"bigcorp/ceo") == [200]
    assert fill(records, [201], b"nina") == [201]


@pytest.mark.parametrize("tenant", [{"tenant": "acme"}, {"messages": [{"tenant": "x"}], "tenant": "acme"}])
def test_a_tenant_that_only_the_request_names_has_one_share(tenant: dict[str, object]) -> None:
    records = room(64)
    for number in range(200):
        fill(records, [number], b"u%d" % number, json.dumps(tenant).encode())
    assert (records.count(REQUESTS), records.parked) == (200, 152)


def test_records_without_a_key_are_one_users() -> None:
    records = room(16)
    assert len(fill(records, range(100), None)) == len(fill(room(16), range(100), b"\xff")) == 12


def test_what_is_behind_a_parked_request_of_its_user_is_parked_too() -> None:
    records = room(4)
    fill(records, range(4))
    for offset in (0, 1, 2):
        records.remove(record(offset))
    assert records.exceeds(record(4)), "its conversation may have a request among those parked"
    assert not records.exceeds(record(2)), "it comes before those parked"


def test_parked_requests_are_due_when_their_user_may_double_what_it_holds() -> None:
    records = room(16)
    fill(records, range(14))
    for offset in range(6):
        assert records.due() == []
        records.remove(record(offset))
    assert records.due() == [(12, b"ann")]
    records.unpark(b"ann", 1012)
    assert (records.next_parked(b"ann"), records.parked, records.first_parked()) == (13, 1, 13)
    records.unpark(b"ann", 1013)
    assert (records.next_parked(b"ann"), records.parked, records.first_parked()) == (None, 0, None)


def test_who_holds_nothing_is_due_as_soon_as_anything_has_ended() -> None:
    records = room(8)
    for number, user in enumerate((b"ann", b"bob", b"eve", b"kim", b"lena")):
        fill(records, range(100 * number, 100 * number + 20), user)
    assert records.exceeds(record(600, b"nina"))
    records.park(record(600, b"nina"))
    records.remove(record(0))
    assert (600, b"nina") in records.due()
    assert b"ann" not in dict(map(reversed, records.due()))  # type: ignore[arg-type]


def test_of_a_tenant_as_many_users_are_due_as_it_has_room_for() -> None:
    records = room(64)
    for number in range(1000):
        fill(records, [number], b"acme/u%d" % number)
    for number in range(30):
        records.remove(record(number))
    assert 1 < len(records.due()) <= 48


def test_a_request_that_waits_for_tools_counts_by_its_memory_alone() -> None:
    records = room(4)
    fill(records, range(3))
    before = records.size(REQUESTS)
    for offset in (0, 1):
        records.lend(record(offset))
    assert (records.lent_by(b"ann"), records.lent_by(b"bob")) == (2, 0)
    assert records.size(REQUESTS) == before + 2 * WAITING_BYTES
    assert not records.exceeds(record(3))
    records.reclaim(record(0))
    assert records.lent_by(b"ann") == 1
    for offset in range(3):
        records.remove(record(offset))
    assert len(fill(records, range(10, 20))) == 3, "everything has been given back"


def test_a_users_bytes_are_bounded_and_one_request_always_fits() -> None:
    records = room(100, 1000)
    large = record(0, value=b"x" * 5000)
    assert not records.exceeds(large)
    records.hold(large)
    assert records.exceeds(record(1))
    records.park(record(1))
    records.remove(large)
    assert records.due() == [(1, b"ann")]


def test_what_is_parked_survives_its_ownership_and_goes_on_in_order() -> None:
    records = room(4)
    fill(records, (0, 2, 4, 6, 8))
    fill(records, [1], b"bob")
    records.add_early(record(9, b"eve"))
    records.add_early(record(6))
    assert [one.offset for one in records.in_memory()] == [0, 1, 2, 4, 9]
    assert records.oldest_request == 1000
    after = room(4)
    assert after.inherit_parked(records, 1, frozenset({6})) == 9
    assert (after.parked, after.first_parked(), after.next_parked(b"ann")) == (1, 8, 8)
    after.park(record(7))
    assert (after.first_parked(), after.next_parked(b"ann"), after.wanted.is_set()) == (7, 7, True)


def test_reading_on_ends_where_too_much_came_early_or_is_parked() -> None:
    records = room(4)
    fill(records, range(5000))
    assert records.filled(REQUESTS) < 0.01
    records._parked_bytes = PARKED_BYTES
    assert records.filled(REQUESTS) >= 1
    early = room(4)
    for offset in range(4):
        assert early.filled(REQUESTS) < 1
        early.add_early(record(offset))
    assert early.filled(REQUESTS) >= 1
    turns = room(4)
    for offset in range(4):
        assert turns.filled(TURNS) < 1
        turns.hold(record(offset, topic=TURNS))
    assert turns.filled(TURNS) >= 1


@given(st.lists(st.tuples(st.sampled_from([b"ann", b"acme/a", b"acme/b"]), st.booleans()), max_size=200))
def test_everything_comes_once_and_in_the_order_of_its_user(steps: list[tuple[bytes, bool]]) -> None:
    records, held, came = room(4), [], {}
    for offset, (user, ends) in enumerate(steps):
        held += [(user, one) for one in fill(records, [offset], user)]
        if ends and held:
            done, at = held.pop(0)
            came.setdefault(done, []).append(at)
            records.remove(record(at, done))
        for _, due in sorted(records.due()):
            while (at := records.next_parked(due)) is not None:
                records.unpark(due)
                records.hold(record(at, due))
                held.append((due, at))
    left = {user: [at for one, at in held if one == user] for user, _ in steps}
    for user, going_on in left.items():
        begun = came.get(user, []) + going_on
        assert begun == sorted(begun)
        assert len(begun) + len(records._parked.get(user, ())) == sum(one == user for one, _ in steps)
    parked = [one.first for one in records._parked.values()]
    assert records.first_parked() == min(parked, default=None)
