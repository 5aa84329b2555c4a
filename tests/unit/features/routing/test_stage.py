from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from app.delivery.accepted import Former
from app.features.routing.canary import Canaries
from app.features.routing.health import ModelHealth
from app.features.routing.load_figures import Load
from app.features.routing.router import Router
from app.features.routing.stage import Routing
from app.policy.file import DEFAULT_MODEL, Fallback, Policy, Route, When
from app.private.value import PrivateValue
from app.wire.event import NO_PLAN, Plan, RecalledTurn
from app.wire.request import Message, Role
from models.served.paced import paced
from models.served.registry import ModelRegistry
from tests.unit.answering.runs import run_and_stage_of, unchanged
from tests.unit.delivery.inflight_requests import NEW, answer_with, inflight_of

DEFAULT = paced(10)
MODELS = ModelRegistry(replace(DEFAULT, names=DEFAULT.names | {DEFAULT_MODEL}), paced(10, "small"), paced(10, "large"))
SHORT = Route(name="short", when=When(prompt_tokens_below=10), model="small")
NONE = Fallback()
CHAIN = Fallback(chain=("default", "small", "large"), failures=2)


class Planned:
    def __init__(self, *routes: Route, fallback: Fallback = NONE, models: ModelRegistry = MODELS) -> None:
        self.now, self.models = 0.0, models
        policy = Policy(routes=routes, fallback=fallback)
        router = Router(policy, lambda: self.now, Load)
        self.routing = Routing(router, models, ModelHealth(lambda: self.now), Canaries(policy))

    async def plan(self, former: Former = NEW, **fields: Any) -> Plan:
        """The plan after the stage, if it is not decided already."""
        _, stage = run_and_stage_of(self.routing, inflight=inflight_of(former, **fields), models=self.models)
        return former.plan if stage.is_decided(former) else await stage.decide(former.plan, unchanged)

    def fails(self, model: str = DEFAULT_MODEL, user_id: str = "ann") -> None:
        self.routing.health.failed(model, self.routing.router.fallback, user_id)


async def test_the_requests_own_prompt_is_counted_and_not_its_conversation() -> None:
    planned = Planned(SHORT)
    assert await planned.plan(prompt="123456789") == Plan(model="small", route="short")
    assert await planned.plan(prompt="1234567890") == NO_PLAN
    two = (Message(Role.USER, "1234"), Message(Role.USER, "5678"))
    assert (await planned.plan(prompt=None, messages=two)).model == "small"
    assert (await planned.plan(prompt=None, prompt_token_ids=(1,) * 9)).model == "small"
    assert await planned.plan(prompt="x" * 100_000) == NO_PLAN


async def test_what_a_former_owner_has_decided_stands() -> None:
    former = Former(plan=Plan(model="large", route="other"))
    assert await Planned(SHORT).plan(former, prompt="short") == former.plan


async def test_a_model_that_is_not_served_here_is_decided_anew_unless_it_has_begun() -> None:
    former = Former(plan=Plan(at=5, model="gone", route="other"))
    assert await Planned(SHORT).plan(former, prompt="short") == Plan(at=5, model="small", route="short")
    assert await Planned().plan(former, prompt="short") == Plan(at=5, model=DEFAULT_MODEL)
    begun = Former(answer_with("a"), former.plan)
    assert await Planned(SHORT).plan(begun, prompt="short") == former.plan


async def test_what_is_decided_anew_is_the_route_alone() -> None:
    kept = {
        "at": 5,
        "private": (PrivateValue("PERSON", "Nina"),),
        "flagged": ("risky",),
        "filtered": "banned",
        "recalled": (RecalledTurn("r0", "a", "b", 1),),
    }
    plan = Plan(
        **kept, model="gone", route="other", arm="gone", notice="fallback", cached="r1", chosen=2, other_tokens=9
    )
    assert await Planned(SHORT).plan(Former(plan=plan), prompt="short") == Plan(**kept, model="small", route="short")
    assert await Planned().plan(Former(plan=plan), prompt="short") == Plan(**kept, model=DEFAULT_MODEL)


async def test_a_former_owner_that_took_no_route_has_decided_too() -> None:
    former = Former(plan=Plan(at=5))
    assert await Planned(SHORT).plan(former, prompt="short") == former.plan


def test_the_chain_is_followed_from_the_model_that_failed_and_each_model_is_tried_once() -> None:
    routing, plan, models = Planned(fallback=CHAIN).routing, NO_PLAN, [DEFAULT_MODEL]
    while (following := routing.next(plan, models, "ann")) is not None:
        plan = following
        assert plan.notice == "fallback"
        models.append(plan.model or "")
    assert models == [DEFAULT_MODEL, "small", "large"]


async def test_a_model_that_keeps_failing_gets_no_requests_until_it_is_probed() -> None:
    planned = Planned(fallback=CHAIN)
    for _ in range(2):
        planned.fails()
    assert await planned.plan() == Plan(model="small", notice="fallback")
    planned.now = 61.0
    assert await planned.plan() == NO_PLAN
    assert await planned.plan() == Plan(model="small", notice="fallback")


def test_a_model_that_cannot_continue_an_answer_takes_over_at_its_beginning_only() -> None:
    small = replace(paced(10, "small"), continues=False)
    routing = Planned(fallback=CHAIN, models=ModelRegistry(MODELS.default, small, paced(10, "large"))).routing
    assert routing.next(NO_PLAN, {DEFAULT_MODEL}, "ann") == Plan(model="small", notice="fallback")
    assert routing.next(NO_PLAN, {DEFAULT_MODEL}, "ann", at=7) == Plan(model="large", notice="fallback", from_index=7)


async def test_a_request_that_names_a_model_does_not_fall_back() -> None:
    planned = Planned(fallback=CHAIN)
    for _ in range(2):
        planned.fails()
    assert await planned.plan(model="default") == NO_PLAN
    assert (await planned.plan(model="auto")).model == "small"


@dataclass(frozen=True)
class Observed:
    """The paced model's prompts, which remember the thread that counts."""

    prompts: Any
    threads: set[int] = field(default_factory=set)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.prompts, name)

    def count(self, text: str) -> int:
        self.threads.add(threading.get_ident())
        return int(self.prompts.count(text))


@pytest.mark.parametrize(("size", "is_beside"), [(8192, False), (8193, True), (60_000, True)])
async def test_a_long_prompt_is_counted_beside_the_event_loop(size: int, is_beside: bool) -> None:
    observed = Observed(DEFAULT.prompts)
    models = ModelRegistry(replace(MODELS.default, prompts=observed), paced(10, "small"))
    planned = Planned(Route(name="short", when=When(prompt_tokens_below=size + 1), model="small"), models=models)
    assert await planned.plan(prompt="x" * size) == Plan(model="small", route="short")
    assert (threading.get_ident() not in observed.threads, len(observed.threads)) == (is_beside, 1)


async def test_a_long_prompt_is_not_counted_for_nothing() -> None:
    observed = Observed(DEFAULT.prompts)
    models = ModelRegistry(replace(MODELS.default, prompts=observed), paced(10, "small"))
    await Planned(models=models).plan(prompt="x" * 60_000)
    await Planned(SHORT, models=models).plan(prompt="x" * 60_000, model="default")
    assert observed.threads == set()
