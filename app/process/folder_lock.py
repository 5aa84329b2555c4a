"""One process at a time in a folder."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


class LockedError(Exception):
    """Another process holds the lock; the message is one line."""


@contextmanager
def locked(
    path: Path,
    busy: str,
    report: Callable[[str], None],
    timeout: float = 600.0,
    failure: type[Exception] = LockedError,
    remedy: str = "stop it first",
) -> Iterator[None]:
    """Hold the lock file, waiting if necessary; the kernel releases it when the process ends.

    Raises `failure`, with `busy` and the `remedy`, if another process still holds it after `timeout` seconds.
    """
    with path.open("w") as lock:
        deadline = time.monotonic() + timeout
        waiting = False
        while not _try_lock(lock.fileno()):
            if time.monotonic() >= deadline:
                raise failure(f"{busy}: {remedy}")
            if not waiting:
                report(f"{busy}; waiting for it")
                waiting = True
            time.sleep(0.1)
        yield


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock file."""
    try:
        with path.open("r") as lock:
            return not _try_lock(lock.fileno())
    except OSError:
        return False
