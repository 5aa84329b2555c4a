from __future__ import annotations

from typing import Any, cast

import pytest
from agents.history import History
from agents.sweeper import Sweeper
from app.delivery.partition_manager import PartitionManager

from agents import sweeper
from app.delivery.commits.commit import Commit, LostError
from app.search.index import NoIndex
from app.settings import Settings
from tables import expiry
from tables.conversations import MemoryRules
from tables.records import Conversation, Ended, Erased, Table
from tests.unit.agents.inflight_requests import inflight_of
from tests.unit.agents.partitions import NOW, FakePartition, Own

TTL_MS = 60_000
OLD = NOW - TTL_MS - 20_000
SETTINGS = Settings(_env_file=None, dedup_s=100, requests_retention_s=200)


class SweptPartition(FakePartition):
    def fence_again_if_needed(self) -> None:
        return None


class OneOwner:
    def __init__(self, watermark: int | None = NOW) -> None:
        self.partition = SweptPartition(0)
        self.partitions = {0: self.partition}
        self.at = watermark

    def owned(self, number: int) -> FakePartition | None:
        return self.partitions.get(number)

    async def watermark(self, _partition: Any) -> int | None:
        return self.at


def sweeper_of(owner: OneOwner) -> Sweeper:
    history = History(SETTINGS, NoIndex())
    return Sweeper(SETTINGS, MemoryRules(10, TTL_MS), cast(PartitionManager, owner), history)


def conversations(owner: OneOwner) -> list[str]:
    return [key.decode() for key, _ in owner.partition.ownership.store.scan(Table.CONVERSATIONS)]


async def test_sweep_deletes_what_has_expired_by_the_watermark_and_keeps_the_rest() -> None:
    owner = OneOwner()
    owner.partition.put(Table.CONVERSATIONS, Conversation(OLD), "ann", "old")
    owner.partition.put(Table.CONVERSATIONS, Conversation(NOW - TTL_MS - 5000), "ann", "may be asked for")
    owner.partition.put(Table.CONVERSATIONS, Conversation(NOW), "ann", "new")
    owner.partition.put(Table.ENDED, Ended(NOW - 150_000), "ann", "its record can come again")
    owner.partition.put(Table.ENDED, Ended(NOW - 300_000), "ann", "gone")
    owner.partition.put(Table.ERASED, Erased(NOW - 300_000), "ann")
    await sweeper_of(owner).sweep()
    assert conversations(owner) == ['["ann","may be asked for"]', '["ann","new"]']
    assert [key for key, _ in owner.partition.ownership.store.scan(Table.ENDED)] == [
        b'["ann","its record can come again"]'
    ]
    assert len([*owner.partition.ownership.store.scan(Table.ERASED)]) == 1


async def test_sweep_waits_until_the_watermark_is_known() -> None:
    owner = OneOwner(watermark=None)
    owner.partition.put(Table.CONVERSATIONS, Conversation(0), "ann", "old")
    await sweeper_of(owner).sweep()
    assert conversations(owner) == ['["ann","old"]']


async def test_sweep_leaves_a_conversation_in_which_a_request_waits() -> None:
    owner = OneOwner()
    owner.partition.put(Table.CONVERSATIONS, Conversation(OLD), "ann", "default")
    owner.partition.put(Table.CONVERSATIONS, Conversation(OLD), "bob", "default")
    inflight = inflight_of()
    owner.partition.ownership.inflight_requests[inflight.key] = inflight
    await sweeper_of(owner).sweep()
    assert conversations(owner) == ['["ann","default"]']


@pytest.mark.parametrize("lost", ["ownership", "partition"])
async def test_sweep_ends_with_the_ownership_under_which_it_began(lost: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "_AT_ONCE", 1)
    monkeypatch.setattr(sweeper, "_REST_S", 0)
    owner = OneOwner()
    for number in range(5):
        owner.partition.put(Table.CONVERSATIONS, Conversation(OLD), "ann", f"c{number}")
    before = owner.partition.ownership
    commit = owner.partition.commit

    async def lose(one: Commit) -> None:
        await commit(one)
        if lost == "partition":
            owner.partitions.clear()
        else:
            owner.partition.ownership = Own()

    owner.partition.commit = lose  # type: ignore[method-assign]
    await sweeper_of(owner).sweep()
    assert len([*before.store.scan(Table.CONVERSATIONS)]) == 4


async def test_sweep_whose_finish_is_dropped_ends_quietly() -> None:
    owner = OneOwner()
    owner.partition.put(Table.CONVERSATIONS, Conversation(OLD), "ann", "old")

    async def lost(_commit: Commit) -> None:
        raise LostError

    owner.partition.commit = lost  # type: ignore[method-assign]
    await sweeper_of(owner).sweep()
    assert conversations(owner) == ['["ann","old"]']


async def test_sweep_repeats_deletions_of_young_marks_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    owner = OneOwner()
    owner.partition.put(Table.ERASED, Erased(NOW - 1000, indexed=NOW), "young")
    owner.partition.put(Table.ERASED, Erased(NOW - 10_000_000, indexed=NOW), "old")
    seen: list[str] = []
    monkeypatch.setattr(History, "erase_again", lambda _self, _partition, marks: seen.extend(user for user, _ in marks))
    await sweeper_of(owner).sweep()
    assert seen == ["young"]
