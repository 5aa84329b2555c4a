"""A request that this worker has taken to answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from app.delivery.record import Record
from app.delivery.said import RequestKey
from app.reader.answer import Answer
from app.wire.request import Request
from models.generation import FinishReason


@dataclass(slots=True, eq=False)
class Claim:
    """`said` is what readers have of the answer already; `stop` is set once somebody wants it to end early.

    With `forget`, the request's user was erased after it was sent: nothing of it may be kept. With `forget_history`,
    the user was erased while it ran: what it built on may not be kept. `on_finish` is called once its finish is
    committed. `carried` are the headers of its trace, which go with everything that is written for it. `taken_ns`,
    `batched_ns` (its batch has left) and `begun_ns` (the engine has begun with it) are Unix times in nanoseconds.
    `span` is the observer's.
    """

    record: Record
    request: Request
    said: Answer | None = None
    stop: FinishReason | None = None
    forget: bool = False
    forget_history: bool = False
    started_at: int | None = None
    carried: tuple[tuple[str, bytes], ...] = ()
    taken_ns: int = field(default_factory=time.time_ns)
    batched_ns: int | None = None
    begun_ns: int | None = None
    span: Any = None
    deadline_timer: asyncio.TimerHandle | None = None
    on_stop: Callable[[FinishReason], None] | None = None
    on_finish: list[Callable[[], None]] = field(default_factory=list)

    @property
    def key(self) -> RequestKey:
        return self.request.user_id, self.request.request_id

    @property
    def conversation(self) -> tuple[str, str]:
        return self.request.user_id, self.request.conversation_id

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
