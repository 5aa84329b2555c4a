"""The line of the log for each request."""

from __future__ import annotations

import logging

import pytest

from app.delivery.record import Record
from app.telemetry.request_log import RequestLog, _trace_of
from app.wire.error import ErrorCode
from app.wire.event import ErrorInfo, EventType, TokenEvent
from tests.unit.delivery.inflight_requests import inflight_of, outcome_of


@pytest.mark.parametrize("user", ["ann\nrequest ended: user_id=bob", "ann\x1b[2J", "ann user_id=bob", "ann\u2028x"])
def test_a_name_cannot_look_like_another_field_or_line(caplog: pytest.LogCaptureFixture, user: str) -> None:
    record = Record("requests", 0, 7, 1000, b"k", b"v", ())
    error = ErrorInfo(code=ErrorCode.INVALID_REQUEST, message="m")
    event = TokenEvent(request_id="r-1", user_id=user, type=EventType.ERROR, index=0, epoch=0, timestamp=1, error=error)
    with caplog.at_level(logging.INFO, "parley.requests"):
        RequestLog(as_fields=False).refused(record, event)
    (line,) = caplog.messages
    assert line.isprintable()
    assert f"user_id={user!a} partition=0" in line


@pytest.mark.parametrize(
    ("message", "logged"),
    [
        (
            "response_format: invalid regex '(private'",
            "response_format: it cannot be followed; its sender has the reason",
        ),
        ("tools: private: unknown type 'private'", "tools: it cannot be followed; its sender has the reason"),
        ("max_tokens: 0 is too few", "max_tokens: 0 is too few"),
    ],
)
def test_what_a_constraint_says_is_told_to_its_sender_only(
    caplog: pytest.LogCaptureFixture, message: str, logged: str
) -> None:
    end = TokenEvent(type=EventType.ERROR, error=ErrorInfo(ErrorCode.INVALID_REQUEST, message))
    outcome = outcome_of(inflight_of(), end, gaps=[], first_at=None, ended_at=None, index=0)
    with caplog.at_level(logging.WARNING):
        RequestLog(as_fields=False).answered(0, outcome)
    assert any(line.endswith(f"is refused: invalid_request: {logged}") for line in caplog.messages)
    assert "private" not in caplog.text


def test_a_trace_id_is_32_digits_or_is_not_told() -> None:
    trace = b"0af7651916cd43dd8448eb211c80319c"
    assert _trace_of((("traceparent", b"00-" + trace + b"-b7ad6b7169203331-01"),)) == trace.decode()
    assert _trace_of((("traceparent", b"00-x user_id=bob-b7ad6b7169203331-01"),)) is None
