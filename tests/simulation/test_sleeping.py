"""Each moment at which an owner can die while an answer sleeps and wakes, and what reaches an answer that sleeps."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from aiokafka import TopicPartition
from msgspec.structs import replace

from app.delivery.record import REQUESTS
from app.delivery.sleepers import Sleepers
from app.policy.file import Policy, WaitRules
from app.wire.codec import WOKEN_HEADER
from models.interface.generation import FinishReason
from tables.asleep import Sleep
from tables.records import RowChange, Table
from tests.faults.load import TOOLS
from tests.faults.tool_programs import Planned, _result
from tests.simulation import many_asleep
from tests.simulation.process import Process
from tests.simulation.scenario import Conditions
from tests.simulation.test_directed import TO_SMALL, Course
from tests.simulation.tools import SimToolPrograms

DAY_S = 86_400.0
KEY = ("u", "r")
SLEEPS = Policy(waits=WaitRules(park_after_s=0.3))
CONDITIONS = Conditions(ttl_s=30 * DAY_S, sleeps_after_s=0.3)
ASKED = {"prompt": "begin", "max_tokens": 6, "tools": TOOLS, "tool_mode": "kafka", "tool_timeout_ms": 60_000}
At = Callable[["Waits", Process], bool]


class Waits(Course):
    """A worker whose answers sleep, and a program that gives each call one result after a while."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        after_s: float | None = 2.0,
        policy: Policy = SLEEPS,
        conditions: Conditions = CONDITIONS,
    ) -> None:
        def one_result(call: Any, *_: Any) -> list[Planned]:
            return [] if after_s is None else [Planned(after_s, _result(call, f"result of {call.tool_call_id}"))]

        monkeypatch.setattr("tests.simulation.tools.planned", one_result)
        super().__init__(policy, conditions)
        self.simulation.tools = SimToolPrograms(1, self.simulation.broker, self.simulation.settings())

    def head(self) -> bytes | None:
        return self.committed(Table.ASLEEP).get(b'["wait","u","r"]')

    def woken_records(self) -> list[int]:
        return [one.offset for one in self.records(REQUESTS) if one.visible and WOKEN_HEADER in dict(one.headers)]

    def sleeps(self) -> int:
        return sum(event.notice is not None and event.notice.code == "waiting" for event in self.events("r"))


def _queued(process: Process, is_it: Callable[[RowChange], bool]) -> bool:
    queue = process.partitions[0].context.queue
    return any(is_it(row) for one in (*queue.waiting, *queue.in_hand) for row in one.commit.changes)


def _is_head(row: RowChange, state: Sleep) -> bool:
    return row.table is Table.ASLEEP and b'"wait"' in row.key and state.value.encode() in (row.value or b"")


def _puts_t1(_: Waits, process: Process) -> bool:
    return _queued(process, lambda row: _is_head(row, Sleep.ASLEEP))


def _has_committed_t1(course: Waits, _process: Process) -> bool:
    return course.head() is not None


def _puts_t3(_: Waits, process: Process) -> bool:
    return _queued(process, lambda row: _is_head(row, Sleep.AWAKE))


def _has_committed_t3(course: Waits, _process: Process) -> bool:
    return bool(course.woken_records())


def _is_awake(_: Waits, process: Process) -> bool:
    inflight = process.partitions[0].ownership.inflight_requests.get(KEY)
    return inflight is not None and inflight.accepted.sleeper is not None


def _has_written(course: Waits, process: Process) -> bool:
    inflight = process.partitions[0].ownership.inflight_requests.get(KEY)
    answer = None if inflight is None else inflight.answer
    return _is_awake(course, process) and answer is not None and bool(answer.gaps)


def _has_its_end(course: Waits, _process: Process) -> bool:
    return any(event.is_end for event in course.events("r"))


def _has_ended(course: Waits, _process: Process) -> bool:
    return b'["u","r"]' in course.committed(Table.ENDED)


