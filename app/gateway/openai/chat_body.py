"""The body of `POST /v1/chat/completions`, as OpenAI clients send it."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from app.gateway.auth.identity import Identity
from app.gateway.errors import ApiError
from app.wire import ErrorCode, Message, Priority, Request, ResponseFormat, Role, new_request_id
from app.wire.limits import INT64

MAX_CHOICES = 128
MAX_CHOICES_BYTES = 4 * 1024 * 1024
_ROLES = {"developer": Role.SYSTEM, "system": Role.SYSTEM, "user": Role.USER, "assistant": Role.ASSISTANT}
_UNSUPPORTED = (
    "tools",
    "functions",
    "audio",
    "modalities",
    "prediction",
    "web_search_options",
)


class TextPart(msgspec.Struct, frozen=True):
    text: str
    type: Literal["text"] = "text"


class ChatMessage(msgspec.Struct, frozen=True):
    role: Literal["developer", "system", "user", "assistant"]
    content: str | tuple[TextPart, ...]

    def message(self) -> Message:
        text = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        return Message(_ROLES[self.role], text)


class StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool = False


class ChatBody(msgspec.Struct, frozen=True, kw_only=True):
    messages: tuple[ChatMessage, ...]
    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    n: int | None = None
    seed: int | None = None
    stop: str | tuple[str, ...] | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    response_format: ResponseFormat | None = None
    user: str | None = None
    user_id: str | None = None
    tenant: str | None = None
    conversation_id: str | None = None
    priority: Priority = Priority.STANDARD
    deadline_ms: int | None = None
    metadata: dict[str, Any] | None = None
    tools: Any = None
    functions: Any = None
    audio: Any = None
    modalities: tuple[str, ...] | None = None
    prediction: Any = None
    web_search_options: Any = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[int, float] | None = None

    @property
    def wants_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage

    def requests(self, identity: Identity) -> list[Request]:
        """One request per choice. The first belongs to the named conversation, each other to one of its own."""
        self._refuse_unsupported()
        if self.tenant not in {None, identity.tenant}:
            raise ApiError(ErrorCode.INVALID_REQUEST, "tenant: must be the key's own tenant", param="tenant")
        first = self._request(identity, 0)
        choices = self.n or 1
        if choices > 1 and choices * len(msgspec.json.encode(first)) > MAX_CHOICES_BYTES:
            message = f"n: each choice is a request, and together they exceed {MAX_CHOICES_BYTES} bytes"
            raise ApiError(ErrorCode.INVALID_REQUEST, message, status=413, param="n")
        return [first, *(self._request(identity, number) for number in range(1, choices))]

    def _request(self, identity: Identity, number: int) -> Request:
        request_id = new_request_id()
        return Request(
            request_id=request_id,
            user_id=identity.user_id,
            tenant=identity.tenant,
            messages=tuple(message.message() for message in self.messages),
            conversation_id=(self.conversation_id if number == 0 else None) or request_id,
            priority=self.priority,
            deadline_ms=self.deadline_ms,
            max_tokens=self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens,
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            seed=_seed(self.seed, number),
            stop=self.stop,
            logprobs=self.logprobs,
            top_logprobs=self.top_logprobs,
            model=self.model,
            metadata=self.metadata,
            response_format=self.response_format,
            min_p=self.min_p,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            repetition_penalty=self.repetition_penalty,
            logit_bias=self.logit_bias or None,
        )

    def _refuse_unsupported(self) -> None:
        """Reject unsupported parameters that would change the answer; ignore those that are only hints."""
        for name in _UNSUPPORTED:
            if getattr(self, name) and (name, self.modalities) != ("modalities", ("text",)):
                raise ApiError(ErrorCode.INVALID_REQUEST, f"{name}: is not supported", param=name)
        if self.n is not None and not 1 <= self.n <= MAX_CHOICES:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"n: must be at least 1 and at most {MAX_CHOICES}", param="n")
        if self.top_logprobs is not None and not self.logprobs:
            raise ApiError(ErrorCode.INVALID_REQUEST, "top_logprobs: needs logprobs", param="top_logprobs")


def _seed(seed: int | None, number: int) -> int | None:
    """The seed of choice `number`; the same seed would give the same answer."""
    if seed is None or seed not in INT64:
        return seed
    return (seed + number - INT64.start) % (INT64.stop - INT64.start) + INT64.start
