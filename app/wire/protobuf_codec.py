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
from app.wire.control import Audit, Cancel, Control, Decide, Erase, EraseConversation, Expire
from app.wire.erasure import Erasure
from app.wire.event import TokenEvent
from app.wire.json_codec import MAX_BRACKETS, MAX_DEPTH, MalformedError
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
    Decide: parley_pb2.Control,
    Expire: parley_pb2.Control,
    Audit: parley_pb2.Control,
    Control: parley_pb2.Control,
    ToolCallRecord: parley_pb2.ToolCallRecord,
    ToolResultRecord: parley_pb2.ToolResultRecord,
    AuditRecord: parley_pb2.AuditRecord,
    Erasure: parley_pb2.Erasure,
}
_LARGE = {TokenEvent, Turn}
"""Parley's own, which have many log probabilities or calls."""


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
        fields = plain(message, math.inf if record_type in _LARGE else MAX_BRACKETS)
        if record_type is TokenEvent and fields.get("type") == "token":
            fields.setdefault("tokens", [])  # an empty list has no bytes
        for holder, name in _json_texts(fields):
            holder[name] = json_codec.decode(holder[name].encode(), dict[str, Any])
        return msgspec.convert(fields, record_type)
    except DecodeError as error:
        raise MalformedError(f"not Protobuf: {error}") from None
    except msgspec.ValidationError as error:
        raise MalformedError(json_codec.in_words(str(error))) from None


def _json_texts(plain: dict[str, Any]) -> list[tuple[dict[str, Any], str]]:
    """The fields of a request that are JSON within Protobuf: schemas, and a `tool_choice` that is an object."""
    holders = [((plain.get("response_format") or {}).get("json_schema") or {}, "schema")]
    holders += [(tool["function"], "parameters") for tool in plain.get("tools") or () if "function" in tool]
    choice = plain.get("tool_choice")
    if isinstance(choice, dict) or (isinstance(choice, str) and choice.startswith("{")):
        holders.append((plain, "tool_choice"))
    return [(holder, name) for holder, name in holders if holder.get(name) is not None]


def plain(message: Message, most: float = MAX_BRACKETS) -> dict[str, Any]:
    """The fields that are set, by their names. Raises `MalformedError` for more than so many messages, before they are
    objects: a megabyte can hold half a million empty ones.
    """
    return _plain(message, _Room(most))


class _Room:
    """How many more messages, and values of a `Struct`, a record may have."""

    def __init__(self, most: float) -> None:
        self._most = self._left = most

    def spend(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise MalformedError(f"has more than {self._most} messages")


def _plain(message: Message, room: _Room) -> dict[str, Any]:
    return {field.name: _plain_value(value, room) for field, value in message.ListFields()}


def _plain_value(value: Any, room: _Room) -> Any:
    if isinstance(value, struct_pb2.Struct):
        return _object(value, 2, room)
    if isinstance(value, Message):
        return _plain(value, room)
    if isinstance(value, (str, bool, int, float, bytes)):
        return value
    if isinstance(value, Mapping):
        room.spend(len(value))
        return {key: _plain_value(item, room) for key, item in value.items()}
    if not isinstance(next(iter(value), None), Message):
        return list(value)
    room.spend(len(value))
    return [_plain_value(item, room) for item in value]


def _object(struct: struct_pb2.Struct, depth: int, room: _Room) -> dict[str, Any]:
    if depth > MAX_DEPTH:
        raise MalformedError(f"nested deeper than {MAX_DEPTH} levels")
    room.spend(len(struct.fields))
    return {name: _json_value(value, depth, room) for name, value in struct.fields.items()}


def _json_value(value: struct_pb2.Value, depth: int, room: _Room) -> Any:
    kind = value.WhichOneof("kind")
    if kind == "struct_value":
        return _object(value.struct_value, depth + 1, room)
    if kind == "list_value":
        if depth + 1 > MAX_DEPTH:
            raise MalformedError(f"nested deeper than {MAX_DEPTH} levels")
        room.spend(len(value.list_value.values))
        return [_json_value(item, depth + 1, room) for item in value.list_value.values]
    if kind == "number_value":
        return _number(value.number_value)
    return None if kind in {None, "null_value"} else getattr(value, kind)


def _number(number: float) -> int | float:
    """Struct has doubles only; a whole number was most likely written as an integer."""
    if not math.isfinite(number):
        raise MalformedError("metadata contains a number that JSON does not have")
    return int(number) if number.is_integer() and abs(number) <= _EXACT_INTEGERS else number
