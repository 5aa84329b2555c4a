"""The reply to `POST /v1/completions`: one object, or chunks."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from app.gateway.answers.sse import server_sent
from app.gateway.edge.errors import ApiError
from app.gateway.openai.chat_reply import DONE
from app.gateway.openai.text_choice import TextChoice
from app.wire.event import TokenEvent
from app.wire.request import Request


class TextReply:
    """`per_prompt`: choices of each prompt. With `echo` a choice begins with its prompt, and its log probabilities with
    those of the prompt's tokens; with `is_only_echo` it has nothing else.
    """

    def __init__(
        self,
        requests: Sequence[Request],
        model: str,
        *,
        per_prompt: int = 1,
        echo: bool = False,
        is_only_echo: bool = False,
        wants_usage: bool,
    ) -> None:
        self._id = f"cmpl-{requests[0].request_id}"
        self._choices = [
            TextChoice(number, request, echo=echo, is_only_echo=is_only_echo) for number, request in enumerate(requests)
        ]
        self._model = model
        self._per_prompt = per_prompt
        self._is_only_echo = is_only_echo
        self._wants_usage = wants_usage
        self._created = int(time.time())
        self._version: str | None = None

    def add(self, number: int, events: list[TokenEvent]) -> None:
        for event in events:
            self._version = event.model_version or self._version
            self._choices[number].add(event)

    def whole(self) -> dict[str, Any]:
        return {**self._head(), "choices": [choice.whole for choice in self._choices], "usage": self._usage}

    def first_chunks(self) -> Iterator[bytes]:
        return iter(())

    def chunks(self, number: int, events: list[TokenEvent]) -> Iterator[bytes]:
        for event in events:
            self._version = event.model_version or self._version
            if (choice := self._choices[number].chunk(event)) is not None:
                yield server_sent({**self._head(), "choices": [choice]})

    def last_chunks(self) -> Iterator[bytes]:
        if self._wants_usage:
            yield server_sent({**self._head(), "choices": [], "usage": self._usage})
        yield DONE

    def failed(self, error: ApiError) -> bytes:
        return server_sent(error.body)

    @property
    def _usage(self) -> dict[str, Any]:
        """The tokens of a prompt are counted once."""
        first = self._choices[:: self._per_prompt]
        prompt = sum(choice.usage.prompt_tokens for choice in first if choice.usage is not None)
        answers = sum(choice.usage.completion_tokens for choice in self._choices if choice.usage is not None)
        shown = 0 if self._is_only_echo else answers
        return {"prompt_tokens": prompt, "completion_tokens": shown, "total_tokens": prompt + shown}

    def _head(self) -> dict[str, Any]:
        return {
            "id": self._id,
            "object": "text_completion",
            "created": self._created,
            "model": self._model,
            "system_fingerprint": self._version,
        }
