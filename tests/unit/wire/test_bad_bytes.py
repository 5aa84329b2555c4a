"""Whatever the bytes are: a record, or a `WireError` with what can be read."""

from __future__ import annotations

import contextlib
import logging
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.wire import json_codec, parley_pb2, protobuf_codec
from app.wire.codec import Headers, WireFormat, decode, encode
from app.wire.control import Control
from app.wire.error import ErrorCode, WireError
from app.wire.event import EventType, Logprob, TokenEvent
from app.wire.request import Request
from app.wire.turn import Turn
from tests.unit.wire import records

PROTOBUF = (("content-type", b"application/x-protobuf"),)
TYPES: tuple[Any, ...] = (Request, TokenEvent, Turn, Control)


def deep(levels: int) -> bytes:
    return b'{"request_id":"r","user_id":"u","prompt":"p","metadata":{"a":' + b"[" * levels + b"]" * levels + b"}}"


def refusal(value: bytes | None, headers: Headers = None) -> WireError:
    with pytest.raises(WireError) as caught:
        decode(Request, value, headers)
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert caught.value.dead_letter
    return caught.value


@given(value=st.binary() | records.requests.map(lambda request: encode(request, "protobuf")[0]), cut=st.integers(0, 99))
@example(value=b"\x0a\xff", cut=0)
@example(value=b"\x0a" + b"\xff" * 10, cut=0)
def test_no_bytes_raise_anything_but_a_wire_error(value: bytes, cut: int) -> None:
    for headers in ((), PROTOBUF):
        for record_type in TYPES:
            with contextlib.suppress(WireError):
                decode(record_type, value[cut:], headers)


@given(value=st.text(alphabet='{}[]",:\\ud80eNan1-.request_id ', max_size=60))
def test_nothing_like_json_raises_anything_but_a_wire_error(value: str) -> None:
    for record_type in TYPES:
        with contextlib.suppress(WireError):
            decode(record_type, value.encode())


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "no value"),
        (b"", "the value is empty"),
        (b"\xef\xbb\xbf \n", "the value is empty"),
        (b"hello", "malformed"),
        (b"\xff\xfe", "not UTF-8"),
        (b"[1]", "Expected `object`, got `array`"),
        (b"null", "Expected `object`"),
        (b'{"user_id":"u","prompt":"p"}', "request_id"),
        (b'{"request_id":7,"user_id":"u","prompt":"p"}', "request_id"),
        (b'{"user_id":"u","prompt":"\\uD800"}', "half a surrogate pair"),
        (b'{"user_id":"u","prompt":"p', "truncated"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_cause(value: bytes | None, message: str) -> None:
    error = refusal(value)
    assert message in error.message
    assert error.request_id is None


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        (b'"prompt":"p"', "user_id"),
        (b'"user_id":"u","prompt":5', "`$.prompt`"),
        (b'"user_id":"u","prompt":"p","max_tokens":"9"', "`$.max_tokens`"),
        (b'"user_id":"u","prompt":"p","max_tokens":true', "`$.max_tokens`"),
        (b'"user_id":"u","prompt":"p","max_tokens":1.5', "`$.max_tokens`"),
        (b'"user_id":"u","prompt":"p","temperature":false', "`$.temperature`"),
        (b'"user_id":"u","prompt":"p","temperature":NaN', "malformed"),
        (b'"user_id":"u","prompt":"p","unknown":Infinity', "malformed"),
        (b'"user_id":"u","prompt":"\\ud800"', ""),
        (b'"user_id":"u","prompt":"p","unknown":"\\udc00"', ""),
        (b'"user_id":"u","prompt":"p","unknown":"\xff"', "not UTF-8"),
        (b'"user_id":"u","prompt":"p","priority":"urgent"', "`$.priority`"),
        (b'"user_id":"u","messages":[{"role":"wizard","content":"x"}]', "`$.messages[0].role`"),
        (b'"user_id":"u","prompt":"p","metadata":[]', "`$.metadata`"),
        (b'"user_id":"u","prompt":"p","seed":' + b"9" * 5000, "`$.seed`"),
        (b'"user_id":"u","prompt":"p","response_format":{"type":"yaml"}', "`$.response_format.type`"),
        (b'"user_id":"u","prompt":"p","response_format":{"type":"json_schema","json_schema":{}}', "json_schema`"),
        (b'"user_id":"u","prompt":"p","logit_bias":{"a":1}', "logit_bias"),
    ],
)
def test_request_id_is_read_from_a_record_that_is_refused(rest: bytes, message: str) -> None:
    error = refusal(b'{"request_id":"r-1","conversation_id":"c",' + rest + b"}")
    assert (error.request_id, error.conversation_id) == ("r-1", "c")
    assert message in error.message


@pytest.mark.parametrize("request_id", ["", "a" * 65, "a b", "ü", "a\\n", "\\ud800"])
def test_request_id_that_is_not_valid_is_not_believed(request_id: str) -> None:
    assert refusal(b'{"request_id":"' + request_id.encode() + b'","prompt":1}').request_id is None


