"""Related older turns in a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from app.delivery.accepted import Former
from app.features.recall.stage import Recall
from app.wire.event import Plan, RecalledTurn, TokenEvent
from tables.records import Conversation, Erased, KeptTurn, Table
from tests.unit.answering.bench import (
    ASKED_AT,
    SETTINGS,
    BenchPartition,
    Told,
    answered,
    placeholders_in,
    same_at_every_cut,
)
from tests.unit.answering.word_engine import model, words_of
from tests.unit.features.stages.features import EMAIL, OLD, Related, guard, recall

OLDER = RecalledTurn("older", "what?", "that", ASKED_AT - 2000)
OLDEST = RecalledTurn("oldest", "which?", "this", ASKED_AT - 3000)


async def _recalled(feature: Recall, **how: Any) -> tuple[Told, str]:
    one = model()
    told = await answered(feature, models=[one], **how)
    return told, words_of(one).prompts[0]


async def test_without_recall_nothing_is_searched_for() -> None:
    related = Related(OLD)
    told, prompt = await _recalled(recall(related))
    assert (related.queries, told.plans) == ([], [])
    assert OLD.answer not in prompt


@pytest.mark.parametrize(
    ("turns", "fields", "count"),
    [
        (2, {}, 2),
        (2, {"recall": 1}, 1),
        (2, {"recall": 0}, 0),
        (0, {"recall": 2}, 2),
        (2, {"raw": True}, 0),
        (2, {"prompt": None, "messages": [{"role": "user", "content": "why?"}]}, 0),
    ],
)
async def test_the_request_says_how_many_and_else_the_policy(turns: int, fields: dict[str, Any], count: int) -> None:
    told, prompt = await _recalled(recall(Related(OLD, OLDER, OLDEST), turns), **fields)
    assert len(told.plan.recalled or ()) == count
    assert [turn.answer in prompt for turn in (OLD, OLDER, OLDEST)] == [count > at for at in range(3)]


async def test_recalled_turns_stand_in_the_order_of_time_and_precede_the_question() -> None:
    told, prompt = await _recalled(recall(Related(OLD, OLDEST, OLDER)), recall=3)
    assert told.plan.recalled == (OLDEST, OLDER, OLD)
    places = [prompt.index(text) for text in ("this", "that", "there", "why?")]
    assert places == sorted(places)


async def test_turns_that_the_conversation_has_anyway_and_the_request_itself_are_left_out() -> None:
    partition, own = BenchPartition(), RecalledTurn("r1", "why?", "me", ASKED_AT - 1)
    turn = KeptTurn(OLD.request_id, OLD.prompt, OLD.answer, ASKED_AT - 900)
    partition.put(Table.CONVERSATIONS, Conversation(ASKED_AT - 900, (turn,)), "ann", "default")
    told, _ = await _recalled(recall(Related(own, OLD, OLDER)), recall=2, partition=partition)
    assert told.plan.recalled == (OLDER,)


async def test_what_a_request_replaces_is_not_recalled_for_it() -> None:
    related = Related(OLD, OLDER, OLDEST)
    told, _ = await _recalled(recall(related), recall=1, replaces=(OLD.request_id, OLDER.request_id))
    assert told.plan.recalled == (OLDEST,)
    assert related.queries[0].limit == 2 * (1 + SETTINGS.conversation_turns + 2)


async def test_what_was_asked_before_an_erasure_is_not_recalled() -> None:
    partition = BenchPartition()
    related = Related(OLD, OLDER)
    related.during = lambda: partition.put(Table.ERASED, Erased(OLDER.asked_at, OLDER.asked_at, ASKED_AT - 1), "ann")
    told, _ = await _recalled(recall(related), recall=2, partition=partition)
    assert told.plan.recalled == (OLD,)
    assert [query.erased_at for query in related.queries] == [0]


async def test_what_a_former_owner_has_recalled_stands_with_its_texts() -> None:
    related = Related(OLDER)
    told, prompt = await _recalled(
        recall(related), recall=1, former=Former(plan=Plan(recalled=(OLD,)), is_replayed=True)
    )
    assert (related.queries, told.plans) == ([], [])
    assert OLD.answer in prompt
    assert OLDER.answer not in prompt


@pytest.mark.parametrize("turns", [(), (OLD,)])
async def test_what_was_recalled_stands_when_the_policy_is_gone(turns: tuple[RecalledTurn, ...]) -> None:
    told, prompt = await _recalled(recall(None), former=Former(plan=Plan(recalled=turns), is_replayed=True))
    assert told.plans == []
    assert (OLD.answer in prompt) == bool(turns)


async def test_a_former_owners_turns_are_left_out_once_they_are_erased() -> None:
    partition = BenchPartition()
    partition.put(Table.ERASED, Erased(OLDER.asked_at, OLDER.asked_at, ASKED_AT - 1), "ann")
    former = Former(plan=Plan(recalled=(OLDER, OLD)), is_replayed=True)
    told, prompt = await _recalled(recall(None), former=former, partition=partition)
    assert told.plans == [Plan(recalled=(OLD,))]
    assert OLDER.answer not in prompt


async def test_an_answer_that_is_resumed_anywhere_has_the_same_turns_in_its_prompt() -> None:
    async def run(partition: BenchPartition, before: Sequence[TokenEvent]) -> Told:
        found = Related(OLD) if not before else Related(OLDER)  # the index has changed
        return await answered(recall(found), partition=partition, before=before, recall=1)

    await same_at_every_cut(run)


async def test_the_index_is_asked_with_placeholders_for_the_users_own_older_turns() -> None:
    related = Related(OLD)
    features = [*guard(pii="mask"), recall(related)]
    await answered(*features, prompt=f"mail {EMAIL.value}", recall=2)
    (query,) = related.queries
    assert (query.user_id, query.until) == ("ann", ASKED_AT)
    assert query.limit == 2 * (2 + SETTINGS.conversation_turns)
    assert EMAIL.value not in query.text
    assert placeholders_in(query.text)


async def test_a_worker_without_an_embedder_recalls_nothing_and_says_so_in_the_plan() -> None:
    told, _ = await _recalled(recall(None), recall=3)
    assert told.plans == [Plan(recalled=())]
