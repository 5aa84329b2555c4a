from __future__ import annotations

import time

import pytest

from app.gateway.answers import recent_ends
from app.gateway.answers.recent_ends import KEPT_S, RecentEnds
from app.wire.event import EventType, TokenEvent


def end(user: str, request: str, kind: EventType = EventType.DONE) -> TokenEvent:
    return TokenEvent(type=kind, user_id=user, request_id=request, index=0)


def test_ends_are_known_by_user_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [time.monotonic()]
    monkeypatch.setattr(recent_ends.time, "monotonic", lambda: now[0])
    ends = RecentEnds()
    ends.add(end("ann", "r1"))
    now[0] += KEPT_S - 1
    for event in (
        end("ann", "r2"),
        end("tom", "r3"),
        end("ann", "r4", EventType.ERROR),
        end("ann", "r5", EventType.TOKEN),
    ):
        ends.add(event)
    assert (ends.of("ann"), ends.of("tom"), ends.of("eve")) == ({"r1", "r2"}, {"r3"}, set())
    ends.add(end("ann", "r1"))  # the same end is said again
    now[0] += 2
    assert ends.of("ann") == {"r1", "r2"}
    now[0] += KEPT_S
    assert ends.of("ann") == ends.of("tom") == set()
