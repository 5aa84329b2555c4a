from __future__ import annotations

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from app.wire.codec import Headers
from app.wire.dead_letters import Cause, DeadLetter, cause_from, cause_of, dead_letter, dead_letter_headers
from app.wire.error import ErrorCode, WireError

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


def whole(key: bytes | None = b"ann", value: bytes | None = b"v", headers: Headers = (), **how: int) -> DeadLetter:
    return dead_letter(CAUSE, key, value, headers, **how)


def test_letter_that_fits_is_as_the_record_came() -> None:
    letter = whole(value=b"x" * 1000, headers=[("trace", b"1")])
    assert (letter.key, letter.value, letter.headers[0]) == (b"ann", b"x" * 1000, ("trace", b"1"))
    assert not {"value-bytes", "key-bytes", "headers-dropped"} & {name for name, _ in letter.headers}


def test_value_that_does_not_fit_is_cut_and_told_by_length_and_hash() -> None:
    value = bytes(range(256)) * 10
    letter = whole(value=value, most_bytes=100)
    reported = dict(letter.headers)
    assert letter.value == value[:97]
    assert reported["value-bytes"] == b"2560"
    assert reported["value-sha256"] == hashlib.sha256(value).hexdigest().encode()
    assert cause_from(letter.headers) == CAUSE


def test_key_and_headers_that_do_not_fit_are_told_too() -> None:
    letter = whole(key=b"k" * 9000, headers=[("small", b"1"), ("large", b"y" * 9000)], most_bytes=8000)
    reported = dict(letter.headers)
    assert len(letter.key or b"") < 9000
    assert reported["key-bytes"] == b"9000"
    assert reported["key-sha256"] == hashlib.sha256(b"k" * 9000).hexdigest().encode()
    assert reported["headers-dropped"] == b"1"
    assert reported["small"] == b"1"
    assert "large" not in reported


@given(
    st.none() | st.binary(max_size=9000),
    st.none() | st.binary(max_size=9000),
    st.lists(st.tuples(st.text(max_size=9), st.none() | st.binary(max_size=4000)), max_size=5),
    st.integers(0, 12_000),
)
def test_letter_is_never_larger_than_it_may_be(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]], most_bytes: int
) -> None:
    letter = whole(key, value, headers, most_bytes=most_bytes)
    own = {"value-bytes", "value-sha256", "key-bytes", "key-sha256", "headers-dropped"}
    own |= {name for name, _ in dead_letter_headers(CAUSE, None)}
    kept = [(name, one) for name, one in letter.headers if name not in own]
    size = len(letter.key or b"") + len(letter.value or b"") + sum(len(one or b"") for _, one in kept)
    assert size <= most_bytes
    assert letter.key is not None or letter.value is not None
    assert (value or b"").startswith(letter.value or b"")
