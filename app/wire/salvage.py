"""Read what can be read of an invalid record, so that its sender can get an error.

Nothing here decides whether a record is valid. These readers are lenient on purpose: they read the top level only, and
accept a value if it is valid by itself.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from app.wire.headers import WireFormat
from app.wire.json_codec import top_level, without_mark
from app.wire.limits import is_conversation_id, is_request_id, is_user_id
from app.wire.request import DEFAULT_CONVERSATION

_PROTOBUF_FIELDS = {1: "request_id", 2: "user_id", 3: "conversation_id"}


class Identity(NamedTuple):
    request_id: str | None = None
    user_id: str | None = None
    conversation_id: str = DEFAULT_CONVERSATION


def salvage(value: bytes | None, wire_format: WireFormat) -> Identity:
    if value is None:
        return Identity()
    fields = _from_json(value) if wire_format is WireFormat.JSON else _from_protobuf(value)
    request, user, conversation = (fields.get(name) for name in _PROTOBUF_FIELDS.values())
    return Identity(
        request if is_request_id(request) else None,
        user if is_user_id(user) else None,
        conversation if is_conversation_id(conversation) else DEFAULT_CONVERSATION,
    )


def _from_json(value: bytes) -> dict[str, object]:
    """Only the top level is parsed, so neither depth nor size of the rest matters."""
    text = top_level(without_mark(value)).decode("utf-8", errors="replace")
    try:
        fields = json.loads(text, parse_int=float)  # float accepts any number of digits
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}


def _from_protobuf(value: bytes) -> dict[str, object]:
    """The string fields of the identity, up to the first malformed byte."""
    fields: dict[str, object] = {}
    at = 0
    try:
        while at < len(value):
            key, at = _varint(value, at)
            kind = key & 7
            if kind == 0:
                _, at = _varint(value, at)
            elif kind == 2:
                length, at = _varint(value, at)
                if at + length > len(value):
                    break
                if name := _PROTOBUF_FIELDS.get(key >> 3):
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
