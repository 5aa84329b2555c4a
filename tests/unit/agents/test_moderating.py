"""What is judged, and by which rules."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from agents.moderating import Moderating

from app.features.guard.guard import Guard
from app.features.guard.turns import Asker, BusyError
from app.policy.file import Policy
from app.policy.guard_rules import GuardRules
from app.wire.error import ErrorCode
from app.wire.request import Message, Role
from models.chat import ToolCall
from models.generation import Delta, End, FinishReason, Usage
from tests.unit.agents.guarded import answer_of, one_round
from tests.unit.agents.inflight_requests import inflight_of

RULES = GuardRules(prompt={"attack": "block"}, answer={"insult": "block"}, classifier="a folder")


class ByWord:
    """A text belongs to the categories that it names."""

    def __init__(self, error: Exception | None = None, *, hangs: bool = False) -> None:
        self.asked: list[tuple[tuple[str, ...], frozenset[str]]] = []
        self._error = error
        self._hangs = hangs

    async def categories_of(self, texts: Sequence[str], categories: frozenset[str], _asker: Asker) -> frozenset[str]:
        self.asked.append((tuple(texts), categories))
        if self._error is not None:
            raise self._error
        if self._hangs:
            await asyncio.sleep(3600)
        return frozenset(name for name in categories if any(name in text for text in texts))

    def forget(self, user: str) -> None:
        raise AssertionError(user)

    async def close(self) -> None:
        return None


def moderating_of(judges: ByWord) -> Moderating:
    return Moderating(Guard(Policy(guard=RULES), load_judges=lambda _rules: judges))


async def test_the_arguments_of_an_answer_s_calls_are_judged() -> None:
    inflight = inflight_of()
    answer, log = answer_of(inflight)
    gate = moderating_of(ByWord()).gate(inflight, answer)
    call = ToolCall("send", '{"text": "an \\u0069nsult"}', "c1")
    assert await gate.read(End(1, FinishReason.TOOL_CALLS, Usage(3, 1), calls=(call,))) == []
    assert inflight.plan.filtered == "insult"
    assert [plan["filtered"] for plan in log.plans] == ["insult"]


async def test_results_of_tools_are_judged_by_the_rules_for_prompts() -> None:
    inflight = inflight_of()
    answer, log = answer_of(inflight)
    inflight.rounds = inflight.made = one_round("an insult")
    judges = ByWord()
    await moderating_of(judges).look_at_results(inflight, answer)
    assert (inflight.plan.filtered, log.plans) == (None, [])
    assert judges.asked[0][1] == {"attack"}
    inflight.rounds = inflight.made = one_round("an attack")
    await moderating_of(judges).look_at_results(inflight, answer)
    assert inflight.plan.filtered == "attack"
    assert [plan["filtered"] for plan in log.plans] == ["attack"]


async def test_an_answer_leaves_by_sentences_and_the_blocked_one_does_not() -> None:
    inflight = inflight_of()
    gate = moderating_of(ByWord()).gate(inflight, answer_of(inflight)[0])
    assert [event.text for event in await gate.read(Delta(0, (1,), "Fine. \n")) if isinstance(event, Delta)]
    assert await gate.read(Delta(1, (2,), "An insult. \n")) == []
    assert inflight.plan.filtered == "insult"


@pytest.mark.parametrize(("begun", "filtered"), [("Sure, an ins", "insult"), ("A word. An ins\n", None)])
async def test_a_sentence_that_the_request_has_begun_is_judged_with_its_end(begun: str, filtered: str | None) -> None:
    messages = (Message(Role.USER, "why?"), Message(Role.ASSISTANT, begun))
    inflight = inflight_of(prompt=None, messages=messages, continue_final_message=True)
    judges = ByWord()
    gate = moderating_of(judges).gate(inflight, answer_of(inflight)[0])
    await gate.read(Delta(0, (1,), "ult. \n"))
    assert inflight.plan.filtered == filtered


async def test_a_judgement_of_a_request_ends_with_it() -> None:
    inflight = inflight_of()
    looking = asyncio.ensure_future(moderating_of(ByWord(hangs=True)).look(inflight))
    await asyncio.sleep(0.01)
    assert not looking.done()
    inflight.stop.now(FinishReason.CANCELLED)
    async with asyncio.timeout(5):
        await looking
    assert inflight.plan.filtered is None


async def test_want_of_time_refuses_a_new_request() -> None:
    inflight = inflight_of()
    await moderating_of(ByWord(BusyError("too many texts wait"))).look(inflight)
    assert inflight.refusal is not None
    assert inflight.refusal.code is ErrorCode.OVERLOADED
