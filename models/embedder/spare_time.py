"""How much of the machine's idle time a background thread may take.

The lowest priority alone does not keep a thread from slowing others down. It shares caches, memory bandwidth and the
cores' execution units with them, and while it is preempted with the GIL in hand they wait for it. So it takes only what
is idle beyond a reserve, and at least `LEAST` of a core, so that its work advances.

    idle     processor seconds per second that the machine is idle now
    own      those that the thread takes
    reserve  RESERVE of all cores
    limit    max(LEAST, idle + own - reserve)
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

RESERVE = 0.25
LEAST = 0.05
LONGEST_REST_S = 2.0
_STAT = Path("/proc/stat")


class SpareTime:
    """Belongs to one thread, which calls `rest_s` after each piece of work. `idle` and `own` are processor seconds."""

    def __init__(
        self,
        idle: Callable[[], float],
        cores: int,
        own: Callable[[], float] = time.thread_time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._idle = idle
        self._own = own
        self._clock = clock
        self._reserve = RESERVE * cores
        self._last = (clock(), idle(), own())

    def rest_s(self) -> float:
        """Seconds to rest now; for the interval since the last call."""
        now, idle, own = self._clock(), self._idle(), self._own()
        since, idle_before, own_before = self._last
        self._last = (now, idle, own)
        passed, worked = now - since, own - own_before
        if passed <= 0 or worked <= 0:
            return 0.0
        limit = max(LEAST, (idle - idle_before + worked) / passed - self._reserve)
        return min(max(0.0, worked / limit - passed), LONGEST_REST_S)


def idle_s() -> float:
    """Processor seconds that the cores of this Linux machine have been idle since its start."""
    fields = _STAT.read_text(encoding="ascii").split(maxsplit=6)
    return (int(fields[4]) + int(fields[5])) / os.sysconf("SC_CLK_TCK")
