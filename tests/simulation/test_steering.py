"""A message that goes into the answer that runs, and each moment at which an owner can die meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from app.features import steering
from app.policy.file import Policy, WaitRules
from app.wire.event import ATTEMPT, STEERED
from models.interface.generation import FinishReason
from tables.records import Table
from tables.tool_calls import ToolRounds
from tests.faults.load import TOOLS
from tests.simulation.mutant import Mutant, find_broken_promise
from tests.simulation.process import Process
from tests.simulation.sleeping import steering_storm
from tests.simulation.test_busy import Busy
from tests.simulation.test_sleeping import SLEEPS, Waits

AWAKE = Policy(waits=WaitRules(park_after_s=900.0))
CALLS = {"prompt": "begin", "max_tokens": 24, "tools": TOOLS, "tool_mode": "kafka", "tool_timeout_ms": 60_000}


class Steered(Busy):
    """A worker whose calls have their results after two seconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, policy: Policy = AWAKE, after_s: float | None = 2.0) -> None:
        Waits.__init__(self, monkeypatch, after_s, policy)

    def steer(self, at: float, request_id: str, **fields: Any) -> None:
        self.ask(at, request_id, "steer", **fields)

    def into(self, request_id: str) -> list[str]:
        notices = (event.notice for event in self.events(request_id) if event.notice is not None)
        return [str((one.details or {})["into"]) for one in notices if one.code == STEERED]

    def text(self, request_id: str) -> str:
        return "".join(event.text or "" for event in self.events(request_id))

    def turn(self, request_id: str) -> dict[str, Any]:
        rows = [json.loads(value) for value in self.committed(Table.CONVERSATIONS).values() if value]
        return next(one for row in rows for one in row["turns"] if one["request_id"] == request_id)

    def words(self) -> list[str]:
        """What the user has added to r1, as the conversation remembers it."""
        return [step["content"] for step in self.turn("r1")["steps"] if step["role"] == "user"]


def test_a_message_goes_into_the_next_round(monkeypatch: pytest.MonkeyPatch) -> None:
    course = Steered(monkeypatch)
    course.ask(1.0, "r1", **CALLS)
    course.steer(2.0, "r2")
    course.ask(2.1, "r3")
    course.steer(2.2, "r4")
    course.simulation.keep_running(60)
    course.run()
    assert course.into("r2") == course.into("r4") == ["r1"]
    assert [event.text for event in course.events("r2") if event.text] == []
    assert course.reason("r2") == course.reason("r4") == FinishReason.STOP
    assert course.ended_s("r2") < course.ended_s("r1") < course.ended_s("r3")
    assert [step["role"] for step in course.turn("r1")["steps"]][:4] == ["assistant", "tool", "user", "user"]
    assert course.words() == ["r2?", "r4?"]
    assert course.remembered() == ["r1", "r3"]
    assert course.turns()["r2"].prompt == "r2?"


