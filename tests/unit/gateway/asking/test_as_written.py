"""Nulls, whole numbers as floats and unknown fields, in every body and at every depth."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from app.gateway.asking.as_written import Ignored, as_written
from app.gateway.asking.ask import AskBody
from app.gateway.asking.channel import AskMessage, FollowMessage, Message
from app.gateway.asking.parameters import ignored_header
from app.gateway.asking.reading import parse
from app.gateway.edge.errors import ApiError
from app.gateway.openai.chat_body import ChatBody
from app.gateway.openai.responses_body import ResponsesBody
from app.gateway.openai.routes.embeddings import EmbeddingsBody
from app.gateway.openai.text_body import TextBody

FUNCTION = {"name": "f", "parameters": {"type": "object", "properties": {"a": {"default": None}}}}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
SCHEMA = {"name": "x", "schema": {"enum": [None, 1.0]}}
CHAT: dict[str, Any] = {
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {"role": "assistant", "tool_calls": [CALL]},
    ],
    "stream_options": {"include_usage": True},
    "response_format": {"type": "json_schema", "json_schema": SCHEMA},
    "structured_outputs": {"regex": "a"},
    "stop_when": {"mean_logprob_below": -1, "over": 8},
    "tools": [{"type": "function", "function": FUNCTION}],
    "tool_choice": {"type": "allowed_tools", "allowed_tools": {"tools": [{"type": "function", "name": "f"}]}},
    "metadata": {"a": None},
}
RESPONSES: dict[str, Any] = {
    "input": [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}, {"type": "reasoning"}],
    "text": {"format": {"type": "text"}},
    "conversation": {"id": "c"},
    "tools": [{"type": "function", **FUNCTION}],
    "tool_choice": {"type": "function", "name": "f"},
}
ASK: dict[str, Any] = {
    "messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "tool_calls": [CALL]}],
    "response_format": {"type": "json_schema", "json_schema": SCHEMA},
    "tools": [{"type": "function", "function": FUNCTION}],
    "tool_results": [{"tool_call_id": "c1", "content": "x"}],
    "stop_when": {"mean_logprob_below": -1, "over": 8},
}
BODIES: list[tuple[Any, dict[str, Any]]] = [
    (ChatBody, CHAT),
    (TextBody, {"prompt": "hi", "stream_options": {}}),
    (ResponsesBody, RESPONSES),
    (AskBody, ASK),
    (EmbeddingsBody, {"input": "hi"}),
]


def fields_of(kind: inspect.Type, value: Any) -> Iterator[tuple[dict[str, Any], inspect.Field]]:
    """Each field of each struct that `value` has, and the object that has or lacks it."""
    for one in kind.types if isinstance(kind, inspect.UnionType) else (kind,):
        if isinstance(one, inspect.StructType) and isinstance(value, dict):
            for field in one.fields:
                yield value, field
                yield from fields_of(field.type, value.get(field.encode_name))
        elif isinstance(one, inspect.VarTupleType) and isinstance(value, list):
            for item in value:
                yield from fields_of(one.item_type, item)


def read(kind: Any, value: Any) -> Any:
    return parse(msgspec.json.encode(value), kind)[0]


@pytest.mark.parametrize(("kind", "body"), BODIES)
def test_a_null_is_as_if_the_field_were_absent(kind: Any, body: dict[str, Any]) -> None:
    body = msgspec.json.decode(msgspec.json.encode(body))
    plain = read(kind, body)
    count = 0
    for owner, field in fields_of(inspect.type_info(kind), body):
        if field.required or field.encode_name in owner:
            continue
        owner[field.encode_name] = None
        assert read(kind, body) == plain, field.encode_name
        del owner[field.encode_name]
        count += 1
    assert count > 3


@pytest.mark.parametrize(("kind", "body"), BODIES)
def test_a_whole_number_may_be_a_float(kind: Any, body: dict[str, Any]) -> None:
    for owner, field in fields_of(inspect.type_info(kind), msgspec.json.decode(msgspec.json.encode(body))):
        kinds = field.type.types if isinstance(field.type, inspect.UnionType) else (field.type,)
        if not any(isinstance(one, inspect.IntType) for one in kinds):
            continue
        asked = {**owner, field.encode_name: 8.0} if owner.keys() == body.keys() else None
        if asked is not None:
            assert getattr(read(kind, asked), field.name) == 8
    assert read(ChatBody, {**CHAT, "stop_when": {"mean_logprob_below": -1, "over": 8.0}}).stop_when.over == 8
    assert read(TextBody, {"prompt": [1.0, 2]}).prompt == (1, 2)
    assert read(TextBody, {"prompt": [[1.0, 2], [3]]}).prompt == ((1, 2), (3,))


def test_what_a_client_fills_freely_stays_as_it_is() -> None:
    assert as_written(CHAT, ChatBody, {}) == CHAT


@pytest.mark.parametrize(("kind", "body"), BODIES)
def test_unknown_fields_are_named_at_every_depth(kind: Any, body: dict[str, Any]) -> None:
    body = msgspec.json.decode(msgspec.json.encode(body))
    owners = {id(owner): owner for owner, _ in fields_of(inspect.type_info(kind), body) if owner is not body}
    plain = read(kind, body)
    for owner in owners.values():
        owner |= {"made_up": 1, "unset": None}
    ignored: Ignored = {}
    assert msgspec.convert(as_written(body, kind, ignored), kind, str_keys=True) == plain
    assert all(name.endswith(".made_up") for name in ignored)
    assert bool(ignored) == bool(owners)
    if kind is ChatBody:
        assert {"messages[].made_up", "messages[].content[].made_up", "tools[].function.made_up"} <= ignored.keys()
        assert {"stream_options.made_up", "response_format.json_schema.made_up"} <= ignored.keys()


def test_the_messages_of_a_websocket_are_read_alike() -> None:
    asked = read(Message, {"type": "ask", "prompt": "hi", "tool_mode": None, "max_tokens": 3.0})
    assert isinstance(asked, AskMessage)
    assert asked.max_tokens == 3
    given = {"type": "ask", "prompt": "hi", "made_up": 1, "tools": [{"function": {"name": "f", "strange": 1}}]}
    assert parse(msgspec.json.encode(given), Message)[1] == ["made_up", "tools[].function.strange"]
    with pytest.raises(ApiError, match="verbosity: is not supported"):
        read(Message, {**given, "verbosity": "high"})
    follow = read(Message, {"type": "follow", "request_id": "r", "starting_after": None})
    assert isinstance(follow, FollowMessage)
    assert follow.starting_after == 0


def test_a_nested_name_is_told_with_the_one_that_is_meant() -> None:
    _, vain = parse(b'{"messages": [{"role": "user", "contnt": "hi", "weight": 1}]}', ChatBody)
    assert vain == ["messages[].contnt (did you mean content?)", "messages[].weight"]


def test_the_header_is_short_and_printable() -> None:
    assert ignored_header([]) == {}
    assert ignored_header(["a", "messages[].é\n"]) == {"X-Parley-Ignored": "a, messages[].??"}
    assert len(ignored_header(["x" * 5000, "y"])["X-Parley-Ignored"]) == 1000
