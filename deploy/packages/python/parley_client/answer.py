"""One answer as its reader knows it, built event by event."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Event = dict[str, Any]
"""A record of `tokens`; its fields are in Parley's app/wire/README.md."""
_SHOWN = 60


def next_index(event: Event) -> int:
    """The index after the event's tokens."""
    return int(event["index"]) + len(event.get("tokens") or ())


@dataclass(slots=True, repr=False)
class Answer:
    """The events that count. `position` is the index at which the next one is expected."""

    user_id: str
    request_id: str
    conversation_id: str = "default"
    partition: int = -1
    epoch: int = -1
    position: int = 0
    segments: list[Event] = field(default_factory=list)
    end: Event | None = None

    def __repr__(self) -> str:
        """One line; the events may have thousands."""
        text = self.text if len(self.text) <= _SHOWN else f"{self.text[:_SHOWN]}..."
        how = "under way" if self.end is None else self.end.get("finish_reason") or self.end["type"]
        return f"Answer(request_id={self.request_id!r}, text={text!r}, {how}, {self.position} tokens)"

    @property
    def text(self) -> str:
        return self._joined("text")

    @property
    def reasoning(self) -> str:
        """What the model has written before its text, if the two are told apart."""
        return self._joined("reasoning")

    @property
    def tokens(self) -> list[int]:
        return [token for event in self.segments for token in event.get("tokens") or ()]

    @property
    def missing(self) -> list[tuple[int, int]]:
        """Ranges of indexes that this reader has not seen; one that began in mid-answer lacks the beginning."""
        holes, expected = [], 0
        for event in (*self.segments, *([] if self.end is None else [self.end])):
            if event["index"] > expected:
                holes.append((expected, int(event["index"])))
            expected = next_index(event)
        return holes

    def append(self, event: Event) -> tuple[int | None, int] | None:
        """Where the answer was cut before the event, if at all, and how many tokens are missing; None for a repeat."""
        epoch, index = int(event["epoch"]), int(event["index"])
        newer = epoch > self.epoch
        if not newer and (self.end is not None or index < self.position):
            return None
        if self.end is not None and _same_end(self.end, event):
            return None
        cut = None
        # What a newer epoch contradicts was a former owner's late word.
        if self.end is not None or index < self.position:
            cut = self._cut(min(index, self.position))
        if newer and index > self.position and self.segments:
            cut = self._cut(0)
        gap = index - self.position
        if event["type"] == "token":
            self.segments.append(event)
        else:
            self.end = event
        self.epoch, self.position = epoch, next_index(event)
        return cut, gap

    def _cut(self, index: int) -> int:
        self.end = None
        while self.segments and next_index(self.segments[-1]) > index:
            self.segments.pop()
        self.position = next_index(self.segments[-1]) if self.segments else 0
        return self.position

    def _joined(self, name: str) -> str:
        events = (*self.segments, *([] if self.end is None else [self.end]))
        return "".join(event.get(name) or "" for event in events)


@dataclass(frozen=True, slots=True)
class Update:
    """What one event changes. `cut`: the text from this index on is taken back, so show `answer.text` anew. `gap`: so
    many tokens are missing right before it.
    """

    answer: Answer
    event: Event
    cut: int | None = None
    gap: int = 0

    @property
    def text(self) -> str:
        """The text to append."""
        return self.event.get("text") or ""


def _same_end(one: Event, again: Event) -> bool:
    """Whether `again` says nothing new; an owner that only repeats an end may leave out the text."""
    if again.get("text") and again["text"] != one.get("text"):
        return False
    return all(one.get(name) == again.get(name) for name in ("type", "index", "finish_reason", "error"))
