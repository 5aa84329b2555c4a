from __future__ import annotations

import msgspec
import pytest
from hypothesis import given

from app.gateway.peers import frames
from app.gateway.peers.frames import CallRefused, Charge, Close, Closed, Events, Open, ReadAnswer
from app.wire.error import ErrorCode
from app.wire.event import TokenEvent
from tests.unit.wire import records


@given(event=records.token_events)
def test_frames_carry_any_token_event(event: TokenEvent) -> None:
    sent = [Events(7, [event]), Events(8, [])]
    assert frames.decode_answered(frames.encode(sent)) == sent


@pytest.mark.parametrize(
    "frame",
    [
        Open(1, "ann", "r", 5, sent=True),
        Close(1),
        ReadAnswer(2, "ann", "r"),
        Charge(3, "ann", 6, 2),
    ],
)
def test_frames_of_the_asking_gateway_survive(frame: frames.Asked) -> None:
    assert frames.decode_asked(frames.encode([frame])) == [frame]


def test_refused_frame_becomes_the_error_that_the_client_gets() -> None:
    error = CallRefused(1, ErrorCode.RATE_LIMITED, "slow down", 3.5).error()
    assert (error.status, error.message, error.retry_after_s) == (429, "slow down", 3.5)
    assert frames.decode_answered(frames.encode([Closed(1, moved=True)])) == [Closed(1, moved=True)]


def test_a_frame_that_would_refill_a_limit_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        frames.decode_asked(frames.encode([Charge(1, "ann", -1)]))
