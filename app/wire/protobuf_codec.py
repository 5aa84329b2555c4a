"""Records as Protobuf. They pass through the same plain form and the same type checks as JSON, so both formats accept
exactly the same records.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec
from google.protobuf import struct_pb2
from google.protobuf.message import DecodeError, EncodeError, Message

from app.wire import json_codec, parley_pb2
from app.wire.audit import AuditRecord
from app.wire.comparison import Comparison
from app.wire.control import Audit, Cancel, Control, Erase, EraseConversation
from app.wire.erasure import Erasure
from app.wire.event import TokenEvent
from app.wire.json_codec import MalformedError
from app.wire.limits import MAX_DEPTH
from app.wire.request import Request
from app.wire.tool_records import ToolCallRecord, ToolResultRecord
from app.wire.turn import Turn
from app.wire.usage import UsageWindow

_EXACT_INTEGERS = 2**53
_MESSAGE_OF: dict[Any, type[Message]] = {
    Request: parley_pb2.Request,
    TokenEvent: parley_pb2.TokenEvent,
    Turn: parley_pb2.Turn,
    UsageWindow: parley_pb2.UsageWindow,
    Cancel: parley_pb2.Control,
    Erase: parley_pb2.Control,
    EraseConversation: parley_pb2.Control,
    Audit: parley_pb2.Control,
    Control: parley_pb2.Control,
    ToolCallRecord: parley_pb2.ToolCallRecord,
    ToolResultRecord: parley_pb2.ToolResultRecord,
    Comparison: parley_pb2.Comparison,
    AuditRecord: parley_pb2.AuditRecord,
    Erasure: parley_pb2.Erasure,
}


def encode(record: object) -> bytes:
    plain = msgspec.to_builtins(record)
    if isinstance(plain.get("stop"), str):
        plain["stop"] = [plain["stop"]]
    for holder, name in _json_texts(plain):
        holder[name] = json_codec.encode(holder[name]).decode()
    try:
        return _MESSAGE_OF[type(record)](**plain).SerializeToString()
    except (EncodeError, ValueError, TypeError, OverflowError) as error:
        raise MalformedError(f"cannot be written as Protobuf: {error}") from None


def decode(value: bytes, record_type: Any) -> Any:
    message = _MESSAGE_OF[record_type]()
    try:
        message.ParseFromString(value)
        fields = plain(message)
        if record_type is TokenEvent and fields.get("type") == "token":
            fields.setdefault("tokens", [])  # an empty list has no bytes
        for holder, name in _json_texts(fields):
            holder[name] = json_codec.decode(holder[name].encode(), dict[str, Any])
        return msgspec.convert(fields, record_type)
    except DecodeError as error:
        raise MalformedError(f"not Protobuf: {error}") from None
    except msgspec.ValidationError as error:
        raise MalformedError(str(error)) from None


def _json_texts(plain: dict[str, Any]) -> list[tuple[dict[str, Any], str]]:
    """The fields of a request that are JSON within Protobuf: schemas, and a `tool_choice` that is an object."""
    holders = [((plain.get("response_format") or {}).get("json_schema") or {}, "schema")]
    holders += [(tool["function"], "parameters") for tool in plain.get("tools") or () if "function" in tool]
    choice = plain.get("tool_choice")
    if isinstance(choice, dict) or (isinstance(choice, str) and choice.startswith("{")):
        holders.append((plain, "tool_choice"))
    return [(holder, name) for holder, name in holders if holder.get(name) is not None]


def plain(message: Message) -> dict[str, Any]:
    """The fields that are set, by their names."""
    return {field.name: _plain_value(value) for field, value in message.ListFields()}


def _plain_value(value: Any) -> Any:
    if isinstance(value, struct_pb2.Struct):
        return _object(value, 2)
    if isinstance(value, Message):
        return plain(value)
    if isinstance(value, (str, bool, int, float, bytes)):
        return value
    return dict(value) if isinstance(value, Mapping) else [_plain_value(item) for item in value]


def _object(struct: struct_pb2.Struct, depth: int) -> dict[str, Any]:
    if depth > MAX_DEPTH:
        raise MalformedError(f"nested deeper than {MAX_DEPTH} levels")
    return {name: _json_value(value, depth) for name, value in struct.fields.items()}


def _json_value(value: struct_pb2.Value, depth: int) -> Any:
    kind = value.WhichOneof("kind")
    if kind == "struct_value":
        return _object(value.struct_value, depth + 1)
    if kind == "list_value":
        if depth + 1 > MAX_DEPTH:
            raise MalformedError(f"nested deeper than {MAX_DEPTH} levels")
        return [_json_value(item, depth + 1) for item in value.list_value.values]
    if kind == "number_value":
        return _number(value.number_value)
    return None if kind in {None, "null_value"} else getattr(value, kind)


def _number(number: float) -> int | float:
    """Struct has doubles only; a whole number was most likely written as an integer."""
    if not math.isfinite(number):
        raise MalformedError("metadata contains a number that JSON does not have")
    return int(number) if number.is_integer() and abs(number) <= _EXACT_INTEGERS else number
