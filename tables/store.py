"""The rows of one partition on disk: one RocksDB for its tables.

Layout: row keys are one byte of table (`c`, `e`, `x`, `u`) and the row's key; `m` + table holds the offset of the last
changelog record that is applied, and `m` alone the time at which the store was last known to be up to date. `f` + table
holds fingerprints of the last few records that were applied, as JSON `[[offset, checksum], ...]`. They show whether a
log of that name is still the one that filled the store.

Rows and offsets change in one write batch, so that the store is always the exact image of a changelog's beginning,
whatever moment the process dies at. A store that was away for longer than the changelog keeps tombstones could miss
deletions for ever; it is wiped instead of caught up.
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

_PREFIX = MappingProxyType({Table.CONVERSATIONS: b"c", Table.ENDED: b"e", Table.ERASED: b"x", Table.USAGE: b"u"})
_META = b"m"
_PRINTS = b"f"
_MOST_PRINTS = 8
_WRITE_BUFFER = 4 << 20


class Fingerprint(msgspec.Struct, frozen=True, array_like=True):
    """A record of a changelog: its offset, and a checksum of its key and value."""

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
    """Rows of one partition; not thread-safe, every call is short but `scan` and `wipe`."""

    def __init__(self, path: Path, db: rocksdict.Rdict) -> None:
        self.path = path
        self._db = db
        self._prints: dict[Table, list[Fingerprint]] = {}

    @classmethod
    def open(cls, path: Path, *, now_ms: int, tombstones_kept_ms: int) -> PartitionStore:
        """Open or create the store; a corrupt or a too old one is wiped, to be restored from the changelog.

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
            log.warning("%s was away for longer than deletions are kept; it is wiped and restored", path)
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
        """Write rows and the changelog offsets that they bring the store to, all or nothing.

        `prints` are of the newest record of each table that is applied.
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
        """Offset of the last changelog record that is applied."""
        raw = self._db.get(_META + table.value.encode())
        return None if raw is None else int(raw)

    def prints(self, table: Table) -> list[Fingerprint]:
        """Of the last few records that were applied, the oldest first; empty where an older version wrote the store."""
        if table not in self._prints:
            raw = self._db.get(_PRINTS + table.value.encode())
            self._prints[table] = [] if raw is None else msgspec.json.decode(raw, type=list[Fingerprint])
        return self._prints[table]

    def up_to_date_at(self) -> int | None:
        raw = self._db.get(_META)
        return None if raw is None else int(raw)

    def scan(self, table: Table, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Rows in key order, as they were when the scan began."""
        start = _PREFIX[table] + prefix
        for row, value in self._db.items(from_key=start):
            if not row.startswith(start):
                return
            yield row[1:], value

    def size_bytes(self) -> int:
        """Of all its rows, on disk and in memory; an estimate."""
        names = ("rocksdb.total-sst-files-size", "rocksdb.cur-size-all-mem-tables")
        return sum(self._db.property_int_value(name) or 0 for name in names)

    def wipe(self) -> None:
        """Empty the store, offsets too."""
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
    table_options = rocksdict.BlockBasedOptions()
    table_options.set_bloom_filter(10, block_based=False)
    options.set_block_based_table_factory(table_options)
    return rocksdict.Rdict(str(path), options=options)
