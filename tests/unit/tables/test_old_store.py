"""A store that an older version has written is opened, read and continued."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tables import records
from tables.records import Conversation, Ended, Erased, KeptTurn, RowChange, Table
from tables.store import PartitionStore
from tables.usage import WindowKey, Windows

FIXTURE = Path(__file__).parents[2] / "fixtures" / "old_store"
NOW = 1_790_000_000_000
DAY = 86_400_000
MINUTE = 60_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return shutil.copytree(FIXTURE, tmp_path / "store", ignore=shutil.ignore_patterns("README.md"))


def opened(folder: Path) -> PartitionStore:
    return PartitionStore.open(folder, now_ms=NOW + DAY, tombstones_kept_ms=7 * DAY)


def test_old_store_has_its_rows_and_offsets(folder: Path) -> None:
    store = opened(folder)
    raw = store.get(Table.CONVERSATIONS, records.key("ann", "default"))
    assert raw is not None
    assert records.decode_row(raw, Conversation).turns == (
        KeptTurn("r1", "Hi, I am Ann. ü😀", "Hello Ann!", NOW - 5000),
        KeptTurn("r2", "What is my name?", "Your name is Ann.", NOW),
    )
    ended = [records.decode_row(value, Ended) for _, value in store.scan(Table.ENDED, records.prefix_of("ann"))]
    assert ended == [Ended(NOW - 5000), Ended(NOW)]
    erased = store.get(Table.ERASED, records.key("bob"))
    assert erased is not None
    assert records.decode_row(erased, Erased) == Erased(NOW - 9000, NOW - 9000, NOW - 8000)
    tables = (Table.CONVERSATIONS, Table.ENDED, Table.ERASED, Table.USAGE)
    assert [store.offset(table) for table in tables] == [1, 1, 0, 2]
    assert store.up_to_date_at() == NOW
    store.close()


def test_old_usage_windows_go_on_where_they_ended(folder: Path) -> None:
    store = opened(folder)
    windows = Windows.load(store.scan(Table.USAGE), length=MINUTE, grace=5 * MINUTE)
    store.close()
    ((key, tally),) = windows._tallies.items()
    assert key == WindowKey(NOW // MINUTE * MINUTE, MINUTE, "acme", "demo@1", "", "", "")
    assert (windows.next, tally.revision, tally.requests, tally.cost) == (2, 1, 2, 0.5)
    assert not list(windows.close()), "its revision is published already"


def test_old_store_takes_new_rows_beside_its_own(folder: Path) -> None:
    store = opened(folder)
    store.apply([RowChange(Table.CALLS, b"k", b"v")], {Table.CALLS: 0}, now_ms=NOW + DAY)
    store.close()
    store = opened(folder)
    assert store.get(Table.CALLS, b"k") == b"v"
    assert store.get(Table.ENDED, records.key("ann", "r1")) is not None
    store.close()
