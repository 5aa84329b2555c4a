"""Answers of agents that are programs: what each command does, what ends them, and when their owner may die."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from runpy import run_path
from typing import Any

import msgspec
import pytest
from aiokafka import TopicPartition
from parley_client.agents import AgentRequest, Agents, Step, StepError

from app.features.programs import stage
from app.policy.agents import AgentRules
from app.policy.file import Policy, WaitRules
from app.policy.guard_rules import GuardRules
from app.policy.tools import ApproveRules, ToolRules
from app.private.value import PrivateValue
from models.interface.generation import FinishReason
from models.served.paced import BytePrompts
from tables.records import Table
from tests.simulation.analyzer import FickleAnalyzer
from tests.simulation.process import Process
from tests.simulation.programs import SimPrograms
from tests.simulation.test_sleeping import CONDITIONS, At, Waits, _has_committed_t3, _has_ended, _puts_t3, _queued

POLICY = Policy(
    waits=WaitRules(park_after_s=0.5),
    agents={"desk": AgentRules(program=True), "helper": AgentRules()},
    tools={"refund": ToolRules(approve=ApproveRules(by="desk"))},
)
Function = Callable[[Step, AgentRequest], Any]


class Desk(Waits):
    """One answer whose program is this function."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, function: Function, policy: Policy = POLICY) -> None:
        super().__init__(monkeypatch, after_s=1.0, policy=policy)
        self.function = function
        self.simulation.conditions = replace(CONDITIONS, sleeps_after_s=0.5, programs=("desk",))
        broker = self.simulation.broker
        self.programs = SimPrograms(broker, self.simulation.partitions, self._made)
        self.simulation.programs = self.programs

    def _made(self) -> Agents:
        agents = Agents()

        async def function(step: Step, request: AgentRequest) -> Any:
            return await self.function(step, request)

        agents.agent("desk")(function)
        return agents

    def ask(self, **fields: Any) -> None:
        self.send(1.0, request_id="r", **{"prompt": "begin", "agent": "desk", "max_tokens": 4, **fields})

    def fail(self) -> None:
        """Run to an end that is the program's fault."""
        self.programs.has_changed = True
        self.programs.is_own = lambda _asked: True  # type: ignore[method-assign]
        self.run()

    def calls(self) -> list[dict[str, Any]]:
        """Those that are no steps of the program."""
        found = [json.loads(one.value or b"") for one in self.records("tool-calls") if one.visible]
        return [one for one in found if not one["name"].startswith("agent:")]

    def letters(self) -> list[str]:
        return [dict(one.headers)["error-message"].decode() for one in self.records("dead-letters") if one.visible]

    def text(self) -> str:
        events = [event for event in self.events("r") if event.type == "token" or event.is_end]
        return "".join(event.text or "" for event in events)

    def row(self) -> dict[str, Any]:
        rows = [json.loads(value) for value in self.committed(Table.CONVERSATIONS).values() if value]
        return next(turn for row in rows for turn in row["turns"] if turn["request_id"] == "r")

    def decide(self, at: float, **decision: Any) -> None:
        """About the call that waits for an approval by then."""

        def send() -> None:
            waits = [json.loads(one.value or b"") for one in self.records("waits")]
            wait = next(one for state in reversed(waits) for one in state["waits"] if one["kind"] == "approval")
            of = {"type": "decide", "request_id": "r", "wait_id": wait["wait_id"], "by": "desk/ali"}
            self.send(0.0, "controls", **{**of, **decision})

        self.after(at, send)


async def talk(step: Step, request: AgentRequest) -> str:
    await step.say("One moment.")
    found = await step.call("look_up", {"word": request.prompt})
    first = await step.answer(f"Use this: {found}")
    number = await step.run(lambda: len(first))
    await step.sleep(2.0)
    helped = await step.ask("helper", f"What is {number}?")
    return f"Done, {helped}."


