"""Where a request comes from that was a foreign record: the header `intake-from` of its record on `requests`."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

from app.wire.codec import INTAKE_FROM, HeaderPairs
from app.wire.ids import MAX_REQUEST_ID_LENGTH

_DIGEST = 8


@dataclass(frozen=True, slots=True)
class ForeignSource:
    """`timestamp` is the foreign record's, in Unix milliseconds."""

    topic: str
    partition: int
    offset: int
    timestamp: int

    @property
    def request_id(self) -> str:
        """The id of a request whose record names none: `topic-partition-offset`. A name of a topic that is too long for
        it is cut, and has a digest.
        """
        place = f"-{self.partition}-{self.offset}"
        if len(self.topic) + len(place) <= MAX_REQUEST_ID_LENGTH:
            return self.topic + place
        digest = blake2b(self.topic.encode(), digest_size=_DIGEST // 2).hexdigest()
        return f"{self.topic[: MAX_REQUEST_ID_LENGTH - len(place) - _DIGEST - 1]}:{digest}{place}"

    @property
    def header(self) -> tuple[str, bytes]:
        return INTAKE_FROM, f"{self.topic}:{self.partition}:{self.offset}:{self.timestamp}".encode()


def source_of(headers: HeaderPairs) -> ForeignSource | None:
    """The source that the headers name; None if it is none, or not readable."""
    value = next((value for name, value in headers if name == INTAKE_FROM), None)
    try:
        topic, *numbers = (value or b"").decode("ascii").split(":")
        partition, offset, timestamp = map(int, numbers)
    except ValueError:
        return None
    return ForeignSource(topic, partition, offset, timestamp)
