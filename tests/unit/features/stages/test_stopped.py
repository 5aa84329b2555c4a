"""Requests that are cancelled or late: before they begin, while a stage decides, and while the model writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from app.answering.stage import Feature
from app.delivery.inflight import InFlight
from models.interface.generation import FinishReason
from tests.unit.answering.bench import BenchPartition, answered, stop_at, stopped
from tests.unit.answering.word_engine import model, words_of
from tests.unit.features.stages.features import (
    EMAIL,
    OLD,
    Finds,
    Judges,
    Related,
    cache,
    guard,
    policy_of,
    quota,
    recall,
    routing,
)

CANCELLED, DEADLINE = FinishReason.CANCELLED, FinishReason.DEADLINE


class Stops:
    """Stops the request when it is called."""

    def __init__(self, reason: FinishReason) -> None:
        self._reason = reason
        self.inflight: InFlight | None = None

    def prepare(self, inflight: InFlight) -> None:
        self.inflight = inflight

    def __call__(self) -> None:
        assert self.inflight is not None
        self.inflight.stop.now(self._reason)


def everything(during: Callable[[], None] = lambda: None) -> tuple[list[Feature], Finds, Judges, Related]:
    finds, judges, related = Finds(), Judges(), Related(OLD)
    masking, moderation = guard(finds, judges, pii="mask", prompt={"bad": "block"}, answer={"bad": "block"})
    policy = policy_of(tenants={"*": {"requests_per_min": 9}})
    features = [quota(policy, [model()]), routing(policy, [model()]), masking, moderation, recall(related), cache()]
    return features, finds, judges, related


@pytest.mark.parametrize("reason", [CANCELLED, DEADLINE])
async def test_what_is_stopped_before_its_turn_reaches_no_analyzer_judge_index_or_model(reason: FinishReason) -> None:
    features, finds, judges, related = everything()
    one = model()
    told = await answered(*features, models=[one], prepare=stopped(reason), prompt=f"to {EMAIL.value}", recall=1)
    assert (judges.texts, related.queries, words_of(one).jobs) == ([], [], [])
    assert [text for text in finds.texts if text] == ([f"to {EMAIL.value}"] if reason is CANCELLED else [])  # its turn
    assert (told.plans, told.notices, told.end.index) == ([], [], 0)
    if reason is CANCELLED:
        assert told.end.finish_reason is CANCELLED
        assert told.end.usage is not None
        assert (told.end.usage.prompt_tokens, told.end.usage.completion_tokens) == (0, 0)
        assert told.turn is not None
    else:
        assert told.code == "deadline_exceeded"
        assert told.turn is None
    assert told.row is None


@pytest.mark.parametrize("reason", [CANCELLED, DEADLINE])
@pytest.mark.parametrize("where", ["analyzer", "judge", "index"])
async def test_a_plan_that_was_made_for_a_request_that_is_stopped_is_dropped(where: str, reason: FinishReason) -> None:
    stops, one = Stops(reason), model()
    finds = Finds(during=stops if where == "analyzer" else lambda: None)
    judges = Judges(during=stops if where == "judge" else lambda: None)
    related = Related(OLD, during=stops if where == "index" else lambda: None)
    masking, moderation = guard(finds, judges, pii="mask", prompt={"bad": "flag"})
    told = await answered(
        masking, moderation, recall(related), models=[one], prepare=stops.prepare, prompt="bad", recall=1
    )
    assert (told.plans, words_of(one).jobs) == ([], [])
    assert told.end.finish_reason is CANCELLED if reason is CANCELLED else told.code == "deadline_exceeded"
    assert bool(judges.texts) == (where != "analyzer")
    assert bool(related.queries) == (where == "index")
    assert (told.turn is not None) == (reason is CANCELLED)


@pytest.mark.parametrize("index", [0, 1, 4])
@pytest.mark.parametrize("reason", [CANCELLED, DEADLINE])
async def test_what_is_stopped_while_the_model_writes_keeps_what_readers_have(index: int, reason: FinishReason) -> None:
    whole = await answered()
    before, prepare = stop_at(index, reason)
    one = model(before=before)
    told = await answered(models=[one], prepare=prepare)
    assert told.end.index == index
    assert whole.text.startswith(told.text)
    assert words_of(one).prompts == [words_of(one).prompts[0]]
    if reason is DEADLINE and not index:
        assert told.code == "deadline_exceeded"
        assert told.outcome.spent == len(words_of(one).jobs[0].prompt)
        return
    assert told.end.finish_reason is reason
    assert told.end.usage is not None
    assert (told.end.usage.prompt_tokens, told.end.usage.completion_tokens) == (
        len(words_of(one).jobs[0].prompt),
        index,
    )
    assert told.turn is not None
    assert told.turn.answer == told.text
    assert (told.row is not None) == (index > 0)  # an empty answer is not remembered


def _features(name: str) -> Sequence[Feature]:
    masking, moderation = guard(pii="mask", prompt={"bad": "flag"}, answer={"awful": "block"})
    return {"masking": [masking], "moderation": [moderation], "cache": [cache()]}[name]


@pytest.mark.parametrize("name", ["masking", "moderation", "cache"])
@pytest.mark.parametrize("index", [0, 1, 4])
async def test_a_cancelled_answer_is_the_same_with_a_stage_around_the_engine(name: str, index: int) -> None:
    said = ["Dear ", "Ann. ", "It ", "rains. ", "Bye ", "."]
    tolds = []
    for features in ([], _features(name)):
        before, prepare = stop_at(index)
        one = model(says=lambda _job: said, before=before)
        tolds.append(await answered(*features, models=[one], prepare=prepare, seed=1))
    without, told = tolds
    assert told.text == without.text == "".join(said[:index])
    assert (told.end.finish_reason, told.end.index, told.end.usage) == (CANCELLED, index, without.end.usage)


async def test_a_request_whose_deadline_passes_behind_a_former_owner_ends_behind_its_words() -> None:
    whole = await answered()
    told = await answered(before=whole.events[:3], prepare=stopped(DEADLINE), partition=BenchPartition())
    assert (told.end.finish_reason, told.end.index) == (DEADLINE, 3)
    assert told.text == "".join(event.text or "" for event in whole.events[:3])
    assert told.end.usage is not None
    assert (told.end.usage.prompt_tokens, told.end.usage.completion_tokens) == (0, 3)
    assert told.notices == []


@pytest.mark.parametrize("reason", [CANCELLED, DEADLINE])
async def test_turns_that_were_recalled_for_a_request_that_is_stopped_meanwhile_are_dropped(
    reason: FinishReason,
) -> None:
    stops, one = Stops(reason), model()
    related = Related(OLD, during=stops)
    told = await answered(recall(related), models=[one], prepare=stops.prepare, recall=1)
    assert (len(related.queries), told.plans, words_of(one).jobs) == (1, [], [])
