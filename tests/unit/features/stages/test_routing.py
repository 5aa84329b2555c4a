"""Which model answers, and who goes on if it fails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from app.delivery.accepted import Former
from app.wire.event import Plan, TokenEvent
from models.interface.generation import End, Failure, FinishReason, Job, StreamEvent, Usage
from models.served.registry import ServedModel
from tests.unit.answering.bench import BenchPartition, Told, answered, same_at_every_cut
from tests.unit.answering.word_engine import failing, model, saying, words_of
from tests.unit.features.stages.features import policy_of, routing

CHAIN = {"chain": ["default", "small"]}
TO_SMALL = [{"name": "all", "model": "small"}]
DEGRADED = [{"name": "relief", "model": "small", "notice": "degraded"}]


async def _routed(policy: dict[str, Any], models: Sequence[ServedModel] = (), **how: Any) -> Told:
    models = models or (model(), model("small"))
    return await answered(routing(policy_of(**policy), models), models=models, **how)


async def test_without_routes_the_default_model_answers_and_no_plan_is_written() -> None:
    told = await _routed({})
    assert (told.text, told.notices) == ((await answered()).text, [])


async def test_a_route_names_the_model_and_is_in_plan_and_turn() -> None:
    told = await _routed({"routes": TO_SMALL})
    assert told.plans == [Plan(model="small", route="all")]
    assert {event.model_version for event in told.events} == {"small@1"}
    assert told.turn is not None
    assert (told.turn.route, told.turn.model_version) == ("all", "small@1")
    assert [record.route for record in told.commit.audit] == ["all"]


async def test_a_degraded_answer_says_so_once_behind_its_plan() -> None:
    told = await _routed({"routes": DEGRADED})
    assert told.notices == ["plan", "degraded"]

    async def run(partition: BenchPartition, before: Sequence[TokenEvent]) -> Told:
        return await _routed({"routes": DEGRADED}, partition=partition, before=before)

    await same_at_every_cut(run)


@pytest.mark.parametrize(("name", "version"), [("default", "default@1"), ("small", "small@1"), ("auto", "small@1")])
async def test_a_request_that_names_a_model_gets_it(name: str, version: str) -> None:
    told = await _routed({"routes": TO_SMALL}, model=name)
    assert told.end.model_version == version


async def test_a_model_that_is_not_served_is_an_error_that_names_those_that_are() -> None:
    told = await _routed({}, model="large")
    assert told.code == "model_not_found"
    assert told.end.error is not None
    assert told.end.error.message == "model: there is no 'large'; there are: auto, default, small"
    assert (told.notices, told.turn, told.end.model_version) == ([], None, "default@1")


async def test_a_route_to_a_model_that_is_gone_is_decided_anew_and_what_was_found_stays() -> None:
    former = Former(plan=Plan(model="large", route="old", flagged=("bad",), recalled=()), is_replayed=True)
    told = await _routed({"routes": TO_SMALL}, former=former)
    assert told.plans == [Plan(model="small", route="all", flagged=("bad",), recalled=())]


async def test_what_a_former_owner_has_decided_stands_whatever_the_routes_are_now() -> None:
    told = await _routed({"routes": TO_SMALL}, former=Former(plan=Plan(model="default", route="old"), is_replayed=True))
    assert told.plans == []
    assert told.turn is not None
    assert (told.end.model_version, told.turn.route) == ("default@1", "old")


async def test_a_model_that_fails_once_is_asked_again_and_readers_see_nothing_of_it() -> None:
    default = model(before=failing(2, times=1))
    told = await _routed({}, [default])
    assert (told.text, told.notices) == ((await answered()).text, [])
    assert [len(job.generated) for job in words_of(default).jobs] == [0, 2]


async def test_a_model_that_fails_twice_is_an_error_without_a_chain() -> None:
    told = await _routed({}, [model(before=failing(2))])
    assert (told.code, told.end.index) == ("engine_error", 2)
    assert told.end.error is not None
    assert told.end.error.message == "it broke"
    assert (told.turn, told.row) == (None, None)


@pytest.mark.parametrize("at", [0, 2, 5])
async def test_the_next_model_of_the_chain_goes_on_with_the_next_index(at: int) -> None:
    async def run(partition: BenchPartition, before: Sequence[TokenEvent]) -> Told:
        models = [model(before=failing(at)), model("small")]
        return await _routed({"fallback": CHAIN}, models, partition=partition, before=before)

    told = await same_at_every_cut(run)
    assert told.notices == ["plan", "fallback"]
    assert told.plans == [Plan(model="small", notice="fallback", from_index=at or None)]
    assert told.end.usage is not None
    assert (told.end.index, told.end.usage.completion_tokens, told.end.model_version) == (6, 6, "small@1")


async def test_a_request_that_names_its_model_has_no_fallback() -> None:
    models = [model(before=failing(0)), model("small")]
    told = await _routed({"fallback": CHAIN}, models, model="default")
    assert (told.code, words_of(models[1]).jobs) == ("engine_error", [])


async def test_an_error_of_the_request_is_no_failure_of_the_model() -> None:
    models = [model(before=failing(0, "invalid_request")), model("small")]
    told = await _routed({"fallback": CHAIN}, models)
    assert (told.code, len(words_of(models[0]).jobs), words_of(models[1]).jobs) == ("invalid_request", 1, [])


async def test_an_overloaded_model_is_not_asked_again() -> None:
    models = [model(before=failing(0, "overloaded")), model("small")]
    told = await _routed({"fallback": CHAIN}, models)
    assert (len(words_of(models[0]).jobs), told.end.model_version) == (1, "small@1")


async def test_a_chain_of_which_all_models_fail_ends_with_the_last_failure() -> None:
    models = [model(before=failing(1)), model("small", before=failing(3))]
    told = await _routed({"fallback": CHAIN}, models)
    assert (told.code, told.end.index, told.end.model_version) == ("engine_error", 3, "small@1")
    assert [len(words_of(one).jobs) for one in models] == [2, 2]


async def test_a_model_that_keeps_failing_is_left_out_before_the_first_token() -> None:
    models = [model(before=failing(0)), model("small")]
    one = routing(policy_of(fallback={**CHAIN, "failures": 1}), models)
    await answered(one, models=models)
    told = await answered(one, models=models)
    assert told.notices == ["plan", "fallback"]
    assert len(words_of(models[0]).jobs) == 2  # both of the first answer


async def test_a_server_that_cannot_continue_hands_over_to_the_next_model() -> None:
    def partial(_job: Job, index: int) -> StreamEvent | None:
        return End(index, FinishReason.PARTIAL, Usage(1, index)) if index == 2 else None

    models = [model(before=partial), model("small")]
    told = await _routed({"fallback": CHAIN}, models)
    assert (told.end.index, told.end.finish_reason, told.end.model_version) == (6, FinishReason.LENGTH, "small@1")
    alone = await _routed({}, [model(before=partial)])
    assert (alone.end.finish_reason, alone.end.index) == (FinishReason.PARTIAL, 2)


async def test_the_words_of_a_model_that_is_served_no_longer_are_kept() -> None:
    whole = await answered(models=[model("gone")], model="gone")
    told = await _routed({}, before=whole.events[:3], model="gone")
    assert (told.end.finish_reason, told.end.index) == (FinishReason.PARTIAL, 3)
    assert told.end.model_version == "gone@1"
    assert told.turn is not None
    assert whole.text.startswith(told.turn.answer)


async def test_another_model_goes_on_behind_one_that_is_served_no_longer() -> None:
    whole = await _routed({"routes": [{"name": "all", "model": "gone"}]}, [model(), model("gone"), model("small")])
    told = await _routed({"fallback": CHAIN}, before=whole.events[:4])
    assert told.plans == [Plan(model="default", route="all", notice="fallback", from_index=3)]
    assert (told.end.index, told.end.model_version) == (6, "default@1")


async def test_an_answer_is_not_continued_by_other_weights() -> None:
    whole = await answered()
    other = model()
    words_of(other).model_version = "default@2"
    told = await _routed({}, [other], before=whole.events[:2])
    assert (told.end.finish_reason, told.end.index) == (FinishReason.PARTIAL, 2)
    assert words_of(other).jobs == []


async def test_failed_models_count_against_an_arm_whatever_readers_saw() -> None:
    policy: dict[str, Any] = {
        "fallback": CHAIN,
        "routes": [
            {
                "name": "tone",
                "experiment": "tone",
                "arms": [{"model": "default", "weight": 1}, {"model": "small", "weight": 1e-9}],
                "retreat": {"arm": "default", "more_errors": 0.9},
            }
        ],
    }
    models = [model(before=failing(0)), model("small", says=saying("well"))]
    one = routing(policy_of(**policy), models)
    tolds = [await answered(one, models=models, user_id=("ann", "bob")[number % 2]) for number in range(9)]
    assert tolds[-1].text == "well"
    assert one.canaries.is_out("tone", "default")
    audited = [record.action for told in tolds for commit in told.partition.commits for record in commit.audit]
    assert audited.count("retreat") == 1


def test_a_failure_of_the_bench_is_one_of_the_engine() -> None:
    assert failing(1)(Job("j", (1,), 4), 1) == Failure(1, "engine_error", "it broke")
