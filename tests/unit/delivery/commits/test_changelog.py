"""Restoring a store from logs that are not the ones it was filled from."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from app.delivery.commits.changelog import apply_records, changelog_config, restore
from app.settings import Settings
from tables.records import Table
from tests.simulation.memory_store import Disk, MemoryStore

TP = TopicPartition("log", 0)
LOGS = {TP: Table.CONVERSATIONS}


@dataclass
class Fetched:
    offset: int
    key: bytes | None
    value: bytes | None


class Reader:
    def __init__(self, log: list[Fetched], end: int | None = None) -> None:
        self._log = log
        self._end = end if end is not None else (log[-1].offset + 1 if log else 0)
        self._at = 0

    def assign(self, _partitions: Any) -> None: ...

    def pause(self, *_partitions: Any) -> None: ...

    def resume(self, *_partitions: Any) -> None: ...

    async def end_offsets(self, _partitions: Any) -> dict[TopicPartition, int]:
        return {TP: self._end}

    async def beginning_offsets(self, _partitions: Any) -> dict[TopicPartition, int]:
        return {TP: 0}

    def seek(self, _partition: TopicPartition, offset: int) -> None:
        self._at = offset

    async def position(self, _partition: TopicPartition) -> int:
        return self._at

    async def getmany(
        self, _partition: TopicPartition, timeout_ms: int, max_records: int = 1000
    ) -> dict[TopicPartition, list[Fetched]]:
        await asyncio.sleep(0)
        found = [record for record in self._log if record.offset >= self._at][:2]
        self._at = found[-1].offset + 1 if found else self._end
        return {TP: found} if found else {}


def log_of(count: int, what: str = "v", first: int = 0) -> list[Fetched]:
    """Records at every second offset, as transactions leave them."""
    return [Fetched(2 * n, b"k%d" % n, f"{what}{n}".encode()) for n in range(first, count)]


def rows(store: MemoryStore) -> dict[bytes, bytes]:
    return dict(store.scan(Table.CONVERSATIONS))


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore.open_on(Disk(), Path("p"), owner="test")


async def restored(store: MemoryStore, log: list[Fetched], end: int | None = None) -> int:
    return await restore(cast(AIOKafkaConsumer, Reader(log, end)), store, LOGS)


async def test_store_takes_only_what_is_new(store: MemoryStore) -> None:
    assert await restored(store, log_of(5)) == 5
    assert await restored(store, log_of(8)) == 3
    assert len(rows(store)) == 8


async def test_store_ahead_of_its_log_is_restored_from_the_log(store: MemoryStore) -> None:
    await restored(store, log_of(9, "old"))
    await restored(store, log_of(3, "new"))
    assert rows(store) == {b"k0": b"new0", b"k1": b"new1", b"k2": b"new2"}


async def test_log_that_was_made_anew_and_has_grown_past_the_store_is_noticed(store: MemoryStore) -> None:
    await restored(store, log_of(9, "old"))
    await restored(store, [*log_of(8, "new"), *log_of(20, "new", first=12)])
    assert set(rows(store).values()) == {f"new{n}".encode() for n in (*range(8), *range(12, 20))}


async def test_log_that_has_none_of_the_stores_records_is_restored(store: MemoryStore) -> None:
    await restored(store, log_of(3, "old"))
    await restored(store, log_of(20, "new", first=12))
    assert set(rows(store)) == {b"k%d" % n for n in range(12, 20)}


async def test_compaction_that_leaves_one_of_the_newest_records_is_no_other_log(store: MemoryStore) -> None:
    await restored(store, log_of(9))
    assert await restored(store, log_of(12, first=8)) == 3
    assert len(rows(store)) == 12, "rows that were compacted away in the log are still there"


async def test_store_of_an_older_version_is_caught_up(store: MemoryStore) -> None:
    await restored(store, log_of(3))
    store._open.prints.clear()
    assert await restored(store, log_of(5)) == 2


def test_markers_without_a_key_are_no_rows(store: MemoryStore) -> None:
    apply_records(store, Table.CONVERSATIONS, cast(Any, [Fetched(0, b"k", b"v"), Fetched(1, None, b"marker")]))
    assert (rows(store), store.offset(Table.CONVERSATIONS)) == ({b"k": b"v"}, 1)


def test_changelogs_are_compacted_within_a_bound_and_as_durable_as_turns() -> None:
    config = changelog_config(Settings(_env_file=None, replication=3))
    assert config["max.compaction.lag.ms"] == "86400000"
    assert config["delete.retention.ms"] == "86400000"
    assert config["min.insync.replicas"] == "2"
