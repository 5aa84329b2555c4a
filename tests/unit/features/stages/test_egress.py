"""One record a token for readers of others' topics: none is missing, whichever owner wrote it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.delivery.inflight import InFlight
from app.features.foreign import records as records_of_others
from app.features.foreign.egress import Egress
from app.foreign.passed import INTAKE_SOURCE
from app.foreign.source import ForeignSource
from app.policy.file import Policy
from app.policy.foreign import EgressRules
from models.interface.generation import Failure
from tables.records import Erased, Table
from tests.foreign_reader import read
from tests.unit.answering.bench import ASKED_AT, NOW, BenchPartition, Told, answered, same_at_every_cut, stop_at
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


ENDS = EgressRules(
    topic="ends",
    on=("done", "error"),
    fields={
        "id": "request_id",
        "who": "user_name",
        "said": "answer",
        "why": "error.code",
        "at": "source.at",
        "n": "source.body.n",
        "desk": "metadata.desk.name",
        "tenant": "tenant",
    },
)
PASSED = {"at": 1.50, "body.n": {"a": ["\u00e9", None]}}
ASKED = {"metadata": {"desk": {"name": 7}, "other": 1}, "user_id": "shop/ann"}


def with_source(inflight: InFlight) -> None:
    record = inflight.accepted.record
    source = (INTAKE_SOURCE, json.dumps(PASSED).encode())
    object.__setattr__(record, "headers", (*record.headers, ForeignSource("asks", 0, 7, 1).header, source))


def ends(told: Told) -> dict[str, Any]:
    (one,) = told.outputs("ends")
    assert one.key == told.user_id.encode()
    record: dict[str, Any] = json.loads(one.value or b"")
    return record


OF_ASKED = {"id": "r1", "who": "ann", "at": 1.5, "n": {"a": ["\u00e9", None]}, "desk": 7, "tenant": "shop"}


async def test_an_end_is_told_with_what_the_sender_wrote_wherever_its_owner_dies() -> None:
    async def run(partition: BenchPartition, before: Any) -> Told:
        return await answered(egress(ENDS), partition=partition, before=before, prepare=with_source, **ASKED)

    whole = await same_at_every_cut(run, ends)
    assert ends(whole) == OF_ASKED | {"said": whole.text, "why": None}


async def test_a_failure_is_told_beside_its_error_wherever_its_owner_dies() -> None:
    async def run(partition: BenchPartition, before: Any) -> Told:
        broken = model(before=lambda _job, at: Failure("engine_error", "it broke") if at == 2 else None)
        return await answered(
            egress(ENDS), models=[broken], partition=partition, before=before, prepare=with_source, **ASKED
        )

    whole = await same_at_every_cut(run, ends)
    assert ends(whole) == OF_ASKED | {"said": None, "why": "engine_error"}


async def test_what_is_unexpected_is_told_and_so_is_what_kafka_rejects() -> None:
    def breaks(_job: object, _at: int) -> None:
        raise ZeroDivisionError

    told = await answered(egress(ENDS), models=[model(before=breaks)], prepare=with_source, **ASKED)
    assert ends(told) == OF_ASKED | {"said": None, "why": "engine_error"}
    assert told.letters == ["engine_error"]
    (instead,) = (await answered(egress(ENDS), prepare=with_source, **ASKED)).commit.instead
    assert json.loads(instead.value or b"") == OF_ASKED | {"said": None, "why": "engine_error"}
    assert (await answered(egress(EgressRules(topic="ends", fields={"a": "answer"})))).commit.instead == ()


async def test_a_request_that_no_stage_has_seen_is_told() -> None:
    partition = BenchPartition()
    partition.context.too_large.add(("shop/ann", "r1"))
    by_token = EgressRules(topic="words", per="token", on=("done", "error"), fields=FIELDS)
    told = await answered(egress(ENDS, by_token), partition=partition, prepare=with_source, **ASKED)
    assert ends(told) == OF_ASKED | {"said": None, "why": "engine_error"}
    (word,) = told.outputs("words")
    assert json.loads(word.value or b"")["epoch"] == told.partition.ownership.token_log.epoch


async def test_of_an_erased_user_nothing_is_passed() -> None:
    partition = BenchPartition()
    partition.put(Table.ERASED, Erased(ASKED_AT, applied=NOW), "shop/ann")
    passed = {"at": None, "n": None, "desk": None}
    for prepare in (lambda _: None, lambda _: partition.context.too_large.add(("shop/ann", "r1"))):
        partition.commits.clear()
        prepare(None)
        told = await answered(egress(ENDS), partition=partition, prepare=with_source, **ASKED)
        assert ends(told).items() >= passed.items()


@pytest.mark.parametrize("source", [b"", b"{", b"[1]", b'{"at": NaN}', b"\xff", b'{"at": "%s"}' % (b"x" * (16 << 10))])
async def test_a_header_of_anybody_is_no_source(source: bytes) -> None:
    def prepare(inflight: InFlight) -> None:
        record = inflight.accepted.record
        object.__setattr__(record, "headers", (*record.headers, (INTAKE_SOURCE, source)))

    assert ends(await answered(egress(ENDS), prepare=prepare))["at"] is None


async def test_an_answer_that_no_record_can_hold_is_told_as_one_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records_of_others, "_MOST_BYTES", 200)
    fields = {"id": "request_id", "why": "error.code", **{f"said{number}": "answer" for number in range(9)}}
    told = await answered(egress(EgressRules(topic="ends", on=("done", "error"), fields=fields)))
    assert (ends(told)["why"], told.letters) == ("prompt_too_long", ["prompt_too_long"])
