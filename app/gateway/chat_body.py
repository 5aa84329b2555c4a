"""The body of `POST /v1/chat/completions`, as OpenAI's clients send it."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from app.gateway.errors import ApiError
from app.gateway.identity import Identity
from app.wire import ErrorCode, Message, Request, Role, new_request_id

_ROLES = {"developer": Role.SYSTEM, "system": Role.SYSTEM, "user": Role.USER, "assistant": Role.ASSISTANT}
_UNSUPPORTED = (
    "tools",
    "functions",
    "audio",
    "modalities",
    "prediction",
    "web_search_options",
    "logit_bias",
    "presence_penalty",
    "frequency_penalty",
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


class ResponseFormat(msgspec.Struct, frozen=True):
    type: str = "text"


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
    conversation_id: str | None = None
    metadata: dict[str, Any] | None = None
    tools: Any = None
    functions: Any = None
    audio: Any = None
    modalities: tuple[str, ...] | None = None
    prediction: Any = None
    web_search_options: Any = None
    logit_bias: dict[str, float] | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None

    @property
    def wants_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage

    def request(self, identity: Identity) -> Request:
        self._refuse_unsupported()
        request_id = new_request_id()
        return Request(
            request_id=request_id,
            user_id=identity.user_id,
            tenant=identity.tenant,
            messages=tuple(message.message() for message in self.messages),
            conversation_id=self.conversation_id or request_id,
            max_tokens=self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens,
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            seed=self.seed,
            stop=self.stop,
            logprobs=self.logprobs,
            top_logprobs=self.top_logprobs,
            model=self.model,
            metadata=self.metadata,
        )

    def _refuse_unsupported(self) -> None:
        """What would change the answer is refused; what is only a hint is taken and left alone."""
        for name in _UNSUPPORTED:
            if getattr(self, name) and (name, self.modalities) != ("modalities", ("text",)):
                raise ApiError(ErrorCode.INVALID_REQUEST, f"{name}: is not supported", param=name)
        if self.n not in {None, 1}:
            raise ApiError(ErrorCode.INVALID_REQUEST, "n: only 1 is supported", param="n")
        if self.response_format is not None and self.response_format.type != "text":
            raise ApiError(
                ErrorCode.INVALID_REQUEST, "response_format: only text is supported", param="response_format"
            )
