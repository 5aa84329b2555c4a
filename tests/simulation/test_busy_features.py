"""What a word of `while_busy` does to an answer in which a feature of the policy takes part; that storms can fail."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from app.answering.kept import Kept
from app.answering.run import Run
from app.delivery.resume import recovery
from app.features import busy, steering
from app.features.busy import ConversationOrder
from app.features.cache.recordings import Recording
from app.features.guard import moderation
from app.features.guard.fair_order import Asker
from app.features.guard.sentences import Sentences
from app.policy.file import CacheRules, Policy
from app.policy.guard_rules import GuardRules
from app.wire.event import PLAN, SUPERSEDED
from models.interface.generation import End, FinishReason, StreamEvent
from tables.tool_calls import ToolRounds
from tests.simulation.busy_features import (
    _storm,
    busy_best_of_storm,
    busy_fallback_storm,
    busy_guard_storm,
    busy_tools_storm,
)
from tests.simulation.judges import FickleJudges
from tests.simulation.mutant import Mutant, find_broken_promise
from tests.simulation.scenario import Conditions, Simulation
from tests.simulation.storms import killed_as_it_decides
from tests.simulation.test_directed import Course
from tests.simulation.test_feature_mutants import _without

JUDGED = Policy(cache=CacheRules(ttl_s=30), guard=GuardRules(answer={"banned": "block"}, on_failure="closed"))
SAME: dict[str, Any] = {
    "messages": [{"role": "user", "content": "the same question"}],
    "temperature": 0,
    "max_tokens": 10,
}


def _plans(course: Course, request_id: str) -> list[dict[str, Any]]:
    notices = (event.notice for event in course.events(request_id) if event.notice is not None)
    return [one.details or {} for one in notices if one.code == PLAN]


async def _judges_slowly(
    _judges: FickleJudges, _texts: Sequence[str], _of: frozenset[str], _asker: Asker
) -> frozenset[str]:
    await asyncio.sleep(1.0)
    return frozenset()


@pytest.mark.parametrize("word", ["interrupt", "rollback"])
def test_an_answer_that_ends_while_it_is_judged_is_not_repeated(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache had it whole: who rolls it back and asks again got it once more."""
    monkeypatch.setattr(FickleJudges, "categories_of", _judges_slowly)
    course = Course(JUDGED, Conditions(moderated=True))
    course.send(1.0, request_id="r1", **SAME)
    course.send(2.6, request_id="r2", while_busy=word, **SAME)
    course.run()
    assert _plans(course, "r1")[-1]["superseded"] == "r2"
    assert all("cached" not in plan for plan in _plans(course, "r2"))


def test_one_that_is_kept_all_the_same_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Recording, "abandon", lambda _: None)
    with pytest.raises(AssertionError):
        test_an_answer_that_ends_while_it_is_judged_is_not_repeated("rollback", monkeypatch)


@pytest.mark.parametrize("word", ["interrupt", "rollback"])
def test_the_plan_has_it_before_readers_are_told(word: str) -> None:
    """Whose owner died between the two was told that it is ended, and was not, if the guard had blocked it before."""
    course = Course(Policy())
    course.send(1.0, request_id="r1", prompt="speak", max_tokens=100_000)
    course.send(2.0, request_id="r2", prompt="stop", max_tokens=1, while_busy=word)
    course.run()
    codes = [event.notice.code for event in course.events("r1") if event.notice is not None]
    assert codes == [PLAN, SUPERSEDED]


FEATURES = ("tools", "guard", "cache", "best_of", "fallback")
BROKEN: dict[str, tuple[Any, str, Any]] = {
    "reject": (busy, "_is_rejected", lambda *_: False),
    "interrupt": (ConversationOrder, "_end_lane", lambda *_: None),
    "rollback": (Run, "stores", property(lambda run: run.accepted.request.store)),
}


