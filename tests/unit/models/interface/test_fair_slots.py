from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.interface.fair_slots import SHARE, FairSlots, further, payers_of


@pytest.mark.parametrize(("count", "most"), [(1, 1), (2, 1), (3, 2), (4, 3), (8, 6), (64, 48), (128, 96)])
def test_a_payer_alone_holds_three_quarters_and_never_all(count: int, most: int) -> None:
    slots, nina = FairSlots(count), payers_of("", "nina")
    held = 0
    while slots.free and slots.refused(nina) is None:
        slots.hold(nina)
        held += 1
    assert held == most == further(0, count)


def test_each_further_payer_holds_three_quarters_of_the_rest() -> None:
    slots = FairSlots(64)
    held = {}
    for name in ("nina", "omar", "lena", "kim"):
        payers = payers_of("", name)
        while slots.free and slots.refused(payers) is None:
            slots.hold(payers)
            held[name] = held.get(name, 0) + 1
    assert held == {"nina": 48, "omar": 12, "lena": 3, "kim": 1}


def test_a_tenant_has_a_share_however_many_its_users() -> None:
    slots = FairSlots(8)
    for number in range(6):
        payers = payers_of("acme", f"user {number}")
        assert slots.refused(payers) is None
        slots.hold(payers)
    assert slots.refused(payers_of("acme", "one more")) == ("acme",)
    assert slots.refused(payers_of("umbrella", "nina")) is None
    slots.release(payers_of("acme", "user 0"))
    assert slots.refused(payers_of("acme", "one more")) is None


def test_a_tenants_users_share_what_it_may_hold() -> None:
    slots, held = FairSlots(64), []
    for name in ("nina", "omar", "lena", "kim"):
        payers = payers_of("acme", name)
        held.append(0)
        while slots.refused(payers) is None:
            slots.hold(payers)
            held[-1] += 1
    assert held == [36, 9, 2, 1]
    assert slots.refused(payers_of("umbrella", "nina")) is None


@given(st.integers(0, 70), st.integers(0, 70))
def test_further_is_how_many_may_be_taken_one_by_one(held: int, free: int) -> None:
    taken = 0
    while free - taken > 0 and (not held + taken or held + taken < SHARE * (free - taken - 1)):
        taken += 1
    assert further(held, free) == taken


def test_what_has_no_payer_may_hold_all() -> None:
    slots = FairSlots(3)
    for _ in range(3):
        assert slots.refused(payers_of("", "")) is None
        slots.hold(payers_of("", ""))
    assert slots.free == 0
