from __future__ import annotations

import inspect

import pytest

from app.delivery.observer import EVENTS, UNOBSERVED, Observer, Observers


class Noting(Observer):
    def __init__(self) -> None:
        self.noted: list[object] = []

    def flow(self, partition: int, topic: str, *, paused: bool) -> None:
        self.noted.append((partition, topic, paused))


class Failing(Observer):
    def flow(self, partition: int, topic: str, *, paused: bool) -> None:
        raise ValueError(f"{partition} {topic} {paused}")


@pytest.mark.parametrize("event", EVENTS)
def test_each_event_reaches_every_observer(event: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = Noting(), Noting()
    for one in (first, second):
        monkeypatch.setattr(one, event, lambda *what, to=one.noted: to.append(what))
    what = range(len(inspect.signature(getattr(Observer, event)).parameters) - 1)
    getattr(Observers(Observers(first), second), event)(*what)
    assert first.noted == second.noted == [tuple(what)]


def test_an_observer_that_fails_stops_no_other_and_is_named(caplog: pytest.LogCaptureFixture) -> None:
    noting = Noting()
    Observers(Failing(), UNOBSERVED, noting).flow(3, "a secret topic", paused=True)
    assert noting.noted == [(3, "a secret topic", True)]
    assert "Failing has failed: ValueError in " in caplog.text
    assert "secret" not in caplog.text
