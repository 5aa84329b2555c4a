"""Whether the manifest of a RocksDB ends with a whole record.

The manifest lists the files of the store. RocksDB verifies the checksum of each of its records, but mistakes a last
record whose length is damaged for one that a crash interrupted, and ignores it. The file that this record adds is then
missing, while newer rows of the write-ahead log are there: a hole in the rows that nothing else shows. A crash in the
middle of a write of the manifest looks the same; such a store is restored once without need.

Layout: blocks of 32 KiB, each of records that do not cross its end: checksum (4 bytes), length (2), type (1), data.
"""

from __future__ import annotations

from pathlib import Path

_BLOCK = 32 * 1024
_HEADER = 7


def is_whole(store: Path) -> bool:
    """True also where there is no manifest; RocksDB itself knows whether there should be one."""
    try:
        manifest = (store / (store / "CURRENT").read_text(encoding="utf-8", errors="replace").strip()).read_bytes()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, ValueError):
        return True
    at = 0
    while at < len(manifest):
        left = _BLOCK - at % _BLOCK
        at += left if left < _HEADER else _HEADER + int.from_bytes(manifest[at + 4 : at + 6], "little")
    return at == len(manifest)
