"""What is written is read again as the same record, and both formats say the same."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given

from app.wire.codec import WireFormat, decode, encode
from app.wire.control import Control
from app.wire.erasure import Erasure
from app.wire.event import EventType, TokenEvent
from app.wire.request import Request
from app.wire.tool_records import ToolCallRecord, ToolResultRecord
from app.wire.turn import Turn
from app.wire.usage import UsageWindow
from app.wire.validation import validate_request
from tests.unit.wire import records

both_formats = pytest.mark.parametrize("wire_format", WireFormat)


def with_stop_as_list(request: Request) -> Request:
    return msgspec.structs.replace(request, stop=request.stop_strings or None)


@both_formats
@given(request=records.requests)
def test_request_survives(request: Request, wire_format: WireFormat) -> None:
    again = decode(Request, *encode(request, wire_format))
    assert with_stop_as_list(again) == with_stop_as_list(request)


@given(request=records.requests)
def test_request_that_parley_writes_is_valid(request: Request) -> None:
    validate_request(request, request.user_id.encode(), max_prompt_bytes=1000)


@both_formats
@given(event=records.token_events)
def test_token_event_survives(event: TokenEvent, wire_format: WireFormat) -> None:
    assert decode(TokenEvent, *encode(event, wire_format)) == event


@both_formats
@given(turn=records.turns)
def test_turn_survives(turn: Turn, wire_format: WireFormat) -> None:
    assert decode(Turn, *encode(turn, wire_format)) == turn


@both_formats
@given(window=records.usage_windows)
def test_usage_window_survives(window: UsageWindow, wire_format: WireFormat) -> None:
    assert decode(UsageWindow, *encode(window, wire_format)) == window


@both_formats
@given(control=records.controls)
def test_control_survives(control: Control, wire_format: WireFormat) -> None:
    assert decode(Control, *encode(control, wire_format)) == control


@both_formats
@given(erasure=records.erasures)
def test_erasure_survives(erasure: Erasure, wire_format: WireFormat) -> None:
    assert decode(Erasure, *encode(erasure, wire_format)) == erasure


@both_formats
@given(call=records.tool_calls)
def test_tool_call_survives(call: ToolCallRecord, wire_format: WireFormat) -> None:
    assert decode(ToolCallRecord, *encode(call, wire_format)) == call


@both_formats
@given(result=records.tool_results)
def test_tool_result_survives(result: ToolResultRecord, wire_format: WireFormat) -> None:
    assert decode(ToolResultRecord, *encode(result, wire_format)) == result


def test_token_event_always_says_its_tokens_text_index_and_epoch() -> None:
    event = TokenEvent(type=EventType.TOKEN, request_id="r", index=0, tokens=(), text="", epoch=0)
    written = msgspec.json.decode(encode(event)[0])
    assert written == {"type": "token", "request_id": "r", "index": 0, "tokens": [], "text": "", "epoch": 0}


def test_fence_says_nothing_but_that_it_is_one() -> None:
    assert encode(TokenEvent(type=EventType.FENCE)) == (b'{"type":"fence"}', [])


def test_protobuf_is_announced_in_the_headers() -> None:
    assert encode(TokenEvent(type=EventType.FENCE), "protobuf")[1] == [("content-type", b"application/x-protobuf")]
