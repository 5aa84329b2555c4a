"""The asyncio interface of one answer: events arrive in batches from the engine's thread and are read one by one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable

from models.interface.generation import MOST_WEIGHT, Delta, End, Failure, FinishReason, StreamEvent, merged, weight


class EngineDied(Exception):  # noqa: N818  what happened, as its readers say it
    """The engine's thread has died or hangs; the process should exit, so that another continues its work."""


class TokenStream:
    """Events in order; a reader that falls behind gets the tokens that it missed as few `Delta`s of bounded size."""

    __slots__ = (
        "_abandoned", "_cancel", "_deltas", "_died", "_end", "_on_end", "_read", "_waiter", "_weight", "admitted_at",
        "ended",
    )  # fmt: skip

    def __init__(self, cancel: Callable[[TokenStream, FinishReason], None]) -> None:
        self._cancel = cancel
        self._deltas: deque[tuple[Delta, int]] = deque()  # with the weight of each
        self._end: End | Failure | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._weight = 0
        self._read: asyncio.Event | None = None
        self._abandoned = False
        self.admitted_at: float | None = None
        self._died: str | None = None
        self.ended = False
        self._on_end: Callable[[], None] | None = None

    def on_end(self, call: Callable[[], None]) -> None:
        """Call this when the last event is pushed."""
        self._on_end = call

    def cancel(self, reason: FinishReason = FinishReason.CANCELLED) -> None:
        if not self.ended:
            self._cancel(self, reason)

    def push(self, event: StreamEvent) -> None:
        """Called on the event loop; events after the end are ignored."""
        if self.ended:
            raise RuntimeError(f"an event after the end of the stream: {event}")
        if isinstance(event, Delta):
            self._deltas.append((event, size := weight(event)))
            self._weight += size
        else:
            self.ended, self._end = True, event
            if self._on_end is not None:
                self._on_end()
        self._wake()

    def is_ahead(self, most: int) -> bool:
        """Whether what is not read yet weighs more than that."""
        return self._weight > most and not self._abandoned

    async def drained(self, most: int) -> None:
        """Wait until what is not read yet weighs at most so much: for engines that can hold back their source."""
        while self.is_ahead(most):
            self._read = self._read or asyncio.Event()
            self._read.clear()
            await self._read.wait()

    def abandon(self, died: str | None = None) -> None:
        """The engine stops: events so far can be read, then the reader ends without an end event."""
        self._abandoned, self._died = True, died
        self._wake()
        if self._read is not None:
            self._read.set()

    def __aiter__(self) -> AsyncIterator[StreamEvent]:
        return self

    async def __anext__(self) -> StreamEvent:
        while not self._deltas:
            if (end := self._end) is not None:
                self._end = None
                return end
            if self._died is not None and not self.ended:
                raise EngineDied(self._died)
            if self.ended or self._abandoned:
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return self._gathered()

    def _gathered(self) -> Delta:
        delta, size = self._deltas.popleft()
        parts = [delta]
        while self._deltas:
            more, its = self._deltas[0]
            if more.redraws or size + its > MOST_WEIGHT:
                break
            parts.append(more)
            size += its
            self._deltas.popleft()
        self._weight -= size
        if self._read is not None:
            self._read.set()
        return merged(parts)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
