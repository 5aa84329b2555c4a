"""Read what can be read of an invalid record, so that its sender can get an error.

Nothing here decides whether a record is valid. These readers are lenient on purpose: they read the top level only, and
accept a value if it is valid by itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from app.wire.headers import WireFormat
from app.wire.ids import is_conversation_id, is_request_id, is_user_id
from app.wire.json_codec import top_level, without_mark
from app.wire.request import DEFAULT_CONVERSATION

_PROTOBUF_FIELDS = {1: "request_id", 2: "user_id", 3: "conversation_id"}
_PROTOBUF_TENANT = 16
_TENANT_TAG = b"\x82\x01"
_MOST_FIELDS = 256
_MOST_SALVAGED = 4096
"""Of the fields of an invalid record, whose identity stands first: a megabyte has room for half a million."""


class Salvaged(NamedTuple):
    request_id: str | None = None
    user_id: str | None = None
    conversation_id: str = DEFAULT_CONVERSATION


def salvage(value: bytes | None, wire_format: WireFormat) -> Salvaged:
    if value is None:
        return Salvaged()
    fields = _from_json(value) if wire_format is WireFormat.JSON else _from_protobuf(value)
    request, user, conversation = (fields.get(name) for name in _PROTOBUF_FIELDS.values())
    return Salvaged(
        request if is_request_id(request) else None,
        user if is_user_id(user) else None,
        conversation if is_conversation_id(conversation) else DEFAULT_CONVERSATION,
    )


class _Charged(msgspec.Struct):
    tenant: str | None = None


def tenant_in(value: bytes | None, wire_format: WireFormat) -> str | None:
    """The `tenant` that a request names, without decoding the rest of it. It may be no valid request."""
    if value is None or (b'"tenant"' if wire_format is WireFormat.JSON else _TENANT_TAG) not in value:
        return None
    if wire_format is not WireFormat.JSON:
        name = _from_protobuf(value, {_PROTOBUF_TENANT: "tenant"}, _MOST_FIELDS).get("tenant")
        return name if isinstance(name, str) else None
    try:
        return msgspec.json.decode(without_mark(value), type=_Charged).tenant
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


def _from_json(value: bytes) -> dict[str, object]:
    """Only the top level is parsed, so neither depth nor size of the rest matters."""
    text = top_level(without_mark(value)).decode("utf-8", errors="replace")
    try:
        fields = json.loads(text, parse_int=float)  # float accepts any number of digits
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}


def _from_protobuf(
    value: bytes, names: Mapping[int, str] = _PROTOBUF_FIELDS, most_fields: int = _MOST_SALVAGED
) -> dict[str, object]:
    """The string fields of these numbers, up to the first malformed byte."""
    fields: dict[str, object] = {}
    at = count = 0
    try:
        while at < len(value) and count < most_fields:
            count += 1
            key, at = _varint(value, at)
            kind = key & 7
            if kind == 0:
                _, at = _varint(value, at)
            elif kind == 2:
                length, at = _varint(value, at)
                if at + length > len(value):
                    break
                if name := names.get(key >> 3):
                    fields[name] = value[at : at + length].decode("utf-8", errors="replace")
                at += length
            elif kind in {1, 5}:
                at += 8 if kind == 1 else 4
            else:
                break
    except IndexError:
        pass  # the record ends within a number: the fields before it were read
    return fields


def _varint(value: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = value[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80 or shift > 63:
            return number, at
