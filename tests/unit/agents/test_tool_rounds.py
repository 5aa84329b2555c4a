"""Waiting for the results of calls: what an answer goes on with, and what ends the wait."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from agents.tool_rounds import TIMED_OUT, ToolCalls
from app.delivery.open_calls import OpenCalls

from agents import tool_rounds
from app.delivery.inflight import InFlightRequest
from app.settings import Settings
from models.chat import ToolCall
from models.generation import FinishReason, Usage
from tables.tool_calls import ToolOutcome, ToolRound, ToolRounds
from tests.simulation.memory_store import Disk, MemoryStore
from tests.unit.agents.inflight_requests import inflight_of
from tests.unit.agents.partitions import NOW, Clock

CALL = ToolCall("look_up", "{}", "call_1")


@dataclass
class Own:
    store: MemoryStore = field(default_factory=lambda: MemoryStore.open_on(Disk(), Path("p"), owner="test"))
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.calls = OpenCalls(self.store)


class Partition:
    """Commits at once."""

    def __init__(self) -> None:
        self.ownership = Own()
        self.context = self

    @contextmanager
    def without_slot(self, _inflight: InFlightRequest) -> Any:
        with nullcontext():
            yield

    async def commit(self, commit: Any, *, urgent: bool = False) -> None:
        self.ownership.store.apply(commit.changes, {}, now_ms=0)

    def topic_partition(self, topic: str) -> tuple[str, int]:
        return topic, 0


class Notices:
    async def notice(self, *_: Any) -> None:
        return None


class Bench:
    def __init__(self, expires_at: int) -> None:
        self.partition = Partition()
        self.inflight = inflight_of()
        one = ToolRound(0, "", (CALL,), Usage(1, 1), NOW, expires_at)
        self.rounds = ToolRounds(NOW).asked(one)
        self.inflight.made = self.inflight.rounds = self.rounds
        self.calls = self.partition.ownership.calls
        self.partition.ownership.store.apply([self.calls.decide(self.inflight.key, self.rounds)], {}, now_ms=0)

    def wait(self) -> asyncio.Future[FinishReason | None]:
        tools = ToolCalls(Settings(_env_file=None))
        return asyncio.ensure_future(tools.wait(cast(Any, self.partition), self.inflight, cast(Any, Notices())))


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_an_answer_goes_on_only_with_results_that_are_committed() -> None:
    """After a crash the next owner knows the committed ones alone, and must build the same prompt."""
    bench = Bench(expires_at=NOW + 3_600_000)
    waiting = bench.wait()
    await turns()
    change = bench.calls.decide(bench.inflight.key, bench.rounds.answered(ToolOutcome("call_1", "sunny")))
    bench.calls.wake([bench.inflight.key])
    await turns()
    assert not waiting.done(), "the result is decided, and not committed yet"
    bench.partition.ownership.store.apply([change], {}, now_ms=0)
    bench.calls.wake([bench.inflight.key])
    assert await waiting is None
    assert bench.inflight.rounds.rounds[-1].outcomes == (ToolOutcome("call_1", "sunny"),)


async def test_a_time_out_does_not_wait_for_results_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_rounds, "_READ_S", 0.01)
    bench = Bench(expires_at=NOW - 1)
    assert await bench.wait() is None
    assert bench.inflight.rounds.rounds[-1].outcomes == (ToolOutcome("call_1", TIMED_OUT),)
    assert bench.calls.reads == ()


async def test_a_stop_does_not_wait_for_results_that_cannot_be_read() -> None:
    bench = Bench(expires_at=NOW - 1)
    waiting = bench.wait()
    await turns()
    assert len(bench.calls.reads) == 1
    bench.inflight.stop.now(FinishReason.CANCELLED)
    assert await waiting is FinishReason.CANCELLED


async def test_a_result_that_was_read_in_time_is_no_time_out() -> None:
    bench = Bench(expires_at=NOW - 1)
    waiting = bench.wait()
    await turns()
    change = bench.calls.decide(bench.inflight.key, bench.rounds.answered(ToolOutcome("call_1", "sunny")))
    bench.partition.ownership.store.apply([change], {}, now_ms=0)
    bench.calls.have_read(bench.calls.reads)
    assert await waiting is None
    assert bench.inflight.rounds.rounds[-1].outcomes == (ToolOutcome("call_1", "sunny"),)
