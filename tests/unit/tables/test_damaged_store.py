"""A store whose files are damaged loses no row silently, and a machine that cannot serve a store deletes none.

The bytes are flipped in files that RocksDB has written, and the limits are those of real processes.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tables.erasures import Scope, erasure
from tables.records import Conversation, Erased, KeptTurn, RowChange, Table, encode, key
from tables.store import PartitionStore
from tables.store_errors import CorruptStoreError, StoreError, StoreLockedError, StoreUnusableError, meaning_of

BATCHES = 60
FLUSHES = {25, 45}
NO_ROWS = ("LOG", "LOCK", "OPTIONS", "IDENTITY", "rocksdict")
TAIL = 110
"""Bytes at the end of an SST in which every block but data and index lies: properties, metaindex, footer."""


def row_of(chance: random.Random) -> bytes:
    return encode(Conversation(0, (KeptTurn("r", chance.randbytes(60).hex(), "", 0),)))


def batch(number: int) -> list[RowChange]:
    """The changelog's records at the offset `number`: some rows are written, some deleted."""
    rows = random.Random(number)
    written = [RowChange(Table.CONVERSATIONS, key("nina", f"c{number}-{n}"), row_of(rows)) for n in range(20)]
    return [*written, RowChange(Table.CONVERSATIONS, key("nina", f"c{number - 1}-3"), None)]


def rows_at(offset: int | None) -> Mapping[bytes, bytes]:
    rows: dict[bytes, bytes] = {}
    for change in (change for number in range(-1 if offset is None else offset + 1) for change in batch(number)):
        if change.value is None:
            rows.pop(change.key, None)
        else:
            rows[change.key] = change.value
    return rows


def opened(path: Path) -> PartitionStore:
    return PartitionStore.open(path, now_ms=1, tombstones_kept_ms=1 << 60)


def fill(store: PartitionStore) -> None:
    applied = store.offset(Table.CONVERSATIONS)
    for number in range(0 if applied is None else applied + 1, BATCHES):
        store.apply(batch(number), {Table.CONVERSATIONS: number}, now_ms=1)
        if number in FLUSHES:
            store._db.flush()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a store that was not closed: two SSTs, a log of later writes, a manifest with several edits."""
    folder = tmp_path_factory.mktemp("written")
    store = opened(folder / "store")
    fill(store)
    shutil.copytree(folder / "store", folder / "copy")
    store.close()
    return folder / "copy"


def kept(path: Path) -> tuple[int | None, Mapping[bytes, bytes]]:
    """Offset and rows; a store that turns out to be corrupt is closed and opened again, as its owner does."""
    for _ in range(2):
        store = opened(path)
        try:
            offset = store.offset(Table.CONVERSATIONS)
            rows = dict(store.scan(Table.CONVERSATIONS))
            assert all(store.get(Table.CONVERSATIONS, row) == value for row, value in rows.items())
        except CorruptStoreError:
            continue
        else:
            return offset, rows
        finally:
            store.close()
    raise AssertionError("corrupt again after it was wiped")


def offsets(size: int) -> Iterator[int]:
    yield from range(0, size, max(1, size // 12))
    yield from range(max(0, size - TAIL), size, 11)


def test_a_flipped_byte_anywhere_loses_no_row_that_the_changelog_does_not_give_back(
    written: Path, tmp_path: Path
) -> None:
    outcomes = set()
    for file in sorted(path for path in written.iterdir() if not path.name.startswith(NO_ROWS)):
        good = file.read_bytes()
        for at in offsets(len(good)):
            path = tmp_path / "store"
            shutil.copytree(written, path)
            (path / file.name).write_bytes(good[:at] + bytes([good[at] ^ 0xFF]) + good[at + 1 :])
            offset, rows = kept(path)
            assert rows == rows_at(offset), (file.name, at)
            outcomes.add((file.suffix or file.name.partition("-")[0], offset is None))
            shutil.rmtree(path)
    # The bytes did what they should: some of each file that matters were noticed.
    assert {(".sst", True), ("MANIFEST", True), ("CURRENT", True), (".log", False)} <= outcomes


def test_a_manifest_whose_last_record_seems_cut_is_not_believed(written: Path, tmp_path: Path) -> None:
    """RocksDB ignores this record, and opens the store without the rows of one file between older and newer ones."""
    path = tmp_path / "store"
    shutil.copytree(written, path)
    (manifest,) = path.glob("MANIFEST*")
    good, starts = manifest.read_bytes(), [0]
    while starts[-1] < len(good):
        starts.append(starts[-1] + 7 + int.from_bytes(good[starts[-1] + 4 : starts[-1] + 6], "little"))
    length = starts[-2] + 4
    manifest.write_bytes(good[:length] + b"\xff" + good[length + 1 :])
    assert kept(path) == (None, {})


@pytest.mark.parametrize("damage", ["missing", "empty", "half"])
def test_a_lost_file_loses_no_row_that_the_changelog_does_not_give_back(
    written: Path, tmp_path: Path, damage: str
) -> None:
    for file in sorted(written.iterdir()):
        path = tmp_path / "store"
        shutil.copytree(written, path)
        if damage == "missing":
            (path / file.name).unlink()
        else:
            (path / file.name).write_bytes(file.read_bytes()[: file.stat().st_size // 2 if damage == "half" else 0])
        offset, rows = kept(path)
        assert rows == rows_at(offset), file.name
        shutil.rmtree(path)


@pytest.mark.parametrize(
    "folder", ["lock", "block-storage", "Too many open files", "Corruption: Permission denied", "s"]
)
def test_a_corrupt_store_is_recognized_whatever_its_path_contains(
    written: Path, tmp_path: Path, folder: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / folder / "0"
    shutil.copytree(written, path)
    sst = min(path.glob("*.sst"))
    sst.write_bytes(sst.read_bytes()[:-30] + bytes(30))
    store = opened(path)
    assert (store.offset(Table.CONVERSATIONS), dict(store.scan(Table.CONVERSATIONS))) == (None, {})
    (line,) = caplog.messages
    assert "\n" not in line
    assert "wiped and restored" in line
    fill(store)
    store.close()
    assert kept(path) == (BATCHES - 1, rows_at(BATCHES - 1))


def damage_a_data_block(path: Path) -> None:
    sst = max(path.glob("*.sst"), key=lambda file: file.stat().st_size)
    good = sst.read_bytes()
    at = len(good) // 3
    sst.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])


def test_a_scan_of_a_damaged_block_raises_and_is_not_shorter(written: Path, tmp_path: Path) -> None:
    path = tmp_path / "store"
    shutil.copytree(written, path)
    damage_a_data_block(path)
    store = opened(path)
    with pytest.raises(CorruptStoreError):
        list(store.scan(Table.CONVERSATIONS))
    with pytest.raises(CorruptStoreError):
        list(erasure(store, Scope("nina"), Erased(1)))
    with pytest.raises(CorruptStoreError):
        [store.get(Table.CONVERSATIONS, row) for row in rows_at(BATCHES - 1)]
    store.close()
    assert not path.exists()


def test_a_scan_that_was_left_half_way_does_not_keep_the_store_open(tmp_path: Path) -> None:
    store = opened(tmp_path / "store")
    fill(store)
    left = store.scan(Table.CONVERSATIONS)
    next(left)
    store.close()
    again = opened(tmp_path / "store")
    with pytest.raises(StoreError):
        next(left)
    again.close()


LIMITS = {
    "files": ("Too many open files", "resource.setrlimit(resource.RLIMIT_NOFILE, (used + 3,) * 2)"),
    "room": (
        "File too large",
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))",
    ),
    "rights": ("Permission denied", "os.chmod('.', 0o777); os.chmod('store', 0o555); os.setuid(65534)"),
}
PROGRAM = """
import os, resource, signal, sys
from pathlib import Path
from tables.store import PartitionStore
from tables.store_errors import StoreError
def opened():
    return PartitionStore.open(Path("store"), now_ms=1, tombstones_kept_ms=1 << 60)
