"""What a tenant may ask for, and what it is charged."""

from __future__ import annotations

from typing import Any

import pytest

from app.delivery.accepted import Former
from app.features.quota.figures import Used
from app.features.quota.stage import Quota
from app.features.tool_rounds import ToolsOverKafka
from app.wire.event import ErrorInfo, EventType, Plan, TokenEvent
from app.wire.event import Usage as UsageOnWire
from models.interface.generation import FinishReason
from tests.unit.answering.bench import SETTINGS, WEATHER, BenchPartition, Told, answered, former_of, stop_at, stopped
from tests.unit.answering.runs import run_and_stage_of
from tests.unit.answering.word_engine import failing, model, words_of
from tests.unit.delivery.inflight_requests import inflight_of, outcome_of
from tests.unit.features.stages.features import (
    OLD,
    Finds,
    Judges,
    Related,
    admission,
    guard,
    policy_of,
    quota,
    recall,
    routing,
)

PRICES = {"default": {"prompt": 1.0, "answer": 2.0}}


def _minute(one: Quota) -> Used:
    return one.tenants.figures.own_minute("acme")


async def test_without_tenants_and_prices_there_is_no_stage_and_the_answer_is_the_same() -> None:
    one = quota(policy_of(), [model()])
    told = await answered(one, tenant="acme")
    assert told.text == (await answered(tenant="acme")).text
    assert (told.outcome.cost, _minute(one)) == (0.0, Used())


async def test_an_answer_is_charged_to_its_tenant() -> None:
    one = quota(policy_of(prices=PRICES, tenants={"acme": {"requests_per_min": 5}}), [model()])
    told = await answered(one, tenant="acme")
    usage = told.end.usage
    assert usage is not None
    assert told.outcome.cost == pytest.approx((usage.prompt_tokens + 2 * usage.completion_tokens) / 1000)
    assert _minute(one) == Used(1, usage.prompt_tokens + usage.completion_tokens)


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "quota": ({"requests_per_min": 0}, {}, "rate_limited"),
    "quota of a user": ({"user_requests_per_min": 0}, {}, "rate_limited"),
    "region": ({"region": "elsewhere"}, {}, "invalid_request"),
    "model": ({"models": ["small"]}, {"model": "default"}, "model_not_found"),
    "priority": ({"priority": "batch"}, {"priority": "standard"}, "invalid_request"),
    "tool": ({"tools": []}, {"tools": [WEATHER], "tool_mode": "kafka"}, "invalid_request"),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_of_a_request_that_is_refused_no_model_judge_or_index_sees_anything(name: str) -> None:
    rule, fields, code = REFUSED[name]
    finds, judges, related, one = Finds(), Judges(), Related(OLD), model()
    policy = policy_of(tenants={"acme": rule, "*": {"requests_per_min": 9}})
    charged = quota(policy, [one])
    features = [admission(policy), charged, *guard(finds, judges, pii="mask", prompt={"bad": "block"}), recall(related)]
    told = await answered(*features, models=[one], tenant="acme", recall=1, prompt="bad", **fields)
    assert told.code == code
    assert (finds.texts, judges.texts, related.queries, words_of(one).jobs) == ([], [], [], [])
    assert (told.turn, told.row, told.plans, told.letters) == (None, None, [], [])
    assert [record.outcome for record in told.commit.audit] == [code]
    assert _minute(charged) == Used()


async def test_a_user_has_its_own_limit_beside_its_tenants() -> None:
    policy = policy_of(tenants={"acme": {"user_requests_per_min": 2, "requests_per_min": 9}})
    one, users = quota(policy, [model()]), admission(policy)
    codes = [(await answered(one, users, tenant="acme", request_id=f"r{number}")).code for number in range(3)]
    assert codes == [None, None, "rate_limited"]
    assert _minute(one).requests == 2
    whole = await answered(tenant="acme")
    resumed = await answered(one, users, before=whole.events[:2], tenant="acme")
    assert resumed.end.finish_reason is FinishReason.LENGTH, "what has begun is not refused"


