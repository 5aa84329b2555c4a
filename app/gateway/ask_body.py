"""The body of `POST /v1/requests`: a record of `requests` without the fields that the gateway sets."""

from __future__ import annotations

from typing import Any

import msgspec

from app.gateway.auth.identity import Identity
from app.gateway.openai.sampling_body import FormatBody
from app.wire.ids import new_request_id
from app.wire.request import DEFAULT_CONVERSATION, Message, Priority, Request, StopWhen
from app.wire.tools import Tool, ToolChoice, ToolMode, ToolResult


class AskBody(msgspec.Struct, frozen=True, kw_only=True):
    request_id: str | None = None
    user_id: str | None = None
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
    model: str | None = None
    metadata: dict[str, Any] | None = None
    response_format: FormatBody | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[int, float] | None = None
    tools: tuple[Tool, ...] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    tool_results: tuple[ToolResult, ...] | None = None
    tool_mode: ToolMode = ToolMode.CLIENT
    tool_timeout_ms: int | None = None
    store: bool | None = None
    min_tokens: int | None = None
    ignore_eos: bool | None = None
    raw: bool = False
    prompt_token_ids: tuple[int, ...] | None = None
    continue_final_message: bool = False
    previous_request_id: str | None = None
    keep_context: bool = False
    prompt_logprobs: int | None = None
    cache: bool = True
    recall: int | None = None
    best_of: int | None = None
    stop_when: StopWhen | None = None

    def request(self, identity: Identity, *, store: bool = True) -> Request:
        """`store` applies if the body has none."""
        fields = {name: getattr(self, name) for name in AskBody.__struct_fields__}
        fields |= {
            "request_id": self.request_id or new_request_id(),
            "user_id": identity.user_id,
            "tenant": identity.tenant,
            "store": store if self.store is None else self.store,
            "max_tokens": None if self.max_tokens == -1 else self.max_tokens,
            "response_format": None if self.response_format is None else self.response_format.response_format,
        }
        return Request(**fields)
