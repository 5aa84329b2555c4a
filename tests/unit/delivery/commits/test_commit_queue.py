from __future__ import annotations

import asyncio

import pytest

from app.delivery.commits.commit import GROUP_LIMIT, Commit, CommitQueue, LostError
from app.delivery.record import REQUESTS, Record

RECORD = Record(REQUESTS, 0, 1, 0, b"u", b"")


async def test_groups_are_taken_in_order_and_no_longer_than_a_transaction_may_be() -> None:
    queue = CommitQueue()
    commits = [Commit(RECORD) for _ in range(GROUP_LIMIT + 3)]
    for commit in commits:
        queue.put(commit)
    first, second = queue.next_group(), queue.next_group()
    assert [entry.commit for entry in (*first, *second)] == commits
    assert (len(first), len(second)) == (GROUP_LIMIT, 3)
    assert not queue.arrived.is_set()


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
