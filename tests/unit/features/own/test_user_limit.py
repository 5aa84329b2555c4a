"""Requests of one user in a minute."""

from __future__ import annotations

import itertools

from app.features.own.user_limit import UserRates


class Bench:
    def __init__(self) -> None:
        self.at = 0.0
        self.rates = UserRates(lambda: self.at)
        self._ids = itertools.count()

    def admit(self, user: str, limit: int, request_id: str | None = None) -> bool:
        return self.rates.admit(user, request_id or f"r{next(self._ids)}", limit)


def test_a_user_has_its_limit_in_every_minute_and_others_have_theirs() -> None:
    bench = Bench()
    assert [bench.admit("ann", 2) for _ in range(3)] == [True, True, False]
    assert bench.admit("bob", 2)
    bench.at = 59.9
    assert not bench.admit("ann", 2)
    bench.at = 60.0
    assert [bench.admit("ann", 2) for _ in range(3)] == [True, True, False]


def test_what_was_refused_does_not_count_and_no_limit_is_none() -> None:
    bench = Bench()
    assert not bench.admit("ann", 0)
    assert bench.admit("ann", 1)
    bench.at = 30.0
    assert not bench.admit("ann", 1)
    bench.at = 60.0
    assert bench.admit("ann", 1), "the refusal at 30 s would count until 90 s"


def test_a_request_that_is_begun_again_counts_once() -> None:
    bench = Bench()
    assert [bench.admit("ann", 2, one) for one in ("a", "a", "b", "c", "a")] == [True, True, True, False, True]
    bench.at = 60.0
    assert [bench.admit("ann", 1, one) for one in ("a", "b")] == [True, False]


def test_users_who_are_quiet_for_a_minute_are_forgotten() -> None:
    bench = Bench()
    for number in range(1000):
        bench.admit(f"user {number}", 1)
    bench.at = 30.0
    bench.admit("user 7", 5)
    bench.at = 61.0
    bench.admit("ann", 1)
    assert len(bench.rates) == 2