opened().close()
used = len(os.listdir("/proc/self/fd"))
{limit}
try:
    opened()
    print("opened")
except StoreError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize("limit", LIMITS)
def test_a_store_that_the_machine_does_not_serve_is_kept(written: Path, tmp_path: Path, limit: str) -> None:
    if limit == "rights" and os.geteuid() != 0:
        pytest.skip("only root can become somebody without rights")
    shutil.copytree(written, tmp_path / "store")
    text, code = LIMITS[limit]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(limit=code)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    (tmp_path / "store").chmod(0o755)
    line = done.stdout.strip()
    assert line.startswith("StoreUnusableError store cannot be used, and is kept"), done
    assert text in line
    assert "\n" not in line
    assert kept(tmp_path / "store") == (BATCHES - 1, rows_at(BATCHES - 1))


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        ("IO error: While pread offset 0 len 9: {}/9.sst: Input/output error", StoreUnusableError),
        ("IO error: No space left on device: While appending: {}/7.log: No space left on device", StoreUnusableError),
        ("Corruption: IO error: While open: {}/9.sst: Too many open files  The file {}/MANIFEST-4", StoreUnusableError),
        ("IO error: While lock file: {}/LOCK: Resource temporarily unavailable", StoreLockedError),
        ("IO error: While open a file for lock: {}/LOCK: Permission denied", StoreUnusableError),
        ("IO error: No such file or directory: While opening: {}/M: No such file or directory", CorruptStoreError),
        ("Corruption: block checksum mismatch: stored = 1, computed = 2 in {}/9.sst offset 0", CorruptStoreError),
        ("Invalid argument: Column family not found: x", StoreUnusableError),
    ],
)
def test_what_an_error_means(cause: str, kind: type[StoreError]) -> None:
    path = Path("/data/lock/blocks: Permission denied/0")
    assert type(meaning_of(Exception(cause.replace("{}", str(path))), path)) is kind


def test_an_error_of_the_file_system_is_known_by_its_number() -> None:
    error = meaning_of(PermissionError(errno.EACCES, "anything"), Path("p"))
    assert isinstance(error, StoreUnusableError)
    assert error.is_wrong_setup
