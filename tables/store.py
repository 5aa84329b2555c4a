"""The rows of one partition on disk, in one RocksDB.

Layout: a row's key is one byte for its table (`c`, `e`, `x`, `u`, `t`) followed by the row's own key. `m` + table holds
the offset of the last applied changelog record; `m` alone holds the time at which the store was last known to be up to
date. `f` + table holds fingerprints of the last few applied records, as JSON `[[offset, checksum], ...]`. They show
whether a changelog is still the log that filled the store, or another one of the same name.

Rows and offsets change in one write batch, so at any crash the store equals a prefix of the changelog. A store that was
offline for longer than the changelog keeps tombstones could miss deletions; it is wiped and restored from the
beginning.
"""

from __future__ import annotations

import logging
import shutil
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import msgspec
import rocksdict

from tables.records import Change, Table

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
    }
)
_META = b"m"
_PRINTS = b"f"
_MOST_PRINTS = 8
_WRITE_BUFFER = 4 << 20


class Fingerprint(msgspec.Struct, frozen=True, array_like=True):
    """Offset of a changelog record, and a checksum of its key and value."""

    offset: int
    checksum: int

    @classmethod
    def of(cls, offset: int, key: bytes, value: bytes | None) -> Fingerprint:
        return cls(offset, zlib.crc32(value or b"", zlib.crc32(key)))


def newest_prints(prints: Sequence[Fingerprint], newer: Fingerprint) -> list[Fingerprint]:
    return [*prints, newer][-_MOST_PRINTS:]


class StoreLockedError(Exception):
    """Another process has the data directory open."""


class PartitionStore:
    """Rows of one partition. Not thread-safe. Every call is short, except `scan` and `wipe`."""

    def __init__(self, path: Path, db: rocksdict.Rdict) -> None:
        self.path = path
        self._db = db
        self._prints: dict[Table, list[Fingerprint]] = {}

    @classmethod
    def open(cls, path: Path, *, now_ms: int, tombstones_kept_ms: int) -> PartitionStore:
        """Open or create the store. A corrupt store, or one that is too old, is wiped, to be restored from the
        changelog.

        Raises:
            StoreLockedError: another process has it open.
        """
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            store = cls(path, _open(path))
            seen = store.up_to_date_at()
        except Exception as error:  # noqa: BLE001 - rocksdict raises bare Exceptions
            if "lock" in str(error).lower():
                raise StoreLockedError(
                    f"{path} is open in another process; give each worker its own PARLEY_DATA_DIR"
                ) from None
            log.warning("%s cannot be read (%s); it is wiped and restored from the changelog", path, error)
            return cls._fresh(path)
        if seen is not None and now_ms - seen > tombstones_kept_ms:
            log.warning("%s was offline for longer than the changelog keeps deletions; it is wiped and restored", path)
            store.close()
            return cls._fresh(path)
        return store

    @classmethod
    def _fresh(cls, path: Path) -> PartitionStore:
        shutil.rmtree(path, ignore_errors=True)
        return cls(path, _open(path))

    def get(self, table: Table, key: bytes) -> bytes | None:
        return self._db.get(_PREFIX[table] + key)

    def apply(
        self,
        changes: Iterable[Change],
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
        self._db.write(batch)

    def offset(self, table: Table) -> int | None:
        """Offset of the last applied changelog record."""
        raw = self._db.get(_META + table.value.encode())
        return None if raw is None else int(raw)

    def prints(self, table: Table) -> list[Fingerprint]:
        """Fingerprints of the last few applied records, oldest first; empty if an older version wrote the store."""
        if table not in self._prints:
            raw = self._db.get(_PRINTS + table.value.encode())
            self._prints[table] = [] if raw is None else msgspec.json.decode(raw, type=list[Fingerprint])
        return self._prints[table]

    def up_to_date_at(self) -> int | None:
        raw = self._db.get(_META)
        return None if raw is None else int(raw)

    def scan(self, table: Table, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Rows in key order, as of the start of the scan."""
        start = _PREFIX[table] + prefix
        for row, value in self._db.items(from_key=start):
            if not row.startswith(start):
                return
            yield row[1:], value

    def size_bytes(self) -> int:
        """Approximate size of all rows, on disk and in memory."""
        names = ("rocksdb.total-sst-files-size", "rocksdb.cur-size-all-mem-tables")
        return sum(self._db.property_int_value(name) or 0 for name in names)

    def wipe(self) -> None:
        """Delete all rows and offsets."""
        self._prints.clear()
        self._db.close()
        shutil.rmtree(self.path, ignore_errors=True)
        self._db = _open(self.path)

    def close(self) -> None:
        self._db.close()


def _open(path: Path) -> rocksdict.Rdict:
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_write_buffer_size(_WRITE_BUFFER)
    options.set_max_file_opening_threads(1)  # a store has a dozen files; 16 threads cost a third of its opening
    table_options = rocksdict.BlockBasedOptions()
    table_options.set_bloom_filter(10, block_based=False)
    options.set_block_based_table_factory(table_options)
    return rocksdict.Rdict(str(path), options=options)
