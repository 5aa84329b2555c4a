"""Size of the answers in a gateway's memory: their events and an upper bound of their bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from sys import getsizeof
from typing import NamedTuple

from msgspec import Struct

from app.reader import Answer
from app.reader.rule import Key
from app.wire.event import Logprob, TokenEvent

# Measured sizes as Python objects: a struct with the figures of its usage, a token, a value in a container, a log
# probability without its text.
_EVENT_BYTES = 560
_TOKEN_BYTES = 40
_VALUE_BYTES = 64
_LOGPROB_BYTES = 184


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
        events = answer.events
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
    """Upper bound of the memory of one event, whatever its fields hold."""
    size = _EVENT_BYTES + _TOKEN_BYTES * len(event.tokens or ())
    for text in (event.request_id, event.user_id, event.conversation_id, event.text, event.model_version):
        if text is not None:
            size += getsizeof(text)
    others = (event.reasoning, event.error, event.notice, event.prompt_digest, event.prompt_start)
    calls = (event.tool_calls, event.tool_call_deltas)
    size += sum(_bytes_of_value(value) for value in (*others, *calls) if value is not None)
    return size + _bytes_of_logprobs(event.logprobs) + _bytes_of_logprobs(event.prompt_logprobs)


def _bytes_of_logprobs(logprobs: Sequence[Logprob] | None) -> int:
    """There may be thousands, so they are not counted field by field."""
    if not logprobs:
        return 0
    return sum(_LOGPROB_BYTES + getsizeof(one.text) + _bytes_of_logprobs(one.top) for one in logprobs)


def _bytes_of_value(value: object) -> int:
    if isinstance(value, Struct):
        return _VALUE_BYTES + sum(_bytes_of_value(getattr(value, name)) for name in value.__struct_fields__)
    if isinstance(value, dict):
        return getsizeof(value) + sum(map(_bytes_of_value, (*value, *value.values())))
    if isinstance(value, tuple | list):
        return getsizeof(value) + sum(map(_bytes_of_value, value))
    return getsizeof(value)
