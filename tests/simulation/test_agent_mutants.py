"""That the storms among agents can fail: each rule of asking, broken on purpose, is found."""

from __future__ import annotations

from typing import Any

import pytest

from app.answering.kept import Kept
from app.answering.run import Run
from app.delivery.commits.commit import Commit
from app.delivery.inflight import Outcome
from app.features import tool_rounds
from app.features.agents import asked, asking
from app.features.agents.asked import AskedByAnswer
from app.features.agents.asking import Asking, AskingRequest, ask
from app.features.waits.wake import Woken, wake_with
from app.wire.request import Request
from tables.tool_calls import ToolRounds
from tests.simulation import test_agents as directed
from tests.simulation.mutant import Mutant, find_broken_promise
from tests.simulation.sleeping import agent_storm

_CONTENT, _LEAVE, _COMMITTED = AskedByAnswer._content, AskedByAnswer.leave, AskedByAnswer.committed


def _asks_nobody(*arguments: Any) -> Asking:
    made = ask(*arguments)
    return Asking(made.agents, (), made.outcomes)


def _asks_twice(*arguments: Any) -> Asking:
    made = ask(*arguments)
    return Asking(made.agents, (*made.outputs, *made.outputs[:1]), made.outcomes)


def _gives_less_time(*arguments: Any) -> Asking:
    *others, now = arguments
    return ask(*others, now - 2500)


def _leaves_no_result(_stage: AskedByAnswer, kept: Kept) -> Kept:
    return kept


def _wakes_without_its_record(partition: Any, key: Any, rounds: Any) -> Woken:
    woken = wake_with(partition, key, rounds)
    return Woken(woken.changes, woken.outputs[1:])


def _tells_another_text(stage: AskedByAnswer, agent: Any) -> str:
    return _CONTENT(stage, agent)[:-2]


def _tells_its_end_later(stage: AskedByAnswer, outcome: Outcome) -> None:
    """In a transaction of its own, behind that of the end."""
    _COMMITTED(stage, outcome)
    if (woken := stage._left) is not None:
        partition = stage.run.partition
        partition.spawn(partition.commit(Commit(None, woken.changes, woken.outputs)))


def _decides_alone(stage: AskedByAnswer, kept: Kept) -> Kept:
    _LEAVE(stage, kept)
    return kept


def _stops_nobody(_run: Run, kept: Kept, _rounds: Any) -> tuple[Kept, list[Any]]:
    return kept, []


def _counts_no_depth(headers: Any) -> AskingRequest | None:
    asker = asking.asker_of(headers)
    return None if asker is None else AskingRequest(asker.request_id, 0)


def _in_the_same_conversation(**fields: Any) -> Request:
    return Request(**{**fields, "conversation_id": "default"})


def _is_remembered(**fields: Any) -> Request:
    return Request(**{**fields, "store": True})


MUTANTS: dict[str, Mutant] = {
    "nobody is asked": Mutant(tool_rounds, "ask", _asks_nobody, agent_storm),
    "an agent is asked twice": Mutant(tool_rounds, "ask", _asks_twice, agent_storm),
    "an agent's time begins before its call": Mutant(tool_rounds, "ask", _gives_less_time, agent_storm),
    "the end of an agent is no result": Mutant(AskedByAnswer, "leave", _leaves_no_result, agent_storm, hint=1),
    "a result wakes nobody": Mutant(asked, "wake_with", _wakes_without_its_record, agent_storm, hint=8),
    "another text is the result": Mutant(AskedByAnswer, "_content", _tells_another_text, agent_storm),
    "an end and its result are two transactions": Mutant(
        AskedByAnswer,
        "leave",
        _decides_alone,
        agent_storm,
        more=((AskedByAnswer, "committed", _tells_its_end_later),),
    ),
    "what ends an answer stops no agent": Mutant(tool_rounds, "stop_asked", _stops_nobody, agent_storm, 8),
    "agents ask one another without end": Mutant(asking, "asker_of", _counts_no_depth, agent_storm),
    "what an agent says is remembered": Mutant(asking, "Request", _is_remembered, agent_storm),
    "an agent waits for who has asked": Mutant(asking, "Request", _in_the_same_conversation, agent_storm, hint=2),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_promise_is_found(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    find_broken_promise(mutant, MUTANTS[mutant], monkeypatch)


def test_an_agent_that_begins_for_nobody_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AskedByAnswer, "_check", lambda _stage: None)
    with pytest.raises(AssertionError):
        directed.test_an_agent_that_is_read_when_its_asker_has_ended_begins_for_nobody(monkeypatch)


def test_a_result_of_somebody_else_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ToolRounds, "agents", property(lambda _rounds: ()))
    with pytest.raises(AssertionError):
        directed.test_nobody_else_answers_for_an_agent(monkeypatch)
