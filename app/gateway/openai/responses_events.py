"""The events of a response: a function of what it was created with and of the token events in the log.

response.created                               of the background, then response.queued
response.in_progress
response.output_item.added                     a reasoning, a message, or a call of a function
response.content_part.added                    of a reasoning or a message
response.output_text.delta, ...                response.reasoning_text.delta, response.function_call_arguments.delta
response.output_text.done                      response.reasoning_text.done, response.function_call_arguments.done
response.content_part.done
response.output_item.done
response.completed, response.incomplete or response.failed

Nothing else enters: no clock, and no notice, because a reader that comes later sees none. So every gateway gives an
event the same `sequence_number`, whether it reads the answer as it is written or days later.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from app.gateway.edge.errors import refused
from app.gateway.openai.chat_choice import logprob_entries
from app.gateway.openai.reasoning_part import ReasoningPart
from app.gateway.openai.responses_given import Given
from app.wire.event import Logprob, TokenEvent
from app.wire.request import Request
from app.wire.tools import ToolCallDelta, ToolMode
from models.interface.generation import FinishReason, Usage

_INCOMPLETE = {
    FinishReason.LENGTH: "max_output_tokens",
    FinishReason.DEADLINE: "max_output_tokens",
    FinishReason.PARTIAL: "max_output_tokens",
    FinishReason.FILTERED: "content_filter",
}
_LAST = {"cancelled": "incomplete"}
"""OpenAI's API has no event for the end of a cancelled response; its clients stop at this one."""

Event = dict[str, Any]