async def test_what_a_former_owner_has_admitted_stays_admitted_and_counts_once() -> None:
    policy = policy_of(tenants={"acme": {"requests_per_min": 0, "region": "elsewhere"}})
    one, homes = quota(policy, [model()]), admission(policy)
    told = await answered(one, homes, former=former_of([]), tenant="acme")
    assert told.code == "invalid_request"  # its record was in the log, but no owner had begun it
    whole = await answered(tenant="acme")
    resumed = await answered(one, homes, before=whole.events[:2], tenant="acme")
    assert (resumed.text, resumed.end.finish_reason) == (whole.text, FinishReason.LENGTH)
    planned = await answered(one, homes, former=_with_plan(Plan(flagged=("bad",))), tenant="acme")
    assert planned.end.finish_reason is FinishReason.LENGTH
    assert _minute(one).requests == 0


def _with_plan(plan: Plan) -> Former:

    return Former(plan=plan, is_replayed=True)


async def test_a_model_that_the_tenant_may_not_name_is_not_offered_to_it() -> None:
    models = [model(), model("small"), model("secret")]
    policy = policy_of(tenants={"acme": {"models": ["small"]}})
    one = quota(policy, models)
    told = await answered(one, routing(policy, models), models=models, tenant="acme", model="unknown")
    assert told.code == "model_not_found"
    assert told.end.error is not None
    assert told.end.error.message == "model: there is no 'unknown'; there are: small"


async def test_routes_may_choose_a_model_that_the_tenant_may_not_name() -> None:
    models = [model(), model("small")]
    policy = policy_of(tenants={"acme": {"models": ["default"]}}, routes=[{"name": "all", "model": "small"}])
    told = await answered(quota(policy, models), routing(policy, models), models=models, tenant="acme")
    assert told.end.model_version == "small@1"


async def test_an_error_has_no_price_but_what_was_computed_for_it_counts() -> None:
    one = quota(policy_of(prices=PRICES, tenants={"acme": {"tokens_per_min": 99999}}), [model()])
    before, prepare = stop_at(0, FinishReason.DEADLINE)
    late = model(before=before)
    told = await answered(one, models=[late], prepare=prepare, tenant="acme")
    assert (told.code, told.outcome.cost) == ("deadline_exceeded", 0.0)
    assert _minute(one).tokens == len(words_of(late).jobs[0].prompt)


@pytest.mark.parametrize(
    ("end", "spent", "tokens"),
    [
        (TokenEvent(type=EventType.DONE, usage=UsageOnWire(3, 4, 0)), 0, 7),
        (TokenEvent(type=EventType.DONE, usage=UsageOnWire(3, 4, 0)), 5, 12),
        (TokenEvent(type=EventType.ERROR, error=ErrorInfo("deadline_exceeded", "late")), 5, 5),
        (TokenEvent(type=EventType.ERROR, error=ErrorInfo("deadline_exceeded", "late")), 0, 0),
    ],
)
def test_tokens_without_a_usage_count_too(end: TokenEvent, spent: int, tokens: int) -> None:
    one = quota(policy_of(tenants={"acme": {"tokens_per_min": 100}}), [model()])
    run, stage = run_and_stage_of(one, inflight=inflight_of(user_id="acme/nina", tenant="acme"))
    stage.committed(outcome_of(run.inflight, end, spent=spent))
    assert _minute(one).tokens == tokens


async def test_a_request_that_was_stopped_before_it_began_is_not_counted() -> None:
    one = quota(policy_of(tenants={"acme": {"requests_per_min": 5}}), [model()])
    await answered(one, prepare=stopped(), tenant="acme")
    assert _minute(one) == Used()


async def test_an_answer_that_fails_is_charged_for_nothing() -> None:
    one = quota(policy_of(prices=PRICES, tenants={"acme": {"requests_per_min": 5}}), [model()])
    told = await answered(one, models=[model(before=failing(2))], tenant="acme")
    assert (told.code, told.outcome.cost) == ("engine_error", 0.0)
    assert _minute(one) == Used(1, 0)


async def test_the_answers_of_a_user_that_wait_for_tools_are_limited() -> None:
    partition, one = BenchPartition(), model()
    partition.records.waiting = 8 * SETTINGS.max_in_flight
    told = await answered(
        ToolsOverKafka(SETTINGS), models=[one], partition=partition, tools=[WEATHER], tool_mode="kafka"
    )
    assert told.code == "overloaded"
    assert words_of(one).jobs == []
    plain: Told = await answered(ToolsOverKafka(SETTINGS), models=[one], partition=BenchPartition())
    assert plain.code is None
