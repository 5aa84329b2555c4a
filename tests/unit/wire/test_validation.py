"""The contract's table of bad input, as far as one record alone can show it."""

from __future__ import annotations

import json
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given

from app.wire.codec import decode, encode
from app.wire.control import Cancel, Control, Erase, EraseConversation
from app.wire.error import ErrorCode, WireError
from app.wire.request import Message, Request, Role, StopWhen
from app.wire.response_format import FormatType, JsonSchema, ResponseFormat
from app.wire.tools import Function, FunctionName, NamedTool, ToolField
from app.wire.validation import validate_control, validate_request
from tests.unit.wire import records

LIMIT = 64
LARGE_SCHEMA = ResponseFormat(type=FormatType.JSON_SCHEMA, json_schema=JsonSchema(schema_={"enum": ["x" * 65536]}))


def tool(name: str, parameters: dict[str, Any] | None = None) -> ToolField:
    return ToolField(function=Function(name=name, parameters=parameters))


def request(**fields: Any) -> Request:
    given_content = {} if "messages" in fields else {"prompt": "hello"}
    return Request(**({"request_id": "r", "user_id": "ann"} | given_content | fields))


def check(record: Request, key: bytes | None = b"ann") -> None:
    """As it is read from the topic. JSON has no NaN."""
    has_nan = any(value != value for value in (record.temperature, record.frequency_penalty))
    read = decode(Request, *encode(record, "protobuf" if has_nan else "json"))
    validate_request(read, key, max_prompt_bytes=LIMIT)


def refusal(bad: Request, key: bytes | None = b"ann") -> WireError:
    with pytest.raises(WireError) as caught:
        check(bad, key)
    return caught.value


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"prompt": ""}, "prompt"),
        ({"prompt": None}, "prompt"),
        ({"prompt": "p", "messages": (Message(Role.USER, "m"),)}, "prompt"),
        ({"messages": ()}, "messages"),
        ({"messages": (Message(Role.TOOL, "m"),)}, "messages"),
        ({"tools": (tool("a b"),)}, "tools"),
        ({"tools": (tool("a"), tool("a"))}, "tools"),
        ({"tools": (tool("a", {"type": "string"}),)}, "tools"),
        ({"tools": (tool("a"),), "raw": True}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": (tool("a"),), "tool_choice": NamedTool(FunctionName("b"))}, "tool_choice"),
        ({"prompt": None, "tool_results": ()}, "tool_results"),
        ({"continue_final_message": True}, "continue_final_message"),
        ({"previous_request_id": "a b"}, "previous_request_id"),
        ({"min_tokens": -1}, "min_tokens"),
        ({"best_of": 9}, "best_of"),
        ({"agent": "a", "tools": (tool("a"),)}, "agent"),
        ({"agent": "a", "model": "m"}, "agent"),
        ({"agent": "a", "messages": (Message(Role.SYSTEM, "s"), Message(Role.USER, "m"))}, "agent"),
        ({"agent": "a", "best_of": 2}, "agent"),
        ({"agent": "a", "raw": True}, "agent"),
        ({"agent": "a", "prompt_logprobs": 0}, "agent"),
        ({"stop_when": StopWhen(mean_logprob_below=-1.0, over=0)}, "stop_when.over"),
        ({"stop_when": StopWhen(mean_logprob_below=1.0, over=3)}, "stop_when.mean_logprob_below"),
        ({"raw": True, "recall": 2}, "recall"),
        ({"prompt": None, "prompt_token_ids": (2**31,)}, "prompt_token_ids"),
        ({"prompt": None, "prompt_token_ids": (-1,)}, "prompt_token_ids"),
        ({"messages": (Message(Role.USER, "m"),) * 2049}, "messages"),
        ({"metadata": {"a": [{}] * 6000}}, "metadata"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 2**63}, "max_tokens"),
        ({"temperature": -0.01}, "temperature"),
        ({"temperature": 2.01}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_p": -0.01}, "top_p"),
        ({"top_p": 1.01}, "top_p"),
        ({"top_k": -2}, "top_k"),
        ({"seed": 2**63}, "seed"),
        ({"deadline_ms": -1}, "deadline_ms"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"stop": ""}, "stop"),
        ({"stop": ("a",) * 17}, "stop"),
        ({"stop": "a" * 257}, "stop"),
        ({"conversation_id": "c" * 257}, "conversation_id"),
        ({"tenant": "c" * 257}, "tenant"),
        ({"model": "c" * 257}, "model"),
        ({"min_p": 1.01}, "min_p"),
        ({"presence_penalty": 2.01}, "presence_penalty"),
        ({"frequency_penalty": float("nan")}, "frequency_penalty"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"repetition_penalty": 0.009}, "repetition_penalty"),
        ({"logit_bias": {-1: 1.0}}, "logit_bias"),
        ({"logit_bias": {1: 100.5}}, "logit_bias"),
        ({"logit_bias": dict.fromkeys(range(1025), 1.0)}, "logit_bias"),
        ({"response_format": ResponseFormat(type=FormatType.JSON_SCHEMA)}, "response_format.json_schema"),
        ({"response_format": ResponseFormat(type=FormatType.REGEX)}, "response_format.regex"),
        ({"response_format": ResponseFormat(type=FormatType.TEXT, regex="a")}, "response_format.regex"),
        ({"response_format": ResponseFormat(type=FormatType.REGEX, regex="a" * 4097)}, "response_format.regex"),
        ({"response_format": ResponseFormat(type=FormatType.CHOICES, choices=())}, "response_format.choices"),
        ({"response_format": ResponseFormat(type=FormatType.CHOICES, choices=("",))}, "response_format.choices"),
        ({"response_format": LARGE_SCHEMA}, "response_format.json_schema"),
    ],
)
def test_value_out_of_the_contract_is_refused_by_name(fields: dict[str, Any], field: str) -> None:
    error = refusal(request(**fields))
    assert field in error.message
    assert (error.code, error.request_id, error.user_id) == (ErrorCode.INVALID_REQUEST, "r", "ann")
    assert error.dead_letter


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": 0},
        {"temperature": 2},
        {"top_p": 1},
        {"top_p": 0},
        {"prompt": None, "messages": (Message(Role.USER, "m"), Message(Role.USER, ""))},
        {"top_k": 0},
        {"deadline_ms": 0},
        {"max_tokens": 1},
        {"conversation_id": ""},
        {"stop": ()},
        {"prompt": "p" * LIMIT},
        {"presence_penalty": -2, "frequency_penalty": 2, "repetition_penalty": 0.01, "min_p": 1},
        {"logit_bias": {0: -100.0, 1: 100.0}},
        {"response_format": ResponseFormat(type=FormatType.TEXT)},
        {"response_format": ResponseFormat(type=FormatType.JSON_OBJECT)},
        {"messages": (Message(Role.USER, "m"), Message(Role.SYSTEM, ""))},
    ],
)
def test_value_at_the_edge_of_the_contract_is_taken(fields: dict[str, Any]) -> None:
    check(request(**fields))


