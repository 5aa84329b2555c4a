"""Priorities as Linux reports them."""

from __future__ import annotations

import errno
import os
import sys
import threading
from collections.abc import Callable

import pytest

from models.thread_priority import LOWEST, lower_priority

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has priorities of threads")


def priority() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


def in_thread(work: Callable[[], int]) -> int:
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join()
    return found[0]


def lowered(*steps: int) -> int:
    for count in steps:
        lower_priority(count)
    return priority()


def test_a_thread_gives_way_and_the_others_keep_their_priority() -> None:
    own = priority()
    assert in_thread(lambda: lowered(5)) == min(LOWEST, own + 5)
    assert priority() == own


def test_steps_add_up_to_the_lowest_priority() -> None:
    assert in_thread(lambda: lowered(5, LOWEST)) == LOWEST


def test_threads_that_it_starts_have_its_priority() -> None:
    assert in_thread(lambda: lowered(5) - in_thread(priority)) == 0


@pytest.mark.parametrize("error", [PermissionError(), OSError(errno.ENOSYS, "no such call")])
def test_where_it_is_forbidden_the_thread_keeps_its_priority(error: OSError, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object) -> None:
        raise error

    monkeypatch.setattr(os, "setpriority", forbidden)
    assert in_thread(lambda: lowered(5)) == priority()
