from __future__ import annotations

import gc
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.delivery.inflight import InFlight
from app.features.routing.load_figures import Load, LoadFigures
from tests.unit.delivery.inflight_requests import inflight_of

MS = 1_000_000


class Watched:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ms = 1_000_000
        monkeypatch.setattr(time, "time_ns", lambda: self.now_ms * MS)
        self.figures = LoadFigures(lambda: 7)

    def admitted(self) -> InFlight:
        inflight = inflight_of(at=self.now_ms)
        inflight.timeline.arrived = self.now_ms * MS
        self.figures.admitted(0, inflight)
        return inflight

    def answers(self, inflight: InFlight, first_at: int | None, ended_at: int | None = None) -> None:
        inflight.answer = cast(Any, SimpleNamespace(first_at=first_at, ended_at=ended_at))


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(monkeypatch)


def test_an_idle_worker_has_no_load(watched: Watched) -> None:
    assert watched.figures.now() == Load(0.0, 7)


def test_the_p95_is_that_of_first_tokens_of_the_last_ten_seconds(watched: Watched) -> None:
    inflight_requests = [watched.admitted() for _ in range(20)]
    for number, inflight in enumerate(inflight_requests):
        watched.answers(inflight, inflight.accepted.at + 10 * (number + 1))
    assert watched.figures.now().first_token_p95_ms == 190
    watched.now_ms += 10_001
    assert watched.figures.now().first_token_p95_ms == 0


def test_a_request_that_waits_counts_with_the_time_so_far(watched: Watched) -> None:
    waiting = watched.admitted()
    watched.now_ms += 3000
    assert watched.figures.now().first_token_p95_ms == 3000
    watched.answers(waiting, None)
    watched.now_ms += 1000
    assert watched.figures.now().first_token_p95_ms == 4000
    watched.answers(waiting, None, ended_at=1)
    assert watched.figures.now().first_token_p95_ms == 0


def test_a_request_that_has_left_the_worker_does_not_count(watched: Watched) -> None:
    watched.admitted()
    gc.collect()
    watched.now_ms += 3000
    assert watched.figures.now().first_token_p95_ms == 0
