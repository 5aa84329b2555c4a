"""Hostile values in every field of the records that others write: a record, or a `WireError`, and nothing else.

Each case puts one hostile value in one place of a record that has all fields, lets it through the decoder and the
validator, and writes what was accepted in both formats.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from google.protobuf import json_format
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from app.gateway.asking.parameters import check_parameters
from app.gateway.edge.errors import ApiError
from app.gateway.openai.chat_body import ChatBody
from app.gateway.openai.sampling_body import StructuredOutputs
from app.wire import parley_pb2
from app.wire.codec import UNSUPPORTED, decode, encode
from app.wire.control import Control
from app.wire.error import WireError
from app.wire.request import Request
from app.wire.tool_records import ToolResultRecord
from app.wire.validation import validate_control, validate_request, validate_tool_result

PROTOBUF = (("content-type", b"application/x-protobuf"),)
SCHEMA = {"type": "object", "properties": {"x": {"type": "number", "multipleOf": 2}}, "required": ["x"]}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
WHO = {"request_id": "r", "user_id": "u"}
REQUEST: dict[str, Any] = {
    **WHO,
    "messages": [
        {"role": "user", "content": "hi", "name": "n"},
        {"role": "assistant", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c", "content": "x"},
    ],
    "conversation_id": "c", "max_tokens": 2, "temperature": 0.5, "top_p": 0.5, "top_k": 3, "seed": 7, "stop": ["x"],
    "logprobs": True, "top_logprobs": 2, "priority": "batch", "deadline_ms": 5000, "tenant": "t", "model": "m",
    "metadata": {"a": [1, {"b": None}]}, "min_p": 0.1, "presence_penalty": 0.1, "frequency_penalty": 0.1,
    "response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA, "name": "n", "strict": True}},
    "repetition_penalty": 1.1, "logit_bias": {"3": 1.0}, "tool_timeout_ms": 5, "store": True, "min_tokens": 0,
    "tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": SCHEMA}}],
    "tool_choice": {"type": "function", "function": {"name": "f"}}, "parallel_tool_calls": False, "recall": 1,
    "previous_request_id": "p", "keep_context": False, "prompt_logprobs": 1, "cache": True, "best_of": 2,
    "stop_when": {"mean_logprob_below": -1.0, "over": 4}, "tool_mode": "client", "raw": False, "ignore_eos": False,
    "unknown": {"x": [1]},
}  # fmt: skip
PROMPTS = ({"prompt": "hi"}, {"tool_results": [{"tool_call_id": "c", "content": "x"}]}, {"prompt_token_ids": [1, 2]})
REQUESTS = [REQUEST, *({**WHO, **prompt} for prompt in PROMPTS)]
CONTROLS: list[dict[str, Any]] = [
    {"type": "cancel", **WHO},
    {"type": "erase", "user_id": "u"},
    {"type": "audit", "user_id": "u", "action": "search", "outcome": "done", "at": 5, "count": 2, "tenant": "t"},
]
RESULT: dict[str, Any] = {"tool_call_id": "c", **WHO, "content": "x", "is_error": True}
HOSTILE = [
    b"1e999", b"-1e999", b"1e-999", b"-0", b"1" * 19, b"1" * 21, b"1" * 301, b"1" * 400, b"-" + b"9" * 5000, b"NaN",
    b"0." + b"3" * 400, b"Infinity", b"null", b"true", b'""', b"[]", b"{}", b'"\\ud800"', b'"\\u0000"', b'"\xff"',
    b'"\xed\xa0\x80"', b"[1e999]", b'{"a":1e999}', b'{"a":' + b"1" * 400 + b"}", b"[" * 40 + b"]" * 40,
    b'{"a":' * 40 + b"1" + b"}" * 40, b"[" * 100_000, b'"' + b"[" * 2000 + b'"', b'"' + b'{\\"a\\":' * 2000 + b'"',
    b'"[' + b"1" * 5000 + b']"', b'"1e999"', b'"' + b"x" * 70_000 + b'"', b'{"a":1,"a":2}', b'{"":{"":[]}}',
    b'{"type":"object","multipleOf":' + b"1" * 310 + b"}", b'["a",1,null,{"b":[]}]', b'"2' + b"0" * 400 + b'"',
]  # fmt: skip
MARK = "\0hostile"


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place of the value, itself included."""
    yield at
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield from places(value[key], (*at, key))


def with_hostile(record: dict[str, Any], place: tuple[Any, ...], raw: bytes) -> bytes:
    if not place:
        return raw
    copy = json.loads(json.dumps(record))
    holder = copy
    for key in place[:-1]:
        holder = holder[key]
    holder[place[-1]] = MARK
    return json.dumps(copy).encode().replace(json.dumps(MARK).encode(), raw)


def read_request(value: bytes, headers: Any = ()) -> Any:
    record = decode(Request, value, headers)
    validate_request(record, b"u", max_prompt_bytes=65536)
    return record


