"""The rows of one partition on disk, in one RocksDB.

Layout: a row's key is one byte for its table (`_PREFIX`) followed by the row's own key. `m` + table holds
the offset of the last applied changelog record; `m` alone holds the time at which the store was last known to be up to
date. `f` + table holds fingerprints of the last few applied records, as JSON `[[offset, checksum], ...]`. They show
whether a changelog is still the log that filled the store, or another one of the same name.

Rows and offsets change in one write batch, so at any crash the store equals a prefix of the changelog. A store that was
offline for longer than the changelog keeps tombstones could miss deletions; it is wiped and restored from the
beginning. So is a corrupt one: every read verifies checksums, an incomplete scan raises, and a store that has met
corruption deletes its files when it is closed.
"""

from __future__ import annotations

import logging
import shutil
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import msgspec
import rocksdict

from tables.records import RowChange, Table
from tables.store_errors import CorruptStoreError, StoreError, meaning_of
from tables.store_errors import StoreLockedError as StoreLockedError  # noqa: PLC0414 - importers know it by this module

log = logging.getLogger(__name__)

_PREFIX = MappingProxyType(
    {
        Table.CONVERSATIONS: b"c",
        Table.ENDED: b"e",
        Table.ERASED: b"x",
        Table.USAGE: b"u",
        Table.CALLS: b"t",
        Table.AUDIT: b"a",
        Table.GUARD: b"g",
        Table.INTAKE: b"i",
        Table.ASLEEP: b"s",
    }
)
_META = b"m"
_PRINTS = b"f"
_MOST_PRINTS = 8
_WRITE_BUFFER = 4 << 20
_MANIFEST_BLOCK = 32 * 1024
_MANIFEST_HEADER = 7
_TORN = "Corruption: its manifest ends within a record"


class Fingerprint(msgspec.Struct, frozen=True, array_like=True):
    """Offset of a changelog record, and a checksum of its key and value."""

    offset: int
    checksum: int

    @classmethod
    def of(cls, offset: int, key: bytes, value: bytes | None) -> Fingerprint:
        return cls(offset, zlib.crc32(value or b"", zlib.crc32(key)))


def newest_prints(prints: Sequence[Fingerprint], newer: Fingerprint) -> list[Fingerprint]:
    return [*prints, newer][-_MOST_PRINTS:]


