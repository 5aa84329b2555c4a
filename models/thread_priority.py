"""Threads that must not take processor time from the engine."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress

LOW = 10


def lower_priority() -> None:
    """Lower the priority of the calling thread. On Linux each thread has a nice value of its own; elsewhere a no-op."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread, max(LOW, os.getpriority(os.PRIO_PROCESS, thread)))
