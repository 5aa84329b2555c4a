"""Records of `dead-letters`: the original key, value and headers, and headers that say what was wrong and where."""

from __future__ import annotations

import time

import msgspec

from app.wire.error import WireError
from app.wire.headers import Headers, pairs_of

ERROR_CODE = "error-code"
ERROR_MESSAGE = "error-message"
SOURCE_TOPIC = "source-topic"
SOURCE_PARTITION = "source-partition"
SOURCE_OFFSET = "source-offset"
FAILED_AT = "failed-at"
_OURS = frozenset({ERROR_CODE, ERROR_MESSAGE, SOURCE_TOPIC, SOURCE_PARTITION, SOURCE_OFFSET, FAILED_AT})
_MESSAGE_LENGTH = 1000


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
    """The original headers and those of the cause; a dead letter that was sent again and fails again has new ones."""
    message = " ".join(cause.message.split())[:_MESSAGE_LENGTH]
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


def cause_from(headers: Headers) -> Cause | None:
    """What the headers of a dead letter say, None where they are not those of one."""
    found = {name: (value or b"").decode("utf-8", errors="replace") for name, value in pairs_of(headers)}
    try:
        return Cause(
            code=found[ERROR_CODE],
            message=found[ERROR_MESSAGE],
            topic=found[SOURCE_TOPIC],
            partition=int(found[SOURCE_PARTITION]),
            offset=int(found[SOURCE_OFFSET]),
            failed_at=int(found[FAILED_AT]),
        )
    except (KeyError, ValueError):
        return None
