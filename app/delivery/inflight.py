"""A request in flight: one that this worker has accepted and not committed yet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from app.delivery.record import Record
from app.delivery.resume.quarantine import Beginning
from app.delivery.resume.recovery import RequestKey
from app.delivery.stop_handle import StopHandle
from app.delivery.timeline import Timeline
from app.reader.answer import Answer
from app.wire.event import NO_PLAN, PlanDetails, RecalledTurn, TokenEvent
from app.wire.request import Request
from models.private.mask import NO_MASK, Mask
from tables.records import Turn
from tables.tool_calls import ToolRounds

if TYPE_CHECKING:
    from app.delivery.resume.answer_log import AnswerLog
    from app.policy.tenants import TenantRefusal


@dataclass(slots=True, eq=False, weakref_slot=True)
class InFlightRequest:
    """A request from its record to its commit, and its state on the way.

    at: The time as of which it sees its conversation, Unix milliseconds: the record's timestamp, unless that is ahead
        of the broker's clock.
    logged: The decisions about its answer that a former owner has recorded in the log.
    plan: The decisions that are in force.
    recovered: The part of the answer that readers have already, from a former owner.
    replayed: Its record was in the log before this ownership began.
    retried: Its model has failed in this answer and is tried again.
    failed_models: The models that have failed in this answer, by name.
    lost_attempts, attempts_from, lost_at: How many workers in a row were lost while they tried to continue its answer
        from that token index, and when the last of these attempts was recorded (resume/quarantine.py).
    is_attempting: The log counts one more attempt, that of this worker.
    beginning: That attempt, until its first token.
    made: The calls of tools over Kafka that it has made, and their results, as committed.
    rounds: Those of them that precede the tokens written so far; all, unless `tokens` has lost records.
    related: Older turns that may stand in its prompt; None if none were looked for.
    memory: The turns of its conversation that it sees.
    kept_bytes: Bytes, as JSON, of what its turn keeps beside the answer (agents/outcomes.py).
    recalled: Its prompt contains earlier turns.
    mask: Hides private values from the model.
    seen: The request as the model sees it, and the mask that made it so.
    refusal: Why it ends before a model, a judge or the index sees it.
    redacts, kept: Whether private values are hidden in what is kept of the turn, and the mask that does it.
    private: The mask of the private values that its turn may contain; None if nothing has looked for them.
    forget: Nothing of it may be kept: its user was erased after it was sent, or while it used erased turns.
    forget_history: Its history may not be kept: its user was erased while it waited.
    trace_headers: Added to every record that is written for it.
    spent: Tokens that were computed for it and that the usage of its end does not have.
    cost, saved: By the prices of the models; what the cache or a cheaper model has saved.
    span: Belongs to the observer.
    on_commit: Called after its commit.
    """

    record: Record
    request: Request
    at: int = 0
    stop: StopHandle = field(default_factory=StopHandle)
    timeline: Timeline = field(default_factory=Timeline)
    recovered: Answer | None = None
    logged: PlanDetails = NO_PLAN
    plan: PlanDetails = NO_PLAN
    replayed: bool = False
    retried: bool = False
    failed_models: set[str] = field(default_factory=set)
    lost_attempts: int = 0
    attempts_from: int = 0
    lost_at: int = 0
    is_attempting: bool = False
    beginning: Beginning | None = None
    made: ToolRounds = field(default_factory=ToolRounds)
    rounds: ToolRounds = field(default_factory=ToolRounds)
    related: tuple[RecalledTurn, ...] | None = None
    kept_bytes: int = 0
    recalled: bool = False
    memory: tuple[Turn, ...] = ()
    mask: Mask = NO_MASK
    seen: tuple[Mask, Request] | None = None
    refusal: TenantRefusal | None = None
    redacts: bool = False
    kept: Mask = NO_MASK
    private: Mask | None = None
    forget: bool = False
    forget_history: bool = False
    trace_headers: tuple[tuple[str, bytes], ...] = ()
    spent: int = 0
    cost: float = 0.0
    saved: float = 0.0
    span: Any = None
    answer: AnswerLog | None = None
    on_commit: list[Callable[[], None]] = field(default_factory=list)

    @property
    def is_admitted(self) -> bool:
        """Whether a former owner has admitted it."""
        return self.recovered is not None or self.logged != NO_PLAN

    @property
    def is_resumed(self) -> bool:
        """Whether a former owner has written tokens of the answer."""
        return self.recovered is not None and bool(self.recovered.segments)

    @property
    def written(self) -> list[TokenEvent]:
        """What the current model has written under former owners."""
        events = self.recovered.segments if self.recovered is not None else []
        return [event for event in events if (event.index or 0) >= (self.plan.from_index or 0)]

    @property
    def is_beginning(self) -> bool:
        """Whether its attempt has written no token yet."""
        return self.beginning is not None and not self.beginning.is_over

    def has_begun(self) -> None:
        """Its attempt has got somewhere: other replayed requests may begin."""
        if self.beginning is not None:
            self.beginning.leave()

    @property
    def begin(self) -> int:
        """The token index from which the current model reads its current prompt: behind the last round of calls, and
        behind what a model has written that failed.
        """
        return max(self.rounds.end, self.plan.from_index or 0)

    @property
    def key(self) -> RequestKey:
        return self.request.user_id, self.request.request_id

    @property
    def conversation(self) -> tuple[str, str]:
        return self.request.user_id, self.request.conversation_id

    @property
    def written_end(self) -> TokenEvent | None:
        """The end that readers have, or will get; None if the answer is open."""
        if self.answer is not None and self.answer.end is not None:
            return self.answer.end
        return None if self.recovered is None else self.recovered.end

    @property
    def is_committing(self) -> bool:
        """Whether the answer's end is written, so that only the commit is missing."""
        return self.answer is not None and self.answer.ended_at is not None

    def time_of(self, now: int) -> int:
        """The broker's clock, but not before the request's own time: the two can differ by a few milliseconds."""
        return max(self.at, now)

    def abandon(self) -> None:
        """The request leaves this worker."""
        self.stop.close()
        self.has_begun()
