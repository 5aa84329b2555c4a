"""Records of `requests`: a user's request."""

from __future__ import annotations

import enum
from typing import Any

import msgspec

from app.wire.response_format import ResponseFormat

DEFAULT_CONVERSATION = "default"


class Priority(enum.StrEnum):
    INTERACTIVE = "interactive"
    STANDARD = "standard"
    BATCH = "batch"


class Role(enum.StrEnum):
    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


class Message(msgspec.Struct, frozen=True):
    role: Role
    content: str


class Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One request; None means "not set". `validate_request` checks what the types cannot express."""

    request_id: str
    user_id: str
    prompt: str | None = None
    messages: tuple[Message, ...] | None = None
    conversation_id: str = DEFAULT_CONVERSATION
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    stop: str | tuple[str, ...] | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    priority: Priority = Priority.STANDARD
    deadline_ms: int | None = None
    tenant: str | None = None
    model: str | None = None
    metadata: dict[str, Any] | None = None
    response_format: ResponseFormat | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[int, float] | None = None

    @property
    def stop_strings(self) -> tuple[str, ...]:
        if self.stop is None:
            return ()
        return (self.stop,) if isinstance(self.stop, str) else self.stop

    @property
    def question(self) -> str:
        """What the user says in this turn: `prompt`, or the last user message of `messages`."""
        if self.prompt is not None:
            return self.prompt
        return next((m.content for m in reversed(self.messages or ()) if m.role is Role.USER), "")
