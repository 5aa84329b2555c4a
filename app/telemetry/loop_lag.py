"""How late the event loop is: all of a worker except its model runs on it, heartbeats too.

A loop that is blocked for a session loses its partitions, and long before that all users of the worker wait. A thread
therefore watches it, and logs which code holds it while it does.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from types import FrameType

from prometheus_client import CollectorRegistry, Counter, Histogram

log = logging.getLogger(__name__)

EVERY_S = 0.5
BLOCKED_S = 1.0
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)
_FRAMES = 4


class LoopLag:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._lag = Histogram(
            "parley:event_loop_lag_seconds", "Delay of a timer in seconds.", buckets=_BUCKETS, registry=registry
        )
        self._blocked = Counter(
            "parley:event_loop_blocked_total", "Times that the loop was blocked for over a second.", registry=registry
        )
        self._task: asyncio.Task[None] | None = None
        self._ended = threading.Event()
        self._due = float("inf")

    def start(self) -> None:
        loop, thread = asyncio.get_running_loop(), threading.get_ident()
        self._due = time.monotonic() + EVERY_S
        self._task = asyncio.create_task(self._measure(), name="loop-lag")
        threading.Thread(target=self._watch, args=(loop, thread), name="loop-watch", daemon=True).start()

    async def stop(self) -> None:
        self._ended.set()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _measure(self) -> None:
        while True:
            self._due = time.monotonic() + EVERY_S
            await asyncio.sleep(EVERY_S)
            late_s = max(0.0, time.monotonic() - self._due)
            self._lag.observe(late_s)
            if late_s > BLOCKED_S:
                self._blocked.inc()
                log.warning("the event loop was blocked for %.1f s; nothing was served meanwhile", late_s)

    def _watch(self, loop: asyncio.AbstractEventLoop, thread: int) -> None:
        logged = 0.0
        while not self._ended.wait(EVERY_S):
            due = self._due
            if time.monotonic() - due > BLOCKED_S and due != logged:
                logged = due
                task = asyncio.current_task(loop)
                name = "no task" if task is None else f"task {task.get_name()!r}"
                log.warning("the event loop is blocked: %s in %s", name, _places(sys._current_frames().get(thread)))  # noqa: SLF001


def _places(frame: FrameType | None) -> str:
    """The innermost lines of the code, without values: those may be a user's."""
    frames: list[str] = []
    while frame is not None and len(frames) < _FRAMES:
        frames.append(f"{frame.f_globals.get('__name__')}:{frame.f_lineno} ({frame.f_code.co_name})")
        frame = frame.f_back
    return " < ".join(frames) or "unknown code"