@pytest.mark.parametrize("levels", [31, 100, 100_000])
def test_deep_nesting_is_refused_at_any_depth(levels: int) -> None:
    error = refusal(deep(levels))
    assert "nested deeper than 32 levels" in error.message
    assert error.request_id == "r"


def test_brackets_in_strings_are_no_nesting() -> None:
    prompt = "[{" * 1000 + '\\"' + "]]"
    assert len(decode(Request, f'{{"request_id":"r","user_id":"u","prompt":"{prompt}"}}'.encode()).prompt or "") == 2003


@pytest.mark.parametrize("kind", ["list", "object"])
def test_both_formats_take_the_same_depth(kind: str) -> None:
    def nested(levels: int) -> Request:
        inner: object = 1
        for _ in range(levels):
            inner = [inner] if kind == "list" else {"k": inner}
        return Request(request_id="r", user_id="u", prompt="p", metadata={"a": inner})

    good, bad = nested(30), nested(31)
    for wire_format in ("json", "protobuf"):
        assert decode(Request, *encode(good, wire_format)) == good
        with pytest.raises(WireError, match=r"nested deeper|not Protobuf"):
            decode(Request, *encode(bad, wire_format))


@pytest.mark.parametrize(
    ("value", "request_id"),
    [
        ("0a0372", None),
        ("0a03722d31", "r-1"),
        ("0a03722d31ff", None),
        ("0a03722d3112017568ff", None),
        ("0a03722d311201ff", None),
        ("0d00000000", None),
        ("0a03722d3122022828", "r-1"),
        ("0a03722d312201ff", "r-1"),
    ],
)
def test_request_id_is_read_from_protobuf_whose_other_fields_are_broken(value: str, request_id: str | None) -> None:
    assert refusal(bytes.fromhex(value), PROTOBUF).request_id == request_id


@pytest.mark.parametrize("schema", ["{", "[]", '{"a":' * 40 + "1" + "}" * 40, '{"a":NaN}'])
def test_schema_within_protobuf_is_read_as_strictly_as_any_json(schema: str) -> None:
    message = parley_pb2.Request(
        request_id="r",
        user_id="u",
        prompt="p",
        response_format=parley_pb2.ResponseFormat(type="json_schema", json_schema=parley_pb2.JsonSchema(schema=schema)),
    )
    assert refusal(message.SerializeToString(), PROTOBUF).request_id == "r"


def test_metadata_with_a_number_that_json_does_not_have_is_refused() -> None:
    value, headers = encode(Request(request_id="r", user_id="u", prompt="p", metadata={"a": float("nan")}), "protobuf")
    assert "JSON does not have" in refusal(value, headers).message


@pytest.mark.parametrize(("codec", "headers"), [(json_codec, ()), (protobuf_codec, PROTOBUF)])
def test_what_a_codec_raises_unexpectedly_is_about_the_record(
    codec: object, headers: Headers, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_value: bytes, _type: object) -> None:
        raise KeyError("a secret of the record")

    monkeypatch.setattr(codec, "decode", broken)
    with caplog.at_level(logging.WARNING):
        error = refusal(b'{"request_id":"r-1"}', headers)
    assert error.message == "the record cannot be read"
    assert error.request_id == (None if headers else "r-1")
    assert "KeyError in tests/unit/wire/test_bad_bytes.py" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize("field", ["messages", "tools", "tool_results"])
def test_half_a_million_empty_messages_are_refused_before_they_are_objects(field: str) -> None:
    number = parley_pb2.Request.DESCRIPTOR.fields_by_name[field].number << 3 | 2
    tag = bytes([number]) if number < 128 else bytes([number & 127 | 128, number >> 7])
    identity = parley_pb2.Request(request_id="r", user_id="ann").SerializeToString()
    with pytest.raises(WireError, match="more than 25000 messages") as caught:
        decode(Request, identity + (tag + b"\0") * 300_000, [("content-type", b"application/x-protobuf")])
    assert (caught.value.request_id, caught.value.user_id) == ("r", "ann")


def test_a_request_has_so_many_objects_and_a_text_any_brackets() -> None:
    request = {"request_id": "r", "user_id": "ann", "prompt": "[" * 50_000}
    assert decode(Request, msgspec.json.encode(request)).prompt == "[" * 50_000
    with pytest.raises(WireError, match="more than 25000 objects and lists"):
        decode(Request, msgspec.json.encode({**request, "unknown": [[]] * 30_000}))


def test_parleys_own_events_have_more_log_probabilities_than_that() -> None:
    top = tuple(Logprob(token, "a", -1.0) for token in range(20))
    logprobs = tuple(Logprob(token, "a", -1.0, top) for token in range(2000))
    event = TokenEvent(type=EventType.TOKEN, index=0, tokens=(1,), text="a", prompt_logprobs=logprobs)
    assert decode(TokenEvent, *encode(event, WireFormat.PROTOBUF)).prompt_logprobs == logprobs
