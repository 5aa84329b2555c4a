"""The batcher of one partition. Its budget is an upper bound of the wait, not a fixed delay.

An item waits only as long as waiting can help: until there are `max_size` items, or until the oldest one has waited for
`budget_s`. If the engine has room, nothing waits: what has arrived starts with its next step, so steps form batches
anyway, and waiting would only delay the first token. Each batch is flushed from a callback, one iteration of the event
loop later, so a burst that is added in one iteration is one batch, highest priority first.

All methods belong to one thread, that of `timers`. `flush` must not raise: its items have left the batcher.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Generic, Protocol, TypeVar


class Timer(Protocol):
    def cancel(self) -> None: ...


class Timers(Protocol):
    """The part of `asyncio.AbstractEventLoop` that a batcher uses."""

    def time(self) -> float: ...

    def call_soon(self, callback: Callable[[], None], /) -> Timer: ...

    def call_at(self, when: float, callback: Callable[[], None], /) -> Timer: ...


class FlushReason(enum.StrEnum):
    ROOM = "room"
    SIZE = "size"
    BUDGET = "budget"


@dataclass(frozen=True, slots=True)
class Flush:
    """One flushed batch. `waits` are the seconds that each of its items waited."""

    reason: FlushReason
    waits: tuple[float, ...]

    @property
    def size(self) -> int:
        return len(self.waits)


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Waiting(Generic[T]):
    item: T
    priority: int
    since: float


class Batcher(Generic[T]):
    """Collects items into batches of at most `max_size`. A lower priority number is flushed first."""

    def __init__(
        self,
        max_size: int,
        budget_s: float,
        has_room: Callable[[], bool],
        flush: Callable[[Sequence[T]], None],
        *,
        timers: Timers,
        observe: Callable[[Flush], None] = lambda _: None,
    ) -> None:
        if max_size < 1 or budget_s < 0:
            raise ValueError(f"max_size must be at least 1 and budget_s at least 0, not {max_size} and {budget_s}")
        self._max_size = max_size
        self._budget_s = budget_s
        self._has_room = has_room
        self._flush = flush
        self._timers = timers
        self._observe = observe
        self._waiting: list[_Waiting[T]] = []  # in order of arrival
        self._soon: Timer | None = None
        self._soon_reason = FlushReason.SIZE
        self._deadline: Timer | None = None

    def __len__(self) -> int:
        """Number of waiting items."""
        return len(self._waiting)

    def add(self, item: T, priority: int = 0) -> None:
        self._waiting.append(_Waiting(item, priority, self._timers.time()))
        if self._has_room():
            self._wake(FlushReason.ROOM)
        elif len(self._waiting) >= self._max_size:
            self._wake(FlushReason.SIZE)
        if len(self._waiting) == 1:
            self._arm()

    def remove(self, item: T) -> bool:
        """Remove a cancelled item; False if it was flushed already."""
        for index, entry in enumerate(self._waiting):
            if entry.item == item:
                del self._waiting[index]
                if index == 0:
                    self._arm()
                return True
        return False

    def _wake(self, reason: FlushReason) -> None:
        # An engine with room takes all waiting items, a full batch only itself; within one iteration the former wins.
        if self._soon is None:
            self._soon = self._timers.call_soon(self._on_soon)
            self._soon_reason = reason
        elif reason is FlushReason.ROOM:
            self._soon_reason = reason

    def _on_soon(self) -> None:
        self._soon = None
        least = 1 if self._soon_reason is FlushReason.ROOM else self._max_size
        self._leave(self._soon_reason, least)

    def _on_deadline(self) -> None:
        self._deadline = None
        self._leave(FlushReason.BUDGET, least=1)

    def _leave(self, reason: FlushReason, least: int) -> None:
        """Flush batch after batch while at least `least` items wait."""
        try:
            while len(self._waiting) >= least:
                batch = sorted(self._waiting, key=attrgetter("priority"))[: self._max_size]
                self._hand_over(batch, reason)
        finally:
            self._arm()

    def _hand_over(self, batch: list[_Waiting[T]], reason: FlushReason) -> None:
        leaving = {id(entry) for entry in batch}
        self._waiting = [entry for entry in self._waiting if id(entry) not in leaving]
        now = self._timers.time()
        self._flush([entry.item for entry in batch])
        self._observe(Flush(reason, tuple(now - entry.since for entry in batch)))

    def _arm(self) -> None:
        """Set the timer to the deadline of the oldest waiting item."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if self._waiting:
            self._deadline = self._timers.call_at(self._waiting[0].since + self._budget_s, self._on_deadline)