MOMENTS: dict[str, At] = {
    "T1 is put": _puts_t1,
    "T1 is committed": _has_committed_t1,
    "T3 is put": _puts_t3,
    "T3 is committed, its record not read": _has_committed_t3,
    "awake before the first token": _is_awake,
    "awake, tokens written": _has_written,
    "the end is written, T4 is not committed": _has_its_end,
    "behind T4": _has_ended,
}


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("keeps_data", [True, False])
def test_an_owner_dies(moment: str, keeps_data: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    untouched = Waits(monkeypatch)
    untouched.send(1.0, request_id="r", **ASKED)
    untouched.run()
    course = Waits(monkeypatch)
    course.send(1.0, request_id="r", **ASKED)
    course.kill_at(MOMENTS[moment])
    if not keeps_data:
        course.after(1.0, course.simulation.disk.images.clear)
        course.after(4.0, course.simulation.disk.images.clear)
    course.run()
    assert course.killed == 1
    assert course.sleeps() >= 1
    turn, other = course.turns()["r"], untouched.turns()["r"]
    assert (turn.answer, turn.tool_calls, turn.finish_reason) == (other.answer, other.tool_calls, other.finish_reason)


def test_a_wake_whose_record_no_worker_has_read_in_time_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """All workers are away for longer than `requests` keeps the record."""
    course = Waits(monkeypatch)
    course.send(1.0, request_id="r", **ASKED)

    def lose() -> None:
        if not (offsets := course.woken_records()):
            course.after(0.0002, lose)
            return
        for process in course.simulation.alive:
            process.kill()
        course.simulation.broker.log(TopicPartition(REQUESTS, 0)).retain(offsets[-1] + 1)
        course.after(0.5, partial(course.simulation.start_again, "w0"))

    course.after(1.0, lose)
    course.simulation.keep_running(200)
    outcome = course.simulation.run()
    assert (outcome.verdict.faults, outcome.crashes) == ({}, [])
    assert outcome.wrong == [f"{KEY} has slept 3 times, and was woken 4 times"]  # one record is lost
    assert course.turns()["r"].answer


@pytest.mark.parametrize(
    ("control", "has_text"),
    [
        ({"type": "cancel", "request_id": "r"}, True),
        ({"type": "erase"}, False),
        ({"type": "erase_conversation", "conversation_id": "default"}, False),
    ],
)
def test_what_a_user_does_reaches_an_answer_that_sleeps(
    control: dict[str, str], *, has_text: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    course = Waits(monkeypatch, after_s=None)
    course.send(1.0, request_id="r", **{**ASKED, "tool_timeout_ms": 20 * 86_400_000})
    course.send(6.0, "controls", **control)
    course.run()
    turn = course.turns()["r"]
    assert turn.finish_reason is FinishReason.CANCELLED
    assert bool(turn.answer) is has_text
    ended_s = next(one.timestamp for one in course.records("turns") if b'"r"' in (one.value or b"")) / 1000
    assert ended_s - course.simulation.began < 7.0
    newest = {one.key: one.value for one in course.simulation.broker.log(TopicPartition("waits", 0)).entries}
    state = newest[b'["u","r"]']
    assert json.loads(state or b"{}").get("state") == ("ended" if has_text else None)


@pytest.mark.parametrize("how", ["cancel", "erase_conversation", "deadline"])
def test_what_ends_a_sleeper_waits_for_no_room(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others of the user fill all that a partition holds."""
    course = Waits(monkeypatch, after_s=None, conditions=dataclasses.replace(CONDITIONS, rounds=2))
    deadline = {"deadline_ms": 8000} if how == "deadline" else {}
    asked = {**ASKED, "tool_timeout_ms": 20 * 86_400_000, **deadline}
    course.send(1.0, request_id="r", conversation_id="asleep", **asked)
    for number in range(3 * course.simulation.settings().max_in_flight):
        course.send(7.0, request_id=f"q{number}", conversation_id=f"c{number}", prompt="fill", max_tokens=200)
    of = {"conversation_id": "asleep"} if how == "erase_conversation" else {"request_id": "r"}
    if how != "deadline":
        course.send(9.0, "controls", type=how, **of)
    parked: list[int] = []
    course.after(8.9, lambda: parked.append(course.simulation.alive[0].partitions[0].records.parked))
    course.simulation.keep_running(60)
    course.run()
    assert parked[0] > 0
    assert ((course.events("r")[-1].timestamp or 0) / 1000) - course.simulation.began < 10.0


def test_a_deadline_and_the_time_of_a_call_end_a_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    course = Waits(monkeypatch, after_s=None)
    course.send(1.0, request_id="late", conversation_id="a", **ASKED, deadline_ms=5000)
    course.send(1.0, request_id="r", conversation_id="b", **{**ASKED, "tool_timeout_ms": 5000})
    course.run()
    turns = course.turns()
    assert turns["late"].finish_reason is FinishReason.DEADLINE
    assert turns["r"].finish_reason is FinishReason.LENGTH
    late_s = (course.events("late")[-1].timestamp or 0) / 1000
    assert late_s - course.simulation.began < 7.0


def test_days_without_a_worker_lose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    course = Waits(monkeypatch, after_s=3 * DAY_S)
    course.send(1.0, request_id="r", **{**ASKED, "max_tokens": 1, "tool_timeout_ms": 20 * 86_400_000})
    course.after(5.0, course.simulation.alive[0].kill)
    course.after(3 * DAY_S + 60.0, partial(course.simulation.start_again, "w1"))
    course.simulation.keep_running(3 * DAY_S + 120.0)
    course.run()
    turn, events = course.turns()["r"], course.events("r")
    assert turn.answer
    assert turn.finish_reason is FinishReason.LENGTH
    assert turn.timing is not None
    assert turn.timing.requested_at / 1000 - course.simulation.began < 1.2
    assert any(event.copy for event in events)


def test_later_requests_go_on_and_see_that_an_answer_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The words of each answer say what it has read (tests/faults/waits_verdict.py)."""
    course = Waits(monkeypatch, after_s=20.0)
    course.send(1.0, request_id="before", prompt="before", max_tokens=2)
    course.send(1.5, request_id="r", **ASKED)
    course.send(4.0, request_id="r2", prompt="and meanwhile?", max_tokens=2)
    course.send(6.0, request_id="r3", **{**ASKED, "prompt": "another"})
    course.send(9.0, request_id="r4", prompt="and now?", max_tokens=2)
    course.simulation.keep_running(120)
    course.run()
    order = list(course.turns())
    assert order.index("r2") < order.index("r")
    assert order.index("r4") < order.index("r")
    (row,) = (value for value in course.committed(Table.CONVERSATIONS).values() if value)
    turns = json.loads(row)["turns"]
    assert [one["request_id"] for one in turns] == ["before", "r", "r2", "r3", "r4"]
    assert not any(one.get("open") for one in turns)
    assert not any(course.committed(Table.ASLEEP).values())


def test_a_repeat_of_a_request_that_sleeps_begins_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    course = Waits(monkeypatch, after_s=10.0)
    course.send(1.0, request_id="r", **{**ASKED, "max_tokens": 2})
    course.send(5.0, request_id="r", **{**ASKED, "max_tokens": 2, "prompt": "another prompt of the same id"})
    course.simulation.keep_running(30)
    course.run()
    begun = [event for event in course.events("r") if event.index == 0 and event.tokens and not event.copy]
    assert len(begun) == 1
    assert sum(event.notice is not None and event.notice.code == "woken" for event in course.events("r")) == 2


def test_a_last_result_wakes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    course = Waits(monkeypatch, after_s=5.0)
    course.send(1.0, request_id="r", **{**ASKED, "max_tokens": 1})
    course.run()
    assert (course.events("r")[-1].timestamp or 0) / 1000 - course.simulation.began < 8.0


def test_sleepers_hold_back_no_offset_and_no_watermark(monkeypatch: pytest.MonkeyPatch) -> None:
    course = Waits(monkeypatch, after_s=40.0)
    for number in range(8):
        course.send(1.0 + number / 10, request_id=f"w{number}", conversation_id=f"c{number}", **ASKED)
    course.send(15.0, request_id="r", prompt="plain", max_tokens=2)
    seen: list[tuple[int, int, int | None]] = []

    def look() -> None:
        ownership = course.simulation.alive[0].partitions[0].ownership
        entries = [one for one in course.simulation.broker.log(TopicPartition(REQUESTS, 0)).entries if one.visible]
        ahead = ownership.offsets[REQUESTS].head() - entries[-1].offset
        seen.append((ahead, len(ownership.inflight_requests), ownership.watermark.at))

    course.after(30.0, look)
    course.simulation.keep_running(60)
    course.run()
    ((ahead, in_flight, watermark),) = seen
    assert (ahead >= 1, in_flight) == (True, 0)
    assert watermark is not None
    assert watermark / 1000 - course.simulation.began > 20.0


def test_without_the_table_an_answer_waits_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    course = Waits(monkeypatch, after_s=4.0, policy=Policy())
    course.send(1.0, request_id="r", **ASKED)
    course.send(1.0, request_id="long", conversation_id="b", **{**ASKED, "tool_timeout_ms": 7_200_000})
    course.run()
    assert course.sleeps() == 0
    assert course.turns()["r"].finish_reason is FinishReason.LENGTH
    end = course.events("long")[-1]
    assert end.error is not None
    assert (end.error.code, "tool_timeout_ms" in end.error.message) == ("invalid_request", True)


def test_an_answer_goes_on_with_the_model_that_is_served_when_it_wakes(monkeypatch: pytest.MonkeyPatch) -> None:
    course = Waits(monkeypatch, after_s=8.0, policy=replace(TO_SMALL, waits=SLEEPS.waits))
    course.send(1.0, request_id="r", **ASKED)

    course.after(6.0, course.take_small_away)
    course.simulation.keep_running(60)
    course.run("changed", "wrong_plans")  # the verdict knows no model that goes on behind calls of another one
    turn = course.turns()["r"]
    assert (turn.finish_reason, turn.model_version) == (FinishReason.LENGTH, "paced@1")
    woken = next(one.notice for one in course.events("r") if one.notice is not None and one.notice.code == "woken")
    assert woken.details == {"kind": "tool", "model": "default"}


def test_answers_that_sleep_for_days_hold_nothing_and_an_erasure_reaches_them() -> None:
    """By hand 10,000 for 30 days (many_asleep.py)."""
    seen = many_asleep.run(40, days=3, there_s=40.0)
    assert seen.asleep == [40, 40, 38]
    assert (seen.behind, seen.in_memory) == ([0, 0, 0], [0, 0, 0])
    assert 0 <= seen.erased_s < 1.0
    assert seen.turns == 40


def test_a_scan_of_those_that_sleep_reads_no_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    course, reads = Waits(monkeypatch, after_s=None), []
    read = Sleepers.get
    monkeypatch.setattr(Sleepers, "get", lambda *of: (reads.append(course.simulation.world.now), read(*of))[1])
    course.send(1.0, request_id="r", **{**ASKED, "max_tokens": 1, "tool_timeout_ms": 200_000})
    course.simulation.keep_running(260)
    course.run()
    times = [at - course.simulation.began for at in reads]
    assert times
    assert not [at for at in times if 10.0 < at < 190.0]
