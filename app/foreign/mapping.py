"""From foreign fields to those of a request, and from those of a turn to foreign ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import UNSET

from app.foreign import refusals
from app.foreign.source import ForeignSource
from app.policy.foreign import EACH, EgressRules, IntakeRules
from app.wire import json_codec
from app.wire.codec import PROMPTS, decode
from app.wire.error import ErrorCode, WireError
from app.wire.event import TokenEvent
from app.wire.ids import SEPARATOR
from app.wire.json_codec import MalformedError
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
    rules: IntakeRules, fields: Mapping[str, Any], key: bytes | None, source: ForeignSource, *, max_prompt_bytes: int
) -> Made:
    """The request in a foreign record with these fields. Raises `WireError` that names all that is missing, in words
    of those who write the records.
    """
    try:
        found = {name: _find(fields, theirs) for name, theirs in rules.fields.items()}
    except MalformedError as error:
        raise WireError(ErrorCode.INVALID_REQUEST, str(error)) from None
    given = {**rules.constants, **{name: one for name, one in found.items() if one is not UNSET and one is not None}}
    for name in _IDS:
        if isinstance(given.get(name), int) and not isinstance(given[name], bool):
            given[name] = str(given[name])
    named = given.get("user_id")
    if named is None or named == "":
        named = None if rules.user_id else _text(key)
    user = named if named is not None else source.request_id if rules.user_id == EACH else rules.user_id
    prompts = [name for name in PROMPTS if name in given]
    if needed := [*([] if prompts else [_first_prompt(rules)]), *([] if user is not None else ["user_id"])]:
        raise refusals.missing(rules, needed, found, key, [*fields])
    if len(prompts) > 1:
        raise refusals.several(rules, prompts)
    given.setdefault("request_id", source.request_id)
    if named is None:
        given.setdefault("conversation_id", given["request_id"])
    if rules.tenant is not None and isinstance(user, str):
        given["tenant"], user = rules.tenant, f"{rules.tenant}{SEPARATOR}{user}"
    given["user_id"] = user
    made = json_codec.encode(given)
    try:
        request = decode(Request, made)
        validate_request(request, request.user_id.encode(), max_prompt_bytes=max_prompt_bytes)
    except WireError as error:
        raise refusals.translated(rules, error) from None
    return Made(request.user_id, made)


def record_of(rules: EgressRules, own: Turn | TokenEvent) -> bytes:
    """The foreign record of a turn, or of an event."""
    plain = msgspec.to_builtins(own)
    values = {theirs: _find(plain, name) for theirs, name in rules.fields.items()}
    return json_codec.encode({theirs: None if value is UNSET else value for theirs, value in values.items()})


def _find(fields: Mapping[str, Any], path: str) -> Any:
    """The value of that name, or at that path of names; `UNSET` if there is none. Raises `MalformedError`."""
    if path in fields:
        return _value_of(fields[path])
    name, dot, rest = path.partition(".")
    inner = fields.get(name) if dot else None
    if isinstance(inner, msgspec.Raw):
        inner = json_codec.decode(bytes(inner), dict[str, msgspec.Raw]) if bytes(inner).startswith(b"{") else None
    return _find(inner, rest) if isinstance(inner, Mapping) else UNSET


def _value_of(field: Any) -> Any:
    """A field of JSON is no value before it is read."""
    if not isinstance(field, msgspec.Raw):
        return field
    text = bytes(field)
    json_codec.check_brackets(text)
    return json_codec.decode(text, Any)


def _first_prompt(rules: IntakeRules) -> str:
    return next(name for name in PROMPTS if name in rules.fields)


def _text(key: bytes | None) -> str | None:
    try:
        return (key or b"").decode() or None
    except UnicodeDecodeError:
        return None
