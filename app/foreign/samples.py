"""What an egress may have to write, so that a schema that cannot hold it is found before a worker reads a record."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from app.policy.foreign import EgressRules
from app.wire.event import ErrorInfo, EventType, TokenEvent
from app.wire.tools import ToolCall
from app.wire.turn import Timing, Turn
from models.interface.generation import FinishReason, Usage

_USAGE = Usage(1, 2)
_REASON = FinishReason.STOP
_TURN = Turn(
    request_id="r",
    user_id="t/u",
    conversation_id="c",
    prompt="Hi",
    answer="Ho",
    finish_reason=_REASON,
    usage=_USAGE,
    model_version="m",
    created_at=1,
    timing=Timing(requested_at=1),
)
_WHOLE_TURN = msgspec.structs.replace(
    _TURN,
    tenant="t",
    timing=Timing(requested_at=1, started_at=1, first_token_at=1, finished_at=1),
    tool_calls=(ToolCall("i", "n", "{}"),),
    route="r",
    experiment="e",
    arm="a",
    cached="r",
    guard=("g",),
    reasoning="x",
)
_TOKEN = TokenEvent(
    type=EventType.TOKEN, request_id="r", user_id="t/u", conversation_id="c", index=0, tokens=(1,), text="x", epoch=1,
    timestamp=1, model_version="m", reasoning="x",
)  # fmt: skip
_DONE = TokenEvent(
    type=EventType.DONE, request_id="r", user_id="t/u", conversation_id="c", index=1, epoch=1, timestamp=1,
    model_version="m", finish_reason=_REASON, usage=_USAGE, tool_calls=_WHOLE_TURN.tool_calls,
)  # fmt: skip
_ERROR = TokenEvent(type=EventType.ERROR, index=0, timestamp=1, error=ErrorInfo("c", "m"))


def samples_of(rules: EgressRules) -> Iterator[tuple[str, dict[str, Any]]]:
    """The fields of Parley's own that a record is made of, each with what it is."""
    if rules.per == "token":
        yield "an event with tokens", msgspec.to_builtins(_TOKEN)
        yield "an answer's end", msgspec.to_builtins(_DONE)
    elif "done" in rules.on:
        yield "an answer", msgspec.to_builtins(_WHOLE_TURN)
        yield "an answer that lacks what an answer may lack", msgspec.to_builtins(_TURN)
    if rules.tells_errors or rules.per == "token":
        yield "an error", {**msgspec.to_builtins(_ERROR), "created_at": 1, "timing": {"requested_at": 1}}
