from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from mode import Service

from app.faust.same_loop import SameLoop


class Counter(SameLoop):
    """Counts in a task of its own, and remembers the threads it was in."""

    broken: Exception | None = None

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(loop=loop, thread_loop=loop)
        self.threads: set[int] = set()
        self.counted = 0
        self.stopped = False

    async def on_start(self) -> None:
        if self.broken is not None:
            raise self.broken

    @Service.task
    async def _count(self) -> None:
        while not self.should_stop:
            self.threads.add(threading.get_ident())
            self.counted += 1
            await asyncio.sleep(0.001)

    async def on_thread_stop(self) -> None:
        await super().on_thread_stop()
        self.stopped = True


async def test_service_runs_in_the_loop_that_starts_it_and_stops_with_nothing_else() -> None:
    other = asyncio.create_task(asyncio.sleep(60))
    counter = Counter()
    await counter.start()
    while counter.counted < 3:
        await asyncio.sleep(0.001)
    await counter.stop()

    assert counter.threads == {threading.get_ident()}
    assert counter.stopped
    counted = counter.counted
    await asyncio.sleep(0.01)
    assert counter.counted == counted
    assert not other.done()
    other.cancel()


async def test_call_runs_at_once_whether_it_has_to_be_awaited_or_not() -> None:
    counter = Counter()

    async def later(value: int) -> int:
        return value + 1

    assert await counter.call_thread(later, value=1) == 2
    assert await counter.call_thread(lambda value: value + 2, 1) == 3


@pytest.mark.parametrize("kind", [ValueError, RuntimeError])
async def test_error_at_the_start_is_raised_where_the_service_is_started(kind: Any, capsys: Any) -> None:
    counter = Counter()
    counter.broken = kind("no broker")
    with pytest.raises(kind, match="no broker"):
        await counter.start()
    capsys.readouterr()  # mode prints the traceback
    await counter.stop()
