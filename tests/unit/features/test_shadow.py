"""Which answers another arm is asked for; what fails about these shadows is dropped, and they are counted right."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import msgspec

from app.delivery.record import Record
from app.features.shadow import MOST_SHADOWS, Shadows
from app.policy.file import Arm, Policy, Route
from app.prices import PriceList
from app.settings import Settings
from app.wire.event import EventType, Plan, TokenEvent
from models.interface.generation import FinishReason
from models.served.paced import paced
from models.served.registry import ModelRegistry
from tests.unit.answering.runs import run_and_stage_of
from tests.unit.delivery.fake_partition import FakePartition
from tests.unit.delivery.inflight_requests import outcome_of

ARMS = (Arm(model="default", weight=9), Arm(model="small", weight=1), Arm(model="new", weight=0))
TONE = Route(name="tone-test", experiment="tone", arms=ARMS, shadow=0.05)
PLAN = Plan(model="default", route="tone-test", experiment="tone", arm="default")
REQUESTS = [f"r{number}" for number in range(10_000)]
SETTINGS = Settings(_env_file=None)


def shadows_of(policy: Policy) -> Shadows:
    return Shadows(SETTINGS, ModelRegistry(paced(10)), PriceList(SETTINGS.prices, policy), policy)


def test_the_share_of_the_requests_is_chosen_and_goes_to_all_other_arms() -> None:
    shadows = shadows_of(Policy(routes=(TONE,)))
    found = [shadows.arm_for(PLAN, request) for request in REQUESTS]
    assert 400 < len(REQUESTS) - found.count(None) < 600
    assert {*found} == {None, "small", "new"}, "an arm without users has shadows"
    assert 0.7 < found.count("small") / found.count("new") < 1.4


def test_a_next_owner_chooses_the_same() -> None:
    first, second = (shadows_of(Policy(routes=(TONE,))) for _ in range(2))
    assert [first.arm_for(PLAN, one) for one in REQUESTS] == [second.arm_for(PLAN, one) for one in REQUESTS]


def test_only_answers_of_an_arm_have_shadows() -> None:
    shadows = shadows_of(Policy(routes=(msgspec.structs.replace(TONE, shadow=1.0),)))
    assert shadows.arm_for(PLAN, "r") in {"small", "new"}
    for other in (
        msgspec.structs.replace(PLAN, model="small"),  # after a fallback
        msgspec.structs.replace(PLAN, experiment="before", arm="default"),  # a former owner had another file
        msgspec.structs.replace(PLAN, route="other"),
        Plan(),
    ):
        assert shadows.arm_for(other, "r") is None


def test_a_changed_file_counts_from_now_on() -> None:
    shadows = shadows_of(Policy(routes=(msgspec.structs.replace(TONE, shadow=1.0),)))
    shadows.use(Policy(routes=(msgspec.structs.replace(TONE, shadow=0.0),)))
    assert {shadows.arm_for(PLAN, one) for one in REQUESTS[:100]} == {None}


class LeavingPartition(FakePartition):
    """Its tasks are cancelled before they begin."""

    def spawn(self, work: Coroutine[Any, Any, None], about: Record | None = None) -> asyncio.Task[None]:
        task = super().spawn(work, about)
        task.cancel()
        return task


async def test_a_shadow_that_never_began_is_not_counted_for_ever() -> None:
    arms = (Arm(model="default", weight=1), Arm(model="paced", weight=0))
    shadows = shadows_of(Policy(routes=(msgspec.structs.replace(TONE, arms=arms, shadow=1.0),)))
    end = TokenEvent(type=EventType.DONE, index=2, finish_reason=FinishReason.STOP)
    begun = 0
    for _ in range(2 * MOST_SHADOWS):
        run, stage = run_and_stage_of(shadows, partition=LeavingPartition())
        stage.committed(outcome_of(run.inflight, end, plan=PLAN))
        begun += shadows.running
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert begun == 2 * MOST_SHADOWS
    assert shadows.running == 0
