"""How long something takes, for tests that compare it with something else."""

from __future__ import annotations

import time
from collections.abc import Callable


def least_s(act: Callable[[], object], runs: int = 5) -> float:
    """Processor time of the fastest of some runs, in seconds."""
    times = []
    for _ in range(runs):
        began = time.process_time()
        act()
        times.append(time.process_time() - began)
    return min(times)
