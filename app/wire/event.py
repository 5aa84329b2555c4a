"""Records of `tokens`: the answer as it is generated.

The topic is both what readers display and the write-ahead log from which a new owner of the partition continues. An
event therefore contains its position in the answer (`index`) and the ownership under which it was written (`epoch`).
"""

from __future__ import annotations

import enum
from typing import Any

import msgspec

from app.private.value import PrivateValue
from app.wire.tools import ToolCall, ToolCallDelta
from models.interface.generation import FinishReason, Usage


class EventType(enum.StrEnum):
    TOKEN = "token"  # noqa: S105 - a kind of event
    NOTICE = "notice"
    DONE = "done"
    ERROR = "error"
    FENCE = "fence"


class Notice(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that a reader may display beside an answer; `details` are for programs. Ignore unknown codes.

    Two codes are also read by the next owner of the partition, so they are written before anything depends on them:
    `plan` (decisions about this answer, see `Plan`) and `attempt` (`{"attempt": n}`, see
    app/delivery/resume/quarantine.py).
    """

    code: str
    message: str
    details: dict[str, Any] | None = None


PLAN = "plan"
ATTEMPT = "attempt"
RESUMED = "resumed"
DEGRADED = "degraded"
FALLBACK = "fallback"
CACHED = "cached"
FILTERED = "filtered"
IGNORED = "ignored"
"""The request has fields that are not known; `details` has their names as `fields`."""
OUTSIDE = "outside"
"""The category of what the server of an outside model has filtered."""
TOOL_CALLS = "tool_calls"
TOOL_RESULTS = "tool_results"
WAITING = "waiting"
WOKEN = "woken"
SUPERSEDED = "superseded"
"""A later request of the conversation ends the answer: `by`, and whether it is `rolled_back`."""

STEERED = "steered"
"""The request's words go into another one's answer: `into`."""


class RecalledTurn(msgspec.Struct, frozen=True):
    """An older turn that stands in the prompt; its texts may be cut. `asked_at`: Unix milliseconds. Older workers did
    not write its conversation.
    """

    request_id: str
    prompt: str
    answer: str
    asked_at: int
    conversation_id: str = ""


class Plan(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was decided about one answer before the tokens that depend on it.

    at: The request sees its conversation as of this time, Unix milliseconds.
    model: Answers it.
    route, experiment, arm: Because of these rules of the policy.
    notice: The code of the notice that tells readers of the route.
    from_index: After a failure in the middle, `model` continues the answer from this token on.
    cached: The request whose answer is repeated.
    recalled: Precede the conversation in the prompt; with their texts, so that it does not depend on Milvus any more.
    chosen: Readers get the candidate of `best_of` with this number.
    other_tokens: Those of the other candidates.
    private: Values that the model sees as placeholders.
    filtered: The category because of which the guard ends the answer.
    flagged: Categories that the guard has found in prompt or answer.
    superseded: The later request that ends the answer.
    steered: The answer of this request gets the words instead.
    rolled_back: Nothing of it is remembered.
    plugins: What plug-ins have decided, by their names: the answer is continued by these, and no others.
    """

    at: int | None = None
    model: str | None = None
    route: str | None = None
    experiment: str | None = None
    arm: str | None = None
    notice: str | None = None
    from_index: int | None = None
    cached: str | None = None
    recalled: tuple[RecalledTurn, ...] | None = None
    chosen: int | None = None
    other_tokens: int = 0
    private: tuple[PrivateValue, ...] | None = None
    filtered: str | None = None
    flagged: tuple[str, ...] | None = None
    superseded: str | None = None
    rolled_back: bool = False
    steered: str | None = None
    plugins: dict[str, Any] | None = None

    @property
    def is_made(self) -> bool:
        """Whether anything has been decided."""
        return self != NO_PLAN

    @property
    def categories(self) -> tuple[str, ...]:
        """What the guard has found, each category once."""
        return tuple(dict.fromkeys((*([self.filtered] if self.filtered else ()), *(self.flagged or ()))))


NO_PLAN = Plan()


class ErrorInfo(msgspec.Struct, frozen=True):
    """`code` is one of `ErrorCode`; a reader displays a code that it does not know."""

    code: str
    message: str


class Logprob(msgspec.Struct, frozen=True, omit_defaults=True):
    r"""One token's log probability, and those of the likeliest alternatives. A prompt's token has its `rank`, too; 1 is
    the likeliest of the vocabulary. The `text` of a part of a character is its bytes in OpenAI's form,
    `bytes:\xe2\x9f`; special tokens of an answer have none.
    """

    token: int
    text: str
    logprob: float
    top: tuple[Logprob, ...] = ()
    rank: int | None = None


class TokenEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One event. Fields that do not belong to its type are None and not written.

    `tokens` and `text` of a `token` event are always written, even if empty; only None is left out. `prompt_digest` is
    on the first event, and on the first after each round of calls: an owner that resumes the answer compares it with
    the prompt that it has rebuilt. `tool_calls` of a `done` event are the answer's complete calls; those that are being
    written are the `tool_call_deltas` of `token` events. Neither is part of `text`, and nor is `reasoning`: what the
    model has written before its answer, which the first `token` event has, be it empty, if the two are told apart.
    `prompt_logprobs` of the first `token` event has one entry per token of the prompt but the first. For a raw prompt,
    `prompt_start` of the first event is the text of that one. A `copy` repeats tokens that were written before, for
    readers that have lost them, or come late; who has them takes its epoch alone. A `fence` has no request and no
    epoch: its own offset is the epoch that it begins.
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
    tool_calls: tuple[ToolCall, ...] | None = None
    tool_call_deltas: tuple[ToolCallDelta, ...] | None = None
    prompt_logprobs: tuple[Logprob, ...] | None = None
    prompt_start: str | None = None
    reasoning: str | None = None
    copy: bool = False

    @property
    def is_end(self) -> bool:
        return self.type is EventType.DONE or self.type is EventType.ERROR

    @property
    def next_index(self) -> int:
        """The position after this event's tokens."""
        return (self.index or 0) + len(self.tokens or ())
