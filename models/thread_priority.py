"""Threads that let others go first on a busy machine.

A step of the engine computes for many milliseconds; what the event loop does in between takes a fraction of one, and
readers wait for it. On a machine whose cores are all busy the scheduler lets whoever has had less of them go first, and
that is not always the loop: on two cores with a broker beside it, the first token came in half the time once the engine
gave way (tests/benchmarks/README.md). Where cores are idle, priorities change nothing.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress

LOWEST = 19


def lower_priority(steps: int) -> None:
    """Lower the priority of the calling thread, and of those that it starts, by so many of 19 steps (setpriority(2)).

    Only Linux has priorities of threads. Where a sandbox forbids it, the thread keeps its own.
    """
    if sys.platform == "linux":
        thread = threading.get_native_id()
        with suppress(OSError):
            now = os.getpriority(os.PRIO_PROCESS, thread)
            os.setpriority(os.PRIO_PROCESS, thread, min(LOWEST, now + steps))
