"""The reply to `POST /v1/completions`: one object, or chunks."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from app.gateway.errors import ApiError
from app.gateway.openai.chat_choice import REASONS, prompt_logprobs_of
from app.gateway.openai.chat_reply import DONE, data
from app.wire import Logprob, Request, TokenEvent, Usage


class TextReply:
    """`per_prompt`: choices of each prompt. With `echo` a choice begins with its prompt, and its log probabilities with
    those of the prompt's tokens.
    """

    def __init__(
        self, requests: Sequence[Request], model: str, *, per_prompt: int = 1, echo: bool = False, wants_usage: bool
    ) -> None:
        self._requests = requests
        self._model = model
        self._per_prompt = per_prompt
        self._wants_usage = wants_usage
        self._created = int(time.time())
        self._version: str | None = None
        self._echo = echo
        self._echoed = [request.prompt or "" if echo else "" for request in requests]
        self._texts = [[echoed] for echoed in self._echoed]
        self._lengths = [len(echoed) for echoed in self._echoed]
        self._logprobs: list[list[dict[str, Any]]] = [[] for _ in requests]
        self._prompt_logprobs: list[tuple[Logprob, ...]] = [() for _ in requests]
        self._reasons: list[str | None] = [None for _ in requests]
        self._usages: list[Usage | None] = [None for _ in requests]

    def add(self, number: int, events: list[TokenEvent]) -> None:
        for event in events:
            self._texts[number].append(event.text or "")
            if logprobs := self._add(number, event):
                self._logprobs[number].append(logprobs)

    def whole(self) -> dict[str, Any]:
        choices = [self._whole_choice(number) for number in range(len(self._requests))]
        return {**self._head(), "choices": choices, "usage": self._usage}

    def first_chunks(self) -> Iterator[bytes]:
        for number, echoed in enumerate(self._echoed):
            if echoed:
                yield self._chunk(number, echoed, None)

    def chunks(self, number: int, events: list[TokenEvent]) -> Iterator[bytes]:
        for event in events:
            logprobs = self._add(number, event)
            if event.text or logprobs or event.finish_reason is not None:
                yield self._chunk(number, event.text or "", logprobs)

    def last_chunks(self) -> Iterator[bytes]:
        if self._wants_usage:
            yield data({**self._head(), "choices": [], "usage": self._usage})
        yield DONE

    def failed(self, error: ApiError) -> bytes:
        return data(error.body)

    def _add(self, number: int, event: TokenEvent) -> dict[str, Any] | None:
        """Record the event; returns its log probabilities."""
        self._version = event.model_version or self._version
        self._usages[number] = event.usage or self._usages[number]
        if event.finish_reason is not None:
            self._reasons[number] = REASONS[event.finish_reason]
        self._prompt_logprobs[number] = event.prompt_logprobs or self._prompt_logprobs[number]
        parts = []
        if self._echo and event.prompt_logprobs:
            parts.append(_echo_logprobs(self._echoed[number], event.prompt_logprobs))
        if event.logprobs:
            parts.append(_logprobs(event.logprobs, self._lengths[number]))
        self._lengths[number] += len(event.text or "")
        return _joined(parts)

    def _whole_choice(self, number: int) -> dict[str, Any]:
        choice = self._choice(number, "".join(self._texts[number]), _joined(self._logprobs[number]))
        prompt_logprobs = prompt_logprobs_of(self._requests[number], self._prompt_logprobs[number])
        return choice if prompt_logprobs is None else {**choice, "prompt_logprobs": prompt_logprobs}

    def _choice(self, number: int, text: str, logprobs: dict[str, Any] | None) -> dict[str, Any]:
        return {"index": number, "text": text, "logprobs": logprobs, "finish_reason": self._reasons[number]}

    def _chunk(self, number: int, text: str, logprobs: dict[str, Any] | None) -> bytes:
        return data({**self._head(), "choices": [self._choice(number, text, logprobs)]})

    @property
    def _usage(self) -> dict[str, Any]:
        """The tokens of a prompt are counted once."""
        first = self._usages[:: self._per_prompt]
        prompt = sum(usage.prompt_tokens for usage in first if usage is not None)
        answers = sum(usage.completion_tokens for usage in self._usages if usage is not None)
        return {"prompt_tokens": prompt, "completion_tokens": answers, "total_tokens": prompt + answers}

    def _head(self) -> dict[str, Any]:
        return {
            "id": f"cmpl-{self._requests[0].request_id}",
            "object": "text_completion",
            "created": self._created,
            "model": self._model,
            "system_fingerprint": self._version,
        }


def _logprobs(logprobs: Sequence[Logprob], offset: int) -> dict[str, Any]:
    """In the format of completions; `offset` is where the first token's text begins."""
    offsets = []
    for one in logprobs:
        offsets.append(offset)
        offset += len(one.text)
    return {
        "tokens": [one.text for one in logprobs],
        "token_logprobs": [one.logprob for one in logprobs],
        # Encoded as they come: those of a long answer would take a second at its end.
        "top_logprobs": [
            msgspec.Raw(msgspec.json.encode({rival.text: rival.logprob for rival in (one, *one.top)}))
            for one in logprobs
        ],
        "text_offset": offsets,
    }


def _echo_logprobs(prompt: str, logprobs: Sequence[Logprob]) -> dict[str, Any]:
    """Those of the prompt. Its first token, which no event contains, is the beginning that the others leave."""
    first = prompt[: max(0, len(prompt) - sum(len(one.text) for one in logprobs))]
    rest = _logprobs(logprobs, len(first))
    return {name: [value, *rest[name]] for name, value in zip(rest, (first, None, None, 0), strict=True)}


def _joined(parts: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    if not parts:
        return None
    return {name: [value for part in parts for value in part[name]] for name in parts[0]}
