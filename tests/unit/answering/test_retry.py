"""The model of an answer: that there is one, and its second try."""

from __future__ import annotations

import pytest

from app.answering.pipeline import Retry
from app.answering.run import RequestRefused
from app.delivery.accepted import Former
from app.wire.event import Plan
from models.served.paced import paced
from models.served.registry import ModelRegistry
from tests.unit.answering.bench import answered, model
from tests.unit.answering.runs import run_and_stage_of, unchanged
from tests.unit.answering.word_engine import failing
from tests.unit.delivery.inflight_requests import ASKED_AT, answer_with, inflight_of

MODELS = ModelRegistry(paced(10), paced(10, "small"))


async def test_time_ahead_of_the_clock_of_the_broker_is_part_of_the_plan() -> None:
    _, stage = run_and_stage_of(Retry(MODELS), inflight=inflight_of(at=ASKED_AT - 1), models=MODELS)
    assert await stage.decide(Plan(model="small"), unchanged) == Plan(at=ASKED_AT - 1, model="small")


async def test_unknown_model_is_an_error_that_names_those_that_the_tenant_may_name() -> None:
    retry = Retry(MODELS, lambda tenant, one: tenant != "acme" or "small" in one.names)
    _, stage = run_and_stage_of(retry, inflight=inflight_of(model="large", tenant="acme"), models=MODELS)
    with pytest.raises(RequestRefused, match=r"^model: there is no 'large'; there are: small$"):
        await stage.decide(Plan(), unchanged)


def test_plan_of_a_former_owner_stands_if_its_model_is_served_or_has_begun() -> None:
    _, stage = run_and_stage_of(Retry(MODELS), models=MODELS)
    assert stage.is_decided(Former(plan=Plan(model="small")))
    assert not stage.is_decided(Former(plan=Plan(model="gone")))
    assert stage.is_decided(Former(answer_with("a"), Plan(model="gone")))


async def test_model_that_fails_is_tried_once_more_from_its_last_token_on() -> None:
    once = await answered(models=[model(before=failing(1, times=1))])
    assert (once.code, once.text) == (None, (await answered(models=[model()])).text)
    assert (await answered(models=[model(before=failing(1))])).code == "engine_error"
