"""Requests of one user in a minute."""

from __future__ import annotations

from app.features.quota.users import UserRates


def test_a_user_has_its_limit_in_every_minute_and_others_have_theirs() -> None:
    at = [0.0]
    rates = UserRates(lambda: at[0])
    assert [rates.admit("ann", 2) for _ in range(3)] == [True, True, False]
    assert rates.admit("bob", 2)
    at[0] = 59.9
    assert not rates.admit("ann", 2)
    at[0] = 60.0
    assert [rates.admit("ann", 2) for _ in range(3)] == [True, True, False]


def test_what_was_refused_does_not_count_and_no_limit_is_none() -> None:
    at = [0.0]
    rates = UserRates(lambda: at[0])
    assert not rates.admit("ann", 0)
    assert rates.admit("ann", 1)
    at[0] = 30.0
    assert not rates.admit("ann", 1)
    at[0] = 60.0
    assert rates.admit("ann", 1), "the refusal at 30 s would count until 90 s"


def test_users_who_are_quiet_for_a_minute_are_forgotten() -> None:
    at = [0.0]
    rates = UserRates(lambda: at[0])
    for number in range(1000):
        rates.admit(f"user {number}", 1)
    at[0] = 30.0
    rates.admit("user 7", 5)
    at[0] = 61.0
    rates.admit("ann", 1)
    assert len(rates) == 2
