"""Requests that are not answered before a time: what reaches them meanwhile, and each rule, broken on purpose."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
from aiokafka import TopicPartition
from msgspec.structs import replace

from agents import controls, requests
from app.delivery.sleepers import Sleepers
from app.features.waits import clock, timers, wake
from app.features.waits.timers import LaterRequests
from app.features.waits.wake import Woken
from app.policy.file import Policy, TenantRule, WaitRules
from models.interface.generation import FinishReason
from tables.records import Table
from tests.simulation.mutant import Mutant, find_broken_promise
from tests.simulation.sleeping import timer_storm
from tests.simulation.test_directed import Course
from tests.simulation.test_sleeping import CONDITIONS, DAY_S, SLEEPS

_WAKE = wake.wake
_IN_3_DAYS = 3 * DAY_S


def _course(policy: Policy = SLEEPS) -> Course:
    return Course(policy, CONDITIONS)


def _ask(course: Course, at: float, request_id: str, after_s: float, **fields: Any) -> None:
    not_before = int((course.simulation.began + at + after_s) * 1000)
    course.send(at, request_id=request_id, not_before=not_before, **{"prompt": "when?", "max_tokens": 2, **fields})


def _seconds(course: Course, request_id: str) -> float:
    """When its first token was there."""
    first = next(event for event in course.events(request_id) if event.tokens)
    return (first.timestamp or 0) / 1000 - course.simulation.began


def _state(course: Course, request_id: str) -> Any:
    entries = course.simulation.broker.log(TopicPartition("waits", 0)).entries
    value = {one.key: one.value for one in entries if one.visible}[f'["u","{request_id}"]'.encode()]
    return None if value is None else json.loads(value)["state"]


def test_it_is_as_a_request_that_is_sent_then() -> None:
    """It reads what was said meanwhile, and its deadline counts from its time."""
    course = _course()
    _ask(course, 1.0, "r", 20.0, deadline_ms=3000)
    course.send(5.0, request_id="between", prompt="said meanwhile", max_tokens=2)
    course.run()
    assert list(course.turns()) == ["between", "r"]
    assert course.turns()["r"].finish_reason is FinishReason.LENGTH
    assert 21.0 <= _seconds(course, "r") < 21.5
    codes = [event.notice.code for event in course.events("r") if event.notice is not None]
    assert (codes[0], codes[1]) == ("waiting", "woken")
    assert _state(course, "r") == "ended"


def test_it_holds_no_offset_while_it_waits() -> None:
    course = _course()
    _ask(course, 1.0, "r", 30.0)
    seen = []

    def look() -> None:
        ownership = course.simulation.alive[0].partitions[0].ownership
        seen.append((ownership.offsets["requests"].head(), len(ownership.inflight_requests)))

    course.after(5.0, look)
    course.run()
    assert seen == [(1, 0)]


@pytest.mark.parametrize(
    "control",
    [
        {"type": "cancel", "request_id": "r"},
        {"type": "erase"},
        {"type": "erase_conversation", "conversation_id": "default"},
    ],
)
def test_what_a_user_does_reaches_it(control: dict[str, str]) -> None:
    course = _course()
    _ask(course, 1.0, "r", _IN_3_DAYS)
    course.send(6.0, "controls", **control)
    course.run()
    turn, (end,) = course.turns()["r"], [event for event in course.events("r") if event.is_end]
    assert (turn.finish_reason, turn.answer) == (FinishReason.CANCELLED, "")
    assert (end.timestamp or 0) / 1000 - course.simulation.began < 7.0
    assert bool(turn.prompt) is (control["type"] == "cancel")
    assert _state(course, "r") == ("ended" if control["type"] == "cancel" else None)


def test_days_without_a_worker_lose_nothing() -> None:
    """The record of its wake is not needed before: its row has all."""
    course = _course()
    _ask(course, 1.0, "r", 2 * DAY_S)
    course.after(5.0, course.simulation.alive[0].kill)
    course.after(_IN_3_DAYS, partial(course.simulation.start_again, "w1"))
    course.simulation.keep_running(_IN_3_DAYS + 30.0)
    course.run()
    assert course.turns()["r"].answer
    assert _seconds(course, "r") >= _IN_3_DAYS


def test_a_repeat_makes_no_second_one() -> None:
    course = _course()
    for at in (1.0, 1.0, 3.0, 11.0, 12.0):
        _ask(course, at, "r", 11.0 - at)
    course.run()
    assert sum(event.is_end for event in course.events("r")) == 1
    assert _seconds(course, "r") >= 11.0


def test_its_quota_is_that_of_its_moment() -> None:
    """The tenant may ask once a minute: a request that waits is none yet."""
    course = _course(replace(SLEEPS, tenants={"t": TenantRule(requests_per_min=1)}))
    _ask(course, 1.0, "r", 20.0, tenant="t")
    course.send(2.0, request_id="now", prompt="now", max_tokens=2, tenant="t")
    course.run()
    (end,) = [event for event in course.events("r") if event.is_end]
    assert end.error is not None
    assert end.error.code == "rate_limited"
    assert course.turns()["now"].finish_reason is FinishReason.LENGTH


@pytest.mark.parametrize(
    ("policy", "after_s", "code"),
    [
        (Policy(), 5.0, "invalid_request"),
        (SLEEPS, 367 * DAY_S, "invalid_request"),
        (Policy(waits=WaitRules(per_user=1)), 5.0, "overloaded"),
    ],
)
def test_one_that_cannot_wait_ends_at_once(policy: Policy, after_s: float, code: str) -> None:
    course = _course(policy)
    if code == "overloaded":
        _ask(course, 1.0, "first", 10.0)
    _ask(course, 2.0, "r", after_s)
    course.simulation.run()
    (end,) = [event for event in course.events("r") if event.is_end]
    assert end.error is not None
    assert (end.error.code, (end.timestamp or 0) / 1000 - course.simulation.began < 3.0) == (code, True)
    assert not any(course.simulation.broker.log(TopicPartition("dead-letters", 0)).entries)


async def _decides(_stage: Any, plan: Any, then: Any) -> Any:
    return await then(plan)


def _forgets(_sleepers: Sleepers) -> None:
    """A next owner does not look for requests that wait."""


async def _erases_nothing(*_: Any) -> None:
    return


MUTANTS = {
    "it begins before its time": Mutant(
        LaterRequests, "holds", lambda *_: False, timer_storm, more=((timers.OnTime, "decide", _decides),)
    ),
    "it is refused instead": Mutant(LaterRequests, "holds", lambda *_: False, timer_storm),
    "a next owner forgets it": Mutant(Sleepers, "begin", _forgets, timer_storm, hint=3),
    "a wake writes no record": Mutant(
        clock,
        "wake",
        lambda *of, **by: Woken((one := _WAKE(*of, **by)).changes, one.outputs[1:]),
        timer_storm,
    ),
    "a repeat makes a second one": Mutant(requests, "_sleeps_on", lambda *_: False, timer_storm, 4),
    "its row stays behind its end": Mutant(
        timers.OnTime, "leave", lambda _, kept: kept, timer_storm, more=((clock.WaitClock, "_repair", _erases_nothing),)
    ),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_promise_is_found(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    find_broken_promise(mutant, MUTANTS[mutant], monkeypatch)


@pytest.mark.parametrize(
    ("name", "broken", "control"),
    [
        ("wake_erased", _erases_nothing, {"type": "erase"}),
        ("stop", lambda *_: None, {"type": "cancel", "request_id": "r"}),
    ],
)
def test_what_a_user_does_and_does_not_reach_it_is_found(
    name: str, broken: Any, control: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controls, name, broken)
    with pytest.raises(AssertionError):
        test_what_a_user_does_reaches_it(control)


def test_nothing_is_left_of_it() -> None:
    course = _course()
    _ask(course, 1.0, "r", 5.0)
    course.run()
    log = course.simulation.broker.log(TopicPartition(f"parley-{Table.ASLEEP.value}-changelog", 0))
    assert not any({entry.key: entry.value for entry in log.entries if entry.visible}.values())
