from __future__ import annotations

from app.features.routing.health import ModelHealth
from app.policy.file import Fallback

FALLBACK = Fallback(chain=("default", "small"), failures=3, window_s=30, retry_s=60)


class Watched:
    def __init__(self) -> None:
        self.now = 0.0
        self.health = ModelHealth(lambda: self.now)

    def fail(self, *times: float) -> None:
        for self.now in times:
            self.health.failed("new", FALLBACK)

    @property
    def takes(self) -> bool:
        return self.health.admits("new", FALLBACK)


def test_a_model_is_left_out_after_enough_failures_within_the_window() -> None:
    watched = Watched()
    watched.fail(0, 10)
    assert watched.takes
    watched.fail(29)
    assert not watched.takes
    assert watched.health.admits("other", FALLBACK)


def test_failures_that_are_far_apart_do_not_count() -> None:
    watched = Watched()
    watched.fail(0, 20, 40, 60, 80)
    assert watched.takes


def test_one_request_probes_a_model_that_is_out_and_its_answer_brings_the_model_back() -> None:
    watched = Watched()
    watched.fail(0, 1, 2)
    watched.now = 63
    assert [watched.takes, watched.takes] == [True, False]
    watched.health.answered("new")
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
