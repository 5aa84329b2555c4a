"""Record headers, in the forms in which Kafka clients return them."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping
from itertools import islice

HeaderPairs = Iterable[tuple[str, bytes | None]]
Headers = HeaderPairs | Mapping[str, bytes | None] | None

CONTENT_TYPE = "content-type"
FORWARDED = "forwarded-from"
"""On an erasure that a worker forwarded: the partition it came from, `@`, and its time there in Unix milliseconds. It
is not forwarded again.
"""
WITHDRAWN = "response-deleted"
"""On a cancel: gateways serve that response no more."""
INTAKE_FROM = "intake-from"
"""On a request made of a foreign record: its place and time (app/foreign/source.py)."""
MOST_HEADERS = 1000
"""Of a record: a megabyte of them is hundreds of thousands, and each reader goes through them."""
MAX_TRACE_BYTES = 512
TRACE_HEADERS = ("traceparent", "tracestate")
_TRACEPARENT = re.compile(rb"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
PROTOBUF_TYPE = "application/x-protobuf"


class WireFormat(enum.StrEnum):
    JSON = "json"
    PROTOBUF = "protobuf"


def pairs_of(headers: Headers) -> list[tuple[str, bytes | None]]:
    if headers is None:
        return []
    return list(headers.items() if isinstance(headers, Mapping) else headers)


def is_forwarded(headers: HeaderPairs) -> bool:
    """Whether a worker forwarded the erasure."""
    return any(name == FORWARDED for name, _ in headers)


def is_withdrawal(headers: HeaderPairs) -> bool:
    """Whether the cancel also deletes the response."""
    return any(name == WITHDRAWN for name, _ in headers)


def trace_headers_of(headers: HeaderPairs) -> tuple[tuple[str, bytes], ...]:
    """The W3C trace context in the headers, which every record that is caused by this one also carries.

    A context that is malformed or present twice is dropped with its `tracestate`, because it would be repeated on every
    token event.
    """
    valid: dict[str, bytes] = {}
    for name, value in headers:
        if name in TRACE_HEADERS and value is not None and len(value) <= MAX_TRACE_BYTES:
            valid.setdefault(name, value)
    if not _TRACEPARENT.fullmatch(valid.get(TRACE_HEADERS[0], b"")):
        return ()
    return tuple(valid.items())


def format_of(headers: Headers) -> WireFormat:
    """The format that the content type names; JSON by default."""
    if not headers:
        return WireFormat.JSON
    for name, value in islice(headers.items() if isinstance(headers, Mapping) else headers, MOST_HEADERS):
        if name.lower() == CONTENT_TYPE and value is not None:
            media_type = value.split(b";", 1)[0].strip().lower()
            if media_type in {b"application/x-protobuf", b"application/protobuf"}:
                return WireFormat.PROTOBUF
    return WireFormat.JSON
