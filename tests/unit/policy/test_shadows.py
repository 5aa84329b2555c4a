from __future__ import annotations

import msgspec
from app.policy.shadows import Shadows

from app.policy.file import Arm, Policy, Route
from app.wire.event import Plan

ARMS = (Arm(model="default", weight=9), Arm(model="small", weight=1), Arm(model="new", weight=0))
TONE = Route(name="tone-test", experiment="tone", arms=ARMS, shadow=0.05)
PLAN = Plan(model="default", route="tone-test", experiment="tone", arm="default")
REQUESTS = [f"r{number}" for number in range(10_000)]


def test_the_share_of_the_requests_is_chosen_and_goes_to_all_other_arms() -> None:
    found = [Shadows(Policy(routes=(TONE,))).arm_for(PLAN, request) for request in REQUESTS]
    assert 400 < len(REQUESTS) - found.count(None) < 600
    assert {*found} == {None, "small", "new"}, "an arm without users has shadows"
    assert 0.7 < found.count("small") / found.count("new") < 1.4


def test_a_next_owner_chooses_the_same() -> None:
    first, second = (Shadows(Policy(routes=(TONE,))) for _ in range(2))
    assert [first.arm_for(PLAN, one) for one in REQUESTS] == [second.arm_for(PLAN, one) for one in REQUESTS]


def test_only_answers_of_an_arm_have_shadows() -> None:
    shadows = Shadows(Policy(routes=(msgspec.structs.replace(TONE, shadow=1.0),)))
    assert shadows.arm_for(PLAN, "r") in {"small", "new"}
    for other in (
        msgspec.structs.replace(PLAN, model="small"),  # after a fallback
        msgspec.structs.replace(PLAN, experiment="before", arm="default"),  # a former owner had another file
        msgspec.structs.replace(PLAN, route="other"),
        Plan(),
    ):
        assert shadows.arm_for(other, "r") is None


def test_a_changed_file_counts_from_now_on() -> None:
    shadows = Shadows(Policy(routes=(msgspec.structs.replace(TONE, shadow=1.0),)))
    shadows.use(Policy(routes=(msgspec.structs.replace(TONE, shadow=0.0),)))
    assert {shadows.arm_for(PLAN, one) for one in REQUESTS[:100]} == {None}