def read_control(value: bytes, headers: Any = ()) -> Any:
    record = decode(Control, value, headers)
    validate_control(record, b"u")
    return record


def read_result(value: bytes, headers: Any = ()) -> Any:
    record = decode(ToolResultRecord, value, headers)
    validate_tool_result(record, b"u")
    return record


def survives(read: Callable[..., Any], value: bytes, headers: Any = ()) -> None:
    try:
        record = read(value, headers)
    except WireError:
        return
    for wire_format in ("json", "protobuf"):
        encode(record, wire_format)


@pytest.mark.parametrize("raw", HOSTILE, ids=lambda raw: repr(raw[:12]))
def test_json_with_a_hostile_value_in_any_place(raw: bytes) -> None:
    for read, records in ((read_request, REQUESTS), (read_control, CONTROLS), (read_result, [RESULT])):
        for record in records:
            for place in places(record):
                survives(read, with_hostile(record, place, raw))


@pytest.mark.parametrize("raw", HOSTILE, ids=lambda raw: repr(raw[:12]))
def test_parameters_that_are_not_supported(raw: bytes) -> None:
    for name in UNSUPPORTED:
        survives(read_request, with_hostile({**REQUESTS[1], name: 1}, (name,), raw))


def test_hostile_protobuf_in_any_field() -> None:
    for read, message, records in (
        (read_request, parley_pb2.Request, REQUESTS),
        (read_control, parley_pb2.Control, CONTROLS),
        (read_result, parley_pb2.ToolResultRecord, [RESULT]),
    ):
        for record in records:
            for hostile in hostile_messages(message, record):
                survives(read, hostile, PROTOBUF)


def hostile_messages(kind: type[Message], record: dict[str, Any]) -> Iterator[bytes]:
    """The record as Protobuf, with one field after the other hostile."""
    plain = {name: value for name, value in record.items() if name != "unknown"}
    for tool in plain.get("tools", ()):
        tool["function"]["parameters"] = json.dumps(SCHEMA)
    if "response_format" in plain:
        plain["response_format"] = {"type": "json_schema", "json_schema": {"schema": json.dumps(SCHEMA)}}
        plain["tool_choice"] = json.dumps({"type": "function", "function": {"name": "f"}})
    numbers = [2**63 - 1, -(2**63), "NaN", "Infinity", "-Infinity", 1e308, 5e-324, 0]
    texts = [raw.decode(errors="replace") for raw in HOSTILE]
    for place in places(plain):
        for value in (*numbers, *texts, [], {}, {"a": {"b": [1e300]}}):
            copy = json.loads(json.dumps(plain))
            holder = copy
            for key in place[:-1]:
                holder = holder[key]
            if place:
                holder[place[-1]] = value
            try:
                yield json_format.ParseDict(copy, kind()).SerializeToString()
            except (json_format.ParseError, RecursionError):
                continue  # Protobuf has no such value


@given(value=st.binary(max_size=200), seed=st.integers(0, 2**32))
def test_any_bytes_in_a_record_that_was_right(value: bytes, seed: int) -> None:
    dice = random.Random(seed)
    for read, record in ((read_request, REQUEST), (read_control, CONTROLS[2]), (read_result, RESULT)):
        whole = json.dumps(record).encode()
        at, length = dice.randrange(len(whole)), dice.choice((0, 1, 20))
        survives(read, whole[:at] + value + whole[at + length :])
        survives(read, whole[:at] + value + whole[at + length :], PROTOBUF)


@pytest.mark.parametrize("raw", HOSTILE, ids=lambda raw: repr(raw[:12]))
def test_bodies_of_the_gateway(raw: bytes) -> None:
    import msgspec  # noqa: PLC0415

    def parameters(name: str) -> None:
        given = msgspec.json.decode(b'{"%s":%s}' % (name.encode(), raw), type=dict[str, msgspec.Raw])
        check_parameters(given, ChatBody.__struct_fields__)

    def structured() -> None:
        StructuredOutputs(json=raw.decode()).response_format  # noqa: B018

    for call in (structured, *(lambda name=name: parameters(name) for name in UNSUPPORTED)):
        try:
            call()
        except (ApiError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            if call is structured and not isinstance(error, ApiError | UnicodeDecodeError):
                raise


@pytest.mark.parametrize("at", [-1, 10**21, 2**63, 253_402_300_800_000])
def test_time_of_an_audit_report_is_one_that_calendars_have(at: int) -> None:
    with pytest.raises(WireError, match=r"at|range"):
        read_control(json.dumps({**CONTROLS[2], "at": at}).encode())


def test_digits_in_a_text_are_no_number() -> None:
    read_request(json.dumps({**WHO, "prompt": "1" * 5000}).encode())


def test_names_and_ids_of_messages_count_as_prompt() -> None:
    long = [{"role": "user", "content": "hi", "name": "n" * 70_000}]
    with pytest.raises(WireError, match="the prompt has 70002 bytes"):
        read_request(json.dumps({**WHO, "messages": long}).encode())