def test_each_command_is_carried_out_once_and_in_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(monkeypatch, talk)
    desk.ask()
    desk.run()
    turn, text = desk.turns()["r"], desk.text()
    assert turn.finish_reason is FinishReason.STOP
    assert turn.answer == text
    said = text.split("\n\n")
    assert (said[0], said[2][:6], len(said)) == ("One moment.", "Done, ", 3)
    assert [call["name"] for call in desk.calls()] == ["look_up"]
    assert json.loads(desk.calls()[0]["arguments"]) == {"word": "begin"}
    assert [call.name for call in turn.tool_calls or ()] == ["look_up", "helper"]
    commands = [command["command"] for _, command in desk.programs.answered]
    assert commands == ["say", "call", "answer", "result", "sleep", "ask", "say", "end"]
    row = desk.row()
    assert [step["role"] for step in row["steps"]] == ["assistant", "tool", "assistant", "tool"]
    assert row["steps"][0]["content"] == "One moment."
    assert row["answer"] == said[2]
    assert desk.letters() == []


async def approves(step: Step, request: AgentRequest) -> str:
    decision = await step.approve("large", {"amount": 7}, by="desk")
    if not decision.is_approved:
        return f"{decision.decision} by {decision.by}: {decision.reason}"
    try:
        return await step.call("refund", decision.arguments)
    except StepError as error:
        return str(error)


