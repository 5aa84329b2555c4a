"""Calls that wait for an approval: what each decision causes, and each moment at which an owner can die."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from aiokafka import TopicPartition
from msgspec.structs import replace

from app.features.waits.approvals import NOT_APPROVED, NOT_ASKED
from app.policy.file import Policy, WaitRules
from app.policy.tools import ApproveRules, ToolRules
from app.wire.audit import AuditRecord
from app.wire.codec import decode
from app.wire.tool_records import ToolCallRecord
from models.interface.generation import FinishReason
from tables.records import Table
from tests.faults.desks import results_of
from tests.simulation.findings import Findings
from tests.simulation.process import Process
from tests.simulation.test_sleeping import ASKED, Waits, _queued

RULES = ApproveRules(by="desk", within_s=20.0)
PARAMETERS = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}
TOOL: dict[str, Any] = {"type": "function", "function": {"name": "look_up", "parameters": PARAMETERS}}
REQUEST = {**ASKED, "tools": [TOOL], "max_tokens": 1}


class Desk(Waits):
    """One answer, whose call waits for an approval."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, rules: ApproveRules = RULES, **waits: Any) -> None:
        policy = Policy(waits=WaitRules(park_after_s=900.0, **waits), tools={"look_up": ToolRules(approve=rules)})
        super().__init__(monkeypatch, after_s=1.0, policy=policy)
        self.rules = rules
        results = lambda found: results_of(found.topics.read("audit"), found.topics.read("controls"))  # noqa: E731
        monkeypatch.setattr(Findings, "_results_of_asked", results)
        self.simulation.keep_running(60)

    def ask(self) -> None:
        self.send(1.0, request_id="r", **REQUEST)

    @property
    def wait_id(self) -> str:
        (wait_id,) = {one.tool_call_id for one in self.audit() if one.outcome == "asked"}
        return wait_id or ""

    def decide(
        self, at: float, decision: str = "approved", by: str = "desk/ali", *, is_wrong: bool = False, **other: Any
    ) -> None:
        def send() -> None:
            of = {"type": "decide", "user_id": "u", "request_id": "r", "wait_id": self.wait_id, "by": by}
            record = json.dumps({**of, "decision": decision, **other}).encode()
            offset = self.simulation.broker.append(TopicPartition("controls", 0), b"u", record)
            if is_wrong:
                assert self.simulation.tools is not None
                self.simulation.tools.wrong.add(("controls", 0, offset))

        self.after(at, send)

    def audit(self) -> list[AuditRecord]:
        found = [decode(AuditRecord, one.value or b"", one.headers) for one in self.records("audit") if one.visible]
        return [one for one in found if one.action == "approval"]

    def outcomes(self) -> list[tuple[str, str | None]]:
        return [(one.outcome, one.by) for one in self.audit()]

    def calls(self) -> list[str]:
        found = (one for one in self.records("tool-calls") if one.visible)
        return [decode(ToolCallRecord, one.value or b"", one.headers).arguments for one in found]

    def letters(self) -> int:
        return sum(one.visible for one in self.records("dead-letters"))

    def results(self) -> list[str]:
        (row,) = (value for value in self.committed(Table.CONVERSATIONS).values() if value)
        return [one["content"] for one in json.loads(row)["turns"][0]["steps"] if one["role"] == "tool"]

    def told(self) -> list[dict[str, Any]]:
        entries = self.simulation.broker.log(TopicPartition("waits", 0)).entries
        return [json.loads(one.value) for one in entries if one.visible and one.value]


def test_an_answer_sleeps_at_once_and_its_call_is_made_once_it_is_approved(monkeypatch: pytest.MonkeyPatch) -> None:
    course = Desk(monkeypatch)
    course.ask()
    seen: list[tuple[int, int]] = []
    course.after(5.0, lambda: seen.append((len(course.calls()), course.sleeps())))
    course.decide(6.0)
    course.run()
    assert seen == [(0, 1)]
    assert len(course.calls()) == 1
    assert course.outcomes() == [("asked", "desk"), ("approved", "desk/ali")]
    assert course.results() == [f"result of {course.wait_id}"]
    assert len(course.woken_records()) == 1
    first, *_, last = course.told()
    (wait,) = first["waits"]
    assert (wait["kind"], wait["by"], json.loads(wait["parameters"])) == ("approval", "desk", PARAMETERS)
    assert wait["until"] - first["since"] == pytest.approx(20_000, abs=500)
    assert (last["state"], last["waits"]) == ("ended", [])
    assert last["decided"] == [{"wait_id": course.wait_id, "decision": "approved", "by": "desk/ali"}]
    notice = next(one.notice for one in course.events("r") if one.notice is not None and one.notice.code == "waiting")
    assert notice.details is not None
    assert (notice.details["kind"], notice.details["by"]) == ("approval", "desk")


