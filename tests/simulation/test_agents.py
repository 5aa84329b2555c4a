"""Answers that ask an agent: what is asked, what comes back, what ends both, and when their owner may die."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from aiokafka import TopicPartition

from app.features import tool_rounds
from app.features.agents.asking import ASKED_BY, ask
from app.features.waits.approvals import LATE
from app.policy.agents import AgentRules
from app.policy.file import Policy, WaitRules
from app.policy.tools import ToolRules
from app.wire.event import TokenEvent
from app.wire.turn import Turn
from models.interface.generation import FinishReason
from tables.records import RowChange, Table
from tests.faults.load import TOOLS
from tests.simulation.process import Process
from tests.simulation.test_sleeping import CONDITIONS, At, Waits, _has_committed_t3, _has_ended, _puts_t3, _queued

HELPER = AgentRules(system="Help.")
ASKED = {"prompt": "begin", "max_tokens": 6, "tools": TOOLS, "tool_mode": "kafka"}


class Askers(Waits):
    """One answer, whose calls are requests of an agent."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, within_s: float = 60.0, rules: AgentRules = HELPER) -> None:
        tools = {"look_up": ToolRules(ask="helper", within_s=within_s)}
        policy = Policy(waits=WaitRules(park_after_s=900.0), tools=tools, agents={"helper": rules})
        super().__init__(monkeypatch, policy=policy)
        conditions = replace(CONDITIONS, agents=rules, within_s=within_s)
        self.simulation.conditions = conditions

    def ask(self, **fields: Any) -> None:
        self.send(1.0, request_id="r", **{**ASKED, **fields})

    def asked(self) -> list[tuple[dict[str, Any], dict[str, bytes]]]:
        """The agent's requests, without those that wake one."""
        found = [(json.loads(one.value or b""), dict(one.headers)) for one in self.records("requests") if one.visible]
        return [(request, headers) for request, headers in found if ASKED_BY in headers and "woken" not in headers]

    def child(self) -> str:
        return str(self.asked()[0][0]["request_id"])

    def end(self, request_id: str) -> TokenEvent:
        return next(event for event in self.events(request_id) if event.is_end)

    def text(self, request_id: str) -> str:
        return "".join(event.text or "" for event in self.events(request_id) if event.type == "token")

    def results(self) -> list[str]:
        rows = [json.loads(value) for value in self.committed(Table.CONVERSATIONS).values() if value]
        turns = [turn for row in rows for turn in row["turns"]]
        return [step["content"] for turn in turns for step in turn["steps"] if step["role"] == "tool"]


_RESULTS = TopicPartition("tool-results", 0)


def _word_of(turn: Turn) -> str:
    """The one text among the arguments of its call."""
    return str(json.loads((turn.tool_calls or ())[0].arguments)["word"])


def test_an_agent_answers_and_its_text_is_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    course = Askers(monkeypatch)
    course.ask(max_tokens=1, tenant="acme", priority="batch")
    course.run()
    ((request, headers),) = course.asked()
    assert request == {
        "request_id": course.child(),
        "user_id": "u",
        "conversation_id": course.child(),
        "agent": "helper",
        "prompt": _word_of(course.turns()["r"]),
        "max_tokens": 1,
        "tenant": "acme",
        "priority": "batch",
        "deadline_ms": 60_000,
        "store": False,
    }
    assert headers[ASKED_BY] == b"1/r"
    assert course.results() == [course.text(course.child())]
    assert len(course.woken_records()) == 1
    notice = next(one.notice for one in course.events("r") if one.notice is not None and one.notice.code == "waiting")
    details = notice.details or {}
    assert (details["kind"], details["by"], details["wait_id"]) == ("answer", "helper", course.child())
    woken = next(one.notice for one in course.events("r") if one.notice is not None and one.notice.code == "woken")
    assert (woken.details or {})["kind"] == "answer"
    assert course.records("tool-calls") == []
    turn = course.turns()[course.child()]
    assert (turn.prompt, turn.answer, turn.tenant) == ("", "", "acme")
    assert course.turns()["r"].finish_reason is FinishReason.LENGTH


def test_a_request_that_names_the_agent_reads_its_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    course = Askers(monkeypatch)
    course.send(1.0, request_id="r", prompt="first", max_tokens=3, agent="helper")
    course.send(4.0, request_id="s", prompt="second", max_tokens=3, agent="helper")
    course.send(8.0, request_id="t", prompt="third", max_tokens=3, agent="nobody")
    course.run()
    assert course.turns().keys() == {"r", "s"}
    error = course.end("t").error
    assert error is not None
    assert error.message == "agent: there is no 'nobody'; there are: helper"


