"""Private values: what models, turns, rows and readers have of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from app.delivery.accepted import Former
from app.features.guard.analyzer import AnalyzerError
from app.features.guard.fair_order import BusyError
from app.private.value import PrivateValue
from app.wire.event import Plan, RecalledTurn, TokenEvent
from models.interface.generation import FinishReason, Job
from models.served.registry import ServedModel
from tables.records import Conversation, KeptTurn, RowChange, Table
from tests.unit.answering.bench import (
    ASKED_AT,
    BenchPartition,
    Told,
    answered,
    partition_with_erasure,
    placeholders_in,
    same_at_every_cut,
)
from tests.unit.answering.word_engine import model, saying, words_of
from tests.unit.features.stages.features import EMAIL, OLD, Finds, Related, guard, recall

PROMPT = f"write to {EMAIL.value}"
BOB = PrivateValue("EMAIL_ADDRESS", "bob@example.org")


def _quotes(job: Job) -> list[str]:
    """A model that quotes the placeholder in pieces."""
    (*_, hidden) = ("nobody", *placeholders_in(bytes(job.prompt).decode()))
    return ["To ", hidden[:9], hidden[9:], " now"]


async def _masked(finds: Finds | None = None, models: Sequence[ServedModel] = (), **how: Any) -> Told:
    rules = {"pii": "mask", **how.pop("rules", {})}
    return await answered(*guard(finds, **rules), models=models or [model(says=_quotes)], **{"prompt": PROMPT, **how})


async def test_without_a_guard_there_is_no_stage_and_nothing_is_read() -> None:
    finds = Finds()
    told = await _masked(finds, rules={"pii": "off"})
    assert (finds.texts, told.notices, told.text) == ([], [], "To nobody now")
    assert told.turn is not None
    assert told.turn.private is None


async def test_the_model_reads_a_placeholder_and_the_reader_gets_the_value_back() -> None:
    one = model(says=_quotes)
    told = await _masked(models=[one])
    assert told.text == f"To {EMAIL.value} now"
    assert EMAIL.value not in words_of(one).prompts[0]
    assert len(placeholders_in(words_of(one).prompts[0])) == 1
    assert told.plans == [Plan(private=(EMAIL,))]
    assert told.turn is not None
    assert told.row is not None
    assert (told.turn.prompt, told.turn.answer, told.turn.private) == (PROMPT, told.text, (EMAIL,))
    assert (told.row.prompt, told.row.answer, told.row.private) == (PROMPT, told.text, (EMAIL,))


async def test_no_reader_gets_a_part_of_a_placeholder() -> None:
    told = await _masked()
    for event in told.events:
        assert "<" not in (event.text or "")
        assert "_" not in (event.text or "")


@pytest.mark.parametrize("pii", ["mask", "redact"])
async def test_an_answer_that_is_resumed_anywhere_has_the_same_values(pii: str) -> None:
    async def run(partition: BenchPartition, before: Sequence[TokenEvent]) -> Told:
        return await _masked(rules={"pii": pii}, partition=partition, before=before)

    await same_at_every_cut(run)


async def test_with_redact_turn_and_row_have_placeholders_and_readers_the_value() -> None:
    told = await _masked(rules={"pii": "redact"})
    assert EMAIL.value in told.text
    assert told.turn is not None
    assert told.row is not None
    for kept in (told.turn.prompt, told.turn.answer, told.row.prompt, told.row.answer):
        assert EMAIL.value not in kept
        assert len(placeholders_in(kept)) == 1
    assert (told.turn.private, told.row.private) == ((), ())


async def test_a_former_owners_values_stand_and_the_request_is_not_read_again() -> None:
    finds = Finds()
    told = await _masked(finds, former=Former(plan=Plan(private=(EMAIL,)), is_replayed=True))
    assert told.plans == []
    assert told.text == f"To {EMAIL.value} now"
    assert finds.texts == [PROMPT, told.text]  # once, for the turn


async def test_values_that_a_former_owner_has_found_are_hidden_when_the_policy_is_gone() -> None:
    one = model(says=_quotes)
    partition = BenchPartition()
    await _masked(partition=partition, request_id="r0")
    former = Former(plan=Plan(private=(EMAIL,)), is_replayed=True)
    again = BenchPartition(_rows(partition, Table.GUARD))
    told = await _masked(models=[one], rules={"pii": "off"}, former=former, partition=again)
    assert EMAIL.value not in words_of(one).prompts[0]
    assert told.text == f"To {EMAIL.value} now"


def _rows(partition: BenchPartition, table: Table) -> list[RowChange]:
    return [RowChange(table, key, value) for key, value in partition.ownership.store.scan(table)]


async def test_turns_recalled_after_a_former_owners_plan_are_read_too() -> None:
    one, finds = model(says=_quotes), Finds()
    old = RecalledTurn("old", f"mail {BOB.value}", "done", ASKED_AT - 1000)
    former = Former(plan=Plan(private=(EMAIL,)), is_replayed=True)
    features = [*guard(finds, pii="mask"), recall(Related(old))]
    told = await answered(*features, models=[one], former=former, prompt=PROMPT, recall=1)
    assert BOB.value not in words_of(one).prompts[0]
    assert PROMPT not in finds.texts[: finds.texts.index(old.prompt)]
    assert told.plan.private == (EMAIL, BOB)


@pytest.mark.parametrize("error", [AnalyzerError("late"), BusyError("full")])
async def test_recalled_turns_without_a_verdict_are_left_out(error: Exception) -> None:
    class Fails(Finds):
        async def find(self, texts: Sequence[str], asker: Any) -> tuple[PrivateValue, ...]:
            if OLD.prompt in texts:
                raise error
            return await super().find(texts, asker)

    one = model(says=_quotes)
    told = await answered(*guard(Fails(), pii="mask"), recall(Related(OLD)), models=[one], prompt=PROMPT, recall=1)
    assert told.plan.recalled == ()
    assert OLD.answer not in words_of(one).prompts[0]
    assert told.end.finish_reason is FinishReason.STOP


@pytest.mark.parametrize("on_failure", ["closed", "open"])
async def test_without_a_verdict_a_request_is_filtered_or_goes_on(on_failure: str) -> None:
    one = model(says=saying("well"))
    told = await _masked(Finds(error=AnalyzerError("late")), [one], rules={"on_failure": on_failure})
    assert told.turn is not None
    if on_failure == "open":
        assert (told.text, told.turn.prompt, told.turn.private) == ("well", PROMPT, None)
        assert told.row is not None
        assert told.row.private is None
        return
    assert told.end.finish_reason is FinishReason.FILTERED
    assert told.notices == ["plan", "filtered"]
    assert words_of(one).jobs == []
    assert (told.turn.prompt, told.turn.answer, told.turn.guard, told.turn.private) == ("", "", ("unjudged",), None)
    assert told.row is None


async def test_a_new_request_for_which_the_analyzer_has_no_time_is_refused_whatever_the_rules_say() -> None:
    for on_failure in ("closed", "open"):
        told = await _masked(Finds(error=BusyError("full")), rules={"on_failure": on_failure})
        assert (told.code, told.plans, told.turn) == ("overloaded", [], None)


async def test_prompts_of_token_ids_are_refused_by_a_guard_that_reads_prompts() -> None:
    one = model()
    told = await _masked(models=[one], prompt=None, prompt_token_ids=[1, 2])
    assert (told.code, words_of(one).jobs) == ("invalid_request", [])
    answers_only = await answered(*guard(answer={"bad": "block"}), prompt=None, prompt_token_ids=[1, 2])
    assert answers_only.end.finish_reason is FinishReason.LENGTH


async def test_values_of_earlier_turns_are_hidden_and_turns_without_a_verdict_are_read() -> None:
    one, finds, partition = model(says=_quotes), Finds(), BenchPartition()
    turns = (
        KeptTurn("r8", f"I am {EMAIL.value}", "hi", ASKED_AT - 20, private=(EMAIL,)),
        KeptTurn("r9", f"and {BOB.value}", "hi", ASKED_AT - 10),
    )
    partition.put(Table.CONVERSATIONS, Conversation(ASKED_AT - 10, turns), "ann", "default")
    told = await _masked(finds, [one], partition=partition, prompt="who?")
    assert not {EMAIL.value, BOB.value} & {*words_of(one).prompts[0].split()}
    assert len(placeholders_in(words_of(one).prompts[0])) == 2
    assert f"I am {EMAIL.value}" not in finds.texts
    assert told.plan.private == (BOB,)
    assert told.row is not None
    assert told.row.private == (BOB,)  # the answer quotes the last of them


async def test_a_value_that_only_the_model_has_written_is_private_in_turn_and_row() -> None:
    told = await _masked(models=[model(says=saying(f"ask {BOB.value}"))], prompt="whom?")
    assert told.plans == []
    assert told.turn is not None
    assert told.row is not None
    assert (told.turn.private, told.row.private) == ((BOB,), (BOB,))


@pytest.mark.parametrize("store", [True, False])
async def test_a_turn_that_is_not_stored_has_no_texts_and_no_values(store: bool) -> None:
    told = await _masked(store=store)
    assert told.turn is not None
    assert (bool(told.turn.prompt), bool(told.turn.answer), told.turn.private) == (
        (True, True, (EMAIL,)) if store else (False, False, ())
    )
    assert (told.row is not None) == store


async def test_a_turn_of_an_erased_user_has_no_texts_and_no_values() -> None:
    told = await _masked(partition=partition_with_erasure())
    assert told.turn is not None
    assert (told.turn.prompt, told.turn.answer, told.turn.private, told.row) == ("", "", (), None)


async def test_values_in_the_arguments_of_calls_are_put_back_and_kept_by_the_rules() -> None:
    tool = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}
    told = await _masked(Finds(), tools=[tool], rules={"pii": "redact"}, prompt=PROMPT)
    assert told.end.finish_reason is FinishReason.TOOL_CALLS
    assert told.turn is not None
    (call,) = told.turn.tool_calls or ()
    (shown,) = told.end.tool_calls or ()
    assert json.loads(call.arguments) == json.loads(shown.arguments)
    assert told.row is not None
    assert (told.row.answer, len(told.row.steps[-1].calls)) == ("", 1)
