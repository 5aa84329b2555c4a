"""Waiting for the results of calls: what an answer goes on with, and what ends the wait."""

from __future__ import annotations

import asyncio

import pytest

from app.answering.kept import Kept
from app.answering.run import Over
from app.answering.stage import Ending
from app.features import tool_rounds
from app.features.tool_rounds import ToolsOverKafka
from app.features.waits.approvals import TIMED_OUT
from app.settings import Settings
from app.wire.tools import ToolMode
from models.interface.chat import ModelCall
from models.interface.generation import End, FinishReason, Usage
from tables.records import RowChange, Table
from tables.tool_calls import ToolOutcome, ToolRound, ToolRounds
from tests.unit.answering.runs import run_and_stage_of
from tests.unit.delivery.fake_partition import NOW, FakePartition
from tests.unit.delivery.inflight_requests import inflight_of

CALL = ModelCall("look_up", "{}", "call_1")


class Bench:
    """A request whose answer has asked for one result."""

    def __init__(self, expires_at: int) -> None:
        tools = ToolsOverKafka(Settings(_env_file=None))
        self.partition = FakePartition()
        inflight = inflight_of(tool_mode=ToolMode.KAFKA)
        one = ToolRound(0, "", (CALL,), Usage(1, 1), NOW, expires_at)
        self.rounds = ToolRounds(NOW).asked(one)
        self.partition.put(Table.CALLS, self.rounds, *inflight.key)
        self.run, self.stage = run_and_stage_of(tools, inflight=inflight, partition=self.partition)
        self.calls = tools.calls_of(self.run.partition.ownership)

    def wait(self) -> asyncio.Future[Ending]:
        """Let the answer go on; its next round has nothing to say."""

        async def over() -> Ending:
            return End(0, FinishReason.STOP, Usage(0, 0))

        return asyncio.ensure_future(self.stage.round(over))

    def decide(self, content: str) -> RowChange:
        return self.calls.decide(self.run.key, self.rounds.answered(ToolOutcome("call_1", content)))

    def commit(self, change: RowChange) -> None:
        self.partition.ownership.store.apply([change], {}, now_ms=0)

    @property
    def outcomes(self) -> tuple[ToolOutcome, ...]:
        """The results that the next round reads."""
        return self.run.answer.rounds.rounds[-1].outcomes


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_an_answer_goes_on_only_with_results_that_are_committed() -> None:
    """After a crash the next owner knows the committed ones alone, and must build the same prompt."""
    bench = Bench(expires_at=NOW + 3_600_000)
    waiting = bench.wait()
    await turns()
    change = bench.decide("sunny")
    bench.calls.wake([bench.run.key])
    await turns()
    assert not waiting.done(), "the result is decided, and not committed yet"
    bench.commit(change)
    bench.calls.wake([bench.run.key])
    await waiting
    assert bench.outcomes == (ToolOutcome("call_1", "sunny"),)


async def test_a_time_out_does_not_wait_for_results_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_rounds, "_READ_S", 0.01)
    bench = Bench(expires_at=NOW - 1)
    await bench.wait()
    assert bench.outcomes == (ToolOutcome("call_1", TIMED_OUT),)
    assert bench.calls.reads == ()


async def test_a_stop_does_not_wait_for_results_that_cannot_be_read() -> None:
    bench = Bench(expires_at=NOW - 1)
    waiting = bench.wait()
    await turns()
    assert len(bench.calls.reads) == 1
    bench.run.inflight.stop.now(FinishReason.CANCELLED)
    with pytest.raises(Over) as ended:
        await waiting
    assert ended.value.end.reason is FinishReason.CANCELLED


async def test_a_result_that_was_read_in_time_is_no_time_out() -> None:
    bench = Bench(expires_at=NOW - 1)
    waiting = bench.wait()
    await turns()
    change = bench.decide("sunny")
    bench.commit(change)
    bench.calls.have_read(bench.calls.reads)
    await waiting
    assert bench.outcomes == (ToolOutcome("call_1", "sunny"),)


def test_a_result_that_comes_while_the_end_is_committed_is_late() -> None:
    """It would write the row again that the end deletes."""
    bench = Bench(expires_at=NOW + 3_600_000)
    kept = bench.stage.leave(Kept())
    assert [(change.table, change.value) for change in kept.changes] == [(Table.CALLS, None)]
    decided = bench.calls.decided(bench.run.key)
    assert decided is not None
    assert not decided.missing
