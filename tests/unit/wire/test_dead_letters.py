from __future__ import annotations

from app.wire import Cause, ErrorCode, WireError, cause_from, cause_of, dead_letter_headers

CAUSE = Cause(code="invalid_request", message="prompt: is empty", topic="requests", partition=3, offset=17, failed_at=5)


def test_cause_is_read_as_it_was_written() -> None:
    assert cause_from(dead_letter_headers(CAUSE, None)) == CAUSE


def test_original_headers_come_first_and_are_kept() -> None:
    original = [("content-type", b"application/x-protobuf"), ("trace", None), ("trace", b"\xff")]
    headers = dead_letter_headers(CAUSE, original)
    assert headers[:3] == original
    assert [name for name, _ in headers[3:]] == [
        "error-code",
        "error-message",
        "source-topic",
        "source-partition",
        "source-offset",
        "failed-at",
    ]


def test_dead_letter_that_fails_again_has_one_cause_and_the_last() -> None:
    first = dead_letter_headers(CAUSE, {"trace": b"1"})
    second = Cause(code="invalid_request", message="again", topic="controls", partition=0, offset=1, failed_at=6)
    headers = dead_letter_headers(second, first)
    assert len(headers) == len(first)
    assert cause_from(headers) == second


def test_message_is_one_line_of_bounded_length() -> None:
    error = WireError(ErrorCode.INVALID_REQUEST, "a\nb" + "x" * 5000)
    headers = dict(dead_letter_headers(cause_of(error, "requests", 0, 0), None))
    assert (headers["error-message"] or b"").startswith(b"a b")
    assert len(headers["error-message"] or b"") == 1000


def test_other_headers_are_no_cause() -> None:
    assert cause_from(None) is None
    assert cause_from({**dict(dead_letter_headers(CAUSE, None)), "source-offset": b"x"}) is None
