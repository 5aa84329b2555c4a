"""Records of `turns`: one for each request that ended in `done`, exactly one under read_committed."""

from __future__ import annotations

import msgspec

from models.generation import FinishReason, Usage


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """When the parts of a turn were, in Unix milliseconds. `first_token_at` is None for an answer without tokens."""

    requested_at: int
    started_at: int | None = None
    first_token_at: int | None = None
    finished_at: int | None = None


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """All fields are always written, so that a table made of this topic has all its columns."""

    request_id: str
    user_id: str
    conversation_id: str
    prompt: str
    answer: str
    finish_reason: FinishReason
    usage: Usage
    model_version: str
    created_at: int
    tenant: str | None = None
    timing: Timing | None = None
