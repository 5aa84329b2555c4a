"""What is judged, and by which rules."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import cast

import pytest

from app.answering.run import Over, RequestRefused, Run
from app.answering.stage import Ending, Stage
from app.delivery.inflight import InFlight
from app.features.guard.fair_order import Asker, BusyError
from app.features.guard.guard import Guard
from app.features.guard.moderation import Moderation
from app.policy.file import Policy
from app.policy.guard_rules import GuardRules
from app.wire.error import ErrorCode
from app.wire.event import NO_PLAN
from app.wire.request import Message, Role
from models.interface.chat import ModelCall
from models.interface.generation import Delta, End, FinishReason, Job, StreamEvent, Usage
from tests.unit.answering.runs import run_and_stage_of, unchanged
from tests.unit.delivery.fake_partition import FakeLog
from tests.unit.delivery.inflight_requests import inflight_of
from tests.unit.features.guard.guarded import one_round

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

    async def warm(self) -> None:
        return None

    async def close(self) -> None:
        return None


def moderated(judges: ByWord, inflight: InFlight | None = None) -> tuple[Run, Stage]:
    """The run of a request, and the stage in it."""
    guard = Guard(Policy(guard=RULES), load_judges=lambda _rules: judges)
    run, stage = run_and_stage_of(Moderation(guard), inflight=inflight)
    return run, stage


async def gated(run: Run, stage: Stage, *events: StreamEvent) -> list[StreamEvent]:
    """What readers get of these events of the model."""

    async def generate(_job: Job) -> AsyncGenerator[StreamEvent, None]:
        for event in events:
            yield event

    return [event async for event in stage.generate(Job("ann/r1", (1, 2, 3), 8), generate)]


def texts_of(events: Sequence[StreamEvent]) -> list[str]:
    return [event.text for event in events if isinstance(event, Delta)]


def plans_of(run: Run) -> list[str]:
    """The categories that end the answer, as they are written."""
    return [plan["filtered"] for plan in cast(FakeLog, run.partition.ownership.token_log).plans]


async def test_the_arguments_of_an_answer_s_calls_are_judged() -> None:
    run, stage = moderated(ByWord())
    call = ModelCall("send", '{"text": "an \\u0069nsult"}', "c1")
    (end,) = await gated(run, stage, End(1, FinishReason.TOOL_CALLS, Usage(3, 1), calls=(call,)))
    assert end == End(0, FinishReason.FILTERED, Usage(3, 0))
    assert plans_of(run) == ["insult"]


async def test_results_of_tools_are_judged_by_the_rules_for_prompts() -> None:
    judges = ByWord()
    run, stage = moderated(judges)

    async def over() -> Ending:
        return End(0, FinishReason.STOP, Usage(0, 0))

    run.answer.continue_after(one_round("an insult"))
    assert await stage.round(over) == await over()
    assert plans_of(run) == []
    assert judges.asked[0][1] == {"attack"}
    run.answer.continue_after(one_round("an attack"))
    with pytest.raises(Over) as ended:
        await stage.round(over)
    assert ended.value.end.reason is FinishReason.FILTERED
    assert plans_of(run) == ["attack"]


async def test_an_answer_leaves_by_sentences_and_the_blocked_one_does_not() -> None:
    run, stage = moderated(ByWord())
    events = await gated(run, stage, Delta(0, (1,), "Fine. \n"), Delta(1, (2,), "An insult. \n"))
    assert texts_of(events) == ["Fine. \n"]
    assert isinstance(events[-1], End)
    assert events[-1].reason is FinishReason.FILTERED
    assert plans_of(run) == ["insult"]


@pytest.mark.parametrize(("begun", "filtered"), [("Sure, an ins", "insult"), ("A word. An ins\n", None)])
async def test_a_sentence_that_the_request_has_begun_is_judged_with_its_end(begun: str, filtered: str | None) -> None:
    messages = (Message(Role.USER, "why?"), Message(Role.ASSISTANT, begun))
    run, stage = moderated(ByWord(), inflight_of(prompt=None, messages=messages, continue_final_message=True))
    await gated(run, stage, Delta(0, (1,), "ult. \n"))
    assert run.answer.plan.filtered == filtered


async def test_a_judgement_of_a_request_ends_with_it() -> None:
    run, stage = moderated(ByWord(hangs=True))
    deciding = asyncio.ensure_future(stage.decide(NO_PLAN, unchanged))
    await asyncio.sleep(0.01)
    assert not deciding.done()
    run.inflight.stop.now(FinishReason.CANCELLED)
    with pytest.raises(Over) as ended:
        async with asyncio.timeout(60):
            await deciding
    assert ended.value.end.reason is FinishReason.CANCELLED


async def test_want_of_time_refuses_a_new_request() -> None:
    _, stage = moderated(ByWord(BusyError("too many texts wait")))
    with pytest.raises(RequestRefused) as refused:
        await stage.decide(NO_PLAN, unchanged)
    assert refused.value.code is ErrorCode.OVERLOADED
