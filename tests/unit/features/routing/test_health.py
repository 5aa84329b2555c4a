from __future__ import annotations

from app.features.routing.health import ModelHealth
from app.policy.file import Fallback

FALLBACK = Fallback(chain=("default", "small"), failures=3, window_s=30, retry_s=60)


class Watched:
    def __init__(self) -> None:
        self.now = 0.0
        self.health = ModelHealth(lambda: self.now)

    def fail(self, *times: float, user: str = "nina") -> None:
        for self.now in times:
            self.health.failed("new", FALLBACK, user)

    @property
    def takes(self) -> bool:
        return self.takes_of("nina")

    def takes_of(self, user: str) -> bool:
        return self.health.admits("new", FALLBACK, user)


def test_a_model_is_left_out_after_enough_failures_within_the_window() -> None:
    watched = Watched()
    watched.fail(0, 10)
    assert watched.takes
    watched.fail(29)
    assert not watched.takes
    assert watched.health.admits("other", FALLBACK, "nina")


def test_failures_that_are_far_apart_do_not_count() -> None:
    watched = Watched()
    watched.fail(0, 20, 40, 60, 80)
    assert watched.takes


def test_one_request_probes_a_model_that_is_out_and_its_answer_brings_the_model_back() -> None:
    watched = Watched()
    watched.fail(0, 1, 2)
    watched.now = 63
    assert [watched.takes, watched.takes] == [True, False]
    watched.health.answered("new", "nina")
    assert [watched.takes, watched.takes] == [True, True]


def test_a_probe_that_fails_or_never_ends_is_repeated_later() -> None:
    watched = Watched()
    watched.fail(0, 1, 2)
    watched.now = 63
    assert watched.takes
    watched.fail(64)
    assert not watched.takes
    watched.now = 125
    assert watched.takes
    watched.now = 190
    assert watched.takes


def test_what_fails_one_user_stays_with_the_others_until_it_fails_a_second_one() -> None:
    watched = Watched()
    watched.fail(*range(20), user="mallory")
    assert not watched.takes_of("mallory")
    assert watched.takes_of("nina")
    watched.fail(20, user="nina")
    assert not watched.takes_of("olaf")


def test_what_fails_one_tenant_stays_with_the_others_until_it_fails_a_second_one() -> None:
    watched = Watched()
    watched.fail(0, 1, 2, user="acme/a")
    assert watched.takes_of("acme/b")
    watched.fail(3, user="acme/b")
    assert [watched.takes_of(user) for user in ("acme/c", "bigcorp/ceo", "nina")] == [False, True, True]
    watched.fail(4, user="bigcorp/ceo")
    assert [watched.takes_of(user) for user in ("acme/c", "bigcorp/vp", "nina")] == [False, False, False]


def test_a_probe_of_one_user_brings_the_model_back_for_him_alone_if_it_was_out_for_him_alone() -> None:
    watched = Watched()
    watched.fail(0, 1, 2, user="mallory")
    watched.fail(1, 2, user="nina")
    watched.now = 63
    assert watched.takes_of("nina")
    watched.health.answered("new", "nina")
    assert watched.takes_of("olaf")
    watched.fail(64, 65, user="mallory")
    assert watched.takes_of("olaf")


def test_verdicts_of_users_who_never_come_back_are_forgotten() -> None:
    watched = Watched()
    for number in range(300):
        watched.fail(number * 10, number * 10 + 1, number * 10 + 2, user="mallory")
        watched.fail(number * 10 + 3, user=f"u{number}")
    (health,) = watched.health._of.values()
    assert len(health.failures) < 10
    assert len(health.verdicts) < 30