@pytest.mark.parametrize("stop", ["cancel", "erase", "erase_conversation"])
def test_what_ends_an_answer_stops_whom_it_has_asked(stop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    course = Askers(monkeypatch)
    course.ask(max_tokens=200)
    named = {"cancel": {"request_id": "r"}, "erase": {}, "erase_conversation": {"conversation_id": "default"}}
    course.send(14.0, "controls", type=stop, **named[stop])
    course.run()
    child = course.child()
    assert {course.end("r").finish_reason, course.end(child).finish_reason} == {FinishReason.CANCELLED}
    for request_id in ("r", child):
        assert (course.end(request_id).timestamp or 0) / 1000 - course.simulation.began < 15.5


def test_an_agent_that_is_read_when_its_asker_has_ended_begins_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its user has so many requests that it is left in Kafka at first, and its asker ends without falling asleep."""
    monkeypatch.setattr(tool_rounds, "may_sleep", lambda *_: False)
    course = Askers(monkeypatch)
    course.ask(max_tokens=20)
    course.simulation.conditions = replace(course.simulation.conditions, rounds=2)
    for number in range(4 * course.simulation.settings().max_in_flight):
        course.send(1.2, request_id=f"f{number}", conversation_id=f"f{number}", prompt="fill", max_tokens=80)
    course.send(3.0, "controls", type="cancel", request_id="r")
    course.run()
    child = course.end(course.child())
    assert (child.finish_reason, child.index) == (FinishReason.CANCELLED, 0)
    assert (child.timestamp or 0) - (course.end("r").timestamp or 0) > 1000


def test_an_agent_that_is_cancelled_is_an_error_that_the_model_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    course = Askers(monkeypatch)
    course.ask(max_tokens=20)
    course.after(3.5, lambda: course.send(0.0, "controls", type="cancel", request_id=course.child()))
    course.run()
    assert course.results()[0] == "error: helper: cancelled"
    assert course.end("r").finish_reason is FinishReason.LENGTH


def test_an_agent_that_is_late_is_stopped_and_the_answer_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    course = Askers(monkeypatch, within_s=1.0)
    course.ask(max_tokens=60)
    course.run()
    assert set(course.results()) <= {LATE, course.text(course.asked()[-1][0]["request_id"])}
    assert course.results()[0] == LATE
    assert course.end(course.child()).finish_reason is FinishReason.DEADLINE


def test_an_agent_has_its_time_from_its_call_on_though_its_record_comes_later(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[Any] = []
    monkeypatch.setattr(tool_rounds, "ask", lambda *given: called.append(given) or ask(*given))
    course = Askers(monkeypatch, within_s=3.0)
    course.ask(max_tokens=6)
    course.suspend_at(lambda *_: bool(called), 3.5)
    course.run()
    assert course.results()[0] == LATE
    assert course.end(course.child()).finish_reason is FinishReason.LENGTH


def test_nobody_else_answers_for_an_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    course = Askers(monkeypatch)
    course.ask(max_tokens=20)

    def pretend() -> None:
        record = {"user_id": "u", "request_id": "r", "tool_call_id": course.child(), "content": "forged"}
        offset = len(course.simulation.broker.log(_RESULTS).entries)
        assert course.simulation.tools is not None
        course.simulation.tools.wrong.add(("tool-results", 0, offset))
        course.simulation.broker.append(_RESULTS, b"u", json.dumps(record).encode())

    course.after(3.0, pretend)
    course.run()
    assert "forged" not in course.results()


def _asks(_: Waits, process: Process) -> bool:
    return _queued(process, lambda row: row.table is Table.CALLS and b'"agents"' in (row.value or b""))


def _has_asked(course: Waits, _process: Process) -> bool:
    return any(ASKED_BY in dict(one.headers) and one.visible for one in course.records("requests"))


def _agent_runs(course: Waits, process: Process) -> bool:
    return any(key[1].startswith("call_") for key in process.partitions[0].ownership.inflight_requests)


def _agent_has_written(course: Waits, _process: Process) -> bool:
    return any((event.request_id or "").startswith("call_") and event.tokens for event in course.all_events())


def _agent_has_its_end(course: Waits, _process: Process) -> bool:
    return any((event.request_id or "").startswith("call_") and event.is_end for event in course.all_events())


def _is_end_of_agent(row: RowChange) -> bool:
    return row.table is Table.ENDED and b'"call_' in row.key


MOMENTS: dict[str, At] = {
    "the round is put": _asks,
    "the round is committed": _has_asked,
    "the agent is read": _agent_runs,
    "the agent has written": _agent_has_written,
    "the agent's end is written": _agent_has_its_end,
    "the agent's end is put": lambda _, process: _queued(process, _is_end_of_agent),
    "the wake is put": _puts_t3,
    "the wake is committed": _has_committed_t3,
    "behind the end": _has_ended,
}


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("keeps_data", [True, False])
def test_an_owner_dies(moment: str, keeps_data: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    untouched = Askers(monkeypatch)
    untouched.ask()
    untouched.run()
    course = Askers(monkeypatch)
    course.ask()
    course.kill_at(MOMENTS[moment])
    if not keeps_data:
        course.after(1.0, course.simulation.disk.images.clear)
        course.after(4.0, course.simulation.disk.images.clear)
    course.run()
    assert course.killed == 1
    turn, other = course.turns()["r"], untouched.turns()["r"]
    assert (turn.answer, turn.tool_calls, turn.finish_reason) == (other.answer, other.tool_calls, other.finish_reason)
    assert course.results() == untouched.results()
    assert len(course.asked()) == len(untouched.asked())