@pytest.mark.parametrize("shows", [True, False])
def test_a_desk_reads_what_the_tool_does_and_the_question_if_the_policy_says_so(
    shows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    course = Desk(monkeypatch, replace(RULES, shows_question=shows))
    tool = {"type": "function", "function": {**TOOL["function"], "description": "Looks\n  up."}}
    course.send(1.0, request_id="r", **{**REQUEST, "tools": [tool], "prompt": "my words " * 60})
    course.decide(5.0)
    course.run()
    (wait,) = course.told()[0]["waits"]
    assert wait["description"] == "Looks up."
    question = wait.get("question", "")
    assert (question[:9], len(question) <= 300, question[-1:]) == (
        ("my words ", True, "…") if shows else ("", True, "")
    )
    assert all("my words" not in json.dumps(one) for one in course.told()[1:] if not one["waits"])


def test_arguments_that_are_edited_count_if_they_follow_the_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    course = Desk(monkeypatch)
    course.ask()
    course.decide(4.0, "edited", arguments='{"word": 7}', is_wrong=True)
    course.decide(4.1, "edited", arguments='["word"]', is_wrong=True)
    course.decide(5.0, "edited", arguments='{"word": "other"}')
    course.run()
    assert course.calls() == ['{"word": "other"}']
    told = [one["decided"][0] for one in course.told() if one.get("decided")]
    assert [one.get("arguments") for one in told if one] == ['{"word": "other"}'] * (len(told) - 1) + [None]  # the end
    assert course.letters() == 2
    assert course.outcomes()[-1] == ("edited", "desk/ali")
    assert [one.arguments for one in course.turns()["r"].tool_calls or ()] == ['{"word": "other"}']
    asked, edited = course.audit()
    assert asked.arguments_sha256 != edited.arguments_sha256


def test_a_call_that_is_rejected_is_not_made_and_the_model_reads_why(monkeypatch: pytest.MonkeyPatch) -> None:
    course = Desk(monkeypatch)
    course.ask()
    course.decide(5.0, "rejected", reason="over the limit")
    course.run()
    assert course.calls() == []
    assert course.results() == ["error: rejected by desk/ali: over the limit"]
    assert course.outcomes()[-1] == ("rejected", "desk/ali")
    assert (course.events("r")[-1].timestamp or 0) / 1000 - course.simulation.began < 7.0


def test_the_first_decision_counts_and_others_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    course = Desk(monkeypatch)
    course.ask()
    course.decide(5.0, "rejected", by="desk/first")
    course.decide(5.0, by="desk/second")
    course.decide(5.3, by="desk/third")
    course.decide(20.0, by="desk/late")
    course.run()
    assert course.calls() == []
    assert course.outcomes() == [("asked", "desk"), ("rejected", "desk/first")]
    assert course.letters() == 0


def test_a_decision_of_another_desk_or_about_no_wait_is_a_dead_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    course = Desk(monkeypatch)
    course.ask()
    course.decide(4.0, by="others/eve", is_wrong=True)
    course.decide(4.0, by="desk", is_wrong=True)
    course.decide(4.0, "approved", arguments="{}", is_wrong=True)
    course.decide(4.0, wait_id="call_of_nobody", is_wrong=True)
    course.decide(4.0, request_id="r9", is_wrong=True)
    course.decide(5.0, "rejected")
    course.run()
    assert course.letters() == 5
    assert course.calls() == []


def test_the_user_alone_decides_where_the_policy_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    course = Desk(monkeypatch, ApproveRules(by="user", within_s=20.0))
    course.ask()
    course.decide(4.0, by="user/eve", is_wrong=True)
    course.decide(5.0, by="user/u")
    course.run()
    assert course.outcomes() == [("asked", "user"), ("approved", "user/u")]
    assert course.letters() == 1


@pytest.mark.parametrize("otherwise", ["approved", "rejected"])
def test_what_nobody_decides_is_as_the_policy_says(otherwise: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    course = Desk(monkeypatch, ApproveRules(by="desk", within_s=5.0, otherwise=otherwise))
    course.ask()
    course.decide(20.0)
    course.run()
    assert len(course.calls()) == (otherwise == "approved")
    assert course.results() == ([f"result of {course.wait_id}"] if course.calls() else [NOT_APPROVED])
    assert course.outcomes() == [("asked", "desk"), ("expired", "desk")]


@pytest.mark.parametrize(
    "control", [{"type": "cancel", "request_id": "r"}, {"type": "erase"}, {"type": "erase_conversation"}]
)
def test_what_ends_an_answer_ends_its_approval(control: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    course = Desk(monkeypatch)
    course.ask()
    more = {"conversation_id": "default"} if control["type"] == "erase_conversation" else {}
    course.send(5.0, "controls", **control, **more)
    course.decide(5.0)
    course.decide(5.2)
    course.run()
    assert course.turns()["r"].finish_reason is FinishReason.CANCELLED
    assert course.calls() == []
    assert course.outcomes() == [("asked", "desk"), ("cancelled", "desk")]


def test_a_deadline_ends_an_approval(monkeypatch: pytest.MonkeyPatch) -> None:
    course = Desk(monkeypatch)
    course.send(1.0, request_id="r", **REQUEST, deadline_ms=5000)
    course.decide(9.0)
    course.run()
    assert course.turns()["r"].finish_reason is FinishReason.DEADLINE
    assert course.calls() == []


def test_a_result_of_a_call_that_is_not_made_is_a_dead_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    course = Desk(monkeypatch)
    course.ask()

    def result() -> None:
        record = {"tool_call_id": course.wait_id, "request_id": "r", "user_id": "u", "content": "guessed"}
        offset = course.simulation.broker.append(TopicPartition("tool-results", 0), b"u", json.dumps(record).encode())
        assert course.simulation.tools is not None
        course.simulation.tools.wrong.add(("tool-results", 0, offset))

    course.after(4.0, result)
    course.decide(8.0, "rejected")
    course.run()
    assert course.letters() == 1
    assert course.results() == ["error: rejected by desk/ali"]


def test_nobody_is_asked_where_no_more_answers_may_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    course = Desk(monkeypatch, per_user=1)
    course.send(1.0, request_id="first", conversation_id="a", **REQUEST)
    course.send(3.0, request_id="r", conversation_id="b", **REQUEST)
    course.run()
    assert [one.outcome for one in course.audit()] == ["asked", "asked", "cancelled", "expired"]
    rows = [json.loads(value) for value in course.committed(Table.CONVERSATIONS).values() if value]
    read = {step["content"] for one in rows for step in one["turns"][0]["steps"] if step["role"] == "tool"}
    assert read == {NOT_ASKED, NOT_APPROVED}


def _puts_the_decision(_: Waits, process: Process) -> bool:
    return _queued(process, lambda row: b'"approved"' in (row.value or b""))


def _has_the_decision(course: Waits, _: Process) -> bool:
    return any(b'"approved"' in (value or b"") for value in course.committed(Table.ASLEEP).values())


MOMENTS: dict[str, Callable[[Waits, Process], bool]] = {
    "it is put": _puts_the_decision,
    "it is committed": _has_the_decision,
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_an_owner_dies_while_it_decides(moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    course = Desk(monkeypatch)
    course.ask()
    course.decide(6.0, "approved")
    course.decide(6.01, "rejected", by="desk/second")
    course.kill_at(MOMENTS[moment])
    course.run()
    assert course.killed == 1
    assert len(course.calls()) == 1
    assert course.outcomes() == [("asked", "desk"), ("approved", "desk/ali")]


def test_a_decision_that_comes_while_no_worker_runs_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    course = Desk(monkeypatch)
    course.ask()
    course.after(5.0, course.simulation.alive[0].kill)
    course.decide(6.0)
    course.after(8.0, partial(course.simulation.start_again, "w1"))
    course.run()
    assert len(course.calls()) == 1


@pytest.mark.parametrize("otherwise", ["approved", "rejected"])
def test_a_decision_that_was_written_in_time_counts_however_late_it_is_read(
    otherwise: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    course = Desk(monkeypatch, ApproveRules(by="desk", within_s=5.0, otherwise=otherwise))
    course.ask()
    course.after(4.0, course.simulation.alive[0].kill)
    decision = "rejected" if otherwise == "approved" else "approved"
    course.decide(5.0, decision)
    course.decide(20.0, by="desk/late")
    course.after(30.0, partial(course.simulation.start_again, "w1"))
    course.run()
    assert course.outcomes() == [("asked", "desk"), (decision, "desk/ali")]
    assert len(course.calls()) == (decision == "approved")


def test_a_decision_is_late_by_the_time_at_which_it_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Although it is read before the clock has said that the time is over."""
    course = Desk(monkeypatch, ApproveRules(by="desk", within_s=5.0))
    course.ask()
    course.after(4.0, course.simulation.alive[0].kill)
    course.decide(20.0)
    course.after(30.0, partial(course.simulation.start_again, "w1"))
    course.run()
    assert course.outcomes() == [("asked", "desk"), ("expired", "desk")]
    assert course.results() == [NOT_APPROVED]


def test_nobody_ends_the_time_of_an_approval_before_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    course = Desk(monkeypatch)
    course.ask()

    def expire() -> None:
        record = {"type": "expire", "user_id": "u", "request_id": "r", "wait_id": course.wait_id}
        course.simulation.broker.append(TopicPartition("controls", 0), b"u", json.dumps(record).encode())

    course.after(4.0, expire)
    course.decide(6.0)
    course.run()
    assert course.outcomes() == [("asked", "desk"), ("approved", "desk/ali")]


@pytest.mark.parametrize("late_s", [0.0, 0.002, 0.005, 0.01, 0.03])
@pytest.mark.parametrize("kind", ["cancel", "erase"])
def test_what_ends_an_answer_right_behind_its_decision_leaves_one_call(
    kind: str, late_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The decision stands first on `controls`, so it counts; its result comes too late."""
    course = Desk(monkeypatch)
    course.ask()
    course.decide(5.0)
    course.send(5.0 + late_s, "controls", type=kind, **({"request_id": "r"} if kind == "cancel" else {}))
    course.run()
    outcome = course.outcomes()[-1]
    assert outcome in [("approved", "desk/ali"), ("cancelled", "desk")]
    assert len(course.calls()) == (outcome[0] == "approved")
    assert course.turns()["r"].finish_reason is FinishReason.CANCELLED
