"""One answer as its reader knows it, built event by event."""

from __future__ import annotations

from dataclasses import dataclass, field

from app.wire.event import EventType, TokenEvent


@dataclass(slots=True)
class Answer:
    """The events that the reader rule has accepted.

    `position` is the index at which the next event is expected, `epoch` that of the last accepted event, `partition`
    where it is.
    """

    user_id: str
    request_id: str
    conversation_id: str
    epoch: int = -1
    position: int = 0
    partition: int = -1
    segments: list[TokenEvent] = field(default_factory=list)
    end: TokenEvent | None = None

    @property
    def text(self) -> str:
        held_back = "" if self.end is None else self.end.text or ""
        return "".join(segment.text or "" for segment in self.segments) + held_back

    @property
    def reasoning(self) -> str:
        """What the model wrote before its text; empty if its reasoning is part of the text."""
        held_back = "" if self.end is None else self.end.reasoning or ""
        return "".join(segment.reasoning or "" for segment in self.segments) + held_back

    @property
    def tokens(self) -> tuple[int, ...]:
        return tuple(token for segment in self.segments for token in segment.tokens or ())

    @property
    def missing(self) -> tuple[tuple[int, int], ...]:
        """Ranges of indexes that this reader has not seen; a reader that began in the middle of the answer lacks its
        beginning.
        """
        holes, expected = [], 0
        for event in (*self.segments, *([] if self.end is None else [self.end])):
            at = event.index or 0
            if at > expected:
                holes.append((expected, at))
            expected = event.next_index
        return tuple(holes)

    @property
    def complete(self) -> bool:
        return self.end is not None and not self.missing

    def append(self, event: TokenEvent, index: int, epoch: int) -> tuple[int | None, int] | None:
        """Append the event. Returns where the answer was cut before that, if at all, and how many tokens are missing.

        Returns None for a duplicate. An event of a higher epoch was written by an owner that knows which events precede
        its fence. If it contradicts accepted events, those are late events of a former owner, which only a reader that
        began after the fence can have accepted: tokens from its index on, an end, or, if it leaves a gap, everything
        accepted since.
        """
        newer = epoch > self.epoch
        if not newer and (self.end is not None or index < self.position):
            return None
        if self.end is not None and _same_end(self.end, event):
            return None
        cut = None
        if self.end is not None or index < self.position:
            cut = self._cut(min(index, self.position))
        if newer and index > self.position and self.segments:
            cut = self._cut(0)
        gap = index - self.position
        if event.type is EventType.TOKEN:
            self.segments.append(event)
        else:
            self.end = event
        self.epoch, self.position = epoch, event.next_index
        return cut, gap

    def _cut(self, index: int) -> int:
        self.end = None
        while self.segments and self.segments[-1].next_index > index:
            self.segments.pop()
        self.position = self.segments[-1].next_index if self.segments else 0
        return self.position


def _same_end(one: TokenEvent, again: TokenEvent) -> bool:
    """Whether `again` says nothing new; an owner that only repeats an end may omit the text."""
    same_text = not again.text or again.text == one.text
    return same_text and (one.type, one.index, one.finish_reason, one.error) == (
        again.type,
        again.index,
        again.finish_reason,
        again.error,
    )
