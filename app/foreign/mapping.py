"""From foreign fields to those of a request, and from those of a turn to foreign ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import UNSET

from app.foreign import refusals
from app.foreign.refusals import Lack
from app.foreign.source import ForeignSource
from app.policy.foreign import EACH, EgressRules, IntakeRules
from app.policy.templates import parts_of
from app.wire import json_codec
from app.wire.codec import PROMPTS, decode
from app.wire.error import ErrorCode, WireError
from app.wire.event import TokenEvent
from app.wire.ids import SEPARATOR
from app.wire.json_codec import MalformedError
from app.wire.request import Request
from app.wire.turn import Turn
from app.wire.validation import validate_request

_NULL = msgspec.Raw(b"null")
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
        found, lacks = _found(rules, fields)
    except MalformedError as error:
        raise WireError(ErrorCode.INVALID_REQUEST, str(error)) from None
    given = {**rules.constants, **{name: one for name, one in found.items() if one is not UNSET and one is not None}}
    named = given.get("user_id")
    if named is None or named == "":
        named = None if rules.user_id else _text(key)
    user = named if named is not None else source.request_id if rules.user_id == EACH else rules.user_id
    prompts = [name for name in PROMPTS if name in given]
    for name in [*([] if prompts else [_first_prompt(rules)]), *([] if user is not None else ["user_id"])]:
        if name not in rules.templates:
            value = found.get(name, UNSET) if name in rules.fields else UNSET if key is None else key
            lacks.append(Lack(refusals.theirs(rules, name), value))
    if lacks:
        raise refusals.missing(lacks, [*fields])
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


def _found(rules: IntakeRules, fields: Mapping[str, Any]) -> tuple[dict[str, Any], list[Lack]]:
    """What the record has for the fields of a request, `UNSET` if that is nothing, and what its templates lack. Raises
    `MalformedError`.
    """
    lacks: list[Lack] = []
    found = {name: _value_of(at_path(fields, theirs)) for name, theirs in rules.fields.items()}
    for name in _IDS:
        if isinstance(found.get(name), int) and not isinstance(found[name], bool):
            found[name] = str(found[name])
    for name, template in rules.templates.items():
        found[name] = _filled(fields, name, template, lacks)
    return found, lacks


def _filled(fields: Mapping[str, Any], name: str, template: str, lacks: list[Lack]) -> str:
    """The text of the template; what the record has not got for it is added to `lacks`."""
    text = ""
    for literal, path in parts_of(template):
        value = at_path(fields, path) if path else ""
        if value is UNSET or value is None or value == _NULL:
            lacks.append(Lack(f"`{path}` ({name})", UNSET if value is UNSET else None))
        else:
            text += literal + _as_text(value)
    return text


def _as_text(value: Any) -> str:
    """A string as it is, anything else as it stands in JSON."""
    if isinstance(value, msgspec.Raw):
        text = bytes(value)
        return str(json_codec.decode(text, str)) if text.startswith(b'"') else text.decode()
    return value if isinstance(value, str) else json_codec.encode(value).decode()


def record_of(rules: EgressRules, own: Turn | TokenEvent) -> bytes:
    """The foreign record of a turn, or of an event."""
    plain = msgspec.to_builtins(own)
    values = {theirs: at_path(plain, name) for theirs, name in rules.fields.items()}
    return json_codec.encode({theirs: None if value is UNSET else value for theirs, value in values.items()})


def at_path(fields: Mapping[str, Any], path: str) -> Any:
    """The value of that name, or at that path of names, as it came; `UNSET` if there is none. Raises
    `MalformedError`.
    """
    if path in fields:
        return fields[path]
    name, dot, rest = path.partition(".")
    inner = fields.get(name) if dot else None
    if isinstance(inner, msgspec.Raw):
        inner = json_codec.decode(bytes(inner), dict[str, msgspec.Raw]) if bytes(inner).startswith(b"{") else None
    return at_path(inner, rest) if isinstance(inner, Mapping) else UNSET


def _value_of(field: Any) -> Any:
    """A field of JSON is no value before it is read."""
    if not isinstance(field, msgspec.Raw):
        return field
    text = bytes(field)
    json_codec.check_brackets(text)
    return json_codec.decode(text, Any)


def _first_prompt(rules: IntakeRules) -> str:
    return next(name for name in PROMPTS if name in rules.fields or name in rules.templates)


def _text(key: bytes | None) -> str | None:
    try:
        return (key or b"").decode() or None
    except UnicodeDecodeError:
        return None
