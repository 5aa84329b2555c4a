"""Size of the answers in a gateway's memory: their events and an upper bound of their bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import NamedTuple

from app.reader import Answer
from app.reader.rule import Key
from app.wire.event import TokenEvent

# Measured sizes of a struct, a token and a log probability as Python objects; a character takes up to four bytes.
_EVENT_BYTES = 700
_TOKEN_BYTES = 40
_LOGPROB_BYTES = 160
_CHARACTER_BYTES = 4


class Size(NamedTuple):
    events: int
    bytes: int


class Held:
    """The sizes of answers, in the order of their last change."""

    def __init__(self) -> None:
        self.events = 0
        self.bytes = 0
        self._sizes: OrderedDict[Key, Size] = OrderedDict()

    def grow(self, key: Key, event: TokenEvent) -> None:
        """The answer has one more event."""
        size = self._sizes.get(key, Size(0, 0))
        self._put(key, Size(size.events + 1, size.bytes + bytes_of(event)))

    def measure(self, key: Key, answer: Answer) -> None:
        """The answer was replaced: it was cut, or read from the log."""
        events = [*answer.segments, *([answer.end] if answer.end else [])]
        self._put(key, Size(len(events), sum(map(bytes_of, events))))

    def forget(self, key: Key) -> None:
        self._put(key, Size(0, 0))
        del self._sizes[key]

    def __iter__(self) -> Iterator[Key]:
        return iter(list(self._sizes))

    def _put(self, key: Key, size: Size) -> None:
        before = self._sizes.get(key, Size(0, 0))
        self._sizes[key] = size
        self._sizes.move_to_end(key)
        self.events += size.events - before.events
        self.bytes += size.bytes - before.bytes


def bytes_of(event: TokenEvent) -> int:
    """Upper bound of the memory of one event."""
    logprobs = sum(1 + len(one.top) for one in (*(event.logprobs or ()), *(event.prompt_logprobs or ())))
    given = (event.text, event.reasoning, event.model_version, event.error and event.error.message)
    texts = sum(len(text) for text in given if text)
    return _EVENT_BYTES + _CHARACTER_BYTES * texts + _TOKEN_BYTES * len(event.tokens or ()) + _LOGPROB_BYTES * logprobs
