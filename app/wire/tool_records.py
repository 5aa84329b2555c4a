"""Records of `tool-calls` and `tool-results`, for requests with `tool_mode` `kafka`."""

from __future__ import annotations

import msgspec

from app.wire.ids import Name


class ToolCallRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call of a tool; exactly one record (read_committed) for each call.

    `arguments` is JSON text that conforms to the tool's schema. `tool_call_id` is the same however often a consumer
    reads the record, so it can serve as an idempotency key. A result that arrives after `expires_at` (Unix
    milliseconds) is not used.
    """

    tool_call_id: str
    name: str
    arguments: str
    request_id: str
    user_id: str
    conversation_id: str
    created_at: int
    expires_at: int
    tenant: str | None = None


class ToolResultRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of a call, as the model reads it. The first record of a call counts."""

    tool_call_id: Name
    request_id: str
    user_id: str
    content: str
    is_error: bool = False
