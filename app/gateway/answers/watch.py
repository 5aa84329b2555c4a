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

from app.reader import Answer, Update
from app.wire.event import STEERED, SUPERSEDED, WAITING, TokenEvent

_MOST_NOTICES = 16
BATCH = 256
"""Most events per batch."""


class Deadline:
    """A time limit that moves with each token: `set` and `clear` around each wait; `on_passed` is called once the limit
    that was set last has passed.

    A timer of its own for each token would cost as much as the token. One timer serves many settings: when it rings
    before the latest limit, it is set again for the rest.
    """

    def __init__(self, on_passed: Callable[[], object]) -> None:
        self.has_passed = False
        self._on_passed = on_passed
        self._at: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def set(self, within_s: float) -> None:
        loop = asyncio.get_running_loop()
        self.has_passed = False
        self._at = loop.time() + within_s
        if self._timer is None or self._timer.when() > self._at:
            self._ring_at(self._at)

    def clear(self) -> None:
        self._at = None

    def close(self) -> None:
        self._at = None
        if self._timer is not None:
            self._timer.cancel()

    def _ring_at(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(at, self._timer_rang)

    def _timer_rang(self) -> None:
        self._timer = None
        if self._at is None:
            return  # the next `set` sets the timer again
        if asyncio.get_running_loop().time() < self._at:
            self._ring_at(self._at)
        else:
            self._at = None
            self.has_passed = True
            self._on_passed()


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
        self._told: tuple[TokenEvent, ...] = ()
        self._heard: set[str] = set()
        self._quiet = Deadline(self._changed.set)

    @property
    def answer(self) -> Answer | None:
        return self._answer()

    def deliver(self, update: Update) -> None:
        """The answer has grown, or was cut; the reader sends the cut event again."""
        if update.event.notice is not None and update.event.notice.code != WAITING:
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
        """The events that are available now. Readers that come later, too, hear what the answer waits for, at last, and
        what another request has done to it, before its end.
        """
        events, self._notices = self._notices, []
        self._heard.update(event.notice.code for event in events if event.notice is not None)
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
            return [*events, *segments, *self._unheard(answer), answer.end]
        if len(answer.segments) > first + BATCH:
            return [*events, *segments]
        told, self._told = self._told, answer.waiting
        return [*events, *segments, *(one for one in answer.waiting if one not in told)]

    def _unheard(self, answer: Answer) -> list[TokenEvent]:
        notices = {SUPERSEDED: answer.superseded, STEERED: answer.steered}
        return [one for code, one in notices.items() if one is not None and code not in self._heard]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._quiet.close()
        self._detach(self)
