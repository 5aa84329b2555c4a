"""Another arm that is asked the same, unseen by users."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from app.features.shadow import MOST_SHADOWS
from app.wire.codec import decode
from app.wire.comparison import Comparison
from models.interface.generation import Job, JobPriority
from models.served.registry import ServedModel
from tests.unit.answering.bench import Told, answered, partition_with_erasure, placeholders_in, stop_at
from tests.unit.answering.word_engine import failing, model, saying, words_of
from tests.unit.features.stages.features import EMAIL, OLD, Related, guard, policy_of, recall, routing, shadows


def _policy(shadow: float = 1.0) -> Any:
    arms = [{"model": "default", "weight": 1}, {"model": "small", "weight": 0}]
    return policy_of(routes=[{"name": "tone", "experiment": "tone", "shadow": shadow, "arms": arms}])


async def _shadowed(*features: Any, models: Sequence[ServedModel] = (), shadow: float = 1.0, **how: Any) -> Told:
    models = models or [model(), model("small")]
    policy = _policy(shadow)
    return await answered(routing(policy, models), shadows(policy, models), *features, models=models, **how)


def _comparisons(told: Told) -> list[Comparison]:
    return [decode(Comparison, one.value, one.headers) for one in told.outputs("comparisons")]


async def test_without_a_share_no_other_arm_is_asked() -> None:
    models = [model(), model("small")]
    told = await _shadowed(models=models, shadow=0.0)
    assert (_comparisons(told), words_of(models[1]).jobs) == ([], [])


async def test_the_other_arm_gets_the_same_prompt_at_the_lowest_priority_and_readers_see_nothing_of_it() -> None:
    models = [model(says=saying("one two three")), model("small", says=saying("one ", "two"))]
    told = await _shadowed(models=models)
    (asked,), (shadow,) = words_of(models[0]).jobs, words_of(models[1]).jobs
    assert (shadow.prompt, shadow.priority, asked.priority) == (asked.prompt, JobPriority.BATCH, JobPriority.STANDARD)
    (one,) = _comparisons(told)
    assert (one.arm, one.shadow_arm, one.shadow_model) == ("default", "small", "small@1")
    assert (one.tokens, one.shadow_tokens, one.is_same, one.error) == (1, 2, False, None)
    assert one.rouge_l == pytest.approx(0.8)  # 2 of 3 words, 2 of 2
    assert told.text == "one two three"
    assert told.notices == ["plan"]


async def test_the_other_arm_reads_what_was_recalled_and_hides_what_is_private() -> None:
    def says(job: Job) -> list[str]:
        return ["to ", *placeholders_in(bytes(job.prompt).decode())]

    models = [model(says=says), model("small", says=says)]
    features = [*guard(pii="mask"), recall(Related(OLD))]
    told = await _shadowed(*features, models=models, prompt=f"mail {EMAIL.value}", recall=1)
    assert words_of(models[0]).prompts == words_of(models[1]).prompts
    assert OLD.answer in words_of(models[1]).prompts[0]
    (one,) = _comparisons(told)
    assert one.is_same


async def test_a_shadow_that_fails_is_a_comparison_with_an_error() -> None:
    told = await _shadowed(models=[model(), model("small", before=failing(1))])
    (one,) = _comparisons(told)
    assert (one.error, one.is_same, one.rouge_l) == ("engine_error", False, 0.0)
    assert told.turn is not None
    assert told.letters == []


@pytest.mark.parametrize(
    "how",
    [
        {"partition": partition_with_erasure()},
        {"model": "default"},
        {"best_of": 2},
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
    ],
    ids=["erased", "named model", "best_of", "tools"],
)
async def test_what_is_not_compared(how: dict[str, Any]) -> None:
    told = await _shadowed(**how)
    assert told.turn is not None
    assert _comparisons(told) == []


async def test_a_cancelled_answer_is_not_compared() -> None:
    before, prepare = stop_at(2)
    told = await _shadowed(models=[model(before=before), model("small")], prepare=prepare)
    assert _comparisons(told) == []


async def test_no_more_than_so_many_run_at_once_and_each_ends_its_count() -> None:
    models = [model(), model("small")]
    policy = _policy()
    feature = shadows(policy, models)
    feature.running = MOST_SHADOWS
    told = await answered(routing(policy, models), feature, models=models)
    assert _comparisons(told) == []
    feature.running = MOST_SHADOWS - 1
    told = await answered(routing(policy, models), feature, models=models)
    assert len(_comparisons(told)) == 1
    assert feature.running == MOST_SHADOWS - 1


async def test_the_next_owner_asks_the_same_arm() -> None:
    whole = await _shadowed()
    told = await _shadowed(before=whole.events[:3])
    (one,), (again,) = _comparisons(whole), _comparisons(told)
    assert (one.shadow_arm, one.tokens, one.shadow_tokens) == (again.shadow_arm, again.tokens, again.shadow_tokens)
