"""One process at a time in a folder."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.local.errors import LocalError
from app.local.report import Report


@contextmanager
def locked(path: Path, busy: str, report: Report, timeout: float = 600.0) -> Iterator[None]:
    """Hold the lock file, waiting if necessary; the kernel releases it when the process ends."""
    with path.open("w") as lock:
        deadline = time.monotonic() + timeout
        waiting = False
        while not _try_lock(lock.fileno()):
            if time.monotonic() >= deadline:
                raise LocalError(f"{busy}: stop it first")
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
