"""A `PartitionStore` in memory: what a disk holds outlives the process, and so does nothing else.

`tests/unit/tables/test_store.py` holds it to the same promises as the real one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from tables.records import RowChange, Table
from tables.store import Fingerprint, PartitionStore, newest_prints
from tables.store_errors import CorruptStoreError, StoreLockedError


@dataclass(slots=True)
class Image:
    rows: dict[Table, dict[bytes, bytes]] = field(default_factory=lambda: {table: {} for table in Table})
    offsets: dict[Table, int] = field(default_factory=dict)
    prints: dict[Table, list[Fingerprint]] = field(default_factory=dict)
    up_to_date_at: int | None = None
    owner: str | None = None
    is_corrupt: bool = False
    was_corrupt: bool = False
    """A second time would end the worker, as its disk is broken."""

    def corrupt(self) -> None:
        if not self.was_corrupt:
            self.is_corrupt = self.was_corrupt = True


@dataclass(slots=True)
class Disk:
    """The data directories of one machine."""

    images: dict[Path, Image] = field(default_factory=dict)

    def release(self, owner: str) -> None:
        """The process has died: its locks are gone."""
        for image in self.images.values():
            if image.owner == owner:
                image.owner = None


class MemoryStore(PartitionStore):
    def __init__(self, path: Path, image: Image) -> None:
        self.path = path
        self._image = image

    @classmethod
    def open_on(
        cls, disk: Disk, path: Path, *, owner: str, now_ms: int = 0, tombstones_kept_ms: int = 1 << 60
    ) -> MemoryStore:
        image = disk.images.setdefault(path, Image())
        if image.owner is not None:
            raise StoreLockedError(f"{path} is open in {image.owner}")
        image.owner = owner
        store = cls(path, image)
        if image.up_to_date_at is not None and now_ms - image.up_to_date_at > tombstones_kept_ms:
            store.wipe()
        return store

    def get(self, table: Table, key: bytes) -> bytes | None:
        return self._open.rows[table].get(key)

    def apply(
        self,
        changes: Iterable[RowChange],
        offsets: Mapping[Table, int],
        *,
        now_ms: int,
        prints: Mapping[Table, Fingerprint] = MappingProxyType({}),
    ) -> None:
        image = self._open
        for change in list(changes):
            self.marks_written += change.table is Table.ERASED
            if change.value is None:
                image.rows[change.table].pop(change.key, None)
            else:
                image.rows[change.table][change.key] = change.value
        image.offsets.update(offsets)
        for table, newer in prints.items():
            image.prints[table] = newest_prints(self.prints(table), newer)
        image.up_to_date_at = now_ms

    def offset(self, table: Table) -> int | None:
        return self._open.offsets.get(table)

    def prints(self, table: Table) -> list[Fingerprint]:
        return self._open.prints.get(table, [])

    def up_to_date_at(self) -> int | None:
        return self._open.up_to_date_at

    def scan(self, table: Table, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        return iter(sorted(row for row in self._open.rows[table].items() if row[0].startswith(prefix)))

    def wipe(self) -> None:
        image = self._open
        for rows in image.rows.values():
            rows.clear()
        image.offsets.clear()
        image.prints.clear()
        image.up_to_date_at = None

    def close(self) -> None:
        if self._image.is_corrupt:
            self._image.is_corrupt = False
            self.wipe()
        self._image.owner = None
        self._image = Image(owner="closed")

    @property
    def _open(self) -> Image:
        assert self._image.owner != "closed", "the store is closed"
        if self._image.is_corrupt:
            raise CorruptStoreError(f"{self.path} is corrupt")
        return self._image
