"""What an error of RocksDB means for the store: rocksdict raises bare exceptions, and only their text tells them apart.

| meaning | what follows |
|---|---|
| corrupt: files are damaged or missing | the store is wiped, and restored from the changelog |
| locked: another process has it open | the worker ends |
| unusable: files, space or rights are lacking | the store is kept, and the worker ends with what to do |

RocksDB wraps errors of the machine in others (too many open files while it reads a manifest is a "Corruption" to it),
so these are recognized first. The path is no part of the text that is searched: it may contain any word.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

_REMEDIES: Mapping[int, str] = MappingProxyType(
    {
        errno.EMFILE: "raise this process's limit of open files (ulimit -n, LimitNOFILE=)",
        errno.ENFILE: "raise the machine's limit of open files (sysctl fs.file-max)",
        errno.ENOSPC: "free space on its disk",
        errno.EDQUOT: "raise the quota of its disk, or free space",
        errno.EFBIG: "raise this process's limit of file sizes (ulimit -f, LimitFSIZE=)",
        errno.ENOMEM: "give this process more memory",
        errno.EIO: "check its disk (dmesg, smartctl)",
        errno.EACCES: "let this process's user read and write it",
        errno.EPERM: "let this process's user read and write it",
        errno.EROFS: "mount its disk writable",
        errno.ENOTDIR: "something else has its name: choose another PARLEY_DATA_DIR",
        errno.EISDIR: "something else has its name: choose another PARLEY_DATA_DIR",
        errno.ENOLCK: "its file system has no locks: choose another PARLEY_DATA_DIR",
    }
)
_WRONG_SETUP = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ENOLCK})
_LOCKED = (os.strerror(errno.EAGAIN), "lock hold by current process")


class StoreError(Exception):
    """The rows of a partition cannot be read or written. No request is at fault. The message is one line."""

    is_wrong_setup = False
    """Whether no restart helps before the setup is changed."""


class CorruptStoreError(StoreError):
    """Files of the store are damaged: its rows have to come from the changelog."""


class StoreLockedError(StoreError):
    """Another process has the data directory open."""

    is_wrong_setup = True


class StoreUnusableError(StoreError):
    """The machine does not let the store be used. Its files are good, and stay."""

    def __init__(self, message: str, *, is_wrong_setup: bool = False) -> None:
        super().__init__(message)
        self.is_wrong_setup = is_wrong_setup


def meaning_of(error: Exception, path: Path) -> StoreError:
    """What `error`, which RocksDB or the file system raised about the store at `path`, means."""
    cause = " ".join(str(error).replace(str(path), "").split())
    if "/LOCK:" in cause and any(text in cause for text in _LOCKED):
        return StoreLockedError(f"{path} is open in another process; give each worker its own PARLEY_DATA_DIR")
    code = _code_of(error, cause)
    if code is not None:
        remedy = _REMEDIES[code]
        return StoreUnusableError(
            f"{path} cannot be used, and is kept: {os.strerror(code)}; {remedy}", is_wrong_setup=code in _WRONG_SETUP
        )
    if cause.startswith("Corruption:") or os.strerror(errno.ENOENT) in cause:
        return CorruptStoreError(f"{path} is corrupt ({cause}); it is wiped and restored from the changelog")
    return StoreUnusableError(
        f"{path} cannot be used, and is kept: {cause}; delete it to have it restored from the changelog"
    )


def _code_of(error: Exception, cause: str) -> int | None:
    of_rust = _OF_RUST.search(cause)
    code = error.errno if isinstance(error, OSError) and of_rust is None else of_rust and int(of_rust[1])
    if code in _REMEDIES:
        return code
    return next((code for code in _REMEDIES if cause.endswith(_ENDS[code]) or _ENDS[code] + " " in cause), None)


# rocksdict writes a file of its own.
_OF_RUST = re.compile(r"\(os error (\d{1,5})\)")
_ENDS = MappingProxyType({code: f": {os.strerror(code)}" for code in _REMEDIES})
