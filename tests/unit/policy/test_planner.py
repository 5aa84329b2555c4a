from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from app.policy.planner import Planner

from app.features.routing.health import ModelHealth
from app.features.routing.load_figures import Load
from app.features.routing.router import Router
from app.policy.file import DEFAULT_MODEL, Fallback, Policy, Route, When
from app.wire.event import NO_PLAN, Plan, RecalledTurn
from app.wire.request import Message, Role
from models.paced import paced
from models.private.value import PrivateValue
from models.registry import ModelRegistry
from tests.unit.agents.inflight_requests import answer_with, inflight_of

DEFAULT = paced(10)
MODELS = ModelRegistry(replace(DEFAULT, names=DEFAULT.names | {DEFAULT_MODEL}), paced(10, "small"), paced(10, "large"))
SHORT = Route(name="short", when=When(prompt_tokens_below=10), model="small")
NONE = Fallback()
CHAIN = Fallback(chain=("default", "small", "large"), failures=2)


class Planned:
    def __init__(self, *routes: Route, fallback: Fallback = NONE, models: ModelRegistry = MODELS) -> None:
        self.now = 0.0
        router = Router(Policy(routes=routes, fallback=fallback), lambda: self.now, Load)
        self.planner = Planner(router, models, ModelHealth(lambda: self.now))

    def plan(self, **fields: Any) -> Plan:
        return self.planner.plan(inflight_of(**fields))


def test_the_requests_own_prompt_is_counted_and_not_its_conversation() -> None:
    planned = Planned(SHORT)
    assert planned.plan(prompt="123456789") == Plan(model="small", route="short")
    assert planned.plan(prompt="1234567890") == NO_PLAN
    two = (Message(Role.USER, "1234"), Message(Role.USER, "5678"))
    assert planned.plan(prompt=None, messages=two).model == "small"
    assert planned.plan(prompt=None, prompt_token_ids=(1,) * 9).model == "small"
    assert planned.plan(prompt="x" * 100_000) == NO_PLAN


def test_what_a_former_owner_has_decided_stands() -> None:
    inflight = inflight_of(prompt="short")
    inflight.logged = Plan(model="large", route="other")
    assert Planned(SHORT).planner.plan(inflight) == inflight.logged


def test_a_model_that_is_not_served_here_is_decided_anew_unless_it_has_begun() -> None:
    inflight = inflight_of(prompt="short")
    inflight.logged = Plan(at=5, model="gone", route="other")
    assert Planned(SHORT).planner.plan(inflight) == Plan(at=5, model="small", route="short")
    assert Planned().planner.plan(inflight) == Plan(at=5, model=DEFAULT_MODEL)
    inflight.recovered = answer_with("a")
    assert Planned(SHORT).planner.plan(inflight) == inflight.logged


def test_what_is_decided_anew_is_the_route_alone() -> None:
    kept = {
        "at": 5,
        "private": (PrivateValue("PERSON", "Nina"),),
        "flagged": ("risky",),
        "filtered": "banned",
        "recalled": (RecalledTurn("r0", "a", "b", 1),),
    }
    inflight = inflight_of(prompt="short")
    inflight.logged = Plan(
        **kept, model="gone", route="other", arm="gone", notice="fallback", cached="r1", chosen=2, other_tokens=9
    )
    assert Planned(SHORT).planner.plan(inflight) == Plan(**kept, model="small", route="short")
    assert Planned().planner.plan(inflight) == Plan(**kept, model=DEFAULT_MODEL)


def test_a_former_owner_that_took_no_route_has_decided_too() -> None:
    inflight = inflight_of(prompt="short")
    inflight.logged = Plan(at=5)
    assert Planned(SHORT).planner.plan(inflight) == inflight.logged


def test_a_time_ahead_of_the_brokers_clock_is_part_of_the_plan() -> None:
    inflight = inflight_of(prompt="short")
    inflight.at = inflight.record.timestamp - 1
    assert Planned(SHORT).planner.plan(inflight) == Plan(at=inflight.at, model="small", route="short")
    assert Planned().planner.plan(inflight) == Plan(at=inflight.at)


def test_the_chain_is_followed_from_the_model_that_failed_and_each_model_is_tried_once() -> None:
    planner = Planned(fallback=CHAIN).planner
    inflight = inflight_of()
    models = []
    while True:
        planner.failed(inflight)
        plan = planner.next(inflight, at=0)
        if plan is None:
            break
        assert plan.notice == "fallback"
        models.append(plan.model)
        inflight.plan = plan
    assert models == ["small", "large"]


def test_a_model_that_keeps_failing_gets_no_requests_until_it_is_probed() -> None:
    planned = Planned(fallback=CHAIN)
    for _ in range(2):
        planned.planner.failed(inflight_of())
    assert planned.plan() == Plan(model="small", notice="fallback")
    planned.now = 61.0
    assert planned.plan() == NO_PLAN
    assert planned.plan() == Plan(model="small", notice="fallback")


def test_a_model_that_cannot_continue_an_answer_takes_over_at_its_beginning_only() -> None:
    small = replace(paced(10, "small"), continues=False)
    planner = Planned(fallback=CHAIN, models=ModelRegistry(MODELS.default, small, paced(10, "large"))).planner
    assert planner.next(inflight_of(), at=0) == Plan(model="small", notice="fallback")
    assert planner.next(inflight_of(), at=7) == Plan(model="large", notice="fallback", from_index=7)


def test_a_request_that_names_a_model_does_not_fall_back() -> None:
    planned = Planned(fallback=CHAIN)
    named = inflight_of(model="default")
    for _ in range(2):
        planned.planner.failed(named)
    assert planned.planner.next(named, at=0) is None
    assert planned.plan(model="default") == NO_PLAN
    assert planned.plan(model="auto").model == "small"


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
    planner = Planned(
        Route(name="short", when=When(prompt_tokens_below=size + 1), model="small"), models=models
    ).planner
    inflight = inflight_of(prompt="x" * size)
    plan = planner.plan(inflight, await planner.count_long(inflight.request))
    assert plan == Plan(model="small", route="short")
    assert (threading.get_ident() not in observed.threads, len(observed.threads)) == (is_beside, 1)


async def test_a_long_prompt_is_not_counted_for_nothing() -> None:
    long = inflight_of(prompt="x" * 60_000).request
    assert await Planned().planner.count_long(long) is None
    assert await Planned(SHORT).planner.count_long(inflight_of(prompt="x" * 60_000, model="default").request) is None
