"""With how many threads this thread's products are computed for a while."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def few_threads() -> int:
    """One less than there are cores: where other programs have one, all threads wait for it at each product."""
    return max(1, len(os.sched_getaffinity(0)) - 1)


@contextmanager
def computing_threads(count: int) -> Iterator[None]:
    """Torch keeps the number for threads that begin later, too, so the one before is set again."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
