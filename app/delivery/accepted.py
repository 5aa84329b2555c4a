"""The facts about a request: what has arrived, and what a former owner has left of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from app.delivery.record import Record
from app.delivery.resume.quarantine import Attempt
from app.reader.rule import Answer
from app.wire.event import NO_PLAN, EventType, Plan, TokenEvent
from app.wire.request import Request, WhileBusy
from tables.asleep import Sleeper

RequestKey = tuple[str, str]
"""(user_id, request_id): a request's identity."""


@dataclass(frozen=True, slots=True)
class Former:
    """What the log holds of a request that a former owner has accepted; nothing if the request is new.

    answer: The part of its answer that readers have.
    plan: What was decided about it.
    attempt: The newest attempt to answer it.
    is_replayed: Its record was in the log before this ownership began.
    """

    answer: Answer | None = None
    plan: Plan = NO_PLAN
    attempt: Attempt | None = None
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
    def begun_at(self) -> int | None:
        """When its first token was written, Unix milliseconds; None if readers have none."""
        return self.answer.segments[0].timestamp or 0 if self.answer is not None and self.answer.segments else None

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


NEW, REPLAYED = Former(), Former(is_replayed=True)


@dataclass(frozen=True, slots=True)
class Accepted:
    """The facts about a request: nothing of them changes. Asked often, so its ids are put together once.

    at: The time as of which it sees its conversation, Unix milliseconds: the record's timestamp, unless that is ahead
        of the broker's clock.
    ignored: Fields of the record that a request does not know.
    sleeper: The answer has slept, and these are its rows.
    """

    record: Record
    request: Request
    at: int
    former: Former = NEW
    ignored: tuple[str, ...] = ()
    sleeper: Sleeper | None = None
    key: RequestKey = field(init=False, compare=False, repr=False)
    conversation: tuple[str, str] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        user = self.request.user_id
        object.__setattr__(self, "key", (user, self.request.request_id))
        object.__setattr__(self, "conversation", (user, self.request.conversation_id))

    @property
    def may_order(self) -> bool:
        """Whether it may end others of its conversation, or may be ended by a later one (app/features/busy.py)."""
        is_queued = self.request.while_busy is WhileBusy.QUEUE
        return not is_queued or self.sleeper is not None or self.former.plan.superseded is not None

    @property
    def slept_until(self) -> int:
        """The index up to which the answer was written when it last fell asleep."""
        return 0 if self.sleeper is None else self.sleeper.answer.position

    @property
    def is_waking(self) -> bool:
        """Whether it has slept, and nothing is written since."""
        return self.sleeper is not None and self.former.position == self.slept_until

    def event(self, event_type: EventType, index: int, **fields: Any) -> TokenEvent:
        """An event of its answer, with these fields of `TokenEvent`."""
        request = self.request
        return TokenEvent(
            type=event_type,
            request_id=request.request_id,
            user_id=request.user_id,
            conversation_id=request.conversation_id,
            index=index,
            **fields,
        )

    def time_of(self, now: int) -> int:
        """The broker's clock, but not before the request's own time: the two can differ by a few milliseconds."""
        return max(self.at, now)
