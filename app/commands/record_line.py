"""One record of a topic as plain data for one line of JSON."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import msgspec

from app.wire import (
    WireError,
    WireFormat,
    cause_from,
    decode_control,
    decode_request,
    decode_token_event,
    decode_turn,
    decode_usage,
    format_of,
)

_DECODERS: dict[str, Callable[..., Any]] = {
    "requests": decode_request,
    "tokens": decode_token_event,
    "turns": decode_turn,
    "usage": decode_usage,
    "controls": decode_control,
}


def line_of(topic: str, record: Any) -> dict[str, Any]:
    """A record's position, key and value; a value that is not text is given in Base64."""
    line = {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _text(record.key),
        "value": _value(topic, record),
    }
    if topic == "dead-letters":
        line["cause"] = cause_from(record.headers)
    return line


def _value(topic: str, record: Any) -> Any:
    if record.value is None:
        return None
    decode = _DECODERS.get(topic)
    if format_of(record.headers) is WireFormat.PROTOBUF and decode is not None:
        try:
            return msgspec.to_builtins(decode(record.value, record.headers))
        except WireError:
            return _text(record.value)
    try:
        record.value.decode("utf-8")
        return msgspec.json.decode(record.value)
    except (ValueError, RecursionError):
        return _text(record.value)


def _text(value: bytes | None) -> Any:
    if value is None:
        return None
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}
