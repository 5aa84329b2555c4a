"""Records of `turns`: exactly one (read_committed) for each request that ended in `done`."""

from __future__ import annotations

import msgspec

from app.private.value import PrivateValue
from app.wire.tools import ToolCall
from models.interface.generation import FinishReason, Usage


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """Timestamps of a turn, in Unix milliseconds. `first_token_at` is None for an answer without tokens."""

    requested_at: int
    started_at: int | None = None
    first_token_at: int | None = None
    finished_at: int | None = None


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """All fields are always written, so that a table created from this topic has all columns. `cached` is the id of the
    request whose answer this is. `guard` are the categories that the guard has found. `private` are the private values
    in the texts, which the index hides; None if nothing has looked for them. `reasoning` is not part of the `answer`;
    None if the two are not told apart. `replaces` are the requests whose turns it stands in the place of.
    """

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
    tool_calls: tuple[ToolCall, ...] | None = None
    route: str | None = None
    experiment: str | None = None
    arm: str | None = None
    cached: str | None = None
    guard: tuple[str, ...] | None = None
    private: tuple[PrivateValue, ...] | None = None
    reasoning: str | None = None
    replaces: tuple[str, ...] | None = None

    @property
    def asked_at(self) -> int:
        """When the request was sent, in Unix milliseconds."""
        return self.created_at if self.timing is None else min(self.timing.requested_at, self.created_at)

    @property
    def is_refused(self) -> bool:
        """Whether the guard has ended it before it had an answer. Such a prompt is not indexed."""
        return self.finish_reason is FinishReason.FILTERED and not self.answer

    @property
    def hides(self) -> tuple[str, ...]:
        """The requests whose turns nobody finds because of it: without an answer it stands in no one's place."""
        return (self.replaces or ()) if self.answer or self.tool_calls else ()

    def outlives(self, erased_ms: int) -> bool:
        """Whether the turn may be kept after an erasure of its user at that time (Unix milliseconds; 0: never erased).

        The request has to be younger than the erasure: a turn may end while the erasure is carried out. An answer that
        the erasure cut short has no text.
        """
        return bool(self.prompt or self.answer) and (not erased_ms or self.asked_at > erased_ms)