class PartitionStore:
    """Rows of one partition. Not thread-safe. Every call is short, except `open`, `wipe` and a whole `scan`.

    Every call may raise `StoreError`; after a `CorruptStoreError`, close the store and open it again.
    """

    marks_written = 0  # rows of ERASED, deleted ones too

    def __init__(self, path: Path, db: rocksdict.Rdict) -> None:
        self.path = path
        self.is_corrupt = False
        self._db = db
        self._prints: dict[Table, list[Fingerprint]] = {}
        self._scans: weakref.WeakSet[_Scan] = weakref.WeakSet()

    @classmethod
    def open(cls, path: Path, *, now_ms: int, tombstones_kept_ms: int) -> PartitionStore:
        """Open or create the store. A corrupt store, or one that is too old, is wiped, to be restored from the
        changelog.

        Raises:
            StoreError: another process has it open, or the machine does not let it be used.
        """
        store: PartitionStore | None = None
        try:
            store = cls(path, _open(path))
            last_at = store.up_to_date_at()
        except StoreError as error:
            if store is not None:
                store.close()
            if not isinstance(error, CorruptStoreError):
                raise
            log.warning("%s", error)
            return cls._fresh(path)
        if last_at is not None and now_ms - last_at > tombstones_kept_ms:
            log.warning("%s was offline for longer than the changelog keeps deletions; it is wiped and restored", path)
            store.close()
            return cls._fresh(path)
        return store

    @classmethod
    def _fresh(cls, path: Path) -> PartitionStore:
        _delete(path)
        return cls(path, _open(path))

    def get(self, table: Table, key: bytes) -> bytes | None:
        return self._read(_PREFIX[table] + key)

    def _read(self, row: bytes) -> bytes | None:
        try:
            return self._db.get(row)
        except Exception as error:  # noqa: BLE001 - rocksdict raises bare Exceptions
            raise self._met(error) from None

    def _met(self, error: Exception) -> StoreError:
        meaning = meaning_of(error, self.path)
        self.is_corrupt |= isinstance(meaning, CorruptStoreError)
        return meaning

    def apply(
        self,
        changes: Iterable[RowChange],
        offsets: Mapping[Table, int],
        *,
        now_ms: int,
        prints: Mapping[Table, Fingerprint] = MappingProxyType({}),
    ) -> None:
        """Write rows together with the changelog offsets that they correspond to, atomically.

        `prints` are the fingerprints of the newest applied records, by table.
        """
        batch = rocksdict.WriteBatch(raw_mode=True)
        for change in changes:
            self.marks_written += change.table is Table.ERASED
            row = _PREFIX[change.table] + change.key
            if change.value is None:
                batch.delete(row)
            else:
                batch.put(row, change.value)
        for table, offset in offsets.items():
            batch.put(_META + table.value.encode(), str(offset).encode())
        for table, newer in prints.items():
            self._prints[table] = newest_prints(self.prints(table), newer)
            batch.put(_PRINTS + table.value.encode(), msgspec.json.encode(self._prints[table]))
        batch.put(_META, str(now_ms).encode())
        try:
            self._db.write(batch)
        except Exception as error:  # noqa: BLE001 - rocksdict raises bare Exceptions
            raise self._met(error) from None

    def offset(self, table: Table) -> int | None:
        """Offset of the last applied changelog record."""
        raw = self._read(_META + table.value.encode())
        return None if raw is None else int(raw)

    def prints(self, table: Table) -> list[Fingerprint]:
        """Fingerprints of the last few applied records, oldest first; empty if an older version wrote the store."""
        if table not in self._prints:
            raw = self._read(_PRINTS + table.value.encode())
            self._prints[table] = [] if raw is None else msgspec.json.decode(raw, type=list[Fingerprint])
        return self._prints[table]

    def up_to_date_at(self) -> int | None:
        raw = self._read(_META)
        return None if raw is None else int(raw)

    def scan(self, table: Table, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Rows in key order, as of the start of the scan. Raises `StoreError` rather than end before the last row."""
        start = _PREFIX[table] + prefix
        scan = _Scan(self._db.iter(), start, self._met)
        self._scans.add(scan)
        return scan

    def size_bytes(self) -> int:
        """Approximate size of all rows, on disk and in memory."""
        names = ("rocksdb.total-sst-files-size", "rocksdb.cur-size-all-mem-tables")
        return sum(self._db.property_int_value(name) or 0 for name in names)

    def wipe(self) -> None:
        """Delete all rows and offsets."""
        self._prints.clear()
        self._close()
        _delete(self.path)
        self.is_corrupt = False
        self._db = _open(self.path)

    def close(self) -> None:
        """Close the files, and delete them if they are corrupt."""
        self._close()
        if self.is_corrupt:
            _delete(self.path)

    def _close(self) -> None:
        for scan in list(self._scans):
            scan.end()
        try:
            self._db.close()
        except Exception as error:  # noqa: BLE001 - rocksdict raises bare Exceptions
            # What was not written to disk comes from the changelog again.
            log.warning("%s was not closed in an orderly way: %s", self.path, self._met(error))


class _Scan(Iterator[tuple[bytes, bytes]]):
    """RocksDB's iterator ends at a block that it cannot read as it does at the last row; only its status tells.

    A scan that its reader has left half-way keeps the whole store locked, so the store ends it when it closes.
    """

    __slots__ = ("__weakref__", "_met", "_rows", "_start")

    def __init__(self, rows: rocksdict.RdictIter, start: bytes, met: Callable[[Exception], StoreError]) -> None:
        rows.seek(start)
        self._rows: rocksdict.RdictIter | None = rows
        self._start = start
        self._met = met

    def __next__(self) -> tuple[bytes, bytes]:
        rows = self._rows
        if rows is None:
            raise StoreError("the store was closed during a scan")
        if not rows.valid():
            self._check(rows)
            raise StopIteration
        row: bytes = rows.key()
        if not row.startswith(self._start):
            raise StopIteration
        value: bytes = rows.value()
        rows.next()
        return row[1:], value

    def _check(self, rows: rocksdict.RdictIter) -> None:
        try:
            rows.status()
        except Exception as error:  # noqa: BLE001 - rocksdict raises bare Exceptions
            raise self._met(error) from None

    def end(self) -> None:
        self._rows = None


def _delete(path: Path) -> None:
    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise meaning_of(error, path) from None


def _open(path: Path) -> rocksdict.Rdict:
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_write_buffer_size(_WRITE_BUFFER)
    options.set_max_file_opening_threads(1)  # a store has a dozen files; 16 threads cost a third of its opening
    table_options = rocksdict.BlockBasedOptions()
    table_options.set_bloom_filter(10, block_based=False)
    options.set_block_based_table_factory(table_options)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not _has_whole_manifest(path):
            raise RuntimeError(_TORN)
        return rocksdict.Rdict(str(path), options=options)
    except Exception as error:  # noqa: BLE001 - rocksdict raises bare Exceptions
        raise meaning_of(error, path) from None


def _has_whole_manifest(store: Path) -> bool:
    """Whether the list of the store's files ends with a whole record. True also where there is none, because RocksDB
    itself knows whether there should be one.

    RocksDB verifies the checksum of each record of the manifest, but mistakes a last record whose length is damaged for
    one that a crash interrupted, and ignores it. The file that this record adds is then missing, while newer rows of
    the write-ahead log are there: a hole in the rows that nothing else shows. A crash in the middle of a write of the
    manifest looks the same; such a store is restored once without need.

    Layout: blocks of 32 KiB, each of records that do not cross its end: checksum (4 bytes), length (2), type (1), data.
    """
    try:
        manifest = (store / (store / "CURRENT").read_text(encoding="utf-8", errors="replace").strip()).read_bytes()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, ValueError):
        return True
    at, header = 0, _MANIFEST_HEADER
    while at < len(manifest):
        left = _MANIFEST_BLOCK - at % _MANIFEST_BLOCK
        at += left if left < header else header + int.from_bytes(manifest[at + 4 : at + 6], "little")
    return at == len(manifest)
