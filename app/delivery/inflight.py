"""A request in flight: how far its owner has got with it."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from app.delivery.accepted import Accepted, RequestKey
from app.delivery.resume.answer_log import AnswerLog
from app.delivery.resume.quarantine import AttemptCount
from app.delivery.stop_handle import StopHandle
from app.wire.event import TokenEvent
from models.interface.generation import End


@dataclass(slots=True)
class Timeline:
    """When a request passed each point on its way. Unix nanoseconds; None for a point that it has not passed.

    arrived: Its record reached the partition's owner.
    started: No earlier request of its conversation was open; by the broker's clock.
    batched: Its batch was submitted to the engine.
    admitted: The engine began its prefill.
    round: The results of its calls were there; the points before are then those of this round.
    """

    arrived: int = field(default_factory=time.time_ns)
    started: int | None = None
    batched: int | None = None
    admitted: int | None = None
    round: int | None = None


@dataclass(slots=True, eq=False, weakref_slot=True)
class InFlight:
    """The progress of a request from its record to its commit.

    answer: What readers have of it, with the plan in force; None until its turn comes.
    epoch: Of the ownership that answers it.
    attempts: How often workers were lost with it.
    trace_headers: Added to every record that is written for it; an observer may replace them when it is admitted.
    on_commit: Called after its commit.
    on_leave: Called when it leaves this worker, or falls asleep.
    before_end: Called with the run before its end is written, and returns what is.
    """

    accepted: Accepted
    stop: StopHandle = field(default_factory=StopHandle)
    timeline: Timeline = field(default_factory=Timeline)
    attempts: AttemptCount = field(default_factory=AttemptCount)
    answer: AnswerLog | None = None
    trace_headers: tuple[tuple[str, bytes], ...] = ()
    epoch: int = -1
    on_commit: list[Callable[[], None]] = field(default_factory=list)
    on_leave: list[Callable[[], None]] = field(default_factory=list)
    before_end: Callable[[Any, End], Awaitable[End]] | None = None

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
        for on_leave in self.on_leave:
            on_leave()


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
