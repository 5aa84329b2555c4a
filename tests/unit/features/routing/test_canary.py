from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from app.features.routing.canary import Canaries
from app.features.routing.load_figures import Load
from app.features.routing.router import Router
from app.policy.file import Arm, Policy, Retreat, Route
from app.wire.event import ErrorInfo, EventType, Plan, TokenEvent
from tests.unit.delivery.inflight_requests import ASKED_AT, inflight_of, outcome_of

ARMS = (Arm(model="default", weight=50), Arm(model="new", weight=50))
ROUTE = Route(name="tone", experiment="tone", arms=ARMS, retreat=Retreat(arm="new"))
POLICY = Policy(routes=(ROUTE,))
DONE = TokenEvent(type=EventType.DONE, index=1)
FAILED = TokenEvent(type=EventType.ERROR, index=0, error=ErrorInfo("engine_error", "no"))


USERS = [f"u{number}" for number in range(50)]
NEXT_USER = itertools.cycle(USERS)


def answered(
    canaries: Canaries,
    arm: str,
    *,
    end: TokenEvent = DONE,
    hidden: bool = False,
    wait_ms: int = 50,
    user_id: str | None = None,
) -> tuple[str, str] | None:
    plan = Plan(model=arm, experiment="tone", arm=arm)
    outcome = outcome_of(inflight_of(user_id=user_id or next(NEXT_USER)), end, plan=plan, first_at=ASKED_AT + wait_ms)
    return canaries.answered(outcome, {arm} if hidden else ())


def until_out(chance: random.Random, most: int, **shares: float) -> int | None:
    """After how many answers of the new arm it is out; `errors`, `slow` and `usual` are shares."""
    canaries = Canaries(POLICY)
    for number in range(most):
        usual = shares.get("usual", 0.01)
        answered(canaries, "default", hidden=chance.random() < usual, wait_ms=chance.randint(20, 120))
        slow = chance.random() < shares.get("slow", 0.0)
        wait_ms = chance.randint(20, 120) + 100 * slow
        answered(canaries, "new", hidden=chance.random() < shares.get("errors", usual), wait_ms=wait_ms)
        if canaries.is_out("tone", "new"):
            return number + 1
    return None


def test_a_retreat_is_reported_once() -> None:
    canaries = Canaries(POLICY)
    reported = [answered(canaries, arm, hidden=arm == "new") for _ in range(400) for arm in ("default", "new")]
    assert [retreat for retreat in reported if retreat is not None] == [("tone", "new")]


def test_an_arm_as_good_as_the_others_keeps_its_users() -> None:
    chance = random.Random(1)
    assert [until_out(chance, 1000) for _ in range(40)] == [None] * 40


def test_an_arm_that_fails_a_fifth_of_its_answers_is_out_after_some_tens() -> None:
    chance = random.Random(2)
    found = sorted(until_out(chance, 2000, errors=0.2) or 2000 for _ in range(60))
    assert found[30] <= 100
    assert found[-1] <= 300


def test_an_arm_whose_first_tokens_come_later_is_out() -> None:
    chance = random.Random(3)
    found = sorted(until_out(chance, 3000, slow=0.5) or 3000 for _ in range(40))
    assert found[20] <= 200
    assert found[-1] < 3000


@pytest.mark.parametrize("how", [{"hidden": True}, {"end": FAILED}])
def test_a_failure_counts_whether_or_not_a_fallback_hid_it(how: dict[str, Any]) -> None:
    canaries = Canaries(POLICY)
    for _ in range(30):
        answered(canaries, "default")
    for _ in range(10):
        answered(canaries, "new", **how)
    assert canaries.states == {("tone", "new"): True}


def test_users_of_an_arm_that_is_out_go_to_the_others_and_a_changed_route_is_a_new_chance() -> None:
    canaries = Canaries(POLICY)
    router = Router(POLICY, lambda: 0.0, Load, canaries.is_out)
    users = [inflight_of(user_id=f"u{number}").accepted.request for number in range(40)]

    def arms() -> set[str | None]:
        return {(router.decide(user, lambda: 1) or Plan()).arm for user in users}

    assert arms() == {"default", "new"}
    for _ in range(20):
        answered(canaries, "default")
        answered(canaries, "new", hidden=True)
    assert arms() == {"default"}
    canaries.use(POLICY)
    assert canaries.is_out("tone", "new"), "a policy with the same route changes nothing"
    canaries.use(Policy(routes=(Route(name="tone", experiment="tone", arms=ARMS[::-1], retreat=Retreat(arm="new")),)))
    assert arms() == {"default", "new"}


@pytest.mark.parametrize("how", [{"hidden": True}, {"wait_ms": 60_000}])
def test_one_users_answers_take_no_arm_from_the_others_and_two_users_do(how: dict[str, Any]) -> None:
    canaries = Canaries(POLICY)
    for _ in range(200):
        answered(canaries, "default")
    for _ in range(200):
        answered(canaries, "new", user_id="mallory", **how)
    assert not canaries.is_out("tone", "new")
    for _ in range(20):
        answered(canaries, "new", user_id="nina", **how)
        answered(canaries, "new", user_id="mallory", **how)
    assert canaries.is_out("tone", "new")


def test_one_users_failures_at_another_arm_hide_none_of_the_canarys() -> None:
    canaries = Canaries(POLICY)
    for _ in range(200):
        answered(canaries, "default", user_id="mallory", hidden=True)
    for _ in range(40):
        answered(canaries, "new", hidden=True)
    assert canaries.is_out("tone", "new")
