"""The events of a response are a function of its request and of the log, however and whenever the log is read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.gateway.asking.reading import parse
from app.gateway.callers.identity import Identity
from app.gateway.edge.errors import ApiError
from app.gateway.openai.responses_body import ResponsesBody
from app.gateway.openai.responses_events import ResponseEvents
from app.gateway.openai.responses_given import RESPONSE, Given, given_in, given_of
from app.reader import Answer, ReaderRule
from app.wire.event import ErrorInfo, EventType, Logprob, Notice, TokenEvent
from app.wire.request import Request
from app.wire.tools import ToolCallDelta
from models.interface.generation import FinishReason, Usage

TOOL = {"type": "function", "name": "look_up", "parameters": {"type": "object"}}


LONG = "x" * 20_000
TOOL_OF_BODY = {**TOOL, "description": LONG}


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("user", {"user": LONG}),
        ("include", {"include": [LONG]}),
        ("model", {"model": LONG}),
        ("conversation", {"conversation": LONG}),
        ("tool_choice", {"tool_choice": {"type": "function", "name": "look_up", "tools": [TOOL_OF_BODY]}}),
        ("tool_choice", {"tool_choice": {"type": "allowed_tools", "tools": [TOOL_OF_BODY]}}),
        ("tools", {"tools": [TOOL_OF_BODY] * 4, "tool_choice": {"type": "allowed_tools", "tools": [TOOL]}}),
    ],
)
def test_what_a_response_repeats_of_its_body_is_bounded(name: str, fields: dict[str, Any]) -> None:
    with pytest.raises(ApiError, match=name) as refusal:
        created(**fields)
    assert refusal.value.param == name
    assert created(user=LONG[:16_000])[1].body.user == LONG[:16_000]


@pytest.mark.parametrize(
    "form",
    [
        {"type": "text"},
        {"type": "json_object"},
        {"type": "json_schema", "name": "n", "description": "d", "strict": True, "schema": {"enum": [LONG]}},
        {"type": "json_schema", "schema": {}},
    ],
)
def test_the_format_of_a_response_is_that_of_its_request(form: dict[str, Any]) -> None:
    request, given = created(text={"format": form})
    assert len(given.header[1]) < 1000
    told = msgspec.json.decode(msgspec.json.encode(given.described(request)["text"]["format"]))
    assert {name: value for name, value in told.items() if value is not None} == form


def created(**fields: Any) -> tuple[Request, Given]:
    body: ResponsesBody = parse(msgspec.json.encode({"input": "hi", "tools": [TOOL], **fields}), ResponsesBody)[0]
    return body.request(Identity("nina")), given_of(body, "demo")


REQUEST, GIVEN = created()
BACKGROUND = msgspec.structs.replace(GIVEN, body=msgspec.structs.replace(GIVEN.body, background=True))


def event(kind: EventType, **fields: Any) -> TokenEvent:
    ids = {"request_id": REQUEST.request_id, "user_id": "nina", "conversation_id": REQUEST.conversation_id}
    return TokenEvent(type=kind, timestamp=1_790_000_000_000, model_version="demo@1", **ids, **fields)


@st.composite
def segments(draw: st.DrawFn) -> list[dict[str, Any]]:
    """What the events of an answer say: reasoning, texts, then calls whose arguments come in parts."""
    said: list[dict[str, Any]] = [
        {"text": "", "reasoning": reasoning, "tokens": (1,)}
        for reasoning in draw(st.lists(st.text(max_size=4), max_size=3))
    ]
    for text in draw(st.lists(st.text(max_size=4), max_size=5)):
        logprobs = (Logprob(1, text, -0.5),) if draw(st.booleans()) else None
        said.append({"text": text, "logprobs": logprobs, "tokens": (1,) * draw(st.integers(1, 3))})
    for index in range(draw(st.integers(0, 2))):
        parts = draw(st.lists(st.text(min_size=1, max_size=4), max_size=3))
        begun = ToolCallDelta(index=index, id=f"call_{index}", name="look_up")
        deltas = (begun, *(ToolCallDelta(index=index, arguments=part) for part in parts))
        said += [{"text": "", "tool_call_deltas": (delta,), "tokens": (1,)} for delta in deltas]
    return said


ENDS = st.one_of(
    st.builds(
        lambda code: {"error": ErrorInfo(code, "it failed")}, st.sampled_from(["engine_error", "deadline_exceeded"])
    ),
    st.builds(
        lambda reason, text: {"finish_reason": reason, "text": text or None, "usage": Usage(3, 4)},
        st.sampled_from(FinishReason),
        st.text(max_size=3),
    ),
)


def log_of(said: list[dict[str, Any]], end: dict[str, Any], crash_at: int, late: int) -> list[TokenEvent]:
    """The partition of `tokens`: an owner that dies behind `crash_at` events and writes `late` ones behind the fence of
    its successor, which continues and repeats the end.
    """
    whole, index = [], 0
    for one in said:
        whole.append(event(EventType.TOKEN, index=index, **one))
        index = whole[-1].next_index
    kind = EventType.ERROR if "error" in end else EventType.DONE
    whole.append(event(kind, index=index, **end))
    records = [TokenEvent(type=EventType.FENCE)]
    records += [msgspec.structs.replace(one, epoch=0) for one in whole[:crash_at]]
    second = len(records)
    records.append(TokenEvent(type=EventType.FENCE))
    records += [msgspec.structs.replace(one, epoch=0) for one in whole[crash_at : crash_at + late]]
    records.append(event(EventType.NOTICE, notice=Notice("resumed", "a worker was lost"), epoch=second))
    records += [msgspec.structs.replace(one, epoch=second) for one in whole[crash_at:]]
    return [*records, msgspec.structs.replace(records[-1], timestamp=1_790_000_009_000)]


def numbered(events: Iterable[dict[str, Any]]) -> list[bytes]:
    return [msgspec.json.encode(one) for one in events]


def live(log: list[TokenEvent], given: Given) -> tuple[list[bytes], bytes]:
    """The events as a reader gets them that was there from the beginning, and the response."""
    events, rule = ResponseEvents(REQUEST, given), ReaderRule()
    sent = numbered(events.begin())
    for offset, record in enumerate(log):
        if (update := rule.read(0, offset, record)) is not None:
            assert update.cut is None
            sent += numbered(events.read(update.event))
    return sent, msgspec.json.encode(events.response)


def answer_of(log: list[TokenEvent]) -> Answer:
    rule = ReaderRule()
    for offset, record in enumerate(log):
        rule.read(0, offset, record)
    return rule.answers["nina", REQUEST.request_id]


@given(st.data(), segments(), ENDS, st.booleans())
def test_a_live_reader_and_a_later_one_get_the_same_events_and_numbers(
    data: st.DataObject, said: list[dict[str, Any]], end: dict[str, Any], is_background: bool
) -> None:
    given = BACKGROUND if is_background else GIVEN
    crash_at = data.draw(st.integers(0, len(said)))
    log = log_of(said, end, crash_at, data.draw(st.integers(0, 3)))
    sent, response = live(log, given)
    undisturbed, _ = live(log_of(said, end, 0, 0), given)
    assert sent == undisturbed

    answer = answer_of(log)
    assert answer.end is not None
    later = ResponseEvents(REQUEST, given)
    again = numbered(later.begin())
    for one in (*answer.segments, answer.end):
        again += numbered(later.read(one))
    assert (again, msgspec.json.encode(later.response)) == (sent, response)

    decoded = [msgspec.json.decode(one) for one in sent]
    assert [one["sequence_number"] for one in decoded] == list(range(len(sent)))
    first = ["response.created", "response.queued" if is_background else "response.in_progress"]
    assert [one["type"] for one in decoded[:2]] == first
    last = decoded[-1]
    assert last["type"] in {"response.completed", "response.incomplete", "response.failed"}
    assert last["response"] == msgspec.json.decode(response)
    assert sum(one["type"] == last["type"] for one in decoded) == 1


@given(segments(), ENDS)
def test_the_deltas_are_the_text_and_the_arguments_of_the_response(
    said: list[dict[str, Any]], end: dict[str, Any]
) -> None:
    sent, response = live(log_of(said, end, len(said), 0), BACKGROUND)
    events = [msgspec.json.decode(one) for one in sent]
    output = msgspec.json.decode(response)["output"]
    assert all(item["status"] in {"completed", "incomplete"} for item in output)
    for number, item in enumerate(output):
        own = [one for one in events if one.get("output_index") == number]
        deltas = "".join(one["delta"] for one in own if one["type"].endswith(".delta"))
        assert deltas == (item["content"][0]["text"] if "content" in item else item["arguments"])
        assert {one["item_id"] for one in own if "item_id" in one} <= {item["id"]}


def test_the_status_of_a_response_is_that_of_its_end() -> None:
    def status(**end: Any) -> tuple[str, str]:
        sent, response = live(log_of([], end, 0, 0), BACKGROUND)
        return msgspec.json.decode(response)["status"], msgspec.json.decode(sent[-1])["type"]

    assert status(finish_reason=FinishReason.STOP) == ("completed", "response.completed")
    assert status(finish_reason=FinishReason.LENGTH) == ("incomplete", "response.incomplete")
    assert status(finish_reason=FinishReason.CANCELLED) == ("cancelled", "response.incomplete")
    assert status(error=ErrorInfo("engine_error", "out of memory")) == ("failed", "response.failed")


def test_what_a_response_was_created_with_is_found_at_its_record() -> None:
    form = {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True}
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "look_up"}]}
    request, given = created(
        instructions="Be brief.",
        metadata={"topic": "test"},
        text={"format": form},
        tools=[TOOL, {**TOOL, "name": "other"}],
        tool_choice=allowed,
        max_output_tokens=9,
        temperature=0.5,
        conversation={"id": "talk"},
        user="u",
    )
    name, value = given.header
    assert name == RESPONSE
    assert b"Be brief." not in value
    found = given_in([("traceparent", b"00"), (name, value)])
    assert found is not None
    described = found.described(request)
    assert described == given.described(request)
    assert (described["instructions"], described["metadata"]) == ("Be brief.", {"topic": "test"})
    assert (described["max_output_tokens"], described["temperature"], described["user"]) == (9, 0.5, "u")
    assert described["model"] == "demo"
    assert described["conversation"] == {"id": "talk"}
    assert described["tool_choice"] == allowed
    assert [tool["name"] for tool in described["tools"]] == ["look_up", "other"]
    assert msgspec.to_builtins(described["text"]["format"])["schema"] == {"type": "object"}
    assert given_in([("traceparent", b"00")]) is None
    assert given_in([(RESPONSE, b"{")]) is None


def test_input_items_are_the_input() -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "look_up", "arguments": '{"a": 1}'}
    result = {"type": "function_call_output", "call_id": "c1", "output": "found"}
    items = [
        {"role": "developer", "content": "Be kind."},
        {"role": "system", "content": "Be brief."},
        {"role": "developer", "content": [{"type": "input_text", "text": "Be exact."}]},
        {"role": "user", "content": "Look it up."},
        {"role": "assistant", "content": "One moment."},
        call,
        result,
    ]
    request, given = created(input=items, instructions="The instructions are no input.")
    found = given.input_items(request)
    roles = [(one.get("role"), one["content"][0]["text"]) for one in found if one["type"] == "message"]
    assert roles == [
        ("developer", "Be kind."), ("system", "Be brief."), ("developer", "Be exact."), ("user", "Look it up."),
        ("assistant", "One moment."),
    ]  # fmt: skip
    assert [{name: one[name] for name in call} for one in found if one["type"] == "function_call"] == [call]
    assert [{name: one[name] for name in result} for one in found if "output" in one] == [result]
    assert len({one["id"] for one in found}) == len(items)
