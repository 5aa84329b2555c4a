"""A record as it came from Kafka: raw bytes, decoded by nobody yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

REQUESTS, CONTROLS, TURNS = "requests", "controls", "turns"
SOURCES = (REQUESTS, CONTROLS, TURNS)
"""The topics that a worker consumes. One user is one partition in all of them, so one owner has them together."""

_OBJECT_BYTES = 256
_VALUE_BYTES = 96

HeaderList = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class Record:
    """`topic` is the name without the prefix of the settings, `timestamp` is Unix milliseconds.

    `after` is the offset of the record that the consumer was handed before this one, -1 where that is not known.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: HeaderList = ()
    after: int = -1

    @property
    def cost(self) -> int:
        """Bytes of memory that the record takes while it is held, at the most: as it came, and decoded.

        Python takes up to a hundred bytes for a JSON value of three, so the values are counted as well as the bytes.
        The count is of the characters that values are separated by, which costs less than to parse them.
        """
        if self.value is None:
            return _OBJECT_BYTES
        objects, values = self.value.count(b"{") + 1, self.value.count(b",") + self.value.count(b"[")
        return 2 * len(self.value) + _OBJECT_BYTES * objects + _VALUE_BYTES * values


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A record to be written to `topic`, by its whole name, in the partition at hand unless it names another."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: HeaderList = ()
    partition: int | None = None
