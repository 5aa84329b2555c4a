"""Reasoning on its way to readers and turns: apart from the text, and the same when another owner goes on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from app.answering.stage import Feature
from app.features.tool_rounds import ToolsOverKafka
from app.wire.event import EventType, TokenEvent
from models.interface.generation import Job
from tables import records
from tables.tool_calls import BREAK, ToolRounds
from tests.unit.answering.bench import (
    SETTINGS,
    WEATHER,
    BenchPartition,
    Told,
    answered,
    placeholders_in,
    same_at_every_cut,
)
from tests.unit.answering.word_engine import failing, model, saying, words_of
from tests.unit.features.stages.features import EMAIL, cache, guard, policy_of, routing
from tests.unit.features.stages.tool_programs import tool_results

THINKS: dict[str, Any] = {"reasoning_effort": "high"}
SAID = ("Hm, ", "well. ", "Yes, ", "certainly. ")


async def reasoned(*features: Feature, **how: Any) -> Told:
    return await answered(*features, **{"models": [model(says=saying(*SAID))], **THINKS, **how})


async def test_readers_and_the_turn_have_the_reasoning_apart_from_the_text() -> None:
    told = await reasoned()
    assert (told.read.reasoning, told.text) == ("Hm, well. ", "Yes, certainly. ")
    assert told.turn is not None
    assert told.row is not None
    assert (told.turn.reasoning, told.turn.answer) == (told.read.reasoning, told.text)
    assert told.row.answer == told.text
    assert [event.reasoning for event in told.events] == ["Hm, ", "well. ", None, None, None]


async def test_a_model_that_does_not_reason_leaves_no_trace_of_it() -> None:
    told = await reasoned(reasoning_effort="none")
    assert {event.reasoning for event in told.events} == {None}
    assert told.turn is not None
    assert (told.turn.reasoning, told.turn.answer) == (None, "".join(SAID))


async def test_a_turn_that_is_not_stored_has_no_reasoning() -> None:
    told = await reasoned(store=False)
    assert told.turn is not None
    assert (told.turn.reasoning, told.turn.answer) == (None, "")


async def test_an_answer_that_is_resumed_anywhere_has_the_same_reasoning() -> None:
    async def run(partition: BenchPartition, before: Sequence[TokenEvent]) -> Told:
        return await reasoned(partition=partition, before=before)

    whole = await same_at_every_cut(run)
    assert (whole.read.reasoning, whole.text) == ("Hm, well. ", "Yes, certainly. ")


async def test_the_next_round_reads_the_reasoning_before_the_calls_and_later_turns_do_not() -> None:
    async def run(partition: BenchPartition, before: Sequence[TokenEvent]) -> Told:
        tools = ToolsOverKafka(SETTINGS)
        tool_results(partition, tools, "sunny")
        return await answered(
            tools, partition=partition, before=before, tools=[WEATHER], tool_mode="kafka", max_tokens=12, **THINKS
        )

    whole = await same_at_every_cut(run)
    calls = [commit.changes[0] for commit in whole.partition.commits if commit.record is None]
    rounds = records.decode_row(calls[-1].value or b"", ToolRounds)
    assert len(rounds.rounds) == 2
    for one in rounds.rounds:
        assert one.reasoning
        assert one.messages[0].reasoning == one.reasoning
    assert whole.read.reasoning.startswith(BREAK.join(one.reasoning for one in rounds.rounds) + BREAK)
    assert whole.row is not None
    assert {step.reasoning for step in whole.row.steps} == {""}


async def test_what_a_worker_of_an_older_version_has_begun_goes_on_as_text() -> None:
    whole = await reasoned()
    for cut in (1, 2, 3):
        old = [
            msgspec.structs.replace(event, reasoning=None, text=(event.reasoning or "") + (event.text or ""))
            for event in whole.events[:cut]
        ]
        told = await reasoned(before=old)
        assert (told.read.reasoning, told.text) == ("", "".join(SAID))
        assert told.events[-1].type is EventType.DONE


async def test_a_model_that_takes_over_goes_on_behind_the_text_or_reasons_anew() -> None:
    for at, reasoning in ((1, "Hm, Hm, well. "), (3, "Hm, well. ")):
        models = [model("default", saying(*SAID), failing(at)), model("small", saying(*SAID))]
        told = await reasoned(routing(policy_of(fallback={"chain": ["default", "small"]}), models), models=models)
        assert told.read.reasoning == reasoning
        assert told.text.startswith("Yes, ")


def _quotes(job: Job) -> list[str]:
    (*_, hidden) = ("nobody", *placeholders_in(bytes(job.prompt).decode()))
    return ["Is it ", hidden[:9], hidden[9:], " then? ", "To ", hidden[:9], hidden[9:], " now."]


@pytest.mark.parametrize("pii", ["mask", "redact"])
async def test_private_values_are_put_back_into_the_reasoning(pii: str) -> None:
    async def run(partition: BenchPartition, before: Sequence[TokenEvent]) -> Told:
        return await reasoned(
            *guard(pii=pii),
            models=[model(says=_quotes)],
            prompt=f"write to {EMAIL.value}",
            max_tokens=20,
            partition=partition,
            before=before,
        )

    told = await same_at_every_cut(run)
    assert told.read.reasoning == f"Is it {EMAIL.value} then? "
    assert told.text == f"To {EMAIL.value} now."
    assert told.turn is not None
    kept = (told.turn.reasoning or "", told.turn.answer)
    assert [EMAIL.value in text for text in kept] == [pii == "mask"] * 2
    assert [bool(placeholders_in(text)) for text in kept] == [pii == "redact"] * 2


async def test_a_template_value_is_masked_as_the_prompt_is() -> None:
    one = model(says=saying(*SAID))
    told = await answered(*guard(pii="mask"), models=[one], chat_template_kwargs={"style": f"as {EMAIL.value}"})
    assert told.plan.private == (EMAIL,)
    assert EMAIL.value not in words_of(one).prompts[0]


async def test_the_guard_judges_the_reasoning_before_readers_get_it() -> None:
    told = await reasoned(
        *guard(answer={"bad": "block"}), models=[model(says=saying("That is ", "bad. ", "No. ", "Yes. "))]
    )
    assert told.end.finish_reason == "filtered"
    assert (told.read.reasoning, told.text) == ("", "")


async def test_an_answer_that_is_repeated_has_its_reasoning() -> None:
    feature = cache()
    first = await reasoned(feature, seed=1, request_id="r0")
    again = await reasoned(feature, seed=1)
    assert again.notices == ["plan", "cached"]
    assert (again.read.reasoning, again.text) == (first.read.reasoning, first.text)
