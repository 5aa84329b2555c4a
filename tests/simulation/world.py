"""A world of processes in virtual time: every step of every event loop is chosen here, by a seed.

Each process has an event loop of its own, which runs one callback at a time. So whatever stands between two awaits is
one step, a process can be killed or suspended between any two of them, and what it has sent before arrives all the
same. Nothing waits for real: when no process has anything to do, the clock jumps to the next timer. Each process reads
the wall clock with an error of its own (`skew`); only the monotonic clock runs alike everywhere.
"""

from __future__ import annotations

import asyncio
import heapq
import inspect
import itertools
import math
import random
import time
import warnings
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context
from typing import Any
from unittest.mock import patch

EPOCH = 1_700_000_000.0
_MOST_STEPS = 200_000


class LivelockError(Exception):
    """Something goes on and on, and time does not."""


class SteppedLoop(asyncio.AbstractEventLoop):
    """What asyncio's tasks, locks and timeouts need of a loop, and no more."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.ready: deque[asyncio.Handle] = deque()
        self.timers: list[asyncio.TimerHandle] = []
        self.tasks: dict[asyncio.Task[Any], None] = {}
        """In the order of their start: a set would have another order in each process."""
        self.errors: list[dict[str, Any]] = []
        self.dead = False
        self.skew = 0.0
        """Seconds by which this process's wall clock is ahead."""
        self.end_process: Callable[[], None] = lambda: None

    def time(self) -> float:
        return self.world.now

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        if not self.dead:
            self.ready.append(handle)
        return handle

    def call_later(
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        if not self.dead:
            heapq.heappush(self.timers, handle)
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Left in the heap, and skipped when its time comes."""

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: Coroutine[Any, Any, Any], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        self.tasks[task] = None
        task.add_done_callback(lambda done: self.tasks.pop(done, None))
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self.dead:
            self.errors.append(context)

    def run_in_executor(self, _executor: Any, call: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """At once: nothing here takes time."""
        done = self.create_future()
        done.set_result(call(*args))
        return done

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self.dead

    def is_closed(self) -> bool:
        return False

    def next_timer(self) -> float:
        """When it is due; never, if there is none."""
        timers = self.timers
        while timers and timers[0]._cancelled:
            heapq.heappop(timers)
        return timers[0]._when if timers else math.inf

    def wake(self) -> None:
        timers, now = self.timers, self.world.now
        # A cancelled one leaves the heap as soon as it is the first, whenever it would be due.
        while timers and (timers[0]._cancelled or timers[0]._when <= now):
            handle = heapq.heappop(timers)
            if not handle._cancelled:
                self.ready.append(handle)

    def step(self) -> None:
        handle = self.ready.popleft()
        if not handle._cancelled:
            self.world.skew = self.skew
            asyncio._set_running_loop(self)
            try:
                handle._run()
            finally:
                asyncio._set_running_loop(None)
            self.world.skew = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        asyncio._set_running_loop(self)
        try:
            yield
        finally:
            asyncio._set_running_loop(None)

    def destroy(self) -> None:
        """The process is gone. Its coroutines are closed in a loop in which nothing happens any more."""
        self.dead = True
        self.ready.clear()
        self.timers.clear()
        with self.running(), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # what a task had not begun is never awaited
            for task in list(self.tasks):
                task._log_destroy_pending = False
                _close(task.get_coro())
            self.tasks.clear()


def _close(coroutine: Any) -> None:
    """Cancel it wherever it waits, again and again: `close` does not reach into asynchronous generators."""
    if inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
        coroutine.close()
        return
    for _ in range(20):
        try:
            coroutine.throw(asyncio.CancelledError())
        except BaseException:  # noqa: BLE001 - its process is dead, so its errors do not count
            return


class World:
    """Virtual time, chance, and everything that happens at a time."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.now = EPOCH
        self.loops: list[SteppedLoop] = []
        self.steps = 0
        self.at_step: dict[int, Callable[[], None]] = {}
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self.suspended: set[SteppedLoop] = set()
        self.skew = 0.0

    def after(self, delay: float, happens: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + delay, next(self._numbers), happens))

    def latency(self) -> float:
        """Mostly a millisecond, now and then much longer."""
        return self.random.choice((0.0005, 0.001, 0.002, 0.005, 0.05 * self.random.random()))

    def run(self, until: float) -> None:
        """Let everything happen that does by the time `until`."""
        with self._clock():
            while True:
                running = [loop for loop in self.loops if loop.ready and loop not in self.suspended]
                if running:
                    self._step(running[0] if len(running) == 1 else self.random.choice(running))
                elif not self._jump(until):
                    return

    def _step(self, loop: SteppedLoop) -> None:
        loop.step()
        self.steps += 1
        if self.steps > _MOST_STEPS:
            raise LivelockError(f"{self.steps} steps, at {self.now - EPOCH:.3f} s")
        if (happens := self.at_step.pop(self.steps, None)) is not None:
            happens()

    def _jump(self, until: float) -> bool:
        first = self._events[0][0] if self._events else math.inf
        for loop in self.loops:
            if loop.timers and loop not in self.suspended and (due := loop.next_timer()) < first:
                first = due
        if first > until or first == math.inf:
            self.now = until
            return False
        self.now = max(self.now, first)
        if self._events and self._events[0][0] <= self.now:
            heapq.heappop(self._events)[2]()
        for loop in self.loops:
            if loop.timers and loop not in self.suspended:
                loop.wake()
        return True

    @contextmanager
    def _clock(self) -> Iterator[None]:
        with (
            patch.object(time, "time", lambda: self.now + self.skew),
            patch.object(time, "time_ns", lambda: int((self.now + self.skew) * 1e9)),
            patch.object(time, "monotonic", lambda: self.now),
        ):
            yield
