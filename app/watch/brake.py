"""When the watcher may leave for a worker: single deaths at once, the deaths of a crash loop not.

A worker that dies as soon as it has begun would move its partitions twice with each of its lives.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path

MOST = 3
WITHIN_S = 60.0


class Brake:
    """The leaves for one worker. With a `file` they are remembered by the watcher of its next life, too.

    A file that cannot be read or written is no reason not to leave: then this life's leaves count.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self.leaves = 0
        self._times: list[float] = []
        if file is not None:
            with suppress(OSError, ValueError, KeyError, TypeError, OverflowError):
                kept = json.loads(file.read_text())
                self.leaves, self._times = int(kept["leaves"]), [float(one) for one in kept["times"]]

    @property
    def lately(self) -> int:
        """The leaves that count. A time ahead of the clock does not: it was set back."""
        now = time.time()
        return sum(0 <= now - one < WITHIN_S for one in self._times)

    def holds(self) -> bool:
        """Whether there were too many leaves of late."""
        return self.lately >= MOST

    def note(self) -> None:
        """There was a leave now."""
        self.leaves += 1
        self._times = [*self._times, time.time()][-MOST:]
        if self._file is not None:
            with suppress(OSError):
                new = self._file.with_name(f"{self._file.name}.new")
                new.write_text(json.dumps({"leaves": self.leaves, "times": self._times}))
                new.replace(self._file)