@pytest.mark.parametrize(
    ("decision", "said"),
    [
        ({"decision": "rejected", "reason": "no"}, "rejected by desk/ali: no"),
        ({"decision": "approved"}, "error"),
        ({"decision": "edited", "arguments": '{"amount": 5}'}, "error"),
    ],
)
def test_a_decision_is_an_outcome_and_makes_no_call(
    decision: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(monkeypatch, approves)
    desk.ask()
    desk.decide(4.0, **decision)
    if said == "error":
        desk.decide(8.0, decision="approved")
    desk.run()
    if said != "error":
        assert (desk.text(), desk.calls()) == (said, [])
        return
    (call,) = desk.calls()
    assert json.loads(call["arguments"]) == {"amount": 5 if decision["decision"] == "edited" else 7}
    assert desk.text() == f"result of {call['tool_call_id']}"


def test_nobody_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    async def asks(step: Step, _request: AgentRequest) -> str:
        return (await step.approve("large", by="desk", within_s=3.0)).decision

    desk = Desk(monkeypatch, asks)
    desk.ask()
    desk.run()
    assert desk.text() == "expired"


def test_the_model_reads_what_was_said_and_called(monkeypatch: pytest.MonkeyPatch) -> None:
    async def answers(step: Step, _request: AgentRequest) -> None:
        await step.answer("first words")
        await step.call("look_up", {"word": "x"})
        await step.answer("second words", max_tokens=2)
        await step.answer("third words")

    desk = Desk(monkeypatch, answers)
    read = _noted_prompts(monkeypatch)
    desk.ask()
    desk.run()
    first, second, third = dict.fromkeys(read)
    assert "begin\n\nfirst words" in first
    assert "first words" not in second
    assert "second words" in second
    assert "result of call_" in second
    assert "third words" in third
    assert "second words" not in third
    assert "agent:desk" not in "".join(read)
    assert [len(one.split("w")) - 1 for one in desk.text().split("\n\n")] == [4, 2, 4]


def test_a_guard_hides_what_a_program_says_and_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    async def find(_: FickleAnalyzer, texts: Sequence[str], _asker: Any) -> tuple[PrivateValue, ...]:
        values = dict.fromkeys(value for text in texts for value in re.findall("question [0-9]", text))
        return tuple(PrivateValue("PERSON", value) for value in values)

    async def tells(step: Step, request: AgentRequest) -> str:
        await step.say("I see question 1.")
        await step.call("look_up", {"word": "question 2"})
        await step.answer('Tell "question 3"', max_tokens=3)
        return f"So much for {request.prompt}."

    monkeypatch.setattr(FickleAnalyzer, "find", find)
    read = _noted_prompts(monkeypatch)
    desk = Desk(monkeypatch, tells, msgspec.structs.replace(POLICY, guard=GuardRules(pii="mask")))
    desk.simulation.conditions = replace(desk.simulation.conditions, pii="mask")
    desk.ask(prompt="question 4")
    desk.run()
    said = desk.text().split("\n\n")
    assert (said[0], said[1].count(" w"), said[2]) == ("I see question 1.", 3, "So much for question 4.")
    assert [text for text in read if "question" in text] == []
    assert "PERSON" in read[-1]


def _noted_prompts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The prompts that models read from now on."""
    read: list[str] = []
    whole = BytePrompts._of

    def noted(prompts: BytePrompts, ids: bytes, turns: int = 0, reserve: int = 1) -> Any:
        read.append(bytes(ids).decode(errors="replace"))
        return whole(prompts, ids, turns, reserve)

    monkeypatch.setattr(BytePrompts, "_of", noted)
    return read


def test_a_program_that_has_changed_ends_the_answer_with_a_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    async def other(step: Step, _request: AgentRequest) -> None:
        await step.say("One moment.")
        await step.answer()

    desk = Desk(monkeypatch, talk)
    desk.ask()

    def change() -> None:
        desk.function = other
        desk.programs.die()

    desk.after(2.0, change)
    desk.fail()
    assert desk.turns()["r"].finish_reason is FinishReason.PARTIAL
    assert desk.letters() == ["agent desk, step 3: step 2 was call look_up, and is answer now: the program has changed"]
    assert desk.text() == "One moment."


async def _fails(_step: Step, _request: AgentRequest) -> None:
    raise ValueError("a secret")


def test_a_program_that_fails_ends_the_answer_with_a_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(monkeypatch, _fails)
    desk.ask()
    desk.fail()
    assert desk.letters() == ["agent desk, step 1: the program has failed (ValueError)"]


async def _steps_on(step: Step, _request: AgentRequest) -> None:
    while True:
        await step.run(lambda: 1)


def test_an_answer_has_so_many_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "MOST_STEPS", 5)
    desk = Desk(monkeypatch, _steps_on)
    desk.ask()
    desk.fail()
    assert desk.letters() == ["agent desk: 5 steps are over"]
    assert len(desk.programs.answered) == 5


def test_a_program_that_is_away_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = replace_agents(AgentRules(program=True, within_s=3.0))
    desk = Desk(monkeypatch, talk, policy)
    desk.programs.agents = Agents()
    desk.ask()
    desk.fail()
    assert desk.letters() == ["agent desk: no program has answered in time, in step 1"]
    assert desk.sleeps() >= 1


def replace_agents(rules: AgentRules) -> Policy:
    return Policy(waits=POLICY.waits, agents={**POLICY.agents, "desk": rules}, tools=POLICY.tools)


@pytest.mark.parametrize("content", ["no json", "{}", '{"command": "jump"}', '{"command": "say"}', "[1]"])
def test_what_is_no_command_ends_the_answer_with_a_letter(content: str, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(monkeypatch, talk)
    desk.programs.agents = Agents()
    desk.ask()

    def answer() -> None:
        call = json.loads(desk.records("tool-calls")[0].value or b"")
        ids = {name: call[name] for name in ("tool_call_id", "request_id", "user_id")}
        record = json.dumps({**ids, "content": content}).encode()
        desk.simulation.broker.append(TopicPartition("tool-results", 0), b"u", record)

    desk.after(3.0, answer)
    desk.fail()
    (letter,) = desk.letters()
    assert letter.startswith("agent desk, step 1: its command cannot be read")
    assert desk.turns()["r"].finish_reason is FinishReason.PARTIAL


@pytest.mark.parametrize("stop", ["cancel", "erase"])
def test_what_ends_an_answer_ends_that_of_a_program(stop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def sleeps(step: Step, _request: AgentRequest) -> None:
        await step.say("Good night.")
        await step.sleep(300.0)

    desk = Desk(monkeypatch, sleeps)
    desk.ask()
    desk.send(6.0, "controls", type=stop, **({"request_id": "r"} if stop == "cancel" else {}))
    desk.run()
    end = next(event for event in desk.events("r") if event.is_end)
    assert end.finish_reason is FinishReason.CANCELLED
    assert desk.letters() == []


EXAMPLES = Path(__file__).parents[2] / "deploy" / "examples"


def test_the_example_of_a_refund_desk(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(monkeypatch, run_path(str(EXAMPLES / "refund_agent.py"))["refunds"])
    desk.ask(prompt="Refund order 48213")
    desk.decide(4.0, decision="edited", arguments='{"order": "48213", "amount": 450}')
    desk.run()
    said = desk.text().split("\n\n")
    assert (said[0], said[-1]) == ("I look at order 48213, a sofa.", "450 are on their way to you.")


def test_the_example_in_any_language(monkeypatch: pytest.MonkeyPatch) -> None:
    command = run_path(str(EXAMPLES / "any_language.py"))["command"]

    class ByTopics(Agents):
        async def command(self, name: str, asked: dict[str, Any]) -> dict[str, Any]:
            del name
            return dict(command(**asked))

    desk = Desk(monkeypatch, talk)
    desk.programs.agents = ByTopics()
    desk.programs.is_own = lambda _asked: True  # type: ignore[method-assign]
    desk.ask(prompt="hello")
    desk.run()
    said = desk.text().split("\n\n")
    assert (said[0], said[1].count(" w"), said[2]) == ("You said: hello", 5, "That had 5 words.")


def _step(number: int) -> At:
    return lambda course, _process: len(course.programs.answered) >= number  # type: ignore[attr-defined]


def _puts_row(_: Waits, process: Process) -> bool:
    return _queued(process, lambda row: row.table is Table.CALLS and b'"agent:' in (row.value or b""))


def _has_written(course: Waits, _process: Process) -> bool:
    return sum(len(event.tokens or ()) for event in course.events("r")) > 12


def _has_its_end(course: Waits, _process: Process) -> bool:
    return any(event.is_end for event in course.events("r"))


MOMENTS: dict[str, At] = {
    "the first step is put": _puts_row,
    **{f"step {number} is answered": _step(number) for number in range(1, 9)},
    "the model writes": _has_written,
    "the wake is put": _puts_t3,
    "the wake is committed": _has_committed_t3,
    "the end is written": _has_its_end,
    "behind the end": _has_ended,
}


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("keeps_data", [True, False])
@pytest.mark.parametrize("program_dies", [True, False])
def test_an_owner_dies(moment: str, keeps_data: bool, program_dies: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    untouched = Desk(monkeypatch, talk)
    untouched.ask()
    untouched.run()
    desk = Desk(monkeypatch, talk)
    desk.ask()
    desk.kill_at(MOMENTS[moment])
    if program_dies:
        for at in range(1, 16):
            desk.after(1.0 + at, desk.programs.die)
    if not keeps_data:
        desk.after(1.0, desk.simulation.disk.images.clear)
        desk.after(4.0, desk.simulation.disk.images.clear)
    desk.run()
    assert desk.killed == 1
    turn, other = desk.turns()["r"], untouched.turns()["r"]
    assert (turn.answer, turn.tool_calls, turn.finish_reason) == (other.answer, other.tool_calls, other.finish_reason)
    assert desk.calls() == [{**one, **_times(two)} for one, two in zip(untouched.calls(), desk.calls(), strict=True)]
    assert desk.row()["steps"] == untouched.row()["steps"]


def _times(call: dict[str, Any]) -> dict[str, Any]:
    return {name: call[name] for name in ("created_at", "expires_at")}
