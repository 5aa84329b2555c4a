"""From foreign fields to those of a request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import UNSET

from app.foreign import refusals
from app.foreign.refusals import Lack
from app.foreign.source import ForeignSource
from app.policy.foreign import EACH, IntakeRules
from app.policy.templates import parts_of
from app.wire import json_codec
from app.wire.codec import PROMPTS, decode
from app.wire.error import ErrorCode, WireError
from app.wire.ids import SEPARATOR, is_request_id, is_user_id
from app.wire.json_codec import MalformedError
from app.wire.request import Request
from app.wire.validation import validate_request

_NULL = msgspec.Raw(b"null")
_IDS = frozenset({"request_id", "user_id", "conversation_id"})


@dataclass(frozen=True, slots=True)
class Made:
    """A request made of a foreign record: its user, whether it may be stored, and its value on `requests`."""

    user_id: str
    store: bool
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
    named, user = _users(rules, given.get("user_id"), key, source)
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
    if named is None and is_request_id(given["request_id"]):  # another is refused under its own name
        given.setdefault("conversation_id", given["request_id"])
    if rules.tenant is not None:
        given["tenant"] = rules.tenant
    given["user_id"] = _of_tenant(rules, user)
    made = json_codec.encode(given)
    try:
        request = decode(Request, made)
        validate_request(request, request.user_id.encode(), max_prompt_bytes=max_prompt_bytes)
    except WireError as error:
        raise refusals.translated(rules, error) from None
    return Made(request.user_id, request.store, made)


def named_in(
    rules: IntakeRules, fields: Mapping[str, Any], key: bytes | None, source: ForeignSource, *, is_whole: bool
) -> tuple[str | None, str | None]:
    """The `request_id` and the `user_id` of a record that gives no request, as far as they can be read; `is_whole`:
    these are all its fields.
    """
    request_id, named = (_id_in(rules, fields, name) for name in ("request_id", "user_id"))
    if request_id is None and (is_whole or "request_id" not in {*rules.fields, *rules.templates}):
        request_id = source.request_id
    user = _of_tenant(rules, _users(rules, named, key, source)[1])
    return request_id if is_request_id(request_id) else None, user if is_user_id(user) else None


def _id_in(rules: IntakeRules, fields: Mapping[str, Any], name: str) -> Any:
    lacks: list[Lack] = []
    try:
        if name in rules.templates:
            text = _filled(fields, name, rules.templates[name], lacks)
            return None if lacks else text
        value = at_path(fields, rules.fields[name]) if name in rules.fields else UNSET
        return None if value is UNSET else _as_id(value_of(value))
    except MalformedError:
        return None


def _as_id(value: Any) -> Any:
    """Others have numbers for ids."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _users(rules: IntakeRules, named: Any, key: bytes | None, source: ForeignSource) -> tuple[Any, Any]:
    """The user that the record names, None if it names none, and whose request it is."""
    if named is None or named == "":
        named = None if rules.user_id else _text(key)
    return named, named if named is not None else source.request_id if rules.user_id == EACH else rules.user_id


def _of_tenant(rules: IntakeRules, user: Any) -> Any:
    return f"{rules.tenant}{SEPARATOR}{user}" if rules.tenant is not None and isinstance(user, str) else user


def _found(rules: IntakeRules, fields: Mapping[str, Any]) -> tuple[dict[str, Any], list[Lack]]:
    """What the record has for the fields of a request, `UNSET` if that is nothing, and what its templates lack. Raises
    `MalformedError`.
    """
    lacks: list[Lack] = []
    found = {name: value_of(at_path(fields, theirs)) for name, theirs in rules.fields.items()}
    found |= {name: _as_id(found[name]) for name in _IDS & found.keys()}
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


def value_of(field: Any) -> Any:
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
