"""One reader's position in one answer.

A watch holds a number, not events. All readers of an answer share the same memory, each at its own speed, so a slow one
costs no more than a fast one.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable
from types import TracebackType
from typing import Self

from app.gateway.answers.deadline import Deadline
from app.reader import Answer, Update
from app.wire.event import TokenEvent

_MOST_NOTICES = 16
BATCH = 256
"""Most events per batch."""


class Watch:
    """`with live.watch(user, request) as watch`: the answer stays in memory, and its events start at `position`."""

    def __init__(self, answer: Callable[[], Answer | None], detach: Callable[[Watch], None]) -> None:
        self.position = 0
        self.ended = False
        self._begun = False
        self._answer = answer
        self._detach = detach
        self._changed = asyncio.Event()
        self._notices: list[TokenEvent] = []
        self._quiet = Deadline(self._changed.set)

    @property
    def answer(self) -> Answer | None:
        return self._answer()

    def deliver(self, update: Update) -> None:
        """The answer has grown, or was cut; the reader sends the cut event again."""
        if update.event.notice is not None:
            self._notices = [*self._notices, update.event][-_MOST_NOTICES:]
        elif update.cut is not None:
            self.position = min(self.position, update.cut)
            self._begun = self.position > 0
        self.wake()

    def wake(self) -> None:
        self._quiet.clear()
        self._changed.set()

    async def changed(self, within_s: float) -> bool:
        """Wait for a change; False if there is none within that time."""
        is_changed = self._changed.is_set()
        if not is_changed:
            self._quiet.set(within_s)
            await self._changed.wait()
            is_changed = not self._quiet.has_passed
        self._changed.clear()
        return is_changed

    def next_events(self) -> list[TokenEvent]:
        """The events that are available now."""
        events, self._notices = self._notices, []
        answer = self.answer
        if answer is None:
            return events
        # The first event may have no tokens, but log probabilities of the prompt.
        is_first = not self._begun and self.position == 0
        first = 0 if is_first else bisect_right(answer.segments, self.position, key=lambda event: event.next_index)
        segments = answer.segments[first : first + BATCH]
        if segments:
            self.position, self._begun = segments[-1].next_index, True
        if answer.end is not None and len(answer.segments) <= first + BATCH:
            self.ended = True
            return [*events, *segments, answer.end]
        return [*events, *segments]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._quiet.close()
        self._detach(self)
