"""One record a token for readers of others' topics: none is missing, whichever owner wrote it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.features.foreign.egress import Egress
from app.foreign.source import ForeignSource
from app.policy.file import Policy
from app.policy.foreign import EgressRules
from models.interface.generation import Failure
from tests.foreign_reader import read
from tests.unit.answering.bench import BenchPartition, Told, answered, same_at_every_cut, stop_at
from tests.unit.answering.word_engine import model

FIELDS = {
    "id": "request_id",
    "index": "index",
    "tokens": "tokens",
    "text": "text",
    "epoch": "epoch",
    "finish_reason": "finish_reason",
    "error": "error.code",
}
RULES = EgressRules(topic="words", per="token", fields=FIELDS)


def egress(*rules: EgressRules) -> Egress:
    return Egress(Policy(egress=rules or (RULES,)))


def records(told: Told, topic: str = "words") -> list[dict[str, Any]]:
    beside = told.partition.ownership.token_log.beside
    assert all(one.key == told.user_id.encode() and one.by_key for one in beside)
    return [json.loads(one.value or b"") for one in beside if one.topic == topic]


async def test_each_token_and_the_end_is_a_record_with_the_chosen_fields() -> None:
    told = await answered(egress())
    shown = records(told)
    assert [one["index"] for one in shown] == [*range(len(shown) - 1), len(shown) - 1]
    assert "".join(one["text"] or "" for one in shown) == told.text
    assert [one["finish_reason"] for one in shown] == [None] * (len(shown) - 1) + [told.end.finish_reason]
    assert set(shown[0]) == set(FIELDS)


async def test_readers_have_the_answer_wherever_its_owner_dies() -> None:
    async def run(partition: BenchPartition, before: Any) -> Told:
        return await answered(egress(), partition=partition, before=before)

    def seen(told: Told) -> object:
        answer = read(records(told))["r1"]
        return told.facts, answer.text, answer.end, answer.gaps

    whole = await same_at_every_cut(run, seen)
    assert seen(whole)[1:] == (whole.text, whole.end.finish_reason, 0)


async def test_an_error_is_told_and_what_was_written_before_it() -> None:
    engine = model(before=lambda _job, at: Failure("engine_error", "it broke") if at == 2 else None)
    told = await answered(egress(), models=[engine])
    answer = read(records(told))["r1"]
    assert (answer.end, answer.text) == ("engine_error", told.text)


async def test_an_answer_that_is_cancelled_ends_for_readers_too() -> None:
    before, prepare = stop_at(2)
    told = await answered(egress(), models=[model(before=before)], prepare=prepare)
    answer = read(records(told))["r1"]
    assert (answer.end, answer.text) == ("cancelled", told.text)


async def test_both_kinds_can_stand_beside_each_other() -> None:
    whole = EgressRules(topic="answers", fields={"said": "answer"})
    told = await answered(egress(RULES, whole))
    assert read(records(told))["r1"].text == told.text
    assert [json.loads(one.value or b"") for one in told.outputs("answers")] == [{"said": told.text}]


@pytest.mark.parametrize(("intake", "is_told"), [("asks", True), ("others", False)])
async def test_only_answers_to_records_of_the_intake(intake: str, is_told: bool) -> None:
    def prepare(inflight: Any) -> None:
        record = inflight.accepted.record
        object.__setattr__(record, "headers", (*record.headers, ForeignSource("asks", 0, 7, 1).header))

    rules = EgressRules(topic="words", per="token", fields=FIELDS, intake=intake)
    assert bool(records(await answered(egress(rules), prepare=prepare))) is is_told


async def test_without_a_rule_nothing_goes_beside() -> None:
    told = await answered(Egress(Policy()))
    assert told.partition.ownership.token_log.beside == []
