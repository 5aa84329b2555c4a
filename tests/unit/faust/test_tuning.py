"""What makes Faust faster does what Faust does, and what it relies on is in the installed version."""

from __future__ import annotations

import asyncio
import inspect
import sys
import threading
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest
from faust.tables.manager import TableManager
from faust.transport.consumer import Consumer
from mode import Service

from app.application import create_app
from app.faust import tuning
from app.faust.tuning import NoTables, QuickDelivery, SameLoop, messages_from, quick_loop
from app.settings import Settings
from tests.virtual_time import in_virtual_time


def test_a_worker_has_a_loop_of_uvloop_where_that_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    module = pytest.importorskip("uvloop")
    with closing(quick_loop(usual := asyncio.new_event_loop())) as loop:
        assert (type(loop), usual.is_closed()) == (module.Loop, True)
        monkeypatch.setitem(sys.modules, "uvloop", None)
        assert quick_loop(loop) is loop
    asyncio.set_event_loop(None)


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


@in_virtual_time
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
    assert other.cancel(), "it still runs"


@in_virtual_time
async def test_call_runs_at_once_whether_it_has_to_be_awaited_or_not() -> None:
    counter = Counter()
    assert await counter.call_thread(later, value=1) == 1
    assert await counter.call_thread(lambda value: value + 2, 1) == 3


@pytest.mark.parametrize("kind", [ValueError, RuntimeError])
@in_virtual_time
async def test_error_at_the_start_is_raised_where_the_service_is_started(kind: Any, capsys: Any) -> None:
    counter = Counter()
    counter.broken = kind("no broker")
    with pytest.raises(kind, match="no broker"):
        await counter.start()
    capsys.readouterr()  # mode prints the traceback
    await counter.stop()


class Waiting(Service):
    """mode's own."""


class Quick(QuickDelivery):
    abstract = False


async def at_once(value: int) -> int:
    return value


async def later(value: int) -> int:
    await asyncio.sleep(0.001)
    return value


async def wrong(_: int) -> int:
    raise ValueError("wrong")


async def wrong_later(_: int) -> int:
    await asyncio.sleep(0.001)
    raise ValueError("wrong later")


@pytest.mark.parametrize("first", [at_once, later, wrong, wrong_later])
@pytest.mark.parametrize("timeout", [None, 5.0])
@in_virtual_time
async def test_a_wait_ends_as_mode_s_does(first: Any, timeout: float | None) -> None:
    outcomes = []
    for service in (Waiting(), Quick()):
        never = asyncio.Event()
        try:
            results = await service.wait_first(first(7), never.wait(), timeout=timeout)
            outcomes.append((list(results.results), len(results.done), results.stopped))
        except ValueError as error:
            outcomes.append(str(error))
    assert outcomes[0] == outcomes[1]


@in_virtual_time
async def test_a_wait_that_is_interrupted_cancels_the_work_in_hand() -> None:
    cancelled = []

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            cancelled.append(True)

    interrupt = asyncio.Event()
    asyncio.get_running_loop().call_later(0.01, interrupt.set)
    await Quick().wait_first(work(), interrupt.wait())
    await asyncio.sleep(0)
    assert cancelled == [True], "Faust drops the record in hand when a rebalance begins"


def test_faust_delivers_each_record_through_the_wait_and_counts_gaps_for_commits_alone() -> None:
    drain = inspect.getsource(Consumer._drain_messages)
    assert "await self.wait_first(\n" in drain
    assert "callback(message), self.suspend_flow.wait()" in drain
    assert drain.count("_add_gap(") == 1
    methods = inspect.getmembers(Consumer, inspect.isfunction)
    readers = [name for name, one in methods if "self._gap" in inspect.getsource(one)]
    assert readers == ["__init__", "_add_gap", "_new_offset", "on_partitions_revoked"]


def test_nothing_but_the_wait_is_left_out_of_the_start_of_the_installed_faust() -> None:
    source = inspect.getsource(TableManager.on_start)
    steps = [line.strip() for line in source.splitlines() if "await" in line]
    assert steps == ["await self.sleep(1.0)", "await self._update_channels()", "await self.recovery.start()"]


def test_worker_has_no_tables_of_faust() -> None:
    app = create_app(Settings(_env_file=None))
    assert isinstance(app.tables, NoTables)
    assert not app.tables


async def test_a_stream_gets_what_waits_for_it_in_order_and_for_milliseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = create_app(Settings(_env_file=None)).topic("any").stream()
    for number in range(1, 5):
        stream.channel.queue.put_nowait(SimpleNamespace(message=number))
    assert list(messages_from(SimpleNamespace(message=0), stream)) == [0, 1, 2, 3, 4]
    assert list(messages_from(SimpleNamespace(message=5), stream)) == [5]
    stream.channel.queue.put_nowait(SimpleNamespace(message=6))
    monkeypatch.setattr(tuning, "AT_ONCE_S", 0.0)
    assert list(messages_from(SimpleNamespace(message=5), stream)) == [5]
    assert stream.channel.queue.qsize() == 1
