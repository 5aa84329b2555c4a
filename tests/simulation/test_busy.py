"""What each word of `while_busy` does, each moment at which an owner can die meanwhile, and that storms can fail."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from app.answering.run import Run
from app.delivery.open_records import OpenRecords
from app.delivery.resume import recovery
from app.features import busy
from app.features.busy import ConversationOrder, Later
from app.policy.file import Policy, WaitRules
from app.wire.event import PLAN, SUPERSEDED
from models.interface.generation import FinishReason
from tables.records import Table
from tests.faults.load import TOOLS
from tests.simulation.mutant import Mutant, find_broken_promise
from tests.simulation.process import Process
from tests.simulation.sleeping import busy_storm, rejecting_storm
from tests.simulation.storms import killed_as_it_decides
from tests.simulation.test_sleeping import SLEEPS, Waits
from tests.simulation.world import LivelockError

TALKS = {"prompt": "speak", "max_tokens": 100_000}
CALLS = {"prompt": "begin", "max_tokens": 8, "tools": TOOLS, "tool_mode": "kafka", "tool_timeout_ms": 900_000}
ENDS = ("interrupt", "rollback")


class Busy(Waits):
    """A worker of whose calls nobody answers any."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, policy: Policy = SLEEPS) -> None:
        super().__init__(monkeypatch, None, policy)

    def ask(self, at: float, request_id: str, word: str = "queue", **fields: Any) -> None:
        asked = {"prompt": f"{request_id}?", "max_tokens": 3, **fields}
        self.send(at, request_id=request_id, while_busy=word, **asked)

    def reason(self, request_id: str) -> str | None:
        end = self.events(request_id)[-1]
        return end.error.code if end.error is not None else end.finish_reason

    def ended_s(self, request_id: str) -> float:
        return (self.events(request_id)[-1].timestamp or 0) / 1000 - self.simulation.began

    def superseded(self, request_id: str) -> list[dict[str, Any] | None]:
        notices = (event.notice for event in self.events(request_id) if event.notice is not None)
        return [one.details for one in notices if one.code == SUPERSEDED]

    def remembered(self) -> list[str]:
        rows = [value for value in self.committed(Table.CONVERSATIONS).values() if value]
        return [one["request_id"] for row in rows for one in json.loads(row)["turns"]]


def test_a_request_that_is_rejected_ends_at_once_and_nothing_of_it_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    course = Busy(monkeypatch)
    course.ask(1.0, "r1", max_tokens=30)
    course.ask(1.5, "r2", "reject")
    course.ask(1.6, "r3")
    course.ask(12.0, "r4", "reject")
    course.run()
    assert course.reason("r2") == "conversation_busy"
    assert course.ended_s("r2") < 1.8
    assert {name: course.reason(name) for name in ("r1", "r3", "r4")} == dict.fromkeys(("r1", "r3", "r4"), "length")
    assert course.remembered() == ["r1", "r3", "r4"]
    assert "r2" not in course.turns()


