"""A record as read from Kafka: raw bytes, not decoded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from aiokafka import ConsumerRecord

from app.kafka.reading import cause_of
from app.settings import Settings
from app.wire.codec import MOST_HEADERS, encode, salvage
from app.wire.codec import Record as WireRecord
from app.wire.error import ErrorCode, WireError
from app.wire.record_size import held_bytes

REQUESTS, CONTROLS, TURNS, TOOL_RESULTS = "requests", "controls", "turns", "tool-results"
SOURCES = (REQUESTS, CONTROLS, TURNS)
"""The topics that a worker consumes as a member of its group. A user has the same partition in all of them, so one
owner holds them together.
"""

HeaderList = Sequence[tuple[str, bytes | None]]


class RecordSource(Protocol):
    """The consumer group.

    It promises: from `Partitions.assigned` to the next `revoked`, the records of a partition come in the order of
    their offsets, from its committed offset on; none is left out, and none comes that was fetched before that
    assignment. Records that have come before may come again.
    """

    def pause(self, topic: str, partition: int) -> None:
        """Let no more records of this topic come for now; some that were fetched may."""

    def resume(self, topic: str, partition: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Record:
    """`topic` is the name without the prefix of the settings, or, if it `is_foreign`, that of a topic of others;
    `timestamp` is Unix milliseconds.

    `unreadable` says why the record cannot be decoded (app/kafka/reading.py); its value then has the raw bytes.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: HeaderList = ()
    unreadable: str = ""
    is_foreign: bool = False
    cost: int = field(init=False, compare=False, repr=False)
    """Upper bound of the memory that the record takes while it is held, in bytes; counted once."""

    @classmethod
    def of(cls, topic: str, consumed: ConsumerRecord, *, is_foreign: bool = False) -> Record:
        """What a consumer of this topic has read. A record of very many headers is read without them."""
        headers, cause = tuple(consumed.headers), cause_of(consumed)
        if len(headers) > MOST_HEADERS:
            headers, cause = (), cause or f"it has {len(headers)} headers, more than {MOST_HEADERS}"
        return cls(
            topic=topic,
            partition=consumed.partition,
            offset=consumed.offset,
            timestamp=consumed.timestamp,
            key=consumed.key,
            value=consumed.value,
            headers=headers,
            unreadable=cause,
            is_foreign=is_foreign,
        )

    def __post_init__(self) -> None:
        object.__setattr__(self, "cost", held_bytes(self.key, self.value, self.headers))

    def check_readable(self) -> None:
        """Raise `WireError` for a record that Kafka's client cannot decode."""
        if self.unreadable:
            named = salvage(self.value, self.headers)
            raise WireError(ErrorCode.INVALID_REQUEST, self.unreadable, **named._asdict())


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A record to write to `topic` (full name), in the current partition unless it names another. `by_key`: in the one
    that Kafka's partitioner chooses, which is for topics of others. `timestamp` is Unix milliseconds; None means now.
    """

    topic: str
    key: bytes | None
    value: bytes | None
    headers: HeaderList = ()
    partition: int | None = None
    by_key: bool = False
    timestamp: int | None = None


def outgoing(
    settings: Settings, topic: str, key: bytes | None, record: WireRecord, headers: HeaderList = ()
) -> Outgoing:
    """`record` in the wire format in force, for the topic of this short name. `headers` follow the format's own."""
    value, own = encode(record, settings.wire_format)
    return Outgoing(settings.topic(topic), key, value, [*own, *headers])
