from __future__ import annotations

import asyncio

import pytest

from app.delivery.commits.commit import MOST_BYTES, MOST_RECORDS, Commit, CommitQueue, LostError
from app.delivery.record import REQUESTS, Record
from tables.records import RowChange, Table

RECORD = Record(REQUESTS, 0, 1, 0, b"u", b"")


async def test_groups_are_taken_in_order_and_no_longer_than_a_transaction_may_be() -> None:
    queue = CommitQueue()
    commits = [Commit(RECORD) for _ in range(MOST_RECORDS + 3)]
    for commit in commits:
        queue.put(commit)
    first, second = queue.next_group(), queue.next_group()
    assert [entry.commit for entry in (*first, *second)] == commits
    assert (len(first), len(second)) == (MOST_RECORDS, 3)
    assert not queue.arrived.is_set()


async def test_commits_that_a_full_group_leaves_are_as_urgent_as_before() -> None:
    queue = CommitQueue()
    for _ in range(MOST_RECORDS + 3):
        queue.put(Commit(RECORD))
    queue.hurry()
    queue.next_group()
    assert queue.urgent.is_set()
    queue.next_group()
    assert not queue.urgent.is_set()


@pytest.mark.parametrize(("count", "size"), [(MOST_RECORDS // 3, 10), (3, MOST_BYTES // 7), (1, 2 * MOST_BYTES)])
async def test_a_group_has_no_more_records_and_bytes_than_a_transaction_may_have(count: int, size: int) -> None:
    queue = CommitQueue()
    rows = tuple(RowChange(Table.CONVERSATIONS, b"%d" % number, bytes(size)) for number in range(count))
    commits = [Commit(None, rows) for _ in range(9)]
    for commit in commits:
        queue.put(commit)
    taken = []
    while group := queue.next_group():
        taken += [entry.commit for entry in group]
        assert len(group) == 1 or sum(entry.commit.records for entry in group) <= MOST_RECORDS
        assert len(group) == 1 or sum(entry.commit.bytes for entry in group) <= MOST_BYTES
    assert taken == commits


async def test_rows_are_on_their_way_until_their_group_is_done() -> None:
    queue = CommitQueue()
    queue.put(Commit(None, (RowChange(Table.CONVERSATIONS, b"a", b"v"), RowChange(Table.ENDED, b"b", b"v"))))
    assert queue.keys_of(Table.CONVERSATIONS) == {b"a"}
    queue.next_group()
    assert queue.keys_of(Table.CONVERSATIONS) == {b"a"}
    queue.done()
    assert queue.keys_of(Table.CONVERSATIONS) == set()


async def test_a_group_that_failed_comes_first_again() -> None:
    queue = CommitQueue()
    one, two = Commit(RECORD), Commit()
    queue.put(one)
    group = queue.next_group()
    queue.put(two)
    queue.put_back(group)
    assert [entry.commit for entry in queue.next_group()] == [one, two]


async def test_what_nobody_waits_for_any_more_is_left_out() -> None:
    queue = CommitQueue()
    queue.put(Commit(RECORD)).cancel()
    kept = Commit(RECORD)
    queue.put(kept)
    assert [entry.commit for entry in queue.next_group()] == [kept]


async def test_the_end_of_an_ownership_drops_every_finish_also_those_without_a_record() -> None:
    queue = CommitQueue()
    waits = [queue.put(Commit(RECORD)), queue.put(Commit())]
    queue.drop()
    for wait in waits:
        with pytest.raises(LostError):
            await wait
    assert queue.next_group() == []
    queue.put(Commit())
    assert len(queue.next_group()) == 1


async def test_whoever_waits_for_a_partition_that_is_lost_is_told() -> None:
    queue = CommitQueue()
    before = queue.put(Commit())
    queue.close()
    with pytest.raises(LostError):
        await before
    with pytest.raises(LostError):
        await queue.put(Commit())


async def test_nobody_waiting_for_a_lost_partition_is_no_error() -> None:
    queue = CommitQueue()
    queue.put(Commit(RECORD)).cancel()
    queue.close()
    await asyncio.sleep(0)