def test_a_user_of_a_tenant_is_of_no_other_one() -> None:
    for tenant in (None, "", "acme"):
        validate_request(request(user_id="acme/ann", tenant=tenant), b"acme/ann", max_prompt_bytes=LIMIT)
    error = refusal(request(user_id="acme/ann", tenant="rival"), b"acme/ann")
    assert error.code is ErrorCode.INVALID_REQUEST
    assert "'rival'" in error.message
    assert "'acme/ann'" in error.message
    assert error.dead_letter


@pytest.mark.parametrize("key", [None, b"", b"bob", b"\xff", b"ann\n"])
def test_key_that_is_not_the_user_is_refused(key: bytes | None) -> None:
    error = refusal(request(), key)
    assert "key" in error.message
    assert error.request_id == "r"


@pytest.mark.parametrize("user_id", ["", "u" * 129])
def test_user_id_of_a_wrong_length_is_refused(user_id: str) -> None:
    error = refusal(request(user_id=user_id), user_id.encode())
    assert "user_id" in error.message
    assert error.user_id is None


@pytest.mark.parametrize("request_id", ["", "a" * 65, "a b", "a/b", "ü", "a\n", ".", ".."])
def test_request_id_of_other_characters_is_refused_and_not_repeated(request_id: str) -> None:
    assert refusal(request(request_id=request_id)).request_id is None


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt": "ü" * (LIMIT // 2) + "p"},
        {"messages": (Message(Role.SYSTEM, "s" * LIMIT), Message(Role.USER, "m"))},
    ],
)
def test_prompt_of_too_many_bytes_is_an_error_and_no_dead_letter(fields: dict[str, Any]) -> None:
    error = refusal(request(**fields))
    assert error.code is ErrorCode.PROMPT_TOO_LONG
    assert not error.dead_letter
    assert error.request_id == "r"


def test_question_is_the_last_message_of_the_user() -> None:
    messages = (Message(Role.USER, "one"), Message(Role.USER, "two"), Message(Role.ASSISTANT, "three"))
    assert request(messages=messages).question == "two"
    assert request().question == "hello"


@given(control=records.controls)
def test_control_under_its_user_is_taken_and_under_another_refused(control: Control) -> None:
    validate_control(control, control.user_id.encode())
    with pytest.raises(WireError, match="key"):
        validate_control(control, control.user_id.encode() + b"x")


@pytest.mark.parametrize(
    "control",
    [
        Cancel(request_id="a b", user_id="ann"),
        Erase(user_id=""),
        Erase(user_id="ann", conversation_id="c" * 257),
        EraseConversation(user_id="ann", conversation_id="c" * 257),
    ],
)
def test_control_with_a_bad_id_is_refused(control: Control) -> None:
    with pytest.raises(WireError, match="_id"):
        validate_control(decode(Control, *encode(control)), control.user_id.encode())


@pytest.mark.parametrize("schema", [{"type": "object"}, {}, True])
def test_a_schema_that_would_not_be_followed_is_refused_by_name(schema: object) -> None:
    record = {"request_id": "r", "user_id": "ann", "prompt": "hello"}
    form = {"type": "json_object", "schema": schema}
    with pytest.raises(WireError, match=r"response_format\.schema: is not supported"):
        decode(Request, json.dumps({**record, "response_format": form}).encode())
    for neutral in ({"type": "json_object", "schema": None}, None):
        assert decode(Request, json.dumps({**record, "response_format": neutral}).encode()).prompt == "hello"


def test_of_several_unsupported_parameters_every_worker_names_the_first() -> None:
    """Otherwise the workers that refuse a record before and after a crash would give different reasons."""
    for names in permutations(("n", "audio", "logits_processors")):
        record = {"request_id": "r", "user_id": "ann", "prompt": "hello", **dict.fromkeys(names, 7)}
        with pytest.raises(WireError, match=f"^invalid_request: {names[0]}: is not supported"):
            decode(Request, json.dumps(record).encode())
