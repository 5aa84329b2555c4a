"""One record of a topic as plain data for one line of JSON."""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from app.wire.audit import AuditRecord
from app.wire.codec import WireFormat, decode, format_of
from app.wire.control import Control
from app.wire.dead_letters import cause_from
from app.wire.erasure import Erasure
from app.wire.error import WireError
from app.wire.event import TokenEvent
from app.wire.request import Request
from app.wire.tool_records import ToolCallRecord, ToolResultRecord
from app.wire.turn import Turn
from app.wire.usage import UsageWindow
from app.wire.waits import WaitRecord

_TYPES: dict[str, Any] = {
    "requests": Request,
    "tokens": TokenEvent,
    "turns": Turn,
    "usage": UsageWindow,
    "controls": Control,
    "audit": AuditRecord,
    "erasures": Erasure,
    "tool-calls": ToolCallRecord,
    "tool-results": ToolResultRecord,
    "waits": WaitRecord,
}


def line_of(topic: str, record: Any) -> dict[str, Any]:
    """A record's position, key and value, of a dead letter its cause before them; a value that is not text is given in
    Base64.
    """
    line: dict[str, Any] = {} if topic != "dead-letters" else {"cause": cause_from(record.headers)}
    return line | {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _text(record.key),
        "value": _value(topic, record),
    }


def _value(topic: str, record: Any) -> Any:
    if record.value is None:
        return None
    record_type = _TYPES.get(topic)
    if format_of(record.headers) is WireFormat.PROTOBUF and record_type is not None:
        try:
            return msgspec.to_builtins(decode(record_type, record.value, record.headers))
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