@pytest.mark.parametrize("word", ENDS)
@pytest.mark.parametrize("first", [TALKS, CALLS])
def test_earlier_ones_that_run_queue_or_sleep_end_at_once(
    word: str, first: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    course = Busy(monkeypatch)
    course.ask(1.0, "r0")
    course.ask(2.0, "r1", **first)
    course.ask(3.0, "r2", **TALKS)
    course.ask(6.0, "r3", word)
    course.run()
    back = word == "rollback"
    for name in ("r1", "r2"):
        assert course.reason(name) == FinishReason.CANCELLED
        assert course.superseded(name) == [{"by": "r3", "rolled_back": back}]
        assert course.ended_s(name) < 6.5
    turns = course.turns()
    assert (turns["r1"].prompt, bool(turns["r1"].answer)) == (("", False) if back else (first["prompt"], True))
    assert turns["r1"].usage.completion_tokens > 0
    spoken = ["r1", "r2"] if first is CALLS else ["r1"]  # the second one has begun only where the first one sleeps
    assert course.remembered() == (["r0", "r3"] if back else ["r0", *spoken, "r3"])


def test_an_earlier_request_for_later_is_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    course = Busy(monkeypatch)
    course.ask(1.0, "later", not_before=int((course.simulation.began + 8.0) * 1000))
    course.ask(2.0, "r2", "rollback")
    course.run()
    assert course.reason("later") == FinishReason.LENGTH


def _has_said(course: Busy, request_id: str, code: str) -> bool:
    return any(event.notice is not None and event.notice.code == code for event in course.events(request_id))


def _is_read(_: Waits, process: Process) -> bool:
    return ("u", "r2") in process.partitions[0].ownership.inflight_requests


def _is_told(course: Any, _process: Process) -> bool:
    return _has_said(course, "r1", SUPERSEDED)


def _is_planned(course: Any, _process: Process) -> bool:
    return any(
        event.notice is not None and event.notice.code == PLAN and "superseded" in (event.notice.details or {})
        for event in course.events("r1")
    )


def _has_its_end(course: Waits, _process: Process) -> bool:
    return any(event.is_end for event in course.events("r1"))


def _is_kept(course: Waits, _process: Process) -> bool:
    return "r1" in course.turns()


def _has_begun(course: Waits, _process: Process) -> bool:
    return any(event.tokens for event in course.events("r2"))


MOMENTS: dict[str, Callable[[Any, Process], bool]] = {
    "it is read": _is_read,
    "readers are told": _is_told,
    "the plan says so": _is_planned,
    "the earlier one has its end": _has_its_end,
    "the earlier one is committed": _is_kept,
    "it has begun": _has_begun,
}


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("word", ENDS)
@pytest.mark.parametrize("first", [TALKS, CALLS])
@pytest.mark.parametrize("sleeps", [True, False])
def test_an_owner_dies(
    moment: str, word: str, first: dict[str, Any], *, sleeps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if first is TALKS and sleeps:
        pytest.skip("what speaks does not sleep")
    policy = SLEEPS if sleeps else Policy(waits=WaitRules(park_after_s=900.0))
    course = Busy(monkeypatch, policy)
    course.ask(1.0, "r1", **first)
    course.ask(4.0, "r2", word, max_tokens=5)
    course.kill_at(MOMENTS[moment])
    course.simulation.keep_running(60)
    course.run()
    assert course.killed == 1
    assert (course.reason("r1"), course.reason("r2")) == (FinishReason.CANCELLED, FinishReason.LENGTH)
    assert course.superseded("r1")[-1] == {"by": "r2", "rolled_back": word == "rollback"}
    assert course.remembered() == (["r2"] if word == "rollback" else ["r1", "r2"])


def test_a_rejection_that_is_told_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner dies behind it, and the earlier one is over before the next owner reads it."""
    course = Busy(monkeypatch)
    course.ask(1.0, "r1", max_tokens=30)
    course.ask(1.5, "r2", "reject")
    course.kill_at(lambda one, _: any(event.is_end for event in one.events("r2")))
    course.run()
    assert course.killed == 1
    assert course.reason("r2") == "conversation_busy"
    assert sum(event.is_end for event in course.events("r2")) == 1


@pytest.mark.parametrize("word", [*ENDS, "reject"])
def test_a_request_beyond_its_users_share_is_heard_at_once(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others of the user fill all that a partition holds."""
    course = Busy(monkeypatch)
    most = 32 * course.simulation.settings().max_in_flight
    course.ask(1.0, "r1", **TALKS)
    for number in range(most + 10):
        course.ask(1.1, f"q{number}", conversation_id="default" if number % 2 else "other", max_tokens=1)
    course.ask(3.0, "r2", word)
    course.ask(3.5, "r3", "interrupt")
    parked: list[int] = []
    course.after(2.9, lambda: parked.append(course.simulation.alive[0].partitions[0].records.parked))
    course.simulation.keep_running(120)
    course.run()
    assert parked[0] > 0
    if word == "reject":
        assert course.reason("r2") == "conversation_busy"
        assert course.ended_s("r2") < 3.3
    else:
        assert course.reason("r1") == FinishReason.CANCELLED
        assert course.ended_s("r1") < 3.3
        assert course.superseded("q1")


def test_one_that_rolls_back_counts_behind_one_that_interrupts(monkeypatch: pytest.MonkeyPatch) -> None:
    course = Busy(monkeypatch)
    course.ask(1.0, "r1", **TALKS)
    course.ask(3.0, "r2", "interrupt")
    course.ask(3.0, "r3", "rollback")
    course.run()
    assert course.superseded("r1") == course.superseded("r2") == [{"by": "r3", "rolled_back": True}]
    assert course.remembered() == ["r3"]


def test_otherwise_what_is_rolled_back_would_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    over = Later.over
    monkeypatch.setattr(Later, "over", lambda later, before: before or over(later, before))
    with pytest.raises(AssertionError):
        test_one_that_rolls_back_counts_behind_one_that_interrupts(monkeypatch)


def test_what_is_parked_has_to_be_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without that, what speaks for ever is never ended: the others of its user fill all that there is."""
    monkeypatch.setattr(ConversationOrder, "parks", lambda *_, **__: True)
    with pytest.raises((AssertionError, LivelockError)):
        test_a_request_beyond_its_users_share_is_heard_at_once("interrupt", monkeypatch)


_NOTE = recovery.with_notice


def _is_stored(run: Run) -> bool:
    return run.accepted.request.store


def _forgets_back(*arguments: Any) -> Any:
    former = _NOTE(*arguments)
    return (
        former
        if not former.plan.rolled_back
        else type(former)(
            former.answer, replace(former.plan, rolled_back=False), former.attempt, is_replayed=former.is_replayed
        )
    )


async def _ends_as_it_is(_order: ConversationOrder, _run: Run, end: Any) -> Any:
    return end


def _ends_none(*_: Any) -> list[Any]:
    return []


async def _answers_alone(_order: ConversationOrder, inflight: Any, answer: Any) -> None:
    await answer(inflight)


MUTANTS: dict[str, Mutant] = {
    "nothing is rejected": Mutant(busy, "_is_rejected", lambda *_: False, rejecting_storm),
    "everything is rejected": Mutant(busy, "_is_rejected", lambda *_: True, busy_storm, hint=2),
    "what runs goes on": Mutant(ConversationOrder, "_end_lane", _ends_none, busy_storm, hint=4),
    "what sleeps goes on": Mutant(ConversationOrder, "_end_sleepers", _ends_none, busy_storm),
    "what sleeps is not ended first": Mutant(ConversationOrder, "answer_in_turn", _answers_alone, busy_storm, hint=2),
    "what is parked before goes on": Mutant(ConversationOrder, "_meet_parked", _ends_none, busy_storm, hint=9),
    "what is rolled back is remembered": Mutant(Run, "stores", property(_is_stored), busy_storm),
    "a successor forgets that it is rolled back": Mutant(
        recovery, "with_notice", _forgets_back, killed_as_it_decides(busy_storm, "rolled_back"), hint=1
    ),
    "nobody is told": Mutant(ConversationOrder, "_end", _ends_as_it_is, busy_storm, hint=9),
    "nothing counts as parked": Mutant(OpenRecords, "is_parked", lambda *_: False, busy_storm, hint=9),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_is_found(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    find_broken_promise(mutant, MUTANTS[mutant], monkeypatch)
