"""An answer in OpenAI's format: one object, or chunks."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from app.gateway.openai.chat_choice import ChatChoice, logprobs_of
from app.wire import Request, TokenEvent


class ChatReply:
    """Both forms of the reply to one chat completion, whose choices may progress in any order.

    `parley` contains what OpenAI's types lack: the request's id, its conversation, the actual finish reason.
    """

    def __init__(self, requests: Sequence[Request], *, wants_usage: bool) -> None:
        self._choices = [ChatChoice(number, request) for number, request in enumerate(requests)]
        self._wants_usage = wants_usage
        self._created = int(time.time())
        self._model = requests[0].model or ""

    def first_chunks(self) -> Iterator[dict[str, Any]]:
        for choice in self._choices:
            yield {**self._chunk(choice.delta({"role": "assistant", "content": ""})), "parley": choice.parley}

    def chunks(self, number: int, events: list[TokenEvent]) -> Iterator[dict[str, Any]]:
        """The chunks for these events of one choice; the events contain no error."""
        self.add(number, events, keep=False)
        choice = self._choices[number]
        for event in events:
            if event.text or event.logprobs:
                yield self._chunk(choice.delta({"content": event.text or ""}, logprobs_of(event.logprobs)))
            if event.finish_reason is not None:
                yield {**self._chunk(choice.delta({}, finish=True)), "parley": choice.parley}

    def last_chunks(self) -> Iterator[dict[str, Any]]:
        """The last chunks, after all choices have ended."""
        if self._wants_usage:
            yield {**self._head("chat.completion.chunk"), "choices": [], "usage": self._usage}

    def add(self, number: int, events: list[TokenEvent], *, keep: bool = True) -> None:
        """Record the events of one choice; texts are kept for `whole` only."""
        for event in events:
            self._model = event.model_version or self._model
            self._choices[number].add(event, keep=keep)

    def whole(self) -> dict[str, Any]:
        return {
            **self._head("chat.completion"),
            "choices": [choice.whole for choice in self._choices],
            "usage": self._usage,
            "parley": self._choices[0].parley,
        }

    @property
    def _usage(self) -> dict[str, Any]:
        """The complete reply, after all choices have ended; prompt tokens are counted once."""
        usages = [choice.usage for choice in self._choices if choice.usage is not None]
        prompt = max((usage.prompt_tokens for usage in usages), default=0)
        answers = sum(usage.completion_tokens for usage in usages)
        cached = max((usage.cached_tokens for usage in usages), default=0)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": answers,
            "total_tokens": prompt + answers,
            "prompt_tokens_details": {"cached_tokens": cached},
        }

    def _chunk(self, choice: dict[str, Any]) -> dict[str, Any]:
        chunk = {**self._head("chat.completion.chunk"), "choices": [choice]}
        if self._wants_usage:
            chunk["usage"] = None
        return chunk

    def _head(self, kind: str) -> dict[str, Any]:
        request_id = f"chatcmpl-{self._choices[0].request_id}"
        return {"id": request_id, "object": kind, "created": self._created, "model": self._model}
