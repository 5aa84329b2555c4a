"""Attempts of replayed requests: what is in the log, and when."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from app.answering.attempts import Attempting
from app.answering.pipeline import Answering
from app.answering.stage import Decide, Stage
from app.delivery.accepted import Former
from app.delivery.inflight import InFlight
from app.delivery.resume import quarantine
from app.wire.event import Plan
from models.interface.generation import FinishReason
from tests.unit.answering.runs import answering_of, run_of
from tests.unit.delivery.fake_partition import FakeLog, FakePartition
from tests.unit.delivery.inflight_requests import inflight_of
from tests.virtual_time import in_virtual_time


class Log(FakeLog):
    @property
    def attempts(self) -> list[tuple[int | None, Any]]:
        notices = [(event.index, event.notice.details or {}) for event in self.events if event.notice is not None]
        return [(index, details["attempt"]) for index, details in notices]


class Bench:
    def __init__(self) -> None:
        self.log = Log()
        self.isolation = quarantine.Isolation()
        self.partition = FakePartition()
        self.partition.ownership.token_log = self.log
        self.partition.ownership.clock.ms = 100_000

    def stage_of(self, inflight: InFlight) -> Attempting:
        return Attempting(run_of(inflight=inflight, partition=self.partition), self.isolation)

    async def begin(self, stage: Attempting, index: int = 0) -> None:
        stage.run.answer.index = index
        async with asyncio.timeout(60):
            await stage._begin()


def replayed(lost: int = 0, lost_at: int = 0) -> InFlight:
    inflight = inflight_of(Former(is_replayed=True))
    inflight.attempts.lost, inflight.attempts.lost_at = lost, lost_at
    return inflight


@in_virtual_time
async def test_attempt_is_in_the_log_before_anything_else_happens_and_once() -> None:
    bench = Bench()
    stage = bench.stage_of(replayed(lost=1))
    await bench.begin(stage)
    await bench.begin(stage)
    assert bench.log.attempts == [(0, 2)]
    assert bench.partition.begun == {stage.run.key: 2}


@in_virtual_time
async def test_answer_that_has_grown_begins_to_count_anew() -> None:
    bench = Bench()
    stage = bench.stage_of(replayed(lost=2))
    await bench.begin(stage)
    stage.run.inflight.attempts.end_beginning()
    await bench.begin(stage, 7)
    assert bench.log.attempts == [(0, 3), (7, 1)]


@in_virtual_time
async def test_second_try_at_the_same_token_is_the_same_attempt() -> None:
    bench = Bench()
    stage = bench.stage_of(replayed())
    await bench.begin(stage)
    stage.run.inflight.attempts.end_beginning()
    await bench.begin(stage)
    assert bench.log.attempts == [(0, 1)]
    assert stage.run.inflight.attempts.is_beginning, "it may end its worker again"


@in_virtual_time
async def test_wait_for_a_tool_is_no_attempt() -> None:
    bench = Bench()
    stage = bench.stage_of(replayed(lost=1))
    await bench.begin(stage)
    async with stage.run.waiting():
        assert bench.log.attempts == [(0, 2), (0, 1)]
        assert not stage.run.inflight.attempts.is_beginning, "others may begin meanwhile"
    await bench.begin(stage)
    assert bench.log.attempts[2:] == [(0, 2)]


@in_virtual_time
async def test_suspect_waits_apart_from_its_last_attempt_unless_it_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quarantine, "_APART_S", {2: 1000.0})
    bench = Bench()
    stage = bench.stage_of(replayed(lost=1, lost_at=100_000))
    beginning = asyncio.ensure_future(bench.begin(stage))
    await asyncio.sleep(0.01)
    assert bench.log.attempts == []
    stage.run.inflight.stop.now(FinishReason.CANCELLED)
    await beginning


@in_virtual_time
async def test_suspect_that_waits_apart_holds_up_no_other() -> None:
    bench = Bench()
    waiting = asyncio.ensure_future(bench.begin(bench.stage_of(replayed(lost=1, lost_at=100_000))))
    await asyncio.sleep(0)
    await bench.begin(bench.stage_of(replayed()))
    assert bench.log.attempts == [(0, 1)]
    waiting.cancel()


async def seconds_of(answering: Answering) -> float:
    began = asyncio.get_running_loop().time()
    assert (await answering.to_its_end()).finish_reason is not None
    return asyncio.get_running_loop().time() - began


@in_virtual_time
async def test_fresh_request_waits_for_a_suspect_before_it_decides_and_before_it_is_computed() -> None:
    class Suspecting(Stage):
        async def decide(self, plan: Plan, then: Decide) -> Plan:
            await amid._isolation.enter(2)
            return await then(plan)

    bench = Bench()
    behind = answering_of(partition=bench.partition)
    await behind._isolation.enter(2)
    assert 2 * quarantine.ALONE_S <= await seconds_of(behind) < 2 * quarantine.ALONE_S + 0.5
    amid = answering_of(partition=bench.partition)
    amid.stages = (Suspecting(amid.run),)
    assert quarantine.ALONE_S <= await seconds_of(amid) < quarantine.ALONE_S + 0.5
    assert bench.log.attempts == []
