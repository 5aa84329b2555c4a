"""Several answers, of which readers get the best."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from app.delivery.accepted import Former
from app.wire.event import Plan, TokenEvent
from models.embedder import EmbedderError
from models.interface.generation import FinishReason, Job
from models.served.registry import ServedModel
from tables.records import Conversation, KeptTurn, Table
from tests.unit.answering.bench import ASKED_AT, BenchPartition, Told, answered, same_at_every_cut, stop_at, stopped
from tests.unit.answering.word_engine import failing, model, words_of
from tests.unit.features.stages.features import best_of, guard, policy_of, quota


def _says(job: Job) -> list[str]:
    number = job.sampling.seed >> 32
    return [f"candidate {number}", " of", " them"][: 3 - number]


async def _best(models: Sequence[ServedModel] = (), **how: Any) -> Told:
    return await answered(best_of(), models=models or [model(says=_says)], **{"best_of": 3, "seed": 1, **how})


async def test_a_request_for_one_answer_has_no_stage() -> None:
    told = await _best(best_of=1)
    assert (told.text, told.notices) == ("candidate 0 of them", [])


async def test_the_best_candidate_is_told_and_all_of_them_are_paid() -> None:
    told = await _best()
    (plan,) = told.plans
    chosen = plan.chosen or 0
    assert told.text.startswith(f"candidate {chosen}")
    assert plan.other_tokens == 6 - (3 - chosen)
    assert told.end.usage is not None
    assert told.end.usage.completion_tokens == 6
    assert all(event.logprobs is None for event in told.events)


@pytest.mark.parametrize("chosen", [0, 1, 2])
async def test_a_former_owners_choice_is_generated_alone(chosen: int) -> None:
    one = model(says=_says)
    told = await _best([one], former=Former(plan=Plan(chosen=chosen, other_tokens=4), is_replayed=True))
    assert told.text.startswith(f"candidate {chosen}")
    assert [job.sampling.seed >> 32 for job in words_of(one).jobs] == [chosen]
    assert told.plans == []
    assert told.end.usage is not None
    assert told.end.usage.completion_tokens == 3 - chosen + 4


async def test_a_choice_that_is_resumed_goes_on_with_the_same_candidate() -> None:
    async def run(partition: BenchPartition, before: Sequence[TokenEvent]) -> Told:
        return await answered(best_of(), models=[model()], partition=partition, before=before, best_of=4)

    told = await same_at_every_cut(run)
    assert told.plan.chosen is not None


@pytest.mark.parametrize("reason", [FinishReason.CANCELLED, FinishReason.DEADLINE])
async def test_what_is_stopped_while_candidates_are_generated_is_paid_and_not_told(reason: FinishReason) -> None:
    before, prepare = stop_at(1, reason)
    charged = quota(policy_of(tenants={"acme": {"tokens_per_min": 9999}}), [model()])
    one = model(says=_says, before=before)
    told = await answered(charged, best_of(), models=[one], prepare=prepare, best_of=2, seed=1, tenant="acme")
    assert (told.text, told.plans) == ("", [])
    prompt = len(words_of(one).jobs[0].prompt)
    tokens = charged.tenants.figures.own_minute("acme").tokens
    assert prompt < tokens <= prompt + 2
    if reason is FinishReason.CANCELLED:
        assert told.end.usage is not None
        assert told.end.usage.prompt_tokens + told.end.usage.completion_tokens == tokens
    else:
        assert (told.code, told.outcome.spent) == ("deadline_exceeded", tokens)


async def test_what_is_stopped_before_it_begins_has_no_candidates() -> None:
    one = model(says=_says)
    told = await _best([one], prepare=stopped())
    assert (told.end.finish_reason, words_of(one).jobs) == (FinishReason.CANCELLED, [])


async def test_a_candidate_that_fails_is_none_and_the_others_are_ranked() -> None:
    def before(job: Job, index: int) -> Any:
        return failing(1)(job, index) if job.sampling.seed >> 32 == 0 else None

    told = await _best([model(says=_says, before=before)])
    assert told.plan.chosen in {1, 2}
    assert told.end.usage is not None
    assert told.end.usage.completion_tokens == 1 + 2 + 1


async def test_if_all_candidates_fail_the_answer_does_and_what_they_computed_is_spent() -> None:
    told = await _best([model(says=_says, before=failing(0))])
    assert (told.code, told.plans) == ("engine_error", [])
    one = await _best([model(says=lambda _job: ["a", "b"], before=failing(1))])
    assert (one.code, one.outcome.spent) == ("engine_error", 2 * 3)  # the model is tried twice


class Toward:
    """An embedder for which the texts that begin with these words lie near the earlier answers."""

    def __init__(self, word: str, error: Exception | None = None) -> None:
        self._word, self._error = word, error

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Any:
        assert query
        if self._error is not None:
            raise self._error
        return np.array([[1.0, 0.0] if text.startswith((self._word, "earlier")) else [0.0, 1.0] for text in texts])


@pytest.mark.parametrize("number", [0, 1, 2])
async def test_a_candidate_like_the_earlier_answers_wins(number: int) -> None:
    partition = BenchPartition()
    turn = KeptTurn("r0", "hi", "earlier words", ASKED_AT - 1)
    partition.put(Table.CONVERSATIONS, Conversation(ASKED_AT - 1, (turn,)), "ann", "default")
    feature = best_of(Toward(f"candidate {number}"))
    told = await answered(feature, models=[model(says=_says)], partition=partition, best_of=3, seed=1)
    assert told.plan.chosen == number


async def test_an_embedder_that_fails_ranks_by_log_probabilities_alone() -> None:
    partition = BenchPartition()
    turn = KeptTurn("r0", "hi", "earlier words", ASKED_AT - 1)
    partition.put(Table.CONVERSATIONS, Conversation(ASKED_AT - 1, (turn,)), "ann", "default")
    broken = best_of(Toward("", EmbedderError("away")))
    told = await answered(broken, models=[model(says=_says)], partition=partition, best_of=3, seed=1)
    assert told.plan.chosen == (await _best()).plan.chosen


async def test_only_the_candidate_that_readers_get_is_judged() -> None:
    def says(job: Job) -> list[str]:
        return ["bad"] if job.sampling.seed >> 32 == 0 else ["fine"]

    for chosen, reason in ((0, FinishReason.FILTERED), (1, FinishReason.STOP)):
        _, moderation = guard(answer={"bad": "block"})
        former = Former(plan=Plan(chosen=chosen), is_replayed=True)
        told = await answered(moderation, best_of(), models=[model(says=says)], former=former, best_of=2, seed=1)
        assert told.end.finish_reason is reason
