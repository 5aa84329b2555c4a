"""The promises of a store, held by RocksDB and by the one in memory that the simulation uses."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tables.records import RowChange, Table
from tables.store import Fingerprint, PartitionStore
from tables.store_errors import StoreLockedError
from tests.examples import examples
from tests.simulation.memory_store import Disk, MemoryStore

Open = Callable[..., PartitionStore]


def rocks(path: Path) -> Open:
    return lambda now_ms=0, kept=1 << 60: PartitionStore.open(path, now_ms=now_ms, tombstones_kept_ms=kept)


def memory(path: Path) -> Open:
    disk = Disk()
    return lambda now_ms=0, kept=1 << 60: MemoryStore.open_on(
        disk, path, owner="test", now_ms=now_ms, tombstones_kept_ms=kept
    )


@pytest.fixture(params=[rocks, memory])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    return request.param(tmp_path / "store")


small_key = st.binary(max_size=3)
changes = st.builds(RowChange, st.sampled_from(Table), small_key, st.none() | st.binary(max_size=4))
batches = st.lists(st.lists(changes, max_size=6), max_size=6)


@settings(examples(0.4), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(written=batches, prefix=st.binary(max_size=2))
def test_the_store_is_what_was_written_last(open_store: Open, written: list[list[RowChange]], prefix: bytes) -> None:
    store = open_store()
    store.wipe()
    expected: dict[tuple[Table, bytes], bytes] = {}
    for number, batch in enumerate(written):
        store.apply(batch, {Table.ENDED: number}, now_ms=number)
        for change in batch:
            expected.pop((change.table, change.key), None)
            if change.value is not None:
                expected[change.table, change.key] = change.value
    store.close()
    store = open_store()
    for table in Table:
        rows = {key: value for (of, key), value in expected.items() if of is table}
        assert dict(store.scan(table)) == rows
        assert [key for key, _ in store.scan(table, prefix)] == sorted(k for k in rows if k.startswith(prefix))
        assert all(store.get(table, key) == value for key, value in rows.items())
    assert store.offset(Table.ENDED) == (len(written) - 1 if written else None)
    assert store.offset(Table.CONVERSATIONS) is None
    store.close()


def test_a_scan_shows_the_rows_of_its_beginning(open_store: Open) -> None:
    store = open_store()
    store.apply([RowChange(Table.ENDED, bytes([n]), b"v") for n in range(5)], {}, now_ms=0)
    rows = store.scan(Table.ENDED)
    next(rows)
    store.apply([RowChange(Table.ENDED, bytes([n]), None) for n in range(5)], {}, now_ms=0)
    assert len(list(rows)) == 4
    store.close()


def test_two_owners_cannot_have_a_store_open(open_store: Open) -> None:
    store = open_store()
    with pytest.raises(StoreLockedError):
        open_store()
    store.close()
    open_store().close()


def test_a_store_that_was_away_for_longer_than_deletions_are_kept_is_wiped(open_store: Open) -> None:
    store = open_store()
    store.apply([RowChange(Table.ENDED, b"k", b"v")], {Table.ENDED: 3}, now_ms=1_000)
    store.close()
    kept = open_store(1_500, 500)
    assert kept.get(Table.ENDED, b"k") == b"v"
    kept.close()
    wiped = open_store(1_501, 500)
    assert (wiped.get(Table.ENDED, b"k"), wiped.offset(Table.ENDED)) == (None, None)
    wiped.close()


def test_a_store_that_cannot_be_read_is_made_anew(tmp_path: Path) -> None:
    store = rocks(tmp_path / "store")()
    store.apply([RowChange(Table.ENDED, b"k", b"v")], {Table.ENDED: 3}, now_ms=1)
    store.close()
    for file in (tmp_path / "store").glob("MANIFEST*"):
        file.write_bytes(b"not a manifest")
    again = rocks(tmp_path / "store")()
    assert (again.get(Table.ENDED, b"k"), again.offset(Table.ENDED)) == (None, None)
    again.close()


def _wait_for_compactions(store: PartitionStore) -> None:
    """On a busy machine they fall behind, and the files of the past stay open until they have caught up."""
    names = ("rocksdb.mem-table-flush-pending", "rocksdb.num-running-flushes")
    names += ("rocksdb.compaction-pending", "rocksdb.num-running-compactions")
    while any(store._db.property_int_value(name) for name in names):
        time.sleep(0.001)


def test_open_files_level_off_however_much_is_written(tmp_path: Path) -> None:
    path, row = tmp_path / "store", random.Random(1).randbytes(20_000)
    store, counts = rocks(path)(), []
    for number in range(12_000):  # 240 MB into write buffers of 4
        store.apply([RowChange(Table.CONVERSATIONS, b"%d" % (number % 200), row)], {}, now_ms=number)
        if number % 100 == 0:
            _wait_for_compactions(store)
            counts.append(sum(Path(file.path).is_relative_to(path) for file in psutil.Process().open_files()))
    store.close()
    half = len(counts) // 2
    assert max(counts[half:]) <= max(counts[:half]) + 2
    assert max(counts) < 30


def test_a_fingerprint_tells_keys_and_values_apart() -> None:
    prints = {Fingerprint.of(1, key, value) for key in (b"a", b"b") for value in (b"x", b"y", None)}
    assert len(prints) == 6
