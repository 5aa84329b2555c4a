"""What an event in memory is counted for, against what Python really takes for it."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from app.gateway.answers.held import bytes_of
from app.wire.codec import decode, encode
from app.wire.event import ErrorInfo, EventType, Logprob, Notice, TokenEvent
from app.wire.tools import ToolCall, ToolCallDelta
from models.interface.generation import FinishReason, Usage

WIDE = "\U0001f600"
TOP = tuple(Logprob(70_000 + rank, f" word{WIDE}", -1.5) for rank in range(20))
TOLD: dict[EventType, dict[str, Any]] = {EventType.TOKEN: {"tokens": (3000,), "text": " hello"}}
COPIES = 20


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (EventType.TOKEN, {}),
        (EventType.TOKEN, {"user_id": WIDE * 128, "conversation_id": WIDE * 256}),
        (EventType.TOKEN, {"text": "a" * 5000 + WIDE}),
        (EventType.TOKEN, {"tokens": tuple(range(70_000, 72_000))}),
        (EventType.TOKEN, {"logprobs": (Logprob(70_000, " hello", -0.5, TOP),) * 4}),
        (EventType.TOKEN, {"prompt_logprobs": (Logprob(70_000, "a", -1.0, (), 5000),) * 4096}),
        (EventType.TOKEN, {"prompt_start": WIDE * 1000, "prompt_digest": "x" * 64}),
        (EventType.TOKEN, {"tool_call_deltas": (ToolCallDelta(index=1, id="c", name="n", arguments=WIDE * 500),) * 20}),
        (EventType.TOKEN, {"reasoning": WIDE * 1000}),
        (EventType.DONE, {"tool_calls": (ToolCall(id="c", name="n", arguments=WIDE * 300),) * 100}),
        (EventType.DONE, {"finish_reason": FinishReason.STOP, "usage": Usage(3000, 4000, 2000)}),
        (EventType.ERROR, {"error": ErrorInfo("c" * 300, WIDE * 1000)}),
        (EventType.NOTICE, {"notice": Notice("c", WIDE * 300, {"a": [{"b": number} for number in range(500)]})}),
    ],
)
def test_an_event_takes_no_more_than_it_is_counted_for(kind: EventType, fields: dict[str, Any]) -> None:
    ids = {"request_id": "0197e0f1-0000-7000-8000-000000000000", "user_id": "nina", "conversation_id": "c"}
    rest = {"epoch": 12_345_678, "timestamp": 1_790_000_000_000, "index": 300, "model_version": "demo@1"}
    value, headers = encode(TokenEvent(type=kind, **{**ids, **rest, **TOLD.get(kind, {}), **fields}))
    decode(TokenEvent, value, headers)  # what is made once and kept does not count
    tracemalloc.start()
    try:
        events = [decode(TokenEvent, value, headers) for _ in range(COPIES)]
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size <= sum(map(bytes_of, events)) <= 4 * size
