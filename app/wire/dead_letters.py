"""Records of `dead-letters`: the original key, value and headers, and headers that say what was wrong and where.

`dead-letters` accepts no larger records than `requests`, and a compressed record may be far larger than either. What
does not fit is cut: the value first, then headers, then the key. Headers give the original length and hash:
`value-bytes` and `value-sha256`, `key-bytes` and `key-sha256`, `headers-dropped`.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable

import msgspec

from app.wire.codec import Headers, pairs_of
from app.wire.error import MAX_MESSAGE_LENGTH, WireError
from app.wire.record_size import MAX_RECORD_BYTES

ERROR_CODE = "error-code"
ERROR_MESSAGE = "error-message"
SOURCE_TOPIC = "source-topic"
SOURCE_PARTITION = "source-partition"
SOURCE_OFFSET = "source-offset"
FAILED_AT = "failed-at"
VALUE_BYTES = "value-bytes"
VALUE_SHA256 = "value-sha256"
KEY_BYTES = "key-bytes"
KEY_SHA256 = "key-sha256"
HEADERS_DROPPED = "headers-dropped"
_OURS = frozenset({
    ERROR_CODE, ERROR_MESSAGE, SOURCE_TOPIC, SOURCE_PARTITION, SOURCE_OFFSET, FAILED_AT,
    VALUE_BYTES, VALUE_SHA256, KEY_BYTES, KEY_SHA256, HEADERS_DROPPED,
})  # fmt: skip
MAX_DEAD_LETTER_BYTES = MAX_RECORD_BYTES - (8 << 10)
"""For key, value and original headers together; the rest is for the headers of the cause and Kafka's framing."""
_MAX_KEY_BYTES = 4096
_HEADER_FRAMING = 10


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """Why a record is a dead letter, and where it came from."""

    code: str
    message: str
    topic: str
    partition: int
    offset: int
    failed_at: int


def cause_of(error: WireError, topic: str, partition: int, offset: int) -> Cause:
    """The cause, as of now."""
    return Cause(
        code=error.code,
        message=error.message,
        topic=topic,
        partition=partition,
        offset=offset,
        failed_at=time.time_ns() // 1_000_000,
    )


def dead_letter_headers(cause: Cause, original: Headers) -> list[tuple[str, bytes | None]]:
    """The original headers and those of the cause. If a dead letter is sent again and fails again, it gets new ones."""
    message = " ".join(cause.message.split())[:MAX_MESSAGE_LENGTH]
    ours = {
        ERROR_CODE: cause.code,
        ERROR_MESSAGE: message,
        SOURCE_TOPIC: cause.topic,
        SOURCE_PARTITION: str(cause.partition),
        SOURCE_OFFSET: str(cause.offset),
        FAILED_AT: str(cause.failed_at),
    }
    kept = [(name, value) for name, value in pairs_of(original) if name not in _OURS]
    return [*kept, *((name, value.encode("utf-8", errors="replace")) for name, value in ours.items())]


class DeadLetter(msgspec.Struct, frozen=True):
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def dead_letter(
    cause: Cause, key: bytes | None, value: bytes | None, headers: Headers, *, most_bytes: int = MAX_DEAD_LETTER_BYTES
) -> DeadLetter:
    """The dead letter of a record; `most_bytes` bounds what it holds of the original."""
    cuts: list[tuple[str, bytes | None]] = []
    room = most_bytes
    if key is not None and len(key) > min(_MAX_KEY_BYTES, room):
        cuts += _whole(KEY_BYTES, KEY_SHA256, key)
        key = key[: min(_MAX_KEY_BYTES, room)]
    room -= len(key or b"")
    kept: list[tuple[str, bytes | None]] = []
    originals = [(name, one) for name, one in pairs_of(headers) if name not in _OURS]
    for name, one in originals:
        size = len(name.encode(errors="replace")) + len(one or b"") + _HEADER_FRAMING
        if size <= room:
            kept.append((name, one))
            room -= size
    if len(kept) < len(originals):
        cuts.append((HEADERS_DROPPED, str(len(originals) - len(kept)).encode()))
    if value is not None and len(value) > room:
        cuts += _whole(VALUE_BYTES, VALUE_SHA256, value)
        value = value[:room]
    # aiokafka sends no record that has neither key nor value.
    value = b"" if key is None and value is None else value
    return DeadLetter(key, value, [*dead_letter_headers(cause, kept), *cuts])


def _whole(bytes_header: str, sha256_header: str, content: bytes) -> Iterable[tuple[str, bytes | None]]:
    yield bytes_header, str(len(content)).encode()
    yield sha256_header, hashlib.sha256(content).hexdigest().encode()


def cause_from(headers: Headers) -> Cause | None:
    """Read the headers of a dead letter; None if they are not those of one."""
    values = {name: (value or b"").decode("utf-8", errors="replace") for name, value in pairs_of(headers)}
    try:
        return Cause(
            code=values[ERROR_CODE],
            message=values[ERROR_MESSAGE],
            topic=values[SOURCE_TOPIC],
            partition=int(values[SOURCE_PARTITION]),
            offset=int(values[SOURCE_OFFSET]),
            failed_at=int(values[FAILED_AT]),
        )
    except (KeyError, ValueError):
        return None
