"""Threads with a lower priority."""

from __future__ import annotations

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from models.thread_priority import LOW, lower_priority


def nice_of_this_thread() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


@pytest.mark.skipif(sys.platform != "linux", reason="nice values belong to threads on Linux only")
def test_only_the_thread_that_asks_gets_a_lower_priority() -> None:
    before = nice_of_this_thread()
    with ThreadPoolExecutor(1, initializer=lower_priority) as pool:
        assert pool.submit(nice_of_this_thread).result() == max(LOW, before)
    assert nice_of_this_thread() == before
