"""The reply to `POST /v1/responses`: one object, or a stream of typed events.

response.created, response.in_progress
response.output_item.added                     a message, or a call of a function
response.content_part.added                    of a message
response.output_text.delta, ...                response.function_call_arguments.delta, ...
response.output_text.done                      response.function_call_arguments.done
response.content_part.done
response.output_item.done
response.completed, response.incomplete or response.failed
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from app.gateway.errors import ApiError
from app.gateway.openai.chat_choice import logprob_entries
from app.gateway.openai.responses_body import ResponsesBody, response_id
from app.gateway.openai.tools import flat, tools_of
from app.gateway.streams.sse import server_sent
from app.wire.event import Logprob, TokenEvent
from app.wire.request import Request
from app.wire.tools import ToolCallDelta, ToolMode
from models.generation import FinishReason

_INCOMPLETE = {
    FinishReason.LENGTH: "max_output_tokens",
    FinishReason.DEADLINE: "max_output_tokens",
    FinishReason.PARTIAL: "max_output_tokens",
    FinishReason.CANCELLED: "max_output_tokens",
    FinishReason.FILTERED: "content_filter",
}

Event = dict[str, Any]


class ResponsesReply:
    """`add` and `chunks` feed the same items, so both forms have the same content."""

    def __init__(self, request: Request, body: ResponsesBody, model: str) -> None:
        self._request = request
        self._body = body
        self._model = model
        self._created = int(time.time())
        self._version: str | None = None
        self._items: list[dict[str, Any]] = []
        self._open = False  # whether the last item is in progress
        self._reason: FinishReason | None = None
        self._usage: dict[str, Any] | None = None
        self._number = 0

    def add(self, number: int, events: list[TokenEvent]) -> None:  # noqa: ARG002 - there is one choice
        for event in events:
            for _ in self._read(event):
                pass

    def whole(self) -> dict[str, Any]:
        incomplete = _INCOMPLETE.get(self._reason) if self._reason else None
        return self._response("incomplete" if incomplete else "completed", incomplete=incomplete)

    def first_chunks(self) -> Iterator[bytes]:
        yield self._encoded({"type": "response.created", "response": self._response("in_progress")})
        yield self._encoded({"type": "response.in_progress", "response": self._response("in_progress")})

    def chunks(self, number: int, events: list[TokenEvent]) -> Iterator[bytes]:  # noqa: ARG002
        for event in events:
            yield from map(self._encoded, self._read(event))

    def last_chunks(self) -> Iterator[bytes]:
        whole = self.whole()
        yield self._encoded({"type": f"response.{whole['status']}", "response": whole})

    def failed(self, error: ApiError) -> bytes:
        response = self._response("failed", error={"code": error.code, "message": error.message})
        return self._encoded({"type": "response.failed", "response": response})

    def _read(self, event: TokenEvent) -> Iterator[Event]:
        self._version = event.model_version or self._version
        if event.text or event.logprobs:
            yield from self._text(event.text or "", event.logprobs or ())
        shows_calls = self._request.tool_mode is ToolMode.CLIENT
        for delta in event.tool_call_deltas or () if shows_calls else ():
            yield from self._call(delta)
        if event.finish_reason is not None:
            self._reason = event.finish_reason
            if event.usage is not None:
                self._usage = {
                    "input_tokens": event.usage.prompt_tokens,
                    "input_tokens_details": {"cached_tokens": event.usage.cached_tokens},
                    "output_tokens": event.usage.completion_tokens,
                    "output_tokens_details": {"reasoning_tokens": 0},
                    "total_tokens": event.usage.prompt_tokens + event.usage.completion_tokens,
                }
            yield from self._close()

    def _text(self, text: str, logprobs: tuple[Logprob, ...]) -> Iterator[Event]:
        if not self._is_in("message"):
            yield from self._close()
            part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            item = {"type": "message", "id": self._item_id("msg"), "status": "in_progress", "role": "assistant"}
            yield self._begin({**item, "content": []})
            self._items[-1]["content"] = [part]
            yield self._of_item("response.content_part.added", content_index=0, part={**part, "logprobs": []})
        part = self._items[-1]["content"][0]
        part["text"] += text
        entries = logprob_entries(logprobs)
        part["logprobs"] += entries
        yield self._of_item("response.output_text.delta", content_index=0, delta=text, logprobs=entries)

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
        cut = self._reason is not None and self._reason in _INCOMPLETE
        item["status"] = "incomplete" if cut else "completed"
        if item["type"] == "message":
            part = item["content"][0]
            given = {"text": part["text"], "logprobs": part["logprobs"]}
            yield self._of_item("response.output_text.done", content_index=0, **given)
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

    def _encoded(self, event: Event) -> bytes:
        numbered = {**event, "sequence_number": self._number}
        self._number += 1
        return server_sent(numbered, name=event["type"])

    def _response(
        self, status: str, *, incomplete: str | None = None, error: dict[str, str] | None = None
    ) -> dict[str, Any]:
        body, request = self._body, self._request
        given = body.text.format if body.text and body.text.format else None
        return {
            "id": response_id(request),
            "object": "response",
            "created_at": self._created,
            "status": status,
            "background": False,
            "error": error,
            "incomplete_details": None if incomplete is None else {"reason": incomplete},
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "metadata": body.metadata or {},
            "model": self._model,
            "output": [*self._items],
            "parallel_tool_calls": body.parallel_tool_calls is not False,
            "previous_response_id": body.previous_response_id,
            "reasoning": {"effort": None, "summary": None},
            "service_tier": "default",
            "store": request.store,
            "temperature": body.temperature,
            "text": {"format": given or {"type": "text"}},
            "tool_choice": body.tool_choice or "auto",
            "tools": flat(tools_of(body.tools) or ()),
            "top_p": body.top_p,
            "truncation": "disabled",
            "usage": self._usage,
            "user": body.user,
            "parley": {
                "request_id": request.request_id,
                "conversation_id": request.conversation_id,
                "finish_reason": self._reason,
                "model_version": self._version,
            },
        }
