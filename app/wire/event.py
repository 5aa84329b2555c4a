"""Records of `tokens`: the answer as it is made.

The topic is at once what readers show and the write-ahead log from which a new owner of the partition resumes, so an
event says where in the answer it stands (`index`) and under which ownership it was written (`epoch`).
"""

from __future__ import annotations

import enum
from typing import Any

import msgspec

from models.generation import FinishReason, Usage


class EventType(enum.StrEnum):
    TOKEN = "token"  # noqa: S105 - a kind of event
    NOTICE = "notice"
    DONE = "done"
    ERROR = "error"
    FENCE = "fence"


class Notice(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a reader may show beside an answer; `details` are for programs, and unknown codes are to be ignored.

    Two codes are also read by the next owner of the partition, so they are written before what depends on them:
    `plan` (what was decided about this answer: `{"at": ms}`, see `PlanDetails`) and `attempt` (`{"attempt": n}`, see
    app/delivery/quarantine.py).
    """

    code: str
    message: str
    details: dict[str, Any] | None = None


PLAN = "plan"
ATTEMPT = "attempt"
RESUMED = "resumed"


class PlanDetails(msgspec.Struct, frozen=True):
    """The request sees its conversation as it was at the time `at`, Unix milliseconds."""

    at: int | None = None


class ErrorInfo(msgspec.Struct, frozen=True):
    """`code` is one of `ErrorCode`; a reader shows a code it does not know."""

    code: str
    message: str


class Logprob(msgspec.Struct, frozen=True, omit_defaults=True):
    """One token's log probability, and those of its likeliest rivals."""

    token: int
    text: str
    logprob: float
    top: tuple[Logprob, ...] = ()


class TokenEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One event. What does not belong to its type is None and not written.

    `tokens` and `text` of a `token` event are always given, also where they are empty: None alone is left out.
    `prompt_digest` stands on the event with index 0: the owner that resumes the answer compares it with the prompt
    that it has rebuilt. A `fence` has no request and no epoch: its own offset is the epoch that it opens.
    """

    type: EventType
    request_id: str | None = None
    user_id: str | None = None
    conversation_id: str | None = None
    index: int | None = None
    tokens: tuple[int, ...] | None = None
    text: str | None = None
    epoch: int | None = None
    timestamp: int | None = None
    model_version: str | None = None
    finish_reason: FinishReason | None = None
    usage: Usage | None = None
    error: ErrorInfo | None = None
    notice: Notice | None = None
    logprobs: tuple[Logprob, ...] | None = None
    prompt_digest: str | None = None

    @property
    def is_end(self) -> bool:
        return self.type is EventType.DONE or self.type is EventType.ERROR

    @property
    def next_index(self) -> int:
        """The position after this event's tokens."""
        return (self.index or 0) + len(self.tokens or ())
