"""Judge prompts before a model reads them, and answers before readers get them: `prompt` and `answer` of `[guard]`.

1. Before anything is spent on a request, judge its texts; before each further round, the results of tools.
2. While the answer is generated, hold its tokens until a sentence is complete (sentences.py), and judge
   that.
3. A category that the policy blocks ends the answer as `filtered`; one that it flags is in the turn and the audit.

The judges see placeholders for private values. A category is written to `tokens` as part of the plan before anything
that follows it, so the next owner of the partition ends the answer in the same way, and repeats no flag.
Without a verdict, a request ends as `filtered` (`on_failure = "closed"`), or goes on.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from functools import partial

import msgspec

from app.answering.dialogue import Dialogue, beginning_of
from app.answering.kept import Kept
from app.answering.run import RequestRefused, Run
from app.answering.stage import Decide, Ending, Feature, Generate, Round, Stage
from app.delivery.accepted import Former
from app.features.guard.fair_order import Asker, BusyError, Patience
from app.features.guard.guard import PASSED, Guard, Verdict
from app.features.guard.judges.judge import JudgeError
from app.features.guard.masking import asker_of
from app.features.guard.sentences import Sentences
from app.features.guard.texts import json_text, texts_of_request, texts_of_rounds
from app.policy.guard_rules import INJECTION, TOO_MANY, UNJUDGED, Action
from app.process.off_loop import INLINE, off_loop
from app.wire.error import ErrorCode
from app.wire.event import Plan
from models.interface.generation import Delta, End, Failure, FinishReason, Job, StreamEvent

_INSTRUCTING = frozenset({"system", "developer"})
"""The roles whose messages are meant to instruct the model: they cannot be an injection."""


class Moderation(Feature):
    def __init__(self, guard: Guard) -> None:
        self.guard = guard

    @property
    def is_on(self) -> bool:
        return self.guard.rules.is_on

    def stage(self, run: Run) -> Stage | None:
        plan = run.accepted.former.plan
        is_on = self.is_on or plan.filtered is not None
        return Moderated(run, self.guard) if is_on else None


class Moderated(Stage):
    def __init__(self, run: Run, guard: Guard) -> None:
        super().__init__(run)
        self._guard = guard

    def is_decided(self, former: Former) -> bool:
        """A prompt is judged once, and again by the rules of now when its answer wakes."""
        is_judged = former.has_begun or former.plan.flagged is not None
        return (is_judged and not self.run.accepted.is_waking) or former.plan.filtered is not None

    async def decide(self, plan: Plan, then: Decide) -> Plan:
        run, actions = self.run, self._guard.rules.prompt
        if not self._guard.rules.judges_prompts:
            return await then(plan)
        request = (await run.see(Dialogue(run.accepted.request))).request
        messages = request.messages or ()
        others = tuple(one for one in messages if one.role not in _INSTRUCTING)
        judged = msgspec.structs.replace(request, messages=others or None)
        texts = await off_loop(len(run.accepted.record.value or b""), partial(texts_of_request, judged))
        asker = asker_of(run.accepted)
        plan = await run.unless_stopped(self._judged(plan, texts, actions, asker))
        if instructions := [one.text for one in messages if one.role in _INSTRUCTING]:
            rest = {name: actions[name] for name in actions if name != INJECTION}
            plan = await run.unless_stopped(self._judged(plan, instructions, rest, asker))
        return plan if plan.filtered is not None else await then(plan)

    async def round(self, then: Round) -> Ending:
        run, answer, rules = self.run, self.run.answer, self._guard.rules
        if rules.judges_prompts and answer.rounds.rounds and answer.index == answer.from_index:
            dialogue = await run.see(Dialogue(run.accepted.request, rounds=answer.rounds))
            texts, asker = texts_of_rounds(dialogue.rounds), asker_of(run.accepted, Patience.BEGUN)
            await run.replan(await run.unless_stopped(self._judged(answer.plan, texts, rules.prompt, asker)))
        return await then()

    def generate(self, job: Job, then: Generate) -> AsyncGenerator[StreamEvent, None]:
        return self._gated(job, then) if self._guard.rules.judges_answers else then(job)

    async def _gated(self, job: Job, then: Generate) -> AsyncGenerator[StreamEvent, None]:
        """Readers get whole sentences, judged; what follows a blocked one never leaves."""
        run, answer, asker = self.run, self.run.answer, asker_of(self.run.accepted, Patience.BEGUN)
        sentences = Sentences(await self._written())
        async with aclosing(then(job)) as events:
            async for event in events:
                ready, texts = _ready(sentences, event)
                if texts:
                    await answer.decide(await self._judged(answer.plan, texts, self._guard.rules.answer, asker))
                if answer.plan.filtered is not None:
                    yield run.ended_by(FinishReason.FILTERED, len(job.prompt))
                    return
                for one in ready:
                    yield one

    async def _written(self) -> str:
        """The end of what stands before the stream, as judges see it: a sentence that the request has begun goes on."""
        request = self.run.accepted.request
        text = beginning_of(request) + self.run.answer.reasoning_of_round + self.run.answer.text_of_round
        return (await self.run.see(Dialogue(request))).mask.hide(text[-INLINE:])

    def leave(self, kept: Kept) -> Kept:
        """A prompt without a verdict is not kept; an answer that ended for want of one later had a prompt with one."""
        answer = self.run.answer
        is_unjudged = answer.plan.filtered in {UNJUDGED, TOO_MANY} and not answer.index
        return kept.without_texts() if is_unjudged else kept

    async def _judged(self, plan: Plan, texts: Sequence[str], actions: Mapping[str, Action], asker: Asker) -> Plan:
        """The plan with the verdict, unless the guard has ended the answer already."""
        if plan.filtered is not None:
            return plan
        try:
            verdict = await self._guard.judge(texts, actions, asker)
        except JudgeError:
            verdict = PASSED if self._guard.rules.on_failure == "open" else Verdict(UNJUDGED)
        except BusyError as error:
            raise RequestRefused(ErrorCode.OVERLOADED, str(error)) from None
        if verdict.flagged:
            flagged = tuple(dict.fromkeys((*(plan.flagged or ()), *verdict.flagged)))
            plan = msgspec.structs.replace(plan, flagged=flagged)
        return plan if verdict.blocked is None else msgspec.structs.replace(plan, filtered=verdict.blocked)


def _ready(sentences: Sentences, event: StreamEvent) -> tuple[Sequence[StreamEvent], Sequence[str]]:
    """What can leave now, and what has to be judged before it does."""
    match event:
        case Delta():
            ready = sentences.add(event)
            return ([], []) if ready is None else ([ready], [sentences.to_judge(ready)])
        case End():
            rest = sentences.rest()
            texts = [
                sentences.to_judge(rest, event.reasoning + event.text),
                *(json_text(call.arguments) for call in event.calls),
            ]
            return ([event] if rest is None else [rest, event]), texts
        case Failure():
            return [event], []  # what is held is generated again
