"""A request that this worker has taken to answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from app.delivery.record import Record
from app.delivery.said import RequestKey
from app.reader.answer import Answer
from app.wire.request import Request
from models.generation import FinishReason

if TYPE_CHECKING:
    from app.delivery.answer_log import AnswerLog


@dataclass(slots=True, eq=False)
class Claim:
    """A request from its record to its commit, and what has become known of it on the way.

    at: It sees its conversation as it was at this time, Unix milliseconds: the record's timestamp, unless that is
        ahead of the broker's clock.
    planned: The log holds `at`.
    said: What readers have of the answer already.
    replayed: Its record was in the log before this ownership began.
    attempt: The number of its attempts that the log holds (quarantine.py).
    recalled: Its prompt holds turns of its conversation.
    cancelled: A record of `controls` waits for its end.
    stop: Why the answer is to end early.
    forget: Nothing of it may be kept: its user was erased after it was sent, or while it built on what was erased.
    forget_history: What it built on may not be kept: its user was erased while it waited.
    carried: The headers of its trace, which go with everything that is written for it.
    taken_ns, batched_ns, begun_ns: When its record came, its batch left, the engine began; Unix nanoseconds.
    span: The observer's.
    on_finish: Called once it is committed.
    """

    record: Record
    request: Request
    at: int = 0
    said: Answer | None = None
    planned: bool = False
    replayed: bool = False
    attempt: int = 0
    recalled: bool = False
    cancelled: bool = False
    stop: FinishReason | None = None
    forget: bool = False
    forget_history: bool = False
    started_at: int | None = None
    carried: tuple[tuple[str, bytes], ...] = ()
    taken_ns: int = field(default_factory=time.time_ns)
    batched_ns: int | None = None
    begun_ns: int | None = None
    span: Any = None
    answer: AnswerLog | None = None
    deadline_timer: asyncio.TimerHandle | None = None
    on_stop: Callable[[FinishReason], None] | None = None
    on_finish: list[Callable[[], None]] = field(default_factory=list)

    @property
    def key(self) -> RequestKey:
        return self.request.user_id, self.request.request_id

    @property
    def conversation(self) -> tuple[str, str]:
        return self.request.user_id, self.request.conversation_id

    def time_of(self, now: int) -> int:
        """The broker's clock, but not before the request's own time: clocks agree to a few milliseconds only."""
        return max(self.at, now)

    def abandon(self) -> None:
        """This worker has nothing to do with it any more."""
        self.on_stop = None
        if self.deadline_timer is not None:
            self.deadline_timer.cancel()

    def stop_with(self, reason: FinishReason) -> None:
        """End the answer early; the first reason stands."""
        if self.stop is None:
            self.stop = reason
            if self.on_stop is not None:
                self.on_stop(reason)
