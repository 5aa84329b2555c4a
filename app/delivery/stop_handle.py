"""The one way to end a request early: cancels, erasures and deadlines use it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from models.interface.generation import FinishReason

OnStop = Callable[[FinishReason], object]
T = TypeVar("T")


class StoppedError(Exception):
    """The request has been stopped, and its work is cancelled."""


class StopHandle:
    """Keeps the first reason, and passes it to everything that runs for the request at that moment.

    reason: Why the request ends early; None while it may go on.
    is_cancelled: A record of `controls` cancels the request, whatever the reason is.
    """

    __slots__ = ("_deadline", "_listeners", "is_cancelled", "reason")

    def __init__(self) -> None:
        self.reason: FinishReason | None = None
        self.is_cancelled = False
        self._listeners: list[OnStop] = []
        self._deadline: asyncio.TimerHandle | None = None

    def now(self, reason: FinishReason) -> None:
        if self.reason is None:
            self.reason = reason
            for listener in tuple(self._listeners):
                listener(reason)

    def listen(self, listener: OnStop) -> None:
        """Call `listener` at the stop, until the handle is closed."""
        self._listeners.append(listener)

    @contextmanager
    def listening(self, listener: OnStop) -> Iterator[None]:
        """Call `listener` at the stop, at once if the request is stopped already."""
        self._listeners.append(listener)
        try:
            if self.reason is not None:
                listener(self.reason)
            yield
        finally:
            self._listeners = [one for one in self._listeners if one is not listener]  # none is left once it is closed

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of work in the task that waits for it; raises `StoppedError` if the stop cancels the work."""
        if self.reason is not None:
            work.close()
            raise StoppedError
        try:
            async with asyncio.timeout(None) as bound:
                with self.listening(lambda _reason: bound.reschedule(0)):
                    result = await work
        except TimeoutError:
            if not bound.expired():
                raise
        else:
            if self.reason is None:
                return result
        raise StoppedError

    def after(self, seconds: float, reason: FinishReason) -> None:
        self._deadline = asyncio.get_running_loop().call_later(seconds, self.now, reason)

    def close(self) -> None:
        """The request leaves this worker: nothing is called any more."""
        self._listeners.clear()
        if self._deadline is not None:
            self._deadline.cancel()
