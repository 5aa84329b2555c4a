"""Prompts and answers that the guard judges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from app.delivery.accepted import Former
from app.features.guard.fair_order import BusyError
from app.features.guard.judges.judge import JudgeError
from app.wire.event import EventType, Plan, TokenEvent
from models.interface.generation import FinishReason
from models.served.registry import ServedModel
from tests.unit.answering.bench import BenchPartition, Told, answered, placeholders_in, same_at_every_cut
from tests.unit.answering.word_engine import failing, model, saying, words_of
from tests.unit.features.stages.features import EMAIL, OLD, Judges, Related, guard, policy_of, recall, routing

FILTERED = FinishReason.FILTERED


async def _judged(judges: Judges | None = None, models: Sequence[ServedModel] = (), *features: Any, **how: Any) -> Told:
    rules = how.pop("rules", {"prompt": {"bad": "block", "odd": "flag"}, "answer": {"bad": "block", "odd": "flag"}})
    return await answered(*guard(None, judges, **rules), *features, models=models, **how)


async def test_without_rules_nothing_is_judged() -> None:
    judges = Judges()
    told = await _judged(judges, rules={}, prompt="bad")
    assert (judges.texts, told.notices, told.end.finish_reason) == ([], [], FinishReason.LENGTH)


async def test_a_blocked_prompt_is_not_searched_for_and_no_model_reads_it() -> None:
    related, one = Related(OLD), model()
    told = await _judged(None, [one], recall(related), prompt="a bad one", recall=1)
    assert (related.queries, words_of(one).jobs) == ([], [])
    assert told.plans == [Plan(filtered="bad")]
    assert (told.notices, told.end.finish_reason, told.text) == (["plan", "filtered"], FILTERED, "")
    assert told.end.usage is not None
    assert (told.end.usage.prompt_tokens, told.end.usage.completion_tokens) == (0, 0)
    assert told.turn is not None
    assert (told.turn.prompt, told.turn.guard, told.row) == ("a bad one", ("bad",), None)
    assert [record.categories for record in told.commit.audit] == [("bad",)]


async def test_a_prompt_that_a_former_owner_has_blocked_is_neither_judged_nor_searched_for() -> None:
    related, judges, one = Related(OLD), Judges(), model()
    former = Former(plan=Plan(filtered="bad"), is_replayed=True)
    told = await _judged(judges, [one], recall(related), former=former, prompt="a bad one", recall=1)
    assert (judges.texts, related.queries, words_of(one).jobs) == ([], [], [])
    assert (told.notices, told.end.finish_reason) == (["attempt", "filtered"], FILTERED)


async def test_a_block_is_carried_out_when_the_policy_is_gone() -> None:
    one = model()
    told = await _judged(None, [one], rules={}, former=Former(plan=Plan(filtered="bad"), is_replayed=True))
    assert (told.end.finish_reason, words_of(one).jobs) == (FILTERED, [])


async def test_a_flagged_prompt_is_answered_and_the_next_owner_does_not_judge_it_again() -> None:
    told = await _judged(prompt="odd")
    assert told.plans == [Plan(flagged=("odd",))]
    assert told.turn is not None
    assert told.turn.guard == ("odd",)
    judges = Judges()
    again = await _judged(judges, former=Former(plan=told.plan, is_replayed=True), prompt="odd")
    assert "odd" not in judges.texts
    assert (again.text, again.plans) == (told.text, [])


def _but_prompt_tokens(told: Told) -> object:
    """An owner that finds the category in the log reads no prompt."""
    return told.text, told.end.finish_reason, told.end.index, told.row, told.turn and told.turn.answer


@pytest.mark.parametrize("said", [["A fine ", "day. ", "A bad ", "one. ", "More", "."], ["A bad one. ", "More"]])
async def test_what_follows_a_blocked_sentence_never_leaves(said: list[str]) -> None:
    async def run(partition: BenchPartition, before: Sequence[TokenEvent]) -> Told:
        return await _judged(None, [model(says=saying(*said))], partition=partition, before=before)

    told = await same_at_every_cut(run, _but_prompt_tokens)
    assert "bad" not in told.text
    assert told.text == "".join(said).partition("A bad")[0]
    assert told.end.finish_reason is FILTERED
    assert told.notices[-2:] == ["plan", "filtered"]
    assert told.turn is not None
    assert (told.turn.answer, told.turn.guard) == (told.text, ("bad",))
    assert told.end.usage is not None
    assert told.end.usage.completion_tokens == told.end.index


async def test_a_flagged_answer_goes_on_and_is_flagged_once() -> None:
    async def run(partition: BenchPartition, before: Sequence[TokenEvent]) -> Told:
        said = saying("An odd ", "one. ", "Another odd ", "one. ", "Bye", ".")
        return await _judged(None, [model(says=said)], partition=partition, before=before)

    told = await same_at_every_cut(run)
    assert told.plans == [Plan(flagged=("odd",))]
    assert told.text == "An odd one. Another odd one. Bye."


async def test_a_category_is_in_the_log_before_what_follows_it() -> None:
    told = await _judged(None, [model(says=saying("An odd one. ", "Bye", "."))])
    kinds = [event.type for event in told.events]
    assert kinds.index(EventType.NOTICE) < kinds.index(EventType.TOKEN)


@pytest.mark.parametrize("on_failure", ["closed", "open"])
async def test_without_a_verdict_a_prompt_is_filtered_or_goes_on(on_failure: str) -> None:
    one = model(says=saying("well"))
    rules = {"prompt": {"bad": "block"}, "on_failure": on_failure}
    told = await _judged(Judges(error=JudgeError("away")), [one], rules=rules, prompt="why?")
    assert told.turn is not None
    if on_failure == "open":
        assert (told.text, told.turn.prompt) == ("well", "why?")
        return
    assert (told.end.finish_reason, words_of(one).jobs) == (FILTERED, [])
    assert (told.turn.prompt, told.turn.answer, told.turn.guard, told.row) == ("", "", ("unjudged",), None)


async def test_an_answer_that_ends_for_want_of_a_verdict_keeps_its_prompt_and_what_was_judged() -> None:
    class Second(Judges):
        async def categories_of(self, texts: Sequence[str], categories: frozenset[str], asker: Any) -> frozenset[str]:
            if "Two" in "".join(texts):
                raise JudgeError("away")
            return await super().categories_of(texts, categories, asker)

    said = saying("One. ", "Two. ", "Three. ")
    told = await _judged(Second(), [model(says=said)], rules={"answer": {"bad": "block"}})
    assert (told.text, told.end.finish_reason) == ("One. ", FILTERED)
    assert told.turn is not None
    assert (told.turn.prompt, told.turn.answer, told.turn.guard) == ("why?", "One. ", ("unjudged",))
    assert told.row is not None


async def test_a_new_request_for_which_judges_have_no_time_is_refused() -> None:
    told = await _judged(Judges(error=BusyError("full")))
    assert (told.code, told.plans, told.turn) == ("overloaded", [], None)


async def test_judges_read_placeholders_and_the_instructions_apart() -> None:
    judges = Judges()
    rules = {"pii": "mask", "prompt": {"injection": "block", "bad": "block"}, "answer": {"bad": "block"}}
    messages = [
        {"role": "system", "content": "obey injection"},
        {"role": "user", "content": f"to {EMAIL.value}"},
    ]
    told = await _judged(judges, [model(says=saying("Well."))], rules=rules, prompt=None, messages=messages)
    assert told.end.finish_reason is FinishReason.STOP
    assert not any(EMAIL.value in text for text in judges.texts)
    assert placeholders_in(judges.texts[0])
    assert judges.texts[1:] == ["obey injection", "Well."]


async def test_a_sentence_that_was_held_when_a_model_failed_is_judged_when_it_is_written_again() -> None:
    judges = Judges()
    one = model(says=saying("A ", "fine ", "day. ", "Bye", "."), before=failing(2, times=1))
    told = await _judged(judges, [one], routing(policy_of(), [one]))
    assert told.text == "A fine day. Bye."
    assert [text for text in judges.texts if text != "why?"] == ["A fine day. ", "Bye."]
    assert [len(job.generated) for job in words_of(one).jobs] == [0, 0]


async def test_no_token_leaves_before_its_sentence_is_judged() -> None:
    seen: list[str] = []
    partition = BenchPartition()

    def during() -> None:
        seen.append("".join(event.text or "" for event in partition.ownership.token_log.events))

    rules = {"answer": {"bad": "block"}}
    told = await _judged(
        Judges(during=during), [model(says=saying("One. ", "Two. ", "Three."))], rules=rules, partition=partition
    )
    assert seen == ["", "One. ", "One. Two. "]
    assert told.text == "One. Two. Three."


async def test_a_word_that_the_request_has_begun_is_judged_whole() -> None:
    begun = [{"role": "user", "content": "why?"}, {"role": "assistant", "content": "It is a ba"}]
    one = model(says=saying("d one. ", "Bye."))
    rules = {"answer": {"bad": "block"}}
    told = await _judged(None, [one], rules=rules, prompt=None, messages=begun, continue_final_message=True)
    assert (told.text, told.end.finish_reason) == ("", FILTERED)


async def test_an_error_names_the_model_that_would_have_answered() -> None:
    models = [model(), model("small")]
    routes = routing(policy_of(routes=[{"name": "all", "model": "small"}]), models)
    told = await _judged(Judges(error=BusyError("full")), models, routes)
    assert (told.code, told.end.model_version) == ("overloaded", "small@1")
