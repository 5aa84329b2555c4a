"""Each user of a tenant has its own limit in the worker that owns it, whatever dies."""

from __future__ import annotations

import random

import pytest

from app.features.own.user_limit import UserRates
from tests.simulation.faults import FAULTS, inflict_some
from tests.simulation.mutant import Mutant, find_broken_promise
from tests.simulation.scenario import Conditions, Load, Simulation

STORMS = 20
AT_ONCE = 20


def limited_storm(seed: int) -> Simulation:
    """Users of a tenant send more than each may, in several conversations, while their owners come and go."""
    chance = random.Random(f"limit {seed}")
    load = Load(
        requests=18, users=2, conversations=3, tokens=chance.choice((2, 8)), repeats=0.2, tenant="acme", over_s=6.0
    )
    conditions = Conditions(user_limit=chance.choice((0, 1, 3, 5)))
    simulation = Simulation(seed, workers=1 + seed % 3, partitions=1 + seed // 3 % 2, load=load, conditions=conditions)
    inflict_some(simulation, FAULTS)
    return simulation


@pytest.mark.parametrize("first", range(0, STORMS, AT_ONCE))
def test_a_user_has_its_limit_from_each_owner_and_what_was_admitted_is_answered(first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        outcome = limited_storm(seed).run()
        assert outcome.clean, f"seed {seed}: {outcome.line()}"


_ADMIT = UserRates.admit


def _counts_the_tenant(rates: UserRates, _user_id: str, request_id: str, limit: int) -> bool:
    return _ADMIT(rates, "acme", request_id, limit)


MUTANTS: dict[str, Mutant] = {
    "a user's limit holds for nobody": Mutant(UserRates, "admit", lambda *_: True, limited_storm),
    "the users of a tenant share one limit": Mutant(UserRates, "admit", _counts_the_tenant, limited_storm, hint=6),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_promise_is_found(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    find_broken_promise(mutant, MUTANTS[mutant], monkeypatch)
