"""That the simulation can fail: each promise of a feature, broken on purpose, is found within a few seeds."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any

import pytest
from msgspec.structs import replace

from app.answering import kept, pipeline
from app.answering.job import job_of
from app.answering.pipeline import Retrying
from app.answering.run import Run
from app.answering.stage import Stage, Switch
from app.delivery.accepted import Former
from app.delivery.resume import recovery
from app.delivery.resume.answer_log import AnswerLog
from app.features.cache import recordings
from app.features.cache.recordings import Recording
from app.features.cache.stage import Cached
from app.features.guard import masking, sentences
from app.features.guard.masking import Masked
from app.features.guard.moderation import Moderated
from app.features.recall import stage as recalling
from app.features.recall.stage import Recalling
from app.features.routing import stage as routing
from app.features.routing.stage import Routed
from app.wire.event import FALLBACK, PLAN, Notice, Plan
from app.wire.turn import Turn
from models.interface.generation import Delta, Job, StreamEvent
from tables.erasures import PartitionMarks
from tests.simulation.deletions import recalling_deletions
from tests.simulation.mutant import Mutant, find_broken_promise
from tests.simulation.storms import (
    guarded_storm,
    killed_as_it_decides,
    mixed_storm,
    reasoning_storm,
    recalling_storm,
    routed_storm,
)


def _without_source(*arguments: Any) -> Turn:
    return replace(_TURN(*arguments), cached=None)


_TURN = kept._turn
_DECIDE = AnswerLog.decide
_INHERIT = AnswerLog.inherit
_NOTE = recovery.with_notice
_REPEATED = Cached._repeated
_READ = Recalling.read
_FIND = Masked.decide
_JUDGE = Moderated.decide


def _asks_what_is_on(switch: Switch, run: Run) -> tuple[Stage, ...]:
    return tuple(stage for one in switch.on if (stage := one.stage(run)) is not None)


def _is_open(*_: Any) -> bool:
    """As if no former owner had decided."""
    return False


async def _decides_silently(answer: AnswerLog, plan: Plan) -> None:
    answer.plan = plan


def _gives_up(*_: Any) -> bool:
    return False


def _from_the_beginning(*arguments: Any) -> Job:
    return job_of(*arguments[:4])


async def _writes_no_fallback(answer: AnswerLog, plan: Plan) -> None:
    if plan.notice == FALLBACK:
        answer.plan = plan
    else:
        await _DECIDE(answer, plan)


def _notes_attempts_only(former: Former, notice: Notice, index: int, at: int) -> Former:
    return former if notice.code == PLAN else _NOTE(former, notice, index, at)


def _without(field: str) -> Callable[..., Former]:
    def note(former: Former, notice: Notice, index: int, at: int) -> Former:
        if notice.code == PLAN:
            notice = replace(notice, details={**(notice.details or {}), field: None})
        return _NOTE(former, notice, index, at)

    return note


def _inherits_nothing(answer: AnswerLog, _tokens: Sequence[int]) -> None:
    _INHERIT(answer, ())


def _repeats_less(stage: Cached, job: Job, recording: Recording, then: Any) -> AsyncGenerator[StreamEvent, None]:
    recording.events[:] = recording.events[1:]
    return _REPEATED(stage, job, recording, then)


def _recalls_anew(stage: Recalling, plan: Plan, memory: Any) -> Plan:
    """As if another search had found nothing."""
    if stage.run.accepted.former.plan.recalled is None:
        return _READ(stage, plan, memory)
    return replace(plan, recalled=())


async def _finds_anew(stage: Masked, plan: Plan, then: Any) -> Plan:
    return await _FIND(stage, replace(plan, private=None), then)


async def _judges_anew(stage: Moderated, plan: Plan, then: Any) -> Plan:
    return await _JUDGE(stage, replace(plan, flagged=None), then)


async def _judges_behind_the_reader(stage: Moderated, job: Job, then: Any) -> AsyncGenerator[StreamEvent, None]:
    """Readers have the tokens while they are judged."""
    texts: list[str] = []
    async with aclosing(then(job)) as events:
        async for event in events:
            yield event
            if isinstance(event, Delta):
                texts.append(event.text)
                asker = masking.asker_of(stage.run.accepted, masking.Patience.BEGUN)
                answer, actions = stage.run.answer, stage._guard.rules.answer
                await stage.run.replan(await stage._judged(answer.plan, ["".join(texts)], actions, asker))


def _decides_all(plan: Plan, route: Plan) -> Plan:
    return replace(route, at=plan.at)


def _text_alone(delta: Delta) -> str:
    return delta.text


def _without_reasoning(*args: Any) -> Turn:
    return replace(_TURN(*args), reasoning=None)


MUTANTS: dict[str, Mutant] = {
    "a next owner that does not serve the model of a plan decides all anew": Mutant(
        routing, "_routed", _decides_all, mixed_storm, hint=21
    ),
    "a feature that is off here is not asked about what a former owner has decided by it": Mutant(
        Switch, "stages", _asks_what_is_on, mixed_storm, hint=15
    ),
    "a worker asks the features of the policy that it started with": Mutant(
        Switch, "use", lambda *_: None, mixed_storm
    ),
    "an answer that ends at another worker loses its author": Mutant(
        AnswerLog, "keep_author", lambda _: None, mixed_storm, hint=9
    ),
    "a next owner decides anew": Mutant(Routed, "is_decided", _is_open, routed_storm, hint=2),
    "decisions are not written": Mutant(AnswerLog, "decide", _decides_silently, routed_storm),
    "a plan that was written is forgotten": Mutant(recovery, "with_notice", _notes_attempts_only, routed_storm, hint=2),
    "a model that fails is not tried again": Mutant(Retrying, "_tries_again", _gives_up, routed_storm),
    "a model that is tried again begins anew": Mutant(pipeline, "job_of", _from_the_beginning, routed_storm, hint=3),
    "a fallback is not written": Mutant(AnswerLog, "decide", _writes_no_fallback, routed_storm, hint=3),
    "a model that takes over does not read the text so far": Mutant(
        AnswerLog, "inherit", _inherits_nothing, routed_storm, hint=3
    ),
    "a next owner forgets where another model took over": Mutant(
        recovery, "with_notice", _without("from_index"), killed_as_it_decides(routed_storm, "from_index"), hint=3
    ),
    "a cached answer is another user's": Mutant(recordings, "_scope", lambda *_: "all", routed_storm, hint=3),
    "a cached answer is not written down": Mutant(kept, "_turn", _without_source, routed_storm, hint=7),
    "a cached answer lacks its beginning": Mutant(Cached, "_repeated", _repeats_less, routed_storm, hint=7),
    "a next owner recalls anew": Mutant(Recalling, "read", _recalls_anew, recalling_storm, hint=12),
    "a next owner looks for private values anew": Mutant(
        Masked, "is_decided", _is_open, guarded_storm, more=((Masked, "decide", _finds_anew),)
    ),
    "private values of earlier turns are not hidden": Mutant(masking, "past_values", lambda *_: (), guarded_storm),
    "a next owner judges a prompt anew": Mutant(
        Moderated, "is_decided", _is_open, guarded_storm, more=((Moderated, "decide", _judges_anew),)
    ),
    "a next owner forgets that the guard has ended an answer": Mutant(
        recovery, "with_notice", _without("filtered"), killed_as_it_decides(guarded_storm, "filtered")
    ),
    "tokens leave before they are judged": Mutant(Moderated, "_gated", _judges_behind_the_reader, guarded_storm),
    "reasoning leaves before it is judged": Mutant(sentences, "_text_of", _text_alone, reasoning_storm, hint=27),
    "a next owner takes reasoning for text": Mutant(AnswerLog, "has_mixed_text", True, reasoning_storm),
    "a turn has no reasoning": Mutant(kept, "_turn", _without_reasoning, reasoning_storm),
    "turns of erased conversations are recalled": Mutant(
        recalling,
        "without_erased",
        lambda plan, *_: plan,
        recalling_deletions,
        hint=2,
        more=((PartitionMarks, "being_erased", lambda *_: {}),),
    ),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_promise_is_found(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    find_broken_promise(mutant, MUTANTS[mutant], monkeypatch)
