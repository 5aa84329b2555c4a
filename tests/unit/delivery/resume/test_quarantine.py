from __future__ import annotations

import asyncio

import pytest

from app.delivery.resume import quarantine
from app.delivery.resume.quarantine import Attempt, Isolation, lost_attempts
from app.wire.event import Notice
from tests.virtual_time import in_virtual_time


def test_attempts_count_while_they_begin_at_the_same_token() -> None:
    assert lost_attempts(None, 0) == 0
    assert lost_attempts(Attempt(2, 0), 0) == 2
    assert lost_attempts(Attempt(2, 0), 7) == 0, "the answer has grown since"


@pytest.mark.parametrize(
    "notice",
    [
        Notice("resumed", ""),
        Notice("attempt", ""),
        Notice("attempt", "", {}),
        Notice("attempt", "", {"attempt": "many"}),
        Notice("attempt", "", {"attempt": None}),
    ],
)
def test_other_notices_are_no_attempts(notice: Notice) -> None:
    assert Attempt.of(notice, 3) is None


def test_attempt_is_read_from_its_notice() -> None:
    assert Attempt.of(Notice("attempt", "", {"attempt": 2}), 3) == Attempt(2, 3)


@in_virtual_time
async def test_first_attempts_begin_together() -> None:
    isolation = Isolation()
    async with asyncio.timeout(60):
        for _ in range(10):
            await isolation.enter(1)


@in_virtual_time
async def test_suspect_begins_alone() -> None:
    isolation = Isolation()
    first = await isolation.enter(1)
    suspect = asyncio.ensure_future(isolation.enter(2))
    await asyncio.sleep(0)
    assert not suspect.done(), "another replayed request has not begun to speak"
    first.leave()
    first.leave()
    beginning = await asyncio.wait_for(suspect, 60)
    others = [asyncio.ensure_future(isolation.enter(number)) for number in (1, 2, 3)]
    await asyncio.sleep(0)
    assert not any(other.done() for other in others)
    beginning.leave()
    done, _ = await asyncio.wait(others, timeout=0.2)
    assert len(done) == 1, "those that wait are not let in beside a suspect"
    for other in others:
        other.cancel()


@in_virtual_time
async def test_fresh_request_waits_for_a_suspect_that_begins_and_for_nothing_else() -> None:
    isolation = Isolation()
    async with asyncio.timeout(60):
        await isolation.pass_suspect()
        first = await isolation.enter(1)
        await isolation.pass_suspect()
        first.leave()
        suspect = await isolation.enter(2)
        fresh = asyncio.ensure_future(isolation.pass_suspect())
        await asyncio.sleep(0)
        assert not fresh.done()
        suspect.leave()
        await fresh


@in_virtual_time
async def test_fresh_request_does_not_wait_for_a_slow_suspect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quarantine, "ALONE_S", 0.01)
    isolation = Isolation()
    await isolation.enter(2)
    async with asyncio.timeout(60):
        await isolation.pass_suspect()


@pytest.mark.parametrize(
    ("number", "now", "pause_s"),
    [
        (1, 0, 0.0),
        (2, 0, 5.0),
        (2, 4_000, 1.0),
        (2, 5_000, 0.0),
        (3, 5_000, 10.0),
        (3, 60_000, 0.0),
        (3, -60_000, 15.0),
    ],
)
def test_attempts_of_a_suspect_lie_apart(number: int, now: int, pause_s: float) -> None:
    assert quarantine.pause_before(number, lost_at=0, now=now) == pause_s


def test_three_kills_within_15_seconds_cannot_meet_three_attempts() -> None:
    assert sum(quarantine.pause_before(number, 0, 0) for number in range(1, quarantine.MOST_ATTEMPTS + 1)) > 15
