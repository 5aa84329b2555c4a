"""Calls that are requests of agents: what is written for them, and what cannot be asked."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.answering.run import Run
from app.features.agents.asking import ASKED_BY, MOST_AT_ONCE, MOST_OF_ANSWER, TOO_DEEP, TOO_MANY, ask, asker_of
from app.policy.agents import MOST_DEEP
from app.policy.tools import ToolRules
from app.wire.codec import decode
from app.wire.request import Priority, Request
from models.interface.chat import ModelCall
from models.interface.generation import Usage
from tables.tool_calls import AskedAgent, ToolOutcome, ToolRound, ToolRounds
from tests.unit.answering.bench import ASKED_AT, NOW, SETTINGS

TRACED = ("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
RULES = {"look_up": ToolRules(ask="helper", within_s=60), "refund": ToolRules()}


def _run(depth: int = 0, **fields: Any) -> Run:
    """As much of an answer as asking looks at."""
    headers = [TRACED, *([(ASKED_BY, f"{depth}/before".encode())] if depth else [])]
    request = Request(request_id="r", user_id="acme/ann", tenant="acme", prompt="hi", **fields)
    record = SimpleNamespace(headers=headers, timestamp=ASKED_AT)
    key = (request.user_id, request.request_id)
    accepted = SimpleNamespace(request=request, record=record, at=ASKED_AT, key=key)
    return cast(Run, SimpleNamespace(accepted=accepted, settings=SETTINGS, key=key))


def _calls(count: int, arguments: str = '{"question": "where?"}') -> list[ModelCall]:
    return [ModelCall("look_up", arguments, f"call_{number}") for number in range(count)]


def _asked_before(count: int) -> ToolRounds:
    agents = tuple(AskedAgent(f"old_{number}", "helper", NOW) for number in range(count))
    return ToolRounds(rounds=(ToolRound(1, "", (), Usage(1, 1), NOW, NOW, agents=agents),))


def test_an_agent_is_asked_as_who_calls_it() -> None:
    run = _run(depth=1, priority=Priority.BATCH, max_tokens=7, deadline_ms=21_000)
    asking = ask(run, ToolRounds(), [*_calls(1), ModelCall("refund", "{}", "call_r")], RULES, NOW)
    assert asking.agents == (AskedAgent("call_0", "helper", NOW + 60_000),)
    assert asking.outcomes == ()
    (output,) = asking.outputs
    assert (output.topic, output.key, output.partition) == (SETTINGS.topic("requests"), b"acme/ann", None)
    assert {*output.headers} >= {TRACED, (ASKED_BY, b"2/r")}
    assert decode(Request, output.value, output.headers) == Request(
        request_id="call_0",
        user_id="acme/ann",
        conversation_id="call_0",
        agent="helper",
        prompt="where?",
        max_tokens=7,
        priority=Priority.BATCH,
        deadline_ms=20_000,  # a second of its asker's is over
        tenant="acme",
        store=False,
    )


@pytest.mark.parametrize(
    ("arguments", "question"),
    [
        ('{"word": "x"}', "x"),
        ('{"word": "x", "more": 1}', '{"word": "x", "more": 1}'),
        ('{"number": 4711}', '{"number": 4711}'),
        ('{"word": ""}', '{"word": ""}'),
        ("[1]", "[1]"),
        ("{not json", "{not json"),
    ],
)
def test_the_one_text_of_the_arguments_is_the_question(arguments: str, question: str) -> None:
    (output,) = ask(_run(), ToolRounds(), _calls(1, arguments), RULES, NOW).outputs
    assert json.loads(output.value or b"")["prompt"] == question


def test_agents_ask_one_another_a_few_deep() -> None:
    assert ask(_run(MOST_DEEP - 1), ToolRounds(), _calls(1), RULES, NOW).outcomes == ()
    asking = ask(_run(MOST_DEEP), ToolRounds(), _calls(1), RULES, NOW)
    assert (asking.outputs, asking.outcomes) == ((), (ToolOutcome("call_0", TOO_DEEP),))


@pytest.mark.parametrize(("before", "most"), [(0, MOST_AT_ONCE), (MOST_OF_ANSWER - 3, 3), (MOST_OF_ANSWER, 0)])
def test_an_answer_asks_so_many_agents(before: int, most: int) -> None:
    asking = ask(_run(), _asked_before(before), _calls(MOST_AT_ONCE + 2), RULES, NOW)
    assert len(asking.outputs) == len(asking.agents) == most
    assert [one.content for one in asking.outcomes] == [TOO_MANY] * (MOST_AT_ONCE + 2 - most)


def test_a_question_that_no_request_can_have_is_an_error_that_the_model_reads() -> None:
    long = json.dumps({"question": "x" * (SETTINGS.max_prompt_bytes + 1)})
    asking = ask(_run(), ToolRounds(), _calls(1, long), RULES, NOW)
    assert (asking.agents, asking.outputs) == ((), ())
    (outcome,) = asking.outcomes
    assert outcome.content.startswith("error: the agent cannot be asked: the prompt has")


def test_the_header_names_who_asks_and_how_deep() -> None:
    assert asker_of([(ASKED_BY, b"2/call_7/x")]) == ("call_7/x", 2)
    for bad in (b"", b"2", b"x/r", b"12/r", "²/r".encode(), b"/r", b"1/", b"\xff/r"):
        assert asker_of([(ASKED_BY, bad)]) is None
    assert asker_of([("traceparent", b"1/r")]) is None
    assert asker_of([(ASKED_BY, None)]) is None


def test_a_call_is_waited_for_until_the_time_of_its_agent() -> None:
    calls = (ModelCall("look_up", "{}", "c1"), ModelCall("other", "{}", "c2"))
    one = ToolRound(3, "", calls, Usage(1, 3), 0, 100, agents=(AskedAgent("c1", "helper", 50),))
    rounds = ToolRounds(rounds=(one,))
    assert (one.until("c1"), one.until("c2"), rounds.due_at) == (50, 100, 50)
    assert [agent.call_id for agent in rounds.waiting_agents] == ["c1"]
    assert rounds.answered(ToolOutcome("c1", "done")).waiting_agents == ()
    assert len(rounds.agents) == 1
