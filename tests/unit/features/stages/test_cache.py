"""Answers that are repeated."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from app.delivery.accepted import Former
from app.features.cache.recordings import ResponseCache
from app.features.cache.stage import Cache
from app.features.tool_rounds import ToolsOverKafka
from app.policy.file import CacheRules, Policy
from app.wire.event import Plan
from models.interface.generation import FinishReason, Job
from models.served.registry import ServedModel
from tables.records import RowChange, Table
from tests.unit.answering.bench import (
    SETTINGS,
    WEATHER,
    BenchPartition,
    Told,
    answered,
    placeholders_in,
    stop_at,
    stopped,
)
from tests.unit.answering.word_engine import failing, model, saying, words_of
from tests.unit.features.stages.features import EMAIL, best_of, cache, guard, policy_of, quota
from tests.unit.features.stages.tool_programs import tool_results

DETERMINISTIC: dict[str, Any] = {"seed": 1}


async def _repeated(feature: Cache, *others: Any, models: Sequence[ServedModel] = (), **how: Any) -> tuple[Told, Told]:
    """The same request twice; the first is `r0`, of another conversation."""
    how = {**DETERMINISTIC, **how}
    first = await answered(feature, *others, models=models, **{**how, "request_id": "r0", "conversation_id": "c0"})
    return first, await answered(feature, *others, models=models, **how)


async def test_the_second_of_two_equal_requests_is_repeated_and_free() -> None:
    one = model()
    prices = quota(policy_of(prices={"default": {"prompt": 1.0, "answer": 1.0}}), [one])
    feature = cache()
    first, told = await _repeated(feature, prices, models=[one])
    assert len(words_of(one).jobs) == 1
    assert told.text == "".join(event.text or "" for event in first.events)
    assert told.notices == ["plan", "cached"]
    assert told.plans == [Plan(cached="r0")]
    assert told.partition.ownership.token_log.pauses == 0, "the whole answer is there at once"
    assert told.turn is not None
    assert told.turn.cached == "r0"
    assert (told.outcome.cost, told.outcome.saved) == (0.0, first.outcome.cost)
    assert told.end.usage is not None
    assert told.end.usage.cached_tokens == told.end.usage.prompt_tokens
    assert told.end.usage.completion_tokens == 6
    assert feature.recordings.stats.saved_tokens == len(words_of(one).jobs[0].prompt) + 6


@pytest.mark.parametrize(
    "fields", [{"cache": False}, {"seed": 2}, {"store": False}, {"user_id": "bob"}, {"model": "small"}]
)
async def test_what_may_not_be_shared_is_generated(fields: dict[str, Any]) -> None:
    models = [model(), model("small")]
    feature = cache()
    await answered(feature, models=models, **{**DETERMINISTIC, "request_id": "r0", "conversation_id": "c0"})
    told = await answered(feature, models=models, **{**DETERMINISTIC, **fields})
    assert told.notices == []
    assert sum(len(words_of(one).jobs) for one in models) == 2


async def test_the_conversation_is_part_of_what_has_to_be_equal() -> None:
    partition, feature, one = BenchPartition(), cache(), model()
    await answered(feature, models=[one], partition=partition, **{**DETERMINISTIC, "request_id": "r0"})
    again = BenchPartition(_conversations(partition))
    told = await answered(feature, models=[one], partition=again, **DETERMINISTIC)
    assert (told.notices, len(words_of(one).jobs)) == ([], 2)


def _conversations(partition: BenchPartition) -> list[RowChange]:
    rows = partition.ownership.store.scan(Table.CONVERSATIONS)
    return [RowChange(Table.CONVERSATIONS, key, value) for key, value in rows]


@pytest.mark.parametrize(("tenant", "is_shared"), [("a", True), ("b", False), (None, False)])
async def test_the_users_of_a_tenant_share_answers_and_nobody_else_does(
    tenant: str | None,
    is_shared: bool,
) -> None:
    feature = Cache(ResponseCache(Policy(cache=CacheRules(ttl_s=60.0, scope="tenant")), lambda: 0.0))
    await answered(feature, **{**DETERMINISTIC, "request_id": "r0", "user_id": "bob", "tenant": "a"})
    told = await answered(feature, tenant=tenant, **DETERMINISTIC)
    assert (told.plan.cached is not None) == is_shared


async def test_candidates_and_calls_over_kafka_are_not_repeated() -> None:
    one = model()
    _, told = await _repeated(cache(), best_of(), models=[one], best_of=2)
    assert "cached" not in told.notices
    for _ in range(2):
        partition, tools, feature = BenchPartition(), ToolsOverKafka(SETTINGS), cache()
        tool_results(partition, tools)
        again = await answered(feature, tools, partition=partition, tools=[WEATHER], tool_mode="kafka", seed=1)
        assert "cached" not in again.notices


async def test_a_repeat_whose_owner_is_lost_goes_on_with_the_same_words_and_is_not_free() -> None:
    first, told = await _repeated(cache())
    for cut in range(1, len(told.events) - 1):
        resumed = await answered(cache(), before=told.events[:cut], **DETERMINISTIC)
        assert resumed.text == told.text
        assert resumed.plan.cached is None
        assert resumed.turn is not None
        assert resumed.turn.cached is None
    assert first.turn is not None


async def test_a_repeat_that_the_next_owner_has_recorded_itself_stays_a_repeat() -> None:
    feature = cache()
    _, told = await _repeated(feature)
    resumed = await answered(feature, former=Former(plan=told.plan, is_replayed=True), **DETERMINISTIC)
    assert resumed.plans == []
    assert (resumed.text, resumed.plan.cached) == (told.text, None)  # the plan of the former owner stands


async def test_a_follower_has_the_answer_while_it_is_written() -> None:
    one_alone = await answered(**DETERMINISTIC)
    feature = cache()
    leader, follower = model(), model()
    first, second = await asyncio.gather(
        answered(feature, models=[leader], **{**DETERMINISTIC, "request_id": "r0", "conversation_id": "c0"}),
        answered(feature, models=[follower], **DETERMINISTIC),
    )
    assert second.text == one_alone.text
    assert first.turn is not None
    assert (len(words_of(leader).jobs), len(words_of(follower).jobs)) == (1, 0)
    assert second.partition.ownership.token_log.pauses > 0
    assert feature.recordings.stats.joins == 1


@pytest.mark.parametrize("at", [0, 1, 4])
async def test_a_follower_whose_recording_breaks_off_generates_the_rest_and_pays(at: int) -> None:
    alone = await answered(**DETERMINISTIC)
    feature = cache()
    leader, follower = model(before=failing(at)), model()
    first, second = await asyncio.gather(
        answered(feature, models=[leader], **{**DETERMINISTIC, "request_id": "r0", "conversation_id": "c0"}),
        answered(feature, models=[follower], **DETERMINISTIC),
    )
    assert len(first.partition.commits) == 1
    assert (second.text, second.plan.cached) == (alone.text, None)
    assert second.turn is not None
    assert second.turn.cached is None
    assert second.end.usage is not None
    assert second.end.usage.cached_tokens == 0
    assert [len(job.generated) for job in words_of(follower).jobs] == [at]


async def test_a_follower_that_is_behind_a_gate_loses_no_word_when_its_recording_breaks_off() -> None:
    said = saying("One ", "and ", "two. ", "Three ", "and four", ".")
    feature = cache()
    leader, follower = model(says=said, before=failing(2)), model(says=said)
    judged = guard(answer={"bad": "block"})
    _, second = await asyncio.gather(
        answered(feature, models=[leader], **{**DETERMINISTIC, "request_id": "r0", "conversation_id": "c0"}),
        answered(feature, *judged, models=[follower], **DETERMINISTIC),
    )
    assert second.text == "One and two. Three and four."
    assert second.end.index == 6


async def test_a_repeat_that_is_stopped_before_it_begins_has_no_plan() -> None:
    feature = cache()
    await answered(feature, **{**DETERMINISTIC, "request_id": "r0", "conversation_id": "c0"})
    told = await answered(feature, prepare=stopped(), **DETERMINISTIC)
    assert (told.end.finish_reason, told.end.index, told.plans) == (FinishReason.CANCELLED, 0, [])


async def test_an_answer_that_was_cancelled_is_not_repeated() -> None:
    feature = cache()
    before, prepare = stop_at(2)
    await answered(
        feature,
        models=[model(before=before)],
        prepare=prepare,
        **{**DETERMINISTIC, "request_id": "r0", "conversation_id": "c0"},
    )
    told = await answered(feature, **DETERMINISTIC)
    assert told.notices == []
    assert told.end.finish_reason is FinishReason.LENGTH


async def test_recordings_hold_placeholders_and_each_reader_gets_the_value() -> None:
    def says(job: Job) -> list[str]:
        return ["To ", *placeholders_in(bytes(job.prompt).decode())]

    one = model(says=says)
    first, told = await _repeated(cache(), *guard(pii="mask"), models=[one], prompt=f"mail {EMAIL.value}")
    assert told.text == f"To {EMAIL.value}"
    assert (told.plan.cached, told.plan.private) == ("r0", (EMAIL,))
    assert len(words_of(one).jobs) == 1
    assert first.turn is not None


async def test_what_is_repeated_is_judged_by_the_readers_own_guard() -> None:
    one, feature = model(says=saying("Fine. ", "A bad one. ", "Bye.")), cache()
    await answered(feature, models=[one], **{**DETERMINISTIC, "request_id": "r0", "conversation_id": "c0"})
    told = await answered(feature, *guard(answer={"bad": "block"}), models=[one], **DETERMINISTIC)
    assert (told.text, told.end.finish_reason) == ("", FinishReason.FILTERED)  # it comes in one piece
    assert len(words_of(one).jobs) == 1
