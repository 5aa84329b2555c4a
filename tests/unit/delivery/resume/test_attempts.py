"""Attempts of replayed requests: what is in the log, and when."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.delivery.inflight import InFlightRequest
from app.delivery.partition import Partition
from app.delivery.resume import quarantine
from app.delivery.resume.attempts import Attempts
from app.delivery.resume.tokens import TokenLog
from app.wire.event import TokenEvent
from models.generation import FinishReason
from tests.unit.agents.inflight_requests import inflight_of


class Log:
    def __init__(self) -> None:
        self.attempts: list[tuple[int | None, Any]] = []

    delivered = staticmethod(TokenLog.delivered)

    async def send(self, event: TokenEvent, *_: object) -> asyncio.Future[Any]:
        assert event.notice is not None
        assert event.notice.details is not None
        self.attempts.append((event.index, event.notice.details["attempt"]))
        delivered = asyncio.get_running_loop().create_future()
        delivered.set_result(None)
        return delivered


class Bench:
    def __init__(self) -> None:
        self.log = Log()
        self.attempts = Attempts()
        clock = SimpleNamespace(now=lambda: 100_000)
        ownership = SimpleNamespace(tokens=self.log, clock=clock)
        lanes = SimpleNamespace(without_slot=nullcontext)
        self.partition = cast(Partition, SimpleNamespace(ownership=ownership, lanes=lanes, begun={}))

    async def begin(self, inflight: InFlightRequest, index: int) -> None:
        async with asyncio.timeout(5):
            await self.attempts.begin(self.partition, inflight, index)


def replayed(lost: int = 0, lost_at: int = 0) -> InFlightRequest:
    inflight = inflight_of()
    inflight.replayed, inflight.lost_attempts, inflight.lost_at = True, lost, lost_at
    return inflight


async def test_fresh_request_writes_no_attempt() -> None:
    bench = Bench()
    await bench.begin(inflight_of(), 0)
    assert bench.log.attempts == []


async def test_attempt_is_in_the_log_before_anything_else_happens_and_once() -> None:
    bench, inflight = Bench(), replayed(lost=1)
    await bench.begin(inflight, 0)
    await bench.begin(inflight, 0)
    assert bench.log.attempts == [(0, 2)]
    assert bench.partition.begun == {inflight.key: 2}


async def test_answer_that_has_grown_begins_to_count_anew() -> None:
    bench, inflight = Bench(), replayed(lost=2)
    await bench.begin(inflight, 0)
    inflight.has_begun()
    await bench.begin(inflight, 7)
    assert bench.log.attempts == [(0, 3), (7, 1)]


async def test_second_try_at_the_same_token_is_the_same_attempt() -> None:
    bench, inflight = Bench(), replayed()
    await bench.begin(inflight, 0)
    inflight.has_begun()
    await bench.begin(inflight, 0)
    assert bench.log.attempts == [(0, 1)]
    assert inflight.is_beginning, "it may end its worker again"


async def test_wait_for_a_tool_is_no_attempt() -> None:
    bench, inflight = Bench(), replayed(lost=1)
    await bench.begin(inflight, 0)
    await bench.attempts.interrupt(bench.partition, inflight)
    assert bench.log.attempts == [(0, 2), (0, 1)]
    assert not inflight.is_beginning, "others may begin meanwhile"
    await bench.begin(inflight, 0)
    assert bench.log.attempts[2:] == [(0, 2)]


async def test_suspect_waits_apart_from_its_last_attempt_unless_it_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quarantine, "_APART_S", {2: 1000.0})
    bench, inflight = Bench(), replayed(lost=1, lost_at=100_000)
    beginning = asyncio.ensure_future(bench.begin(inflight, 0))
    await asyncio.sleep(0.01)
    assert bench.log.attempts == []
    inflight.stop.now(FinishReason.CANCELLED)
    await beginning


async def test_suspect_that_waits_apart_holds_up_no_other() -> None:
    bench = Bench()
    waiting = asyncio.ensure_future(bench.begin(replayed(lost=1, lost_at=100_000), 0))
    await asyncio.sleep(0)
    other = replayed()
    await bench.begin(other, 0)
    assert bench.log.attempts == [(0, 1)]
    waiting.cancel()
