"""A request in flight: what has arrived, what a former owner has left of it, and how far this owner has got."""

from __future__ import annotations

import enum
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from app.delivery.record import Record
from app.delivery.resume.quarantine import AttemptCount
from app.delivery.resume.recovery import RequestKey
from app.delivery.stop_handle import StopHandle
from app.reader.answer import Answer
from app.wire.event import NO_PLAN, Plan, TokenEvent
from app.wire.request import Request

if TYPE_CHECKING:
    from app.delivery.resume.answer_log import AnswerLog


@dataclass(frozen=True, slots=True)
class Former:
    """What the log holds of a request that a former owner has accepted; nothing if the request is new.

    answer: The part of its answer that readers have.
    plan: What was decided about it.
    is_replayed: Its record was in the log before this ownership began.
    """

    answer: Answer | None = None
    plan: Plan = NO_PLAN
    is_replayed: bool = False

    @property
    def is_admitted(self) -> bool:
        """Whether a former owner has admitted it."""
        return self.answer is not None or self.plan.is_made

    @property
    def has_begun(self) -> bool:
        """Whether readers have tokens of its answer."""
        return self.answer is not None and bool(self.answer.segments)

    @property
    def position(self) -> int:
        """The index of the next token."""
        return 0 if self.answer is None else self.answer.position

    @property
    def end(self) -> TokenEvent | None:
        return None if self.answer is None else self.answer.end

    def written_from(self, index: int) -> list[TokenEvent]:
        """The events of the answer from the token `index` on."""
        events = [] if self.answer is None else self.answer.segments
        return [event for event in events if (event.index or 0) >= index]


@dataclass(frozen=True, slots=True)
class Accepted:
    """The facts about a request: nothing of them changes.

    at: The time as of which it sees its conversation, Unix milliseconds: the record's timestamp, unless that is ahead
        of the broker's clock.
    """

    record: Record
    request: Request
    at: int
    former: Former = field(default_factory=Former)

    @property
    def key(self) -> RequestKey:
        return self.request.user_id, self.request.request_id

    @property
    def conversation(self) -> tuple[str, str]:
        return self.request.user_id, self.request.conversation_id

    def time_of(self, now: int) -> int:
        """The broker's clock, but not before the request's own time: the two can differ by a few milliseconds."""
        return max(self.at, now)


class Forgets(enum.IntEnum):
    """What of a request may not be kept, because its user was erased.

    MEMORY: The turns before it: the erasure came while it waited.
    ALL: Anything: it was sent before the erasure, or its answer may quote what was erased.
    """

    NOTHING = 0
    MEMORY = 1
    ALL = 2


@dataclass(slots=True)
class Timeline:
    """When a request passed each point on its way. Unix nanoseconds; None for a point that it has not passed.

    arrived: Its record reached the partition's owner.
    started: No earlier request of its conversation was open; by the broker's clock.
    batched: Its batch was submitted to the engine.
    admitted: The engine began its prefill.
    """

    arrived: int = field(default_factory=time.time_ns)
    started: int | None = None
    batched: int | None = None
    admitted: int | None = None


@dataclass(slots=True, eq=False, weakref_slot=True)
class InFlight:
    """The progress of a request from its record to its commit.

    answer: What readers have of it, with the plan in force; None until its turn comes.
    attempts: How often workers were lost with it.
    forgets: What of it may not be kept.
    reads_past: Its prompt contains earlier turns, so its answer may quote them.
    trace_headers: Added to every record that is written for it; an observer may replace them when it is admitted.
    on_commit: Called after its commit.
    """

    accepted: Accepted
    stop: StopHandle = field(default_factory=StopHandle)
    timeline: Timeline = field(default_factory=Timeline)
    attempts: AttemptCount = field(default_factory=AttemptCount)
    answer: AnswerLog | None = None
    forgets: Forgets = Forgets.NOTHING
    reads_past: bool = False
    trace_headers: tuple[tuple[str, bytes], ...] = ()
    on_commit: list[Callable[[], None]] = field(default_factory=list)

    @property
    def key(self) -> RequestKey:
        return self.accepted.key

    @property
    def written_end(self) -> TokenEvent | None:
        """The end that readers have, or will get; None if the answer is open."""
        if self.answer is not None and self.answer.end is not None:
            return self.answer.end
        return self.accepted.former.end

    @property
    def is_committing(self) -> bool:
        """Whether the answer's end is written, so that only the commit is missing."""
        return self.answer is not None and self.answer.ended_at is not None

    def abandon(self) -> None:
        """The request leaves this worker."""
        self.stop.close()
        self.attempts.end_beginning()


@dataclass(slots=True, kw_only=True)
class Outcome:
    """A request that is committed, for observers.

    spent: Tokens that were computed for it and that the usage of its end does not have.
    cost, saved: By the prices of the models; what the cache or a cheaper model has saved.
    """

    inflight: InFlight
    answer: AnswerLog
    end: TokenEvent
    spent: int = 0
    cost: float = 0.0
    saved: float = 0.0
