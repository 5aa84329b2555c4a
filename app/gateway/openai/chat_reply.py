"""An answer in OpenAI's format: one object, or chunks."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from app.gateway.answers.sse import server_sent
from app.gateway.edge.errors import ApiError
from app.gateway.openai.chat_choice import ChatChoice, logprobs_of, tool_call_chunks
from app.wire.event import Logprob, TokenEvent
from app.wire.request import Request
from models.interface.generation import Usage

DONE = b"data: [DONE]\n\n"


class ChatReply:
    """Both forms of the reply to one chat completion, whose choices may progress in any order.

    `model` is the name that the caller used; the version of its weights is the `system_fingerprint`. `parley` contains
    what OpenAI's types lack: the request's id, its conversation, the actual finish reason.
    """

    def __init__(self, requests: Sequence[Request], model: str, *, wants_usage: bool) -> None:
        self._choices = [ChatChoice(number, request) for number, request in enumerate(requests)]
        self._wants_usage = wants_usage
        self._created = int(time.time())
        self._model = model
        self._version: str | None = None

    def first_chunks(self) -> Iterator[bytes]:
        for choice in self._choices:
            yield server_sent(
                {**self._chunk(choice.delta({"role": "assistant", "content": ""})), "parley": choice.parley}
            )

    def chunks(self, number: int, events: list[TokenEvent]) -> Iterator[bytes]:
        choice = self._choices[number]
        for event in events:
            logprobs = self._add(choice, event, keep=False)
            if event.reasoning:
                yield server_sent(self._chunk(choice.delta({"reasoning_content": event.reasoning})))
            if event.text or logprobs:
                yield server_sent(self._chunk(choice.delta({"content": event.text or ""}, logprobs_of(logprobs))))
            if event.tool_call_deltas and choice.shows_calls:
                calls = tool_call_chunks(event.tool_call_deltas)
                yield server_sent(self._chunk(choice.delta({"tool_calls": calls})))
            if event.finish_reason is not None:
                yield server_sent({**self._chunk(choice.delta({}, finish=True)), "parley": choice.parley})

    def last_chunks(self) -> Iterator[bytes]:
        if self._wants_usage:
            yield server_sent({**self._head("chat.completion.chunk"), "choices": [], "usage": self._usage})
        yield DONE

    def failed(self, error: ApiError) -> bytes:
        return server_sent(error.body)

    def add(self, number: int, events: list[TokenEvent]) -> None:
        for event in events:
            self._add(self._choices[number], event, keep=True)

    def whole(self) -> dict[str, Any]:
        first = self._choices[0]
        prompt_logprobs = first.prompt_logprobs
        return {
            **self._head("chat.completion"),
            "choices": [choice.whole for choice in self._choices],
            "usage": self._usage,
            "parley": first.parley,
            **({} if prompt_logprobs is None else {"prompt_logprobs": prompt_logprobs}),
        }

    def _add(self, choice: ChatChoice, event: TokenEvent, *, keep: bool) -> Sequence[Logprob]:
        self._version = event.model_version or self._version
        return choice.add(event, keep=keep)

    @property
    def _usage(self) -> dict[str, Any]:
        usage = usage_of([choice.usage for choice in self._choices])
        if reasoning := sum(choice.reasoning_tokens for choice in self._choices):
            usage["completion_tokens_details"] = {"reasoning_tokens": reasoning}
        return usage

    def _chunk(self, choice: dict[str, Any]) -> dict[str, Any]:
        chunk = {**self._head("chat.completion.chunk"), "choices": [choice]}
        if self._wants_usage:
            chunk["usage"] = None
        return chunk

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": f"chatcmpl-{self._choices[0].request_id}",
            "object": kind,
            "created": self._created,
            "model": self._model,
            "system_fingerprint": self._version,
        }


def usage_of(usages: Sequence[Usage | None]) -> dict[str, Any]:
    """The usage of choices with one prompt, whose tokens are counted once."""
    known = [usage for usage in usages if usage is not None]
    prompt = max((usage.prompt_tokens for usage in known), default=0)
    answers = sum(usage.completion_tokens for usage in known)
    cached = max((usage.cached_tokens for usage in known), default=0)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": answers,
        "total_tokens": prompt + answers,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
