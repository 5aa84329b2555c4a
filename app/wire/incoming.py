"""A request as its sender wrote it: what it does not name is filled in, and what it names in vain is listed.

A record of `requests` without `request_id` has the id `partition-offset`, which is the same at each reading; one
without `user_id` belongs to the user in its key. A refusal names all that is missing and all that is unknown at once,
because a sender who has to find his mistakes one by one gives up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from app.process.near_names import nearest, with_hint
from app.process.printable import printable
from app.wire import json_codec, parley_pb2
from app.wire.codec import decode
from app.wire.error import WireError
from app.wire.headers import Headers, WireFormat, format_of
from app.wire.ids import is_user_id
from app.wire.json_codec import MalformedError, check_depth, without_mark
from app.wire.request import Request
from app.wire.unsupported import UNSUPPORTED

PROMPTS = ("prompt", "messages", "tool_results", "prompt_token_ids")
"""A request has one of these."""
_OWN = sorted(Request.__struct_fields__)
_KNOWN = frozenset(Request.__struct_fields__) | UNSUPPORTED.keys()
_NULL = msgspec.Raw(b"null")
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_MOST_NAMES = 12
_LONGEST_NAME = 40


def read_request(value: bytes | None, headers: Headers, *, key: bytes | None, partition: int, offset: int) -> Request:
    """The request in the record of this place, with `request_id` and `user_id`. Raises `WireError`."""
    try:
        return decode(Request, value, headers)
    except WireError:
        completed = _completed(value, headers, key, f"{partition}-{offset}")
        if completed is None:
            raise
    return decode(Request, completed, headers)


def explained(error: WireError, value: bytes | None, headers: Headers) -> WireError:
    """The refusal of a request, with the names of all missing and unknown fields."""
    fields = _fields_of(value, headers)
    if fields is None or not error.dead_letter:
        return error
    message = error.message
    if fields.get("user_id", _NULL) == _NULL and error.user_id is None:
        missing = ["user_id", *([] if any(name in fields for name in PROMPTS) else ["prompt"])]
        verb = "is" if len(missing) == 1 else "are"
        message = f"{quoted(missing)} {verb} missing, and the record has no key that names the user"
    if unknown := [name for name in fields if name not in _KNOWN]:
        message += f"; the record has {quoted(unknown)}, which a request does not know"
        if hints := [f"{name}: {near}" for name in unknown[:_MOST_NAMES] if (near := nearest(name, _OWN)) is not None]:
            message += f" (probably meant: {printable(', '.join(hints))})"
    return WireError(
        error.code,
        message,
        request_id=error.request_id,
        user_id=error.user_id,
        conversation_id=error.conversation_id,
    )


def ignored_fields(value: bytes | None, headers: Headers) -> tuple[str, ...]:
    """The fields of a valid request that it does not know, as they may stand in a log, with what is probably meant."""
    fields = _fields_of(value, headers) or {}
    return unknown_fields([name for name in fields if name not in _KNOWN], _OWN)


def unknown_fields(names: Iterable[str], known: Collection[str]) -> tuple[str, ...]:
    """Those of the names that are not known, as they may stand in a log, each with the one that is probably meant."""
    unknown = [name for name in names if name not in known]
    return tuple(with_hint(printable(name)[:_LONGEST_NAME], known) for name in unknown[:_MOST_NAMES])


def quoted(names: Sequence[str]) -> str:
    """These names in a sentence: a record may have none, or thousands of any length."""
    if not names:
        return "no fields"
    shown = [f"`{printable(name)[:_LONGEST_NAME]}`" for name in names[:_MOST_NAMES]]
    return _listed(shown) if len(names) <= _MOST_NAMES else f"{', '.join(shown)} and {len(names) - _MOST_NAMES} more"


def _listed(names: Sequence[str]) -> str:
    return " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)


def _completed(value: bytes | None, headers: Headers, key: bytes | None, place: str) -> bytes | None:
    """The record with what it does not name; None if that is nothing, or the record is no object."""
    defaults = {"request_id": place, **_user_in(key)}
    if value is not None and format_of(headers) is WireFormat.PROTOBUF:
        return _completed_protobuf(value, defaults)
    if (fields := _fields_of(value, headers)) is None:
        return None
    missing = {name: default for name, default in defaults.items() if fields.get(name, _NULL) == _NULL}
    if not missing:
        return None
    return json_codec.encode({**fields, **missing})


def _completed_protobuf(value: bytes, defaults: Mapping[str, str]) -> bytes | None:
    message = parley_pb2.Request()
    try:
        message.ParseFromString(value)
    except Exception:  # noqa: BLE001 - bytes of others; the first reading has said what is wrong with them
        return None
    missing = [name for name in defaults if not getattr(message, name)]
    for name in missing:
        setattr(message, name, defaults[name])
    return message.SerializeToString() if missing else None


def _user_in(key: bytes | None) -> dict[str, str]:
    try:
        user_id = (key or b"").decode()
    except UnicodeDecodeError:
        return {}
    return {"user_id": user_id} if is_user_id(user_id) else {}


def _fields_of(value: bytes | None, headers: Headers) -> dict[str, msgspec.Raw] | None:
    """The top level of a JSON object; None of everything else."""
    if value is None or format_of(headers) is WireFormat.PROTOBUF:
        return None
    try:
        check_depth(value)
        return _FIELDS.decode(without_mark(value))
    except (MalformedError, msgspec.DecodeError, UnicodeError):
        return None
