"""The reply to `POST /v1/completions`: one object, or chunks."""

from __future__ import annotations

import codecs
import time
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from app.gateway.answers.sse import server_sent
from app.gateway.edge.errors import ApiError
from app.gateway.openai.chat_choice import REASONS, prompt_logprobs_of
from app.gateway.openai.chat_reply import DONE
from app.wire.event import Logprob, TokenEvent
from app.wire.request import Request
from models.interface.generation import FinishReason, Usage
from models.text.token_texts import bytes_of, name_of

_NO_LOGPROB: dict[str, Any] = {"token_logprobs": None, "top_logprobs": None}


class TextChoice:
    """One choice: the answer to one request, after its prompt if that is echoed.

    `echo`: the text begins with the prompt, and the log probabilities with those of the prompt's tokens.
    `is_only_echo`: it also ends there.
    """

    def __init__(self, number: int, request: Request, *, echo: bool, is_only_echo: bool) -> None:
        self.usage: Usage | None = None
        self.reason: FinishReason | None = None
        self._number = number
        self._request = request
        self._owes_echo = echo
        self._is_only_echo = is_only_echo
        self._offsets = _Offsets()
        self._texts: list[str] = []
        self._logprobs: list[dict[str, Any]] = []
        self._prompt_logprobs: tuple[Logprob, ...] = ()

    def add(self, event: TokenEvent) -> None:
        """Record the event for `whole`."""
        text, logprobs = self._read(event)
        self._texts.append(text)
        if logprobs is not None:
            self._logprobs.append(logprobs)

    def chunk(self, event: TokenEvent) -> dict[str, Any] | None:
        """What the event adds; None if that is nothing."""
        text, logprobs = self._read(event)
        if not text and logprobs is None and event.finish_reason is None:
            return None
        return self._choice(text, logprobs)

    @property
    def whole(self) -> dict[str, Any]:
        choice = self._choice("".join(self._texts), _joined(self._logprobs))
        prompt_logprobs = prompt_logprobs_of(self._request, self._prompt_logprobs)
        return choice if prompt_logprobs is None else {**choice, "prompt_logprobs": prompt_logprobs}

    def _choice(self, text: str, logprobs: dict[str, Any] | None) -> dict[str, Any]:
        reason = None if self.reason is None else "length" if self._is_only_echo else REASONS[self.reason]
        return {"index": self._number, "text": text, "logprobs": logprobs, "finish_reason": reason}

    def _read(self, event: TokenEvent) -> tuple[str, dict[str, Any] | None]:
        """The text and the log probabilities that the event adds."""
        if event.notice is not None:
            return "", None
        self.usage = event.usage or self.usage
        self.reason = event.finish_reason or self.reason
        self._prompt_logprobs = event.prompt_logprobs or self._prompt_logprobs
        text, parts = "", []
        if self._owes_echo:
            self._owes_echo = False
            text, scores = self._echoed(event)
            if self._request.logprobs:
                parts.append(scores)
        if not self._is_only_echo:
            text += event.text or ""
            if event.logprobs:
                parts.append(_logprobs(event.logprobs, self._offsets))
        return text, _joined(parts)

    def _echoed(self, event: TokenEvent) -> tuple[str, dict[str, Any]]:
        """The prompt, and its log probabilities. The first token has none: its text comes alone, or it is what the
        others leave of the prompt.
        """
        logprobs, start = event.prompt_logprobs or (), event.prompt_start
        rest = b"".join(bytes_of(one.text) for one in logprobs)
        given = self._request.prompt
        if given is not None:
            raw = given.encode()
            begin = raw[: len(raw) - len(rest)] if raw.endswith(rest) else b""
        else:
            begin = bytes_of(start or "")
        text = (begin + rest).decode(errors="replace") if given is None else given
        name = name_of(begin) if start is None else start
        offsets = _Offsets()
        first = {"tokens": name, **_NO_LOGPROB, "text_offset": offsets.add(begin)}
        those = _logprobs(logprobs, offsets)
        self._offsets = _Offsets(len(text))
        return text, {key: [first[key], *values] for key, values in those.items()}


class _Offsets:
    """Where tokens begin in a text, in characters. One that begins within a character begins where that does."""

    def __init__(self, begin: int = 0) -> None:
        self._at = begin
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, piece: bytes) -> int:
        at = self._at
        self._at += len(self._utf8.decode(piece))
        return at


def _logprobs(logprobs: Sequence[Logprob], offsets: _Offsets) -> dict[str, list[Any]]:
    """In the format of completions."""
    return {
        "tokens": [one.text for one in logprobs],
        "token_logprobs": [one.logprob for one in logprobs],
        # Encoded as they come: those of a long answer would take a second at its end.
        "top_logprobs": [msgspec.Raw(msgspec.json.encode(_by_text(one))) for one in logprobs],
        "text_offset": [offsets.add(bytes_of(one.text)) for one in logprobs],
    }


def _by_text(one: Logprob) -> dict[str, float]:
    """The token and its rivals. Two tokens may have the same text; the later one has vLLM's name then."""
    likeliest: dict[str, float] = {}
    for token, rival in {rival.token: rival for rival in (one, *one.top)}.items():
        likeliest[f"token_id:{token}" if rival.text in likeliest else rival.text] = rival.logprob
    return likeliest


def _joined(parts: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    if not parts:
        return None
    return {name: [value for part in parts for value in part[name]] for name in parts[0]}


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