@pytest.mark.parametrize("why", ["no tools", "no further round", "asleep", "not stored"])
def test_otherwise_it_is_a_request_like_any_other(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    course = Steered(monkeypatch, SLEEPS if why == "asleep" else AWAKE, None if why == "asleep" else 2.0)
    first = {"max_tokens": 60} if why == "no tools" else {**CALLS, "tool_timeout_ms": 9000}
    course.ask(1.0, "r1", **first)
    ended = 60.0 if why == "no further round" else 4.5 if why == "asleep" else 1.5
    course.steer(ended, "r2", store=why != "not stored")
    course.simulation.keep_running(90)
    course.run()
    assert course.into("r2") == []
    assert course.reason("r2") == FinishReason.LENGTH
    assert len(course.text("r2")) > 0


def test_an_answer_gets_sixteen_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    course = Steered(monkeypatch)
    course.ask(1.0, "r1", **CALLS)
    for number in range(20):
        course.steer(2.0 + number / 100, f"s{number}")
    course.simulation.keep_running(60)
    course.run()
    assert course.words() == [f"s{number}?" for number in range(16)]
    assert [course.reason(f"s{number}") for number in range(15, 18)] == ["stop", "length", "length"]


def test_a_message_that_is_cancelled_adds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    course = Steered(monkeypatch)
    course.ask(1.0, "r1", **CALLS)
    course.steer(1.5, "r2")
    cancel = {"type": "cancel", "request_id": "r2", "user_id": "u"}
    course.after(2.0, lambda: course.simulation.send("controls", "u", cancel))
    course.simulation.keep_running(60)
    course.run()
    assert course.words() == []
    assert course.reason("r2") == FinishReason.CANCELLED


def _is_told(course: Any, _process: Process) -> bool:
    return bool(course.into("r2"))


def _has_its_end(course: Any, _process: Process) -> bool:
    return any(event.is_end for event in course.events("r2"))


def _is_kept(course: Any, _process: Process) -> bool:
    return "r2" in course.turns()


def _is_asked_again(course: Any, _process: Process) -> bool:
    return len([one for one in course.events("r1") if one.prompt_digest]) > 1


MOMENTS: dict[str, Callable[[Any, Process], bool]] = {
    "it is told": _is_told,
    "it has its end": _has_its_end,
    "it is committed": _is_kept,
    "the answer goes on": _is_asked_again,
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_an_owner_dies(moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    course = Steered(monkeypatch)
    course.ask(1.0, "r1", **CALLS)
    course.steer(1.5, "r2")
    course.kill_at(MOMENTS[moment])
    course.simulation.keep_running(60)
    course.run()
    assert course.killed == 1
    assert {*course.into("r2")} == {"r1"}
    assert course.words() == ["r2?"]
    assert course.remembered() == ["r1"]
    assert sum(event.is_end for event in course.events("r2")) == 1


@pytest.mark.parametrize("word", ["interrupt", "rollback"])
def test_an_answer_that_is_ended_while_words_go_into_it_has_them(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both would have committed the conversation, and one would have lost its turn."""
    course = Steered(monkeypatch)
    course.ask(1.0, "r1", **CALLS)
    course.steer(1.5, "r2")

    def end_it() -> None:
        if course.into("r2"):
            asked = {"request_id": "r3", "user_id": "u", "prompt": "r3?", "max_tokens": 2, "while_busy": word}
            course.simulation.send("requests", "u", asked)
        else:
            course.after(0.0002, end_it)

    course.after(2.0, end_it)
    course.simulation.keep_running(60)
    course.run()
    assert course.reason("r1") == FinishReason.CANCELLED
    assert course.remembered() == (["r3"] if word == "rollback" else ["r1", "r3"])
    assert word == "rollback" or course.words() == ["r2?"]


def test_one_that_owners_have_died_with_is_a_request_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """It begins alone and apart from others (quarantine.py): the answer does not wait for that."""
    course = Steered(monkeypatch, after_s=20.0)
    course.ask(1.0, "r1", **CALLS)
    course.steer(1.5, "r2", max_tokens=4)

    def has_tried(course: Any, _process: Process) -> bool:
        return any(event.notice is not None and event.notice.code == ATTEMPT for event in course.events("r2"))

    course.after(3.0, lambda: course.kill_at(lambda _course, _process: True))
    course.after(5.0, lambda: course.kill_at(has_tried))
    course.simulation.keep_running(120)
    course.run()
    assert course.killed == 2
    assert course.reason("r1") == FinishReason.LENGTH
    assert course.reason("r2") in {FinishReason.STOP, FinishReason.LENGTH}
    assert course.remembered() == ["r1", "r2"]


def _unread(rounds: ToolRounds, _words: Any) -> ToolRounds:
    return rounds


def _ends_alone(_stage: steering.Steered, kept: Any) -> Any:
    return kept


async def _adds_always(feature: steering.Steering, run: Any, calls: Any) -> None:
    for one in run.partition.lanes.items(run.accepted.conversation):
        if one is not run.inflight and one.accepted.request.prompt is not None:
            feature._into[one] = steering.SteeredAnswer(run.key, calls)
    await _ADD(feature, run, calls)


_ADD = steering.Steering.add_words

MUTANTS: dict[str, Mutant] = {
    "its words are in no prompt": Mutant(ToolRounds, "with_words", _unread, steering_storm),
    "its own commit does not have its words": Mutant(steering.Steered, "leave", _ends_alone, steering_storm),
    "what queues is steered": Mutant(steering.Steering, "add_words", _adds_always, steering_storm),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_is_found(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    find_broken_promise(mutant, MUTANTS[mutant], monkeypatch)


def test_what_has_begun_by_itself_is_not_steered_by_a_successor() -> None:
    """Found by this storm: a replayed request that had a plan ended without words, into nothing."""
    outcome = steering_storm(340).run()
    assert outcome.clean, outcome.line()
