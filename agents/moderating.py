"""Judge prompts before a model reads them, and answers before readers get them. Only with `[guard]` in the policy.

1. Before anything is spent on a request, judge its texts; before each further round, the results of tools.
2. While the answer is generated, hold its tokens until a sentence is complete (app/guard/sentences.py), and judge that.
3. A category that the policy blocks ends the answer as `filtered`; one that it flags is in the turn and the audit.

The judges see placeholders for private values. A category is written to `tokens` as part of the plan before anything
that follows it, so the next owner of the partition ends the answer in the same way, and repeats no flag.
Without a verdict, a request ends as `filtered` (`on_failure = "closed"`), or goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial

import msgspec

from agents.dialogue import beginning_of
from agents.masking import asker_of
from agents.off_loop import INLINE, off_loop
from agents.seen import json_text, seen_by_model, size_of, texts_of_request, texts_of_rounds
from app.delivery.inflight import InFlightRequest
from app.delivery.resume.answer_log import AnswerLog
from app.delivery.stop_handle import StoppedError
from app.guard.guard import PASSED, Guard, Verdict
from app.guard.judges.judge import JudgeError
from app.guard.sentences import Sentences
from app.guard.turns import Asker, BusyError, Patience
from app.policy.guard_rules import INJECTION, UNJUDGED, Action
from app.policy.tenants import TenantRefusal
from app.wire.error import ErrorCode
from models.generation import Delta, End, Failure, StreamEvent

_INSTRUCTING = frozenset({"system", "developer"})
"""The roles whose messages are meant to instruct the model: they cannot be an injection."""


class Moderating:
    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    async def look(self, inflight: InFlightRequest) -> None:
        """Judge the request, unless a former owner has decided or begun."""
        if not self._guard.rules.judges_prompts or inflight.is_resumed or inflight.logged.flagged is not None:
            return
        request = await seen_by_model(inflight)
        messages = request.messages or ()
        instructions = tuple(one for one in messages if one.role in _INSTRUCTING)
        others = tuple(one for one in messages if one.role not in _INSTRUCTING)
        actions = self._guard.rules.prompt
        judged = msgspec.structs.replace(request, messages=others or None)
        texts = await off_loop(len(inflight.record.value or b""), partial(texts_of_request, judged))
        asker = asker_of(inflight)
        try:
            await inflight.stop.run(self._judge(inflight, texts, actions, asker))
            if instructions:
                texts = [one.text for one in instructions]
                rest = {name: actions[name] for name in actions if name != INJECTION}
                await inflight.stop.run(self._judge(inflight, texts, rest, asker))
        except BusyError as error:
            inflight.refusal = TenantRefusal(ErrorCode.OVERLOADED, str(error))
        except StoppedError:
            return  # nothing will be generated

    async def look_at_results(self, inflight: InFlightRequest, answer: AnswerLog) -> None:
        """Judge the results of tools, unless the answer goes on behind them already."""
        if not inflight.rounds.rounds or answer.index != inflight.begin or not self._guard.rules.judges_prompts:
            return
        texts = texts_of_rounds(inflight.rounds)
        seen = await off_loop(size_of(texts), lambda: [*map(inflight.mask.hide, texts)])
        with suppress(StoppedError):
            await inflight.stop.run(self._judge_and_write(inflight, answer, seen, self._guard.rules.prompt))

    def gate(self, inflight: InFlightRequest, answer: AnswerLog) -> AnswerGate:
        return AnswerGate(self, inflight, answer, is_open=not self._guard.rules.judges_answers)

    async def judge_answer(self, inflight: InFlightRequest, answer: AnswerLog, texts: Sequence[str]) -> None:
        """Judge what is about to be written."""
        await self._judge_and_write(inflight, answer, texts, self._guard.rules.answer)

    async def _judge_and_write(
        self, inflight: InFlightRequest, answer: AnswerLog, texts: Sequence[str], actions: Mapping[str, Action]
    ) -> None:
        """Add the verdict to the plan, and write that before anything that follows it."""
        before = inflight.plan
        await self._judge(inflight, texts, actions, asker_of(inflight, Patience.BEGUN))
        if inflight.plan != before:
            await answer.plan(inflight.plan)

    async def _judge(
        self, inflight: InFlightRequest, texts: Sequence[str], actions: Mapping[str, Action], asker: Asker
    ) -> None:
        """Add the verdict to the plan, unless the guard has ended the answer already."""
        plan = inflight.plan
        if plan.filtered is not None:
            return
        verdict = await self._verdict(texts, actions, asker)
        if verdict.flagged:
            flagged = tuple(dict.fromkeys((*(plan.flagged or ()), *verdict.flagged)))
            plan = msgspec.structs.replace(plan, flagged=flagged)
        if verdict.blocked is not None:
            plan = msgspec.structs.replace(plan, filtered=verdict.blocked)
        inflight.plan = plan

    async def _verdict(self, texts: Sequence[str], actions: Mapping[str, Action], asker: Asker) -> Verdict:
        try:
            return await self._guard.judge(texts, actions, asker)
        except JudgeError:
            return PASSED if self._guard.rules.on_failure == "open" else Verdict(UNJUDGED)


class AnswerGate:
    """The events of one stream as readers may get them; one that `is_open` lets all of them pass at once."""

    def __init__(self, moderating: Moderating, inflight: InFlightRequest, answer: AnswerLog, *, is_open: bool) -> None:
        self._moderating = moderating
        self._inflight = inflight
        self._answer = answer
        self._is_open = is_open
        self._sentences = Sentences("" if is_open else _written(inflight, answer))

    async def read(self, event: StreamEvent) -> Sequence[StreamEvent]:
        """What can leave now: nothing if the guard ends the answer, which its plan then says."""
        match event:
            case _ if self._is_open:
                return [event]
            case Delta():
                ready = self._sentences.add(event)
                return [] if ready is None else await self._judged([ready], [self._sentences.to_judge(ready)])
            case End():
                rest = self._sentences.rest()
                texts = [
                    self._sentences.to_judge(rest, event.text),
                    *(json_text(call.arguments) for call in event.calls),
                ]
                return await self._judged([event] if rest is None else [rest, event], texts)
            case Failure():
                return [event]  # what is held is generated again

    async def _judged(self, events: Sequence[StreamEvent], texts: Sequence[str]) -> Sequence[StreamEvent]:
        await self._moderating.judge_answer(self._inflight, self._answer, texts)
        return events if self._inflight.plan.filtered is None else []


def _written(inflight: InFlightRequest, answer: AnswerLog) -> str:
    """The end of what stands before the stream, as judges see it: a sentence that the request has begun goes on."""
    text = beginning_of(inflight.request) + answer.text_of_round
    return inflight.mask.hide(text[-INLINE:])
