"""From foreign fields to those of a request, and from those of a turn to foreign ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from app.foreign.source import Source
from app.policy.foreign import EgressRules, IntakeRules
from app.wire import json_codec
from app.wire.codec import decode
from app.wire.error import ErrorCode, WireError
from app.wire.event import TokenEvent
from app.wire.ids import SEPARATOR
from app.wire.incoming import PROMPTS, quoted
from app.wire.request import Request
from app.wire.turn import Turn
from app.wire.validation import validate_request

_IDS = ("request_id", "user_id", "conversation_id")
"""Others have numbers for ids."""


@dataclass(frozen=True, slots=True)
class Made:
    """A request made of a foreign record: its user, and its value on `requests`."""

    user_id: str
    value: bytes


def request_of(
    rules: IntakeRules, fields: Mapping[str, Any], key: bytes | None, source: Source, *, max_prompt_bytes: int
) -> Made:
    """The request in a foreign record with these fields. Raises `WireError` that names all that is missing."""
    given = {name: found for name, theirs in rules.fields.items() if (found := _at(fields, theirs)) is not None}
    given = {**rules.constants, **given}
    for name in _IDS:
        if isinstance(given.get(name), int) and not isinstance(given[name], bool):
            given[name] = str(given[name])
    named = given.get("user_id") or (None if rules.user_id else _text(key))
    user = named or rules.user_id
    if missing := [*_missing(rules, given), *([] if user else [_told(rules, "user_id")])]:
        raise WireError(
            ErrorCode.INVALID_REQUEST, f"the record has no {' and no '.join(missing)}; it has {quoted([*fields])}"
        )
    given.setdefault("request_id", source.request_id)
    if named is None:
        given.setdefault("conversation_id", given["request_id"])
    if rules.tenant is not None and isinstance(user, str):
        given["tenant"], user = rules.tenant, f"{rules.tenant}{SEPARATOR}{user}"
    given["user_id"] = user
    made = json_codec.encode(given)
    request = decode(Request, made)
    validate_request(request, request.user_id.encode(), max_prompt_bytes=max_prompt_bytes)
    return Made(request.user_id, made)


def record_of(rules: EgressRules, own: Turn | TokenEvent) -> bytes:
    """The foreign record of a turn, or of an event."""
    plain = msgspec.to_builtins(own)
    return json_codec.encode({theirs: _at(plain, name) for theirs, name in rules.fields.items()})


def _at(fields: Mapping[str, Any], path: str) -> Any:
    """The value of that name, or at that path of names; None if there is none."""
    if path in fields:
        return fields[path]
    name, dot, rest = path.partition(".")
    inner = fields.get(name) if dot else None
    return _at(inner, rest) if isinstance(inner, Mapping) else None


def _missing(rules: IntakeRules, given: Mapping[str, Any]) -> list[str]:
    if any(name in given for name in PROMPTS):
        return []
    return [_told(rules, next(name for name in PROMPTS if name in rules.fields))]


def _told(rules: IntakeRules, name: str) -> str:
    """How to name a field that is missing to those who write the records."""
    return f"`{rules.fields[name]}` ({name})" if name in rules.fields else f"key ({name})"


def _text(key: bytes | None) -> str | None:
    try:
        return (key or b"").decode() or None
    except UnicodeDecodeError:
        return None
