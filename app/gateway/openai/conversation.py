"""Conversations as objects of OpenAI's API: made from the turns, so that no gateway has to keep them.

A conversation exists by its name. One that is created gets a name of its own, and nothing is written until a response
belongs to it; its items are the questions and answers of its turns.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from app.gateway.answers.archive import time_of
from app.gateway.edge.errors import invalid
from app.wire.ids import new_request_id
from app.wire.turn import Turn

_PREFIX = "conv_"


class ConversationBody(msgspec.Struct, frozen=True, kw_only=True):
    items: tuple[Any, ...] | None = None
    metadata: dict[str, Any] | None = None

    def created(self) -> dict[str, Any]:
        """A conversation of a new name; raises `ApiError`."""
        if self.items:
            raise invalid("items", "is not supported here: they are the input of the first response")
        if self.metadata:
            raise invalid("metadata", "is not supported here: each response may have its own")
        return described(f"{_PREFIX}{new_request_id()}")


def described(conversation_id: str, first_ms: int = 0) -> dict[str, Any]:
    """The object; its time is that of its name or of its first turn, 0 if neither is known."""
    made_at = time_of(conversation_id.removeprefix(_PREFIX))
    return {
        "id": conversation_id,
        "object": "conversation",
        "created_at": int(made_at or first_ms / 1000),
        "metadata": {},
    }


def items_of(turn: Turn) -> Iterator[dict[str, Any]]:
    if turn.prompt:
        content = [{"type": "input_text", "text": turn.prompt}]
        yield _item(turn, "in", type="message", role="user", content=content)
    if turn.reasoning:
        thought = [{"type": "reasoning_text", "text": turn.reasoning}]
        yield _item(turn, "rs", type="reasoning", summary=[], content=thought)
    if turn.answer:
        part = {"type": "output_text", "text": turn.answer, "annotations": [], "logprobs": []}
        yield _item(turn, "out", type="message", role="assistant", content=[part])
    for call in turn.tool_calls or ():
        given = {"call_id": call.id, "name": call.name, "arguments": call.arguments}
        yield _item(turn, call.id, type="function_call", **given)


def _item(turn: Turn, name: str, /, **fields: Any) -> dict[str, Any]:
    return {"id": f"item_{turn.request_id}_{name}", "status": "completed", **fields}
