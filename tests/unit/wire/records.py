"""Strategies for records as Parley's own parts would write them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from app.wire.control import Cancel, Erase, EraseConversation
from app.wire.erasure import Erasure
from app.wire.event import ErrorInfo, EventType, Logprob, Notice, TokenEvent
from app.wire.ids import tenant_of
from app.wire.request import Message, Priority, Request, Role, StopWhen, WhileBusy
from app.wire.response_format import FormatType, JsonSchema, ResponseFormat
from app.wire.tool_records import ToolCallRecord, ToolResultRecord
from app.wire.tools import (
    Function,
    FunctionCall,
    MessageToolCall,
    ToolCall,
    ToolCallDelta,
    ToolField,
    ToolMode,
    ToolResult,
)
from app.wire.turn import Timing, Turn
from app.wire.usage import Latencies, UsageWindow
from models.interface.generation import FinishReason, Usage

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
name = text.filter(bool)
request_id = st.from_regex(r"[A-Za-z0-9._:-]{1,64}", fullmatch=True).filter(lambda name: name not in {".", ".."})
count = st.integers(0, 2**53)
finite = st.floats(allow_nan=False, allow_infinity=False)


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


# Whole numbers beyond 2**53 are not exact in Protobuf's Struct, nor in JavaScript.
json_value = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | finite | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)
schemas = st.builds(
    JsonSchema,
    schema_=st.dictionaries(text, json_value, max_size=3),
    name=maybe(text),
    description=maybe(text),
    strict=maybe(st.booleans()),
)
response_formats = st.one_of(
    st.builds(ResponseFormat, type=st.sampled_from([FormatType.TEXT, FormatType.JSON_OBJECT])),
    st.builds(ResponseFormat, type=st.just(FormatType.JSON_SCHEMA), json_schema=schemas),
    st.builds(ResponseFormat, type=st.just(FormatType.REGEX), regex=name),
    st.builds(
        ResponseFormat, type=st.just(FormatType.CHOICES), choices=st.lists(name, min_size=1, max_size=3).map(tuple)
    ),
)
sampling = st.fixed_dictionaries(
    {},
    optional={
        "max_tokens": st.integers(1, 2**63 - 1),
        "temperature": st.floats(0, 2),
        "top_p": st.floats(0, 1),
        "top_k": st.integers(0, 1000),
        "seed": st.integers(-(2**63), 2**63 - 1),
        "stop": name | st.lists(name, min_size=1, max_size=4).map(tuple),
        "logprobs": st.booleans(),
        "top_logprobs": st.integers(0, 20),
        "prompt_logprobs": st.integers(0, 20),
        "priority": st.sampled_from(Priority),
        "deadline_ms": count,
        "not_before": count,
        "while_busy": st.sampled_from(WhileBusy),
        "replaces": st.lists(st.from_regex(r"other-[a-z]{1,8}", fullmatch=True), max_size=3).map(tuple),
        "tenant": text,
        "model": text,
        "conversation_id": text,
        "metadata": st.dictionaries(text, json_value, max_size=3),
        "response_format": response_formats,
        "min_p": st.floats(0, 1),
        "presence_penalty": st.floats(-2, 2),
        "frequency_penalty": st.floats(-2, 2),
        "repetition_penalty": st.floats(0.01, 2),
        "logit_bias": st.dictionaries(count, st.floats(-100, 100), min_size=1, max_size=3),
        "parallel_tool_calls": st.booleans(),
        "store": st.booleans(),
        "min_tokens": st.integers(0, 2**63 - 1),
        "ignore_eos": st.booleans(),
        "cache": st.booleans(),
        "stop_when": st.builds(StopWhen, mean_logprob_below=st.floats(-100, 0), over=st.integers(1, 100)),
        "previous_request_id": request_id,
        "continue_conversation": st.booleans(),
    },
)
calls = st.lists(st.builds(MessageToolCall, name, st.builds(FunctionCall, name, text)), min_size=1, max_size=2)
message = st.one_of(
    st.builds(Message, role=st.sampled_from([Role.SYSTEM, Role.USER, Role.ASSISTANT]), content=text),
    st.builds(Message, role=st.just(Role.ASSISTANT), tool_calls=calls.map(tuple)),
    st.builds(Message, role=st.just(Role.TOOL), content=text, tool_call_id=name),
)
messages = st.lists(message, max_size=3).map(lambda before: (*before, Message(Role.USER, "and now?")))
results = st.lists(st.builds(ToolResult, name, text), min_size=1, max_size=2).map(tuple)
tools = st.dictionaries(
    st.from_regex(r"[A-Za-z0-9_.-]{1,64}", fullmatch=True),
    st.none() | st.just({"type": "object"}),
    min_size=1,
    max_size=2,
).map(lambda named: tuple(ToolField(function=Function(name=one, parameters=schema)) for one, schema in named.items()))
content = st.one_of(
    st.fixed_dictionaries({"prompt": name}),
    st.fixed_dictionaries({"messages": messages}, optional={"tools": tools}),
    st.fixed_dictionaries({"prompt": name, "recall": st.integers(0, 20)}),
    st.fixed_dictionaries({"prompt": name, "agent": name}),
    st.fixed_dictionaries({"prompt": name, "tools": tools, "tool_mode": st.just(ToolMode.KAFKA)}),
    st.fixed_dictionaries({"tool_results": results}),
    st.fixed_dictionaries({"prompt_token_ids": st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=3).map(tuple)}),
)


def _request(request_id: str, user_id: str, content: dict[str, Any], sampling: dict[str, Any]) -> Request:
    named = sampling if (tenant := tenant_of(user_id)) is None else sampling | {"tenant": tenant}
    if "agent" in content:
        named = {name: value for name, value in named.items() if name not in {"model", "prompt_logprobs"}}
    return Request(request_id=request_id, user_id=user_id, **content, **named)


requests = st.builds(
    _request,
    request_id,
    name,
    content,
    sampling,
)

usage = st.builds(Usage, count, count, count)
leaf = st.builds(Logprob, token=count, text=text, logprob=finite)
logprob = st.builds(
    Logprob,
    token=count,
    text=text,
    logprob=finite,
    top=st.lists(leaf, max_size=2).map(tuple),
    rank=maybe(st.integers(1, 2**20)),
)
about = {
    "request_id": request_id,
    "user_id": name,
    "conversation_id": text,
    "index": count,
    "epoch": count,
    "timestamp": count,
    "model_version": maybe(text),
}
token_events = st.one_of(
    st.builds(
        TokenEvent,
        type=st.just(EventType.TOKEN),
        tokens=st.lists(count, max_size=4).map(tuple),
        text=text,
        prompt_digest=maybe(text),
        logprobs=maybe(st.lists(logprob, min_size=1, max_size=2).map(tuple)),
        prompt_logprobs=maybe(st.lists(logprob, min_size=1, max_size=2).map(tuple)),
        tool_call_deltas=maybe(
            st.lists(st.builds(ToolCallDelta, count, maybe(text), maybe(text), text), min_size=1, max_size=2).map(tuple)
        ),
        **about,
    ),
    st.builds(
        TokenEvent,
        type=st.just(EventType.DONE),
        finish_reason=st.sampled_from(FinishReason),
        usage=usage,
        text=maybe(text),
        tool_calls=maybe(st.lists(st.builds(ToolCall, text, text, text), min_size=1, max_size=2).map(tuple)),
        **about,
    ),
    st.builds(TokenEvent, type=st.just(EventType.ERROR), error=st.builds(ErrorInfo, text, text), **about),
    st.builds(
        TokenEvent,
        type=st.just(EventType.NOTICE),
        notice=st.builds(Notice, text, text),
        **(about | {"index": st.none()}),
    ),
    st.builds(TokenEvent, type=st.just(EventType.FENCE), timestamp=count),
)
timing = st.builds(Timing, requested_at=count, started_at=maybe(count), first_token_at=maybe(count), finished_at=count)
turns = st.builds(
    Turn,
    request_id=request_id,
    user_id=name,
    conversation_id=text,
    prompt=text,
    answer=text,
    finish_reason=st.sampled_from(FinishReason),
    usage=usage,
    model_version=text,
    created_at=count,
    tenant=maybe(text),
    timing=maybe(timing),
)
latencies = st.builds(
    Latencies, count=count, sum=count, max=count, bounds=st.just((1, 2)), buckets=st.lists(count, max_size=3).map(tuple)
)
usage_windows = st.builds(
    UsageWindow,
    window_start=count,
    window_ms=count,
    tenant=text,
    model=text,
    partition=count,
    revision=count,
    requests=count,
    cost=st.floats(0, 1e9),
    first_token_ms=latencies,
    duration_ms=latencies,
    created_at=count,
)
controls = (
    st.builds(Cancel, request_id=request_id, user_id=name)
    | st.builds(Erase, user_id=name, conversation_id=maybe(name))
    | st.builds(EraseConversation, user_id=name, conversation_id=name)
)
tool_calls = st.builds(
    ToolCallRecord,
    tool_call_id=name,
    name=name,
    arguments=text,
    request_id=request_id,
    user_id=name,
    conversation_id=name,
    created_at=count,
    expires_at=count,
    tenant=maybe(name),
)
erasures = st.builds(Erasure, user_id=name, erased_at=count, created_at=count, conversation_id=maybe(name))
tool_results = st.builds(
    ToolResultRecord, tool_call_id=name, request_id=request_id, user_id=name, content=text, is_error=st.booleans()
)