class ResponseEvents:
    """`begin`, then `read` each token event in the order of the log. Encode what is yielded before the next step."""

    def __init__(self, request: Request, given: Given) -> None:
        self.has_ended = False
        self._request = request
        self._given = given
        self._status = "queued" if given.body.background else "in_progress"
        self._version: str | None = None
        self._items: list[dict[str, Any]] = []
        self._open = False  # whether the last item is in progress
        self._reason: FinishReason | None = None
        self._error: dict[str, str] | None = None
        self._completed_at: int | None = None
        self._usage: dict[str, Any] | None = None
        self._part = ReasoningPart()
        self._number = 0

    def begin(self) -> Iterator[Event]:
        yield self._numbered({"type": "response.created", "response": self.response})
        yield self._numbered({"type": f"response.{self._status}", "response": self.response})

    def read(self, event: TokenEvent) -> Iterator[Event]:
        if event.notice is None and not self.has_ended:
            yield from map(self._numbered, self._read(event))

    def fail(self, code: str, message: str) -> Iterator[Event]:
        yield from map(self._numbered, self._fail(code, message))

    def left(self, code: str, message: str) -> Event:
        """The stream ends, and the response does not: it goes on behind the last event."""
        return {"type": "error", "code": code, "message": message, "param": None, "sequence_number": self._number - 1}

    @property
    def response(self) -> dict[str, Any]:
        """The response so far."""
        return {
            **self._given.described(self._request),
            "created_at": _created_at(self._request.request_id),
            "completed_at": self._completed_at,
            "status": self._status,
            "error": self._error,
            "incomplete_details": self._incomplete_details,
            "output": [*self._items],
            "usage": self._usage,
            "parley": {
                "request_id": self._request.request_id,
                "conversation_id": self._request.conversation_id,
                "finish_reason": self._reason,
                "model_version": self._version,
            },
        }

    @property
    def _incomplete_details(self) -> dict[str, str] | None:
        return {"reason": _INCOMPLETE[self._reason]} if self._status == "incomplete" and self._reason else None

    def _read(self, event: TokenEvent) -> Iterator[Event]:
        self._version = event.model_version or self._version
        if event.error is not None:
            worded = self._given.body.in_callers_words(refused(event.error.code, event.error.message))
            yield from self._fail(worded.code, worded.message)
            return
        if self._status == "queued":
            self._status = "in_progress"
            yield {"type": "response.in_progress", "response": self.response}
        logprobs = self._part.logprobs_of_text(event)
        if event.reasoning:
            yield from self._reasoning(event.reasoning)
        if event.text or logprobs:
            yield from self._text(event.text or "", logprobs)
        shows_calls = self._request.tool_mode is ToolMode.CLIENT
        for delta in event.tool_call_deltas or () if shows_calls else ():
            yield from self._call(delta)
        if event.finish_reason is not None:
            yield from self._end(event, event.finish_reason)

    def _end(self, event: TokenEvent, reason: FinishReason) -> Iterator[Event]:
        self._reason = reason
        self._usage = None if event.usage is None else _usage(event.usage, self._part.tokens)
        yield from self._close()
        self.has_ended = True
        self._status = "incomplete" if reason in _INCOMPLETE else "completed"
        if reason is FinishReason.CANCELLED:
            self._status = "cancelled"
        if self._status == "completed" and event.timestamp is not None:
            self._completed_at = event.timestamp // 1000
        yield {"type": f"response.{_LAST.get(self._status, self._status)}", "response": self.response}

    def _fail(self, code: str, message: str) -> Iterator[Event]:
        self.has_ended, self._open = True, False
        if self._items and self._items[-1]["status"] == "in_progress":
            self._items[-1]["status"] = "incomplete"
        self._status, self._error = "failed", {"code": code, "message": message}
        yield {"type": "response.failed", "response": self.response}

    def _reasoning(self, reasoning: str) -> Iterator[Event]:
        if not self._is_in("reasoning"):
            yield from self._close()
            yield from self._begin_with_part("rs", {"type": "reasoning", "summary": []}, {"type": "reasoning_text"})
        self._items[-1]["content"][0]["text"] += reasoning
        yield self._of_item("response.reasoning_text.delta", content_index=0, delta=reasoning)

    def _text(self, text: str, logprobs: Sequence[Logprob]) -> Iterator[Event]:
        if not self._is_in("message"):
            yield from self._close()
            part = {"type": "output_text", "annotations": [], "logprobs": []}
            yield from self._begin_with_part("msg", {"type": "message", "role": "assistant"}, part)
        part = self._items[-1]["content"][0]
        part["text"] += text
        entries = logprob_entries(logprobs)
        part["logprobs"] += entries
        yield self._of_item("response.output_text.delta", content_index=0, delta=text, logprobs=entries)

    def _begin_with_part(self, prefix: str, item: dict[str, Any], part: dict[str, Any]) -> Iterator[Event]:
        yield self._begin({**item, "id": self._item_id(prefix), "status": "in_progress", "content": []})
        self._items[-1]["content"] = [{**part, "text": ""}]
        yield self._of_item("response.content_part.added", content_index=0, part={**part, "text": ""})

    def _call(self, delta: ToolCallDelta) -> Iterator[Event]:
        if delta.id is not None:
            yield from self._close()
            item = {"type": "function_call", "id": self._item_id("fc"), "status": "in_progress"}
            yield self._begin({**item, "call_id": delta.id, "name": delta.name, "arguments": ""})
        if delta.arguments:
            self._items[-1]["arguments"] += delta.arguments
            yield self._of_item("response.function_call_arguments.delta", delta=delta.arguments)

    def _begin(self, item: dict[str, Any]) -> Event:
        self._items.append(item)
        self._open = True
        return {"type": "response.output_item.added", "output_index": len(self._items) - 1, "item": {**item}}

    def _close(self) -> Iterator[Event]:
        """End the last item."""
        if not self._open:
            return
        self._open = False
        item = self._items[-1]
        is_cut = self._reason in {*_INCOMPLETE, FinishReason.CANCELLED}
        item["status"] = "incomplete" if is_cut else "completed"
        if item["type"] in {"message", "reasoning"}:
            part = item["content"][0]
            given = {name: part[name] for name in ("text", "logprobs") if name in part}
            yield self._of_item(f"response.{part['type']}.done", content_index=0, **given)
            yield self._of_item("response.content_part.done", content_index=0, part=part)
        else:
            given = {"name": item["name"], "arguments": item["arguments"]}
            yield self._of_item("response.function_call_arguments.done", **given)
        yield {"type": "response.output_item.done", "output_index": len(self._items) - 1, "item": item}

    def _is_in(self, kind: str) -> bool:
        return self._open and self._items[-1]["type"] == kind

    def _item_id(self, prefix: str) -> str:
        return f"{prefix}_{self._request.request_id}_{len(self._items)}"

    def _of_item(self, kind: str, **fields: Any) -> Event:
        return {"type": kind, "item_id": self._items[-1]["id"], "output_index": len(self._items) - 1, **fields}

    def _numbered(self, event: Event) -> Event:
        self._number += 1
        return {**event, "sequence_number": self._number - 1}


def _created_at(request_id: str) -> int:
    """Unix seconds, from the id: ids of responses are made by gateways, as UUIDv7."""
    return (uuid.UUID(request_id).int >> 80) // 1000


def _usage(usage: Usage, reasoning: int) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }
