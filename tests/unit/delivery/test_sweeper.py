from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import pytest

from app.delivery import sweeper
from app.delivery.commits.commit import Commit, LostError
from app.delivery.partition import Partition
from app.delivery.partitions import Partitions
from app.delivery.sweeper import Sweeper
from app.settings import Settings
from tables import expiry
from tables.conversations import MemoryRules
from tables.erasures import Scope
from tables.records import Conversation, Ended, Erased, Table
from tests.unit.delivery.fake_partition import NOW, FakePartition, Own
from tests.unit.delivery.inflight_requests import inflight_of

TTL_MS = 60_000
OLD = NOW - TTL_MS - 20_000
SETTINGS = Settings(_env_file=None, dedup_s=100, requests_retention_s=200)


class SweptPartition(FakePartition):
    def fence_again_if_needed(self) -> None:
        return None


class Index:
    """What it was to delete again."""

    def __init__(self) -> None:
        self.repeated: list[Scope] = []

    def erase_again(self, partition: Partition, marks: Iterable[tuple[Scope, Erased]]) -> None:
        self.repeated += [scope for scope, _ in marks]

    def expire(self, partition: Partition) -> None:
        pass


class OnePartition:
    def __init__(self, watermark: int | None = NOW) -> None:
        self.partition = SweptPartition(0)
        self.all = {0: self.partition}
        self.at = watermark

    def owned(self, number: int) -> FakePartition | None:
        return self.all.get(number)

    async def watermark(self, _partition: Any) -> int | None:
        return self.at


def sweeper_of(partitions: OnePartition, index: Index | None = None) -> Sweeper:
    return Sweeper(SETTINGS, MemoryRules(10, TTL_MS), cast(Partitions, partitions), index or Index())


def conversations(partitions: OnePartition) -> list[str]:
    return [key.decode() for key, _ in partitions.partition.ownership.store.scan(Table.CONVERSATIONS)]


async def test_sweep_deletes_what_has_expired_by_the_watermark_and_keeps_the_rest() -> None:
    partitions = OnePartition()
    partitions.partition.put(Table.CONVERSATIONS, Conversation(OLD), "ann", "old")
    partitions.partition.put(Table.CONVERSATIONS, Conversation(NOW - TTL_MS - 5000), "ann", "may be asked for")
    partitions.partition.put(Table.CONVERSATIONS, Conversation(NOW), "ann", "new")
    partitions.partition.put(Table.ENDED, Ended(NOW - 150_000), "ann", "its record can come again")
    partitions.partition.put(Table.ENDED, Ended(NOW - 300_000), "ann", "gone")
    partitions.partition.put(Table.ERASED, Erased(NOW - 300_000), "ann")
    await sweeper_of(partitions).sweep()
    assert conversations(partitions) == ['["ann","may be asked for"]', '["ann","new"]']
    assert [key for key, _ in partitions.partition.ownership.store.scan(Table.ENDED)] == [
        b'["ann","its record can come again"]'
    ]
    assert len([*partitions.partition.ownership.store.scan(Table.ERASED)]) == 1


async def test_sweep_waits_until_the_watermark_is_known() -> None:
    partitions = OnePartition(watermark=None)
    partitions.partition.put(Table.CONVERSATIONS, Conversation(0), "ann", "old")
    await sweeper_of(partitions).sweep()
    assert conversations(partitions) == ['["ann","old"]']


async def test_sweep_leaves_a_conversation_in_which_a_request_waits() -> None:
    partitions = OnePartition()
    partitions.partition.put(Table.CONVERSATIONS, Conversation(OLD), "ann", "default")
    partitions.partition.put(Table.CONVERSATIONS, Conversation(OLD), "bob", "default")
    inflight = inflight_of()
    partitions.partition.ownership.inflight_requests[inflight.key] = inflight
    await sweeper_of(partitions).sweep()
    assert conversations(partitions) == ['["ann","default"]']


@pytest.mark.parametrize("lost", ["ownership", "partition"])
async def test_sweep_ends_with_the_ownership_under_which_it_began(lost: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "_AT_ONCE", 1)
    monkeypatch.setattr(sweeper, "_REST_S", 0)
    partitions = OnePartition()
    for number in range(5):
        partitions.partition.put(Table.CONVERSATIONS, Conversation(OLD), "ann", f"c{number}")
    before = partitions.partition.ownership
    commit = partitions.partition.commit

    async def lose(one: Commit) -> None:
        await commit(one)
        if lost == "partition":
            partitions.all.clear()
        else:
            partitions.partition.ownership = Own()

    partitions.partition.commit = lose  # type: ignore[method-assign]
    await sweeper_of(partitions).sweep()
    assert len([*before.store.scan(Table.CONVERSATIONS)]) == 4


async def test_sweep_whose_finish_is_dropped_ends_quietly() -> None:
    partitions = OnePartition()
    partitions.partition.put(Table.CONVERSATIONS, Conversation(OLD), "ann", "old")

    async def lost(_commit: Commit) -> None:
        raise LostError

    partitions.partition.commit = lost  # type: ignore[method-assign]
    await sweeper_of(partitions).sweep()
    assert conversations(partitions) == ['["ann","old"]']


async def test_sweep_repeats_deletions_of_young_marks_alone() -> None:
    partitions = OnePartition()
    partitions.partition.put(Table.ERASED, Erased(NOW - 1000, indexed=NOW), "young")
    partitions.partition.put(Table.ERASED, Erased(NOW - 10_000_000, indexed=NOW), "old")
    index = Index()
    await sweeper_of(partitions, index).sweep()
    assert index.repeated == [Scope("young")]


async def test_sweep_states_the_models_that_are_served_since_the_last_commit() -> None:
    partitions = OnePartition()
    committed: list[Commit] = []

    async def commit(one: Commit) -> None:
        committed.append(one)

    partitions.partition.commit = commit  # type: ignore[method-assign]
    await sweeper_of(partitions).sweep()
    assert committed == []
    partitions.partition.ownership.states_former_models = True
    await sweeper_of(partitions).sweep()
    assert committed == [Commit()]