@pytest.mark.parametrize("feature", FEATURES)
@pytest.mark.parametrize("word", BROKEN)
def test_a_word_that_is_not_obeyed_is_found(feature: str, word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, broken = BROKEN[word]
    if feature == "guard" and word != "rollback":
        pytest.skip("what would speak for long is blocked soon, and seen by the sentence")
    case = Mutant(owner, name, broken, lambda seed: _storm(seed, feature, word=word))
    find_broken_promise(f"{word} is not obeyed", case, monkeypatch)


def _adds_whatever_its_end(stage: steering.Steered, kept: Kept) -> Kept:
    """As if one that the guard has blocked added its words, too."""
    into = stage._into
    rounds = into.calls.decided(into.key) if into is not None and into.waits else None
    if into is None or rounds is None:
        return kept
    change = into.calls.decide(into.key, rounds.with_words(steering._words_of(stage.run.accepted.request)))
    return dataclasses.replace(kept, row=None).with_change(change)


_READY = moderation._ready


def _lets_go(sentences: Sentences, event: StreamEvent) -> tuple[Sequence[StreamEvent], Sequence[str]]:
    """As if what is held when an answer is ended needed no judge any more."""
    ready, texts = _READY(sentences, event)
    is_ended = isinstance(event, End) and event.reason is FinishReason.CANCELLED
    return ready, () if is_ended else texts


def _judged_tools_storm(seed: int) -> Simulation:
    """What is added to answers whose tools run is judged."""
    return _storm(seed, "tools", "guard")


_NOTE = recovery.with_notice


def _forgets_back(*arguments: Any) -> Any:
    former = _NOTE(*arguments)
    return dataclasses.replace(former, plan=replace(former.plan, rolled_back=False))


MUTANTS: dict[str, Mutant] = {
    "words go into no prompt": Mutant(
        ToolRounds, "with_words", lambda rounds, _words: rounds, busy_tools_storm, hint=13
    ),
    "calls of an ended answer have no results": Mutant(
        ToolRounds, "without_results", lambda rounds, _content: rounds, busy_tools_storm, hint=2
    ),
    "blocked words go into an answer": Mutant(
        steering.Steered, "leave", _adds_whatever_its_end, _judged_tools_storm, hint=34
    ),
    "a next owner forgets that the guard has ended an answer": Mutant(
        recovery, "with_notice", _without("filtered"), killed_as_it_decides(busy_guard_storm, "filtered")
    ),
    "what the guard holds leaves when an answer is ended": Mutant(
        moderation, "_ready", _lets_go, busy_guard_storm, hint=7
    ),
    "a next owner forgets the choice": Mutant(
        recovery, "with_notice", _without("chosen"), killed_as_it_decides(busy_best_of_storm, "chosen"), hint=2
    ),
    "a next owner forgets where another model took over": Mutant(
        recovery,
        "with_notice",
        _without("from_index"),
        killed_as_it_decides(busy_fallback_storm, "from_index"),
        hint=1,
    ),
    "a next owner remembers what is rolled back": Mutant(
        recovery, "with_notice", _forgets_back, killed_as_it_decides(busy_fallback_storm, "rolled_back")
    ),
}


FOUND = {
    "a request that was parked before a suspension, and was begun by another owner meanwhile": 771291657,
    "a request that is rejected, waits to be tried again, and is left with its partition": 10909,
    "turns of which values are hidden, in the order of their ends": 611291523,
    "an open turn whose values were not known yet": 415926788,
    "an open turn with a result that the guard has removed since": 5553,
    "results of what the guard has blocked before a later request ended it": 11154,
}


@pytest.mark.parametrize("found", FOUND)
def test_what_a_seed_found_once_stays_mended(found: str) -> None:
    outcome = _judged_tools_storm(FOUND[found]).run()
    assert outcome.clean, outcome.line()


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_is_found(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    find_broken_promise(mutant, MUTANTS[mutant], monkeypatch)
