from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from app.features.routing.router import arm_of
from app.policy.file import Arm

USERS = [f"user-{number}" for number in range(10_000)]


def arms(**weights: float) -> tuple[Arm, ...]:
    return tuple(Arm(model=model, weight=weight) for model, weight in weights.items())


def arms_of(experiment: str, these: tuple[Arm, ...]) -> dict[str, str]:
    return {user: arm_of(experiment, user, these).model for user in USERS}


@pytest.mark.parametrize("share", [0.5, 0.9, 0.1])
def test_weights_are_the_shares_of_users_within_a_percent(share: float) -> None:
    found = Counter(arms_of("tone", arms(old=100 * share, new=100 - 100 * share)).values())
    assert abs(found["old"] / len(USERS) - share) < 0.01


def test_only_the_users_of_a_third_arm_move_when_it_takes_five_percent() -> None:
    before = arms_of("tone", arms(old=50, new=50))
    after = arms_of("tone", arms(old=47.5, new=47.5, third=5))
    moved = {user for user in USERS if before[user] != after[user]}
    assert {after[user] for user in moved} == {"third"}
    assert abs(len(moved) / len(USERS) - 0.05) < 0.01


def test_a_growing_weight_moves_users_to_that_arm_only() -> None:
    steps = [arms_of("tone", arms(old=100 - share, new=share)) for share in (1, 5, 25, 50, 100)]
    for before, after in pairwise(steps):
        assert {after[user] for user in USERS if before[user] != after[user]} == {"new"}
    assert set(steps[-1].values()) == {"new"}


def test_experiments_are_independent_of_each_other() -> None:
    first, second = arms_of("tone", arms(old=50, new=50)), arms_of("length", arms(old=50, new=50))
    both = sum(first[user] == second[user] for user in USERS)
    assert abs(both / len(USERS) - 0.5) < 0.02


def test_the_order_of_the_arms_does_not_matter_and_a_weight_of_zero_has_no_users() -> None:
    these = arms(old=60, new=40, off=0)
    assert arms_of("tone", these) == arms_of("tone", these[::-1])
    assert set(arms_of("tone", these).values()) == {"old", "new"}
