"""What a record of `requests` does not name, and what it names in vain."""

from __future__ import annotations

import json

import pytest

from app.wire import parley_pb2
from app.wire.codec import CONTENT_TYPE, PROTOBUF_TYPE, explained, ignored_fields, quoted, read_request
from app.wire.error import WireError
from app.wire.request import Request

PROTOBUF = ((CONTENT_TYPE, PROTOBUF_TYPE.encode()),)


def read(value: bytes, key: bytes | None = b"ann", headers: tuple[tuple[str, bytes], ...] = ()) -> Request:
    return read_request(value, headers, key=key, partition=3, offset=17)


def refused(value: bytes, key: bytes | None = None) -> WireError:
    with pytest.raises(WireError) as caught:
        read(value, key)
    return explained(caught.value, value, ())


@pytest.mark.parametrize("fields", [{}, {"request_id": None}, {"user_id": None}, {"metadata": {"a": [1.0]}}])
def test_a_record_without_ids_has_its_place_and_its_key(fields: dict[str, object]) -> None:
    request = read(json.dumps({"prompt": "hello", **fields}).encode())
    assert (request.request_id, request.user_id, request.prompt) == ("3-17", "ann", "hello")


@pytest.mark.parametrize("ids", [{}, {"request_id": "r", "user_id": "bob"}])
def test_a_byte_order_mark_is_no_part_of_a_record(ids: dict[str, str]) -> None:
    value = json.dumps({"prompt": "hello", **ids}).encode("utf-8-sig")
    request = read(value)
    assert (request.request_id, request.user_id) == (ids.get("request_id", "3-17"), ids.get("user_id", "ann"))
    assert ignored_fields(value.replace(b"prompt", b"promise"), ()) == ("promise",)
    assert refused(b'\xef\xbb\xbf{"id": "1"}').message.endswith("the record has `id`, which a request does not know")


def test_what_a_record_names_is_not_replaced() -> None:
    request = read(b'{"request_id": "r", "user_id": "bob", "prompt": "hello"}')
    assert (request.request_id, request.user_id) == ("r", "bob")


def test_a_record_in_protobuf_is_completed_as_well() -> None:
    value = parley_pb2.Request(prompt="hello").SerializeToString()
    request = read(value, headers=PROTOBUF)
    assert (request.request_id, request.user_id, request.prompt) == ("3-17", "ann", "hello")


@pytest.mark.parametrize("key", [None, b"", b"\xff", b"x" * 129])
def test_a_key_that_is_no_user_completes_nothing(key: bytes | None) -> None:
    assert refused(b'{"request_id": "r", "prompt": "hello"}', key).message.startswith("`user_id` is missing")


def test_a_refusal_names_all_that_is_missing_and_unknown() -> None:
    error = refused(b'{"id": "1", "text": "Hi", "temperature": 1}')
    assert error.message == (
        "`user_id` and `prompt` are missing, and the record has no key that names the user; the record has `id` and "
        "`text`, which a request does not know"
    )
    assert error.request_id == "3-17"


@pytest.mark.parametrize("value", [b"", b"hello", b"[1]", b'{"a": ' + b"[" * 500 + b"]" * 500 + b"}"])
def test_what_is_no_object_stays_as_it_is(value: bytes) -> None:
    error = refused(value)
    assert "missing" not in error.message
    assert error.request_id is None


def test_an_object_that_is_not_utf8_is_told_to_its_sender() -> None:
    assert refused(b'{"a": "\xff"}', b"ann").request_id == "3-17"


def test_ignored_fields_are_those_that_a_request_does_not_know() -> None:
    value = b'{"prompt": "hello", "n": 1, "foo": 1, "a\\u001bb": 2, "x": {"y": 1}}'
    assert ignored_fields(value, ()) == ("foo", "a\N{REPLACEMENT CHARACTER}b", "x")


def test_many_long_names_are_cut() -> None:
    text = quoted([f"{number}{'x' * 1000}" for number in range(5000)])
    assert len(text) < 700
    assert text.endswith("and 4988 more")
