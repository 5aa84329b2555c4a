"""Records on topics of others: of a turn, of an event, of what has failed."""

from __future__ import annotations

import logging
from typing import Any

import msgspec

from app.delivery.record import HeaderList, Outgoing
from app.foreign.formats import EgressTopic
from app.foreign.passed import Fields, Passed, values_of
from app.wire.error import ErrorCode
from app.wire.event import TokenEvent
from app.wire.json_codec import MalformedError
from app.wire.record_size import MAX_RECORD_BYTES

log = logging.getLogger(__name__)

NOTHING = Passed()
_MOST_BYTES = MAX_RECORD_BYTES - (4 << 10)
"""Of a record's value; the rest is for key, headers and Kafka's framing."""


class UnwritableError(Exception):
    """The message says which record cannot be written, and why."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


def record_on(topic: EgressTopic, key: bytes | None, own: Fields, passed: Passed, headers: HeaderList) -> Outgoing:
    """The record with these fields of Parley's `own`. Raises `UnwritableError`."""
    name = topic.rules.topic
    try:
        value = topic.encode(values_of(topic.rules, own, passed))
    except MalformedError as error:
        message = f"the record on {name} cannot be written: {error}"
        raise UnwritableError(ErrorCode.INVALID_REQUEST, message) from None
    if len(value) > _MOST_BYTES:
        message = f"the record on {name} would have {len(value)} bytes, and has room for {_MOST_BYTES}"
        raise UnwritableError(ErrorCode.PROMPT_TOO_LONG, message)
    return Outgoing(name, key, value, headers, by_key=True)


def record_of_end(
    topic: EgressTopic, key: bytes | None, own: Fields, passed: Passed, headers: HeaderList
) -> list[Outgoing]:
    """The record of how a request has ended, without what is passed if it cannot stand there."""
    for one in (passed, NOTHING):
        try:
            return [record_on(topic, key, own, one, headers)]
        except UnwritableError as error:
            log.warning("request %s of %s: %s", own.get("request_id"), own.get("user_id"), error)
    return []


def failure(event: TokenEvent, *, tenant: str | None, now: int, asked_at: int) -> dict[str, Any]:
    """What a record tells of a request that has failed; times are Unix milliseconds."""
    own: dict[str, Any] = msgspec.to_builtins(event)
    timing = {"requested_at": asked_at, "finished_at": now}
    return {"timestamp": now, **own, "tenant": tenant, "created_at": now, "timing": timing}
