"""Bodies and replies in OpenAI's form, without a gateway around them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from app.gateway.asking.reading import parse
from app.gateway.callers.identity import Identity
from app.gateway.edge.errors import ApiError
from app.gateway.openai.chat_body import ChatBody
from app.gateway.openai.chat_reply import ChatReply
from app.gateway.openai.responses_body import ResponsesBody
from app.gateway.openai.text_body import TextBody
from app.wire.event import EventType, Logprob, TokenEvent
from app.wire.request import Request
from app.wire.tools import ToolCall, ToolCallDelta
from models.interface.generation import FinishReason, Usage

HELLO = [{"role": "user", "content": "hello"}]


def parsed(raw: bytes, kind: Any) -> Any:
    return parse(raw, kind)[0]


def requests(**fields: Any) -> list[Request]:
    body: ChatBody = parsed(msgspec.json.encode({"messages": HELLO, **fields}), ChatBody)
    return body.requests(Identity("nina", "acme"))


def test_what_shapes_the_answer_arrives_in_the_request() -> None:
    given = {
        "temperature": 0.5, "top_p": 0.9, "top_k": 7, "min_p": 0.1, "presence_penalty": 1.5, "frequency_penalty": -1.0,
        "repetition_penalty": 1.2, "seed": 3, "stop": "x", "logprobs": True, "top_logprobs": 2, "model": "demo",
        "metadata": {"from": "a test"}, "deadline_ms": 9, "priority": "batch", "tenant": "acme",
    }  # fmt: skip
    form = {"type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": {"type": "object"}}}
    (request,) = requests(**given, response_format=form, logit_bias={"12": -5}, max_tokens=9, max_completion_tokens=4)
    written = msgspec.to_builtins(request)
    assert {name: written[name] for name in given} == given
    assert written["response_format"] == form
    assert (request.logit_bias, request.max_tokens) == ({12: -5}, 4)
    assert (request.user_id, request.tenant) == ("acme/nina", "acme")


def test_choices_are_requests_of_their_own_with_seeds_of_their_own() -> None:
    made = requests(n=3, seed=2**63 - 2, conversation_id="talk")
    assert [one.seed for one in made] == [2**63 - 2, 2**63 - 1, -(2**63)]
    assert len({one.request_id for one in made}) == 3
    assert [one.conversation_id for one in made] == ["talk", made[1].request_id, made[2].request_id]
    assert [one.seed for one in requests(n=2)] == [None, None]


def test_tools_arrive_in_the_request() -> None:
    function = {"name": "order_status", "parameters": {"type": "object", "properties": {"order": {"type": "integer"}}}}
    call = {"id": "c1", "type": "function", "function": {"name": "order_status", "arguments": '{"order": 1}'}}
    (request,) = requests(
        tools=[{"type": "function", "function": function}],
        tool_choice={"type": "function", "function": {"name": "order_status"}},
        parallel_tool_calls=False,
        messages=[
            *HELLO,
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "on its way"}]},
        ],
    )
    written = msgspec.json.decode(msgspec.json.encode(request))
    assert written["tools"] == [{"type": "function", "function": function}]
    assert written["tool_choice"] == {"type": "function", "function": {"name": "order_status"}}
    assert written["parallel_tool_calls"] is False
    assert written["messages"][1:] == [
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "content": "on its way", "tool_call_id": "c1"},
    ]


@pytest.mark.parametrize(
    ("wrong", "param"),
    [
        ({"tools": [{"type": "custom", "name": "x"}]}, "tools"),
        ({"tools": [{"type": "function", "function": {"description": "no name"}}]}, "tools"),
        ({"tool_choice": {"type": "allowed_tools", "mode": "required", "tools": []}}, "tool_choice"),
        ({"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"name": "other"}]}}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": None}}, "tool_choice"),
        ({"response_format": {"type": "text", "schema": {"type": "object"}}}, "response_format"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"add_generation_prompt": False}, "add_generation_prompt"),
        ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "a"}, "guided_regex": "b"}, "structured_outputs"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}]}, "messages"),
        ({"n": 0}, "n"),
    ],
)
def test_a_value_that_is_not_supported_is_refused_by_name(wrong: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as refused:
        requests(**wrong)
    assert (refused.value.status, refused.value.param) == (400, param)


@pytest.mark.parametrize("form", ["chat", "responses"])
@pytest.mark.parametrize(
    ("allowed", "mode", "kept", "choice"),
    [
        (["a"], "required", ["a"], "required"),
        (["a", "c"], "auto", ["a", "c"], "auto"),
        ([], "auto", ["a", "b", "c"], "none"),
    ],
)
def test_allowed_tools_are_those_that_the_answer_may_call(
    form: str, allowed: list[str], mode: str, kept: list[str], choice: str
) -> None:
    tools = [{"type": "function", "function": {"name": name}} for name in "abc"]
    named = [{"type": "function", "function": {"name": name}} for name in allowed]
    given: dict[str, Any] = {"mode": mode, "tools": named}
    if form == "chat":
        (request,) = requests(tools=tools, tool_choice={"type": "allowed_tools", "allowed_tools": given})
    else:
        raw = {"input": "hi", "tools": tools, "tool_choice": {"type": "allowed_tools", **given}}
        body: ResponsesBody = parsed(msgspec.json.encode(raw), ResponsesBody)
        request = body.request(Identity("nina"))
    assert [tool.function.name for tool in request.tools or ()] == kept
    assert request.tool_choice == choice


@pytest.mark.parametrize("arguments", ['{"order": 1}', {"order": 1}, "", None, {}])
def test_the_arguments_of_an_earlier_call_may_be_an_object(arguments: object) -> None:
    expected = {"order": 1} if arguments and "order" in arguments else {}  # type: ignore[operator]
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    (request,) = requests(messages=[*HELLO, {"role": "assistant", "content": None, "tool_calls": [call]}])
    item = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": arguments}
    body: ResponsesBody = parsed(msgspec.json.encode({"input": [item]}), ResponsesBody)
    for messages in (request.messages, body.request(Identity("nina")).messages):
        assert messages is not None
        (made,) = messages[-1].tool_calls or ()
        assert msgspec.json.decode(made.function.arguments) == expected


def test_parts_of_a_text_are_joined_by_line_breaks() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": None, "text": "two"}, "three"]
    for role in ("developer", "system", "user", "assistant"):
        (request,) = requests(messages=[{"role": role, "content": parts}])
        assert [message.text for message in request.messages or ()] == ["one\ntwo\nthree"]


@pytest.mark.parametrize("limit", [{"max_tokens": -1}, {"max_completion_tokens": -1}, {"max_tokens": None}, {}])
def test_a_limit_of_minus_one_is_none(limit: dict[str, int]) -> None:
    assert requests(**limit)[0].max_tokens == requests()[0].max_tokens
    assert requests(max_tokens=16.0)[0].max_tokens == 16
    text: TextBody = parsed(msgspec.json.encode({"prompt": "hi", **limit, "max_completion_tokens": None}), TextBody)
    assert text.requests(Identity("nina"))[0].max_tokens == 16


@pytest.mark.parametrize("kind", ["json_object", "json_schema"])
def test_a_schema_beside_the_type_is_followed(kind: str) -> None:
    schema = {"type": "object", "properties": {"colour": {"enum": ["red", None]}}, "default": None}
    (request,) = requests(response_format={"type": kind, "schema": schema})
    assert request.response_format is not None
    assert request.response_format.json_schema is not None
    assert request.response_format.json_schema.schema_ == schema
    body: ResponsesBody = parsed(
        msgspec.json.encode({"input": "hi", "text": {"format": {"type": kind, "schema": schema}}}), ResponsesBody
    )
    assert body.request(Identity("nina")).response_format == request.response_format


def test_images_are_refused_as_images() -> None:
    with pytest.raises(ApiError, match="messages: images are not supported"):
        requests(messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}])


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"structured_outputs": {"choice": ["yes", "no"]}}, {"type": "choices", "choices": ["yes", "no"]}),
        ({"structured_outputs": {"json_object": True}}, {"type": "json_object"}),
        ({"guided_json": '{"type": "object"}'}, {"type": "json_schema", "json_schema": {"schema": {"type": "object"}}}),
        ({"guided_regex": "a+"}, {"type": "regex", "regex": "a+"}),
        ({"guided_grammar": 'root ::= "a"'}, {"type": "grammar", "grammar": 'root ::= "a"'}),
    ],
)
def test_vllms_output_constraints_become_a_response_format(given: dict[str, Any], expected: dict[str, Any]) -> None:
    (request,) = requests(**given)
    assert msgspec.json.decode(msgspec.json.encode(request.response_format)) == expected


@pytest.mark.parametrize(
    ("given", "expected"), [(None, "standard"), (0, "standard"), (-1, "interactive"), (5, "batch"), ("batch", "batch")]
)
def test_vllms_priorities_are_numbers(given: object, expected: str) -> None:
    assert requests(priority=given)[0].priority == expected


def test_without_max_tokens_the_answer_may_fill_the_context() -> None:
    assert requests()[0].max_tokens == 2**31 - 1
    assert requests(max_tokens=3)[0].max_tokens == 3


def test_store_has_the_gateways_default() -> None:
    body = msgspec.convert({"messages": HELLO}, ChatBody)
    assert body.requests(Identity("nina"), store=False)[0].store is False
    assert requests(store=False)[0].store is False
    assert requests()[0].store is True


@pytest.mark.parametrize("wrong", [{"priority": "x"}, {"deadline_ms": "soon"}])
def test_a_wrong_field_of_parley_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(ApiError, match=next(iter(wrong))):
        requests(**wrong)


def test_many_choices_of_a_large_prompt_are_refused_before_they_are_made() -> None:
    large = [{"role": "user", "content": "x" * 60_000}]
    with pytest.raises(ApiError, match="n: ") as refused:
        requests(messages=large, n=128)
    assert refused.value.status == 413
    assert len(requests(messages=large, n=4)) == 4


def test_another_tenant_is_refused() -> None:
    with pytest.raises(ApiError) as refused:
        requests(tenant="foo")
    assert (refused.value.status, refused.value.param) == (400, "tenant")


def chunks_of(reply: ChatReply, events: list[TokenEvent]) -> list[dict[str, Any]]:
    return [msgspec.json.decode(chunk.removeprefix(b"data: ")) for chunk in reply.chunks(0, events)]


def test_calls_are_streamed_and_whole() -> None:
    (request,) = requests()
    parts = [
        ToolCallDelta(0, "c1", "order_status", ""), ToolCallDelta(0, arguments='{"order"'),
        ToolCallDelta(0, arguments=": 1}"), ToolCallDelta(1, "c2", "help", ""), ToolCallDelta(1, arguments="{}"),
    ]  # fmt: skip
    calls = (ToolCall("c1", "order_status", '{"order": 1}'), ToolCall("c2", "help", "{}"))
    events = [
        TokenEvent(type=EventType.TOKEN, index=at, tokens=(at,), text="", tool_call_deltas=(part,))
        for at, part in enumerate(parts)
    ]
    done = TokenEvent(type=EventType.DONE, index=5, finish_reason=FinishReason.TOOL_CALLS, tool_calls=calls)
    *streamed, last = chunks_of(ChatReply([request], "demo", wants_usage=False), [*events, done])
    found: dict[int, dict[str, str]] = {}
    for chunk in streamed:
        for part in chunk["choices"][0]["delta"]["tool_calls"]:
            call = found.setdefault(part["index"], {"arguments": ""})
            call |= {"id": part["id"], "name": part["function"]["name"]} if "id" in part else {}
            call["arguments"] += part["function"]["arguments"]
    assert [(call["id"], call["name"], call["arguments"]) for call in found.values()] == [
        (call.id, call.name, call.arguments) for call in calls
    ]
    assert last["choices"][0]["finish_reason"] == "tool_calls"
    reply = ChatReply([request], "demo", wants_usage=False)
    reply.add(0, [*events, done])
    message = reply.whole()["choices"][0]["message"]
    assert message["content"] is None
    assert [(one["id"], one["function"]["arguments"]) for one in message["tool_calls"]] == [
        ("c1", '{"order": 1}'), ("c2", "{}"),
    ]  # fmt: skip


def test_a_call_has_one_entry_in_a_chunk() -> None:
    (request,) = requests()
    parts = (
        ToolCallDelta(0, "c1", "order_status", ""), ToolCallDelta(0, arguments='{"order"'),
        ToolCallDelta(0, arguments=": 1"),
        ToolCallDelta(1, "c2", "help", ""), ToolCallDelta(1, arguments="{}"),
    )  # fmt: skip
    rest = (ToolCallDelta(0, arguments="}"), ToolCallDelta(0, arguments=" "))
    events = [
        TokenEvent(type=EventType.TOKEN, index=at, tokens=(at,), text="", tool_call_deltas=deltas)
        for at, deltas in enumerate((parts, rest))
    ]
    first, second = (chunk["choices"][0]["delta"]["tool_calls"] for chunk in chunks_of(
        ChatReply([request], "demo", wants_usage=False), events
    ))  # fmt: skip
    assert first == [
        {"index": 0, "id": "c1", "type": "function", "function": {"name": "order_status", "arguments": '{"order": 1'}},
        {"index": 1, "id": "c2", "type": "function", "function": {"name": "help", "arguments": "{}"}},
    ]
    assert second == [{"index": 0, "function": {"arguments": "} "}}]


def token(index: int, text: str, logprob: float) -> TokenEvent:
    given = (Logprob(index, text, logprob, (Logprob(9, "z", -3.0),)),)
    return TokenEvent(type=EventType.TOKEN, index=index, tokens=(index,), text=text, logprobs=given)


def test_logprobs_are_told_for_tokens_without_text_too() -> None:
    (request,) = requests(logprobs=True, top_logprobs=1)
    events = [token(0, "", -0.5), token(1, "é", -0.25)]
    done = TokenEvent(type=EventType.DONE, index=2, finish_reason=FinishReason.STOP, usage=Usage(3, 2, 1))
    streamed = chunks_of(ChatReply([request], "demo", wants_usage=True), [*events, done])
    pieces = [piece for chunk in streamed for piece in (chunk["choices"][0]["logprobs"] or {}).get("content", ())]
    reply = ChatReply([request], "demo", wants_usage=False)
    reply.add(0, [*events, done])
    whole = reply.whole()
    encoded = msgspec.json.decode(msgspec.json.encode(whole))
    assert encoded["choices"][0]["logprobs"]["content"] == pieces
    assert [(one["logprob"], one["bytes"], one["top_logprobs"][0]["token"]) for one in pieces] == [
        (-0.5, [], "z"),
        (-0.25, [195, 169], "z"),
    ]
    assert whole["usage"]["prompt_tokens_details"] == {"cached_tokens": 1}


@pytest.mark.parametrize(
    ("reason", "given"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("cancelled", "stop"),
        ("partial", "length"),
        ("filtered", "content_filter"),
    ],
)
def test_every_end_has_one_of_openais_reasons_and_the_true_one_beside_it(reason: str, given: str) -> None:
    (request,) = requests()
    reply = ChatReply([request], "demo", wants_usage=False)
    reply.add(0, [TokenEvent(type=EventType.DONE, index=0, text="held", finish_reason=FinishReason(reason))])
    choice = reply.whole()["choices"][0]
    assert (choice["finish_reason"], choice["message"]["content"]) == (given, "held")
    assert choice["parley"]["finish_reason"] == reason
