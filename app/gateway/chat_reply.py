"""An answer in OpenAI's words: one object, or chunks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from app.wire import FinishReason, Logprob, Request, TokenEvent, Usage

# The client's types know no other reasons; `parley` beside it tells the true one.
_REASONS = {
    FinishReason.STOP: "stop",
    FinishReason.LENGTH: "length",
    FinishReason.CANCELLED: "stop",
    FinishReason.DEADLINE: "length",
    FinishReason.FILTERED: "content_filter",
    FinishReason.PARTIAL: "length",
}


class ChatReply:
    """Both forms of the reply to one request."""

    def __init__(self, request: Request, *, wants_usage: bool) -> None:
        self._request = request
        self._wants_usage = wants_usage
        self._created = int(time.time())
        self._model = request.model or ""

    def first_chunk(self) -> dict[str, Any]:
        return self._chunk({"role": "assistant", "content": ""})

    def chunks(self, event: TokenEvent) -> Iterator[dict[str, Any]]:
        """What one event says; an error is not for here."""
        self._model = event.model_version or self._model
        if event.text:
            yield self._chunk({"content": event.text}, logprobs=_logprobs(event.logprobs))
        if event.finish_reason is not None:
            yield self._chunk({}, finish_reason=event.finish_reason)
            if self._wants_usage and event.usage is not None:
                yield {**self._head("chat.completion.chunk"), "choices": [], "usage": _usage(event.usage)}

    def whole(self, events: list[TokenEvent]) -> dict[str, Any]:
        end = events[-1]
        self._model = end.model_version or self._model
        told = [one for event in events for one in event.logprobs or ()]
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": "".join(event.text or "" for event in events), "refusal": None},
            "finish_reason": _reason(end),
            "logprobs": _logprobs(told),
        }
        return {
            **self._head("chat.completion"),
            "choices": [choice],
            "usage": None if end.usage is None else _usage(end.usage),
            "parley": self._parley(end.finish_reason),
        }

    def _chunk(
        self, delta: dict[str, Any], *, finish_reason: FinishReason | None = None, logprobs: Any = None
    ) -> dict[str, Any]:
        reason = None if finish_reason is None else _REASONS[finish_reason]
        chunk = self._head("chat.completion.chunk")
        chunk["choices"] = [{"index": 0, "delta": delta, "finish_reason": reason, "logprobs": logprobs}]
        if self._wants_usage:
            chunk["usage"] = None
        if finish_reason is not None:
            chunk["parley"] = self._parley(finish_reason)
        return chunk

    def _head(self, kind: str) -> dict[str, Any]:
        request_id = f"chatcmpl-{self._request.request_id}"
        return {"id": request_id, "object": kind, "created": self._created, "model": self._model}

    def _parley(self, reason: FinishReason | None) -> dict[str, Any]:
        return {
            "request_id": self._request.request_id,
            "conversation_id": self._request.conversation_id,
            "finish_reason": reason,
        }


def _reason(end: TokenEvent) -> str:
    assert end.finish_reason is not None, "an error is not for here"
    return _REASONS[end.finish_reason]


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }


def _logprobs(told: list[Logprob] | tuple[Logprob, ...] | None) -> dict[str, Any] | None:
    return {"content": [_logprob(one, with_top=True) for one in told], "refusal": None} if told else None


def _logprob(one: Logprob, *, with_top: bool) -> dict[str, Any]:
    told: dict[str, Any] = {"token": one.text, "logprob": one.logprob, "bytes": list(one.text.encode())}
    if with_top:
        told["top_logprobs"] = [_logprob(rival, with_top=False) for rival in one.top]
    return told
