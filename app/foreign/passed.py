"""What the records of an answer repeat of its request: `source.NAME` and `metadata.NAME` of an egress.

`source.NAME` is a field of the sender's record as it came. Whoever answers the request may be a worker that has never
seen that record, so the fields that an egress names are read once, when the record becomes a request, and travel on the
request's record, in the header `intake-source`. They live as long as that record, beside the prompt, and no longer: of
an erased user none is told. `metadata` is a field of the request itself.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import UNSET

from app.foreign.mapping import at_path
from app.policy.foreign import METADATA, SOURCE, USER_NAME, EgressRules, IntakeRules
from app.wire import json_codec
from app.wire.codec import HeaderPairs, WireFormat, decode, format_of, quoted
from app.wire.error import ErrorCode, WireError
from app.wire.ids import SEPARATOR, tenant_of
from app.wire.json_codec import MalformedError
from app.wire.request import Request

log = logging.getLogger(__name__)

INTAKE_SOURCE = "intake-source"
MOST_BYTES = 16 << 10
Fields = Mapping[str, Any]


class _Metadata(msgspec.Struct):
    metadata: dict[str, msgspec.Raw] | None = None


@dataclass(frozen=True, slots=True)
class Passed:
    """`source` by the whole paths that egresses name; both are empty where nothing may be told."""

    source: Fields = field(default_factory=dict)
    metadata: Fields = field(default_factory=dict)


def source_paths(egresses: Iterable[EgressRules], topic: str) -> tuple[str, ...]:
    """The fields of the topic's records that an egress tells."""
    named = {path for rules in egresses if rules.is_of(topic) for path in rules.fields.values()}
    return tuple(sorted(path.removeprefix(SOURCE) for path in named if path.startswith(SOURCE)))


def source_headers(rules: IntakeRules, fields: Fields, paths: Iterable[str], *, store: bool) -> list[tuple[str, bytes]]:
    """The header with these fields of the record; none without a value. A record that is not to be stored keeps what
    the model reads of it to itself. Raises `WireError` for more bytes than are passed through.
    """
    found = values_at(fields, [path for path in paths if store or not rules.is_read(path)])
    value = json_codec.encode(found) if found else b""
    if len(value) > MOST_BYTES:
        what = f"the fields that answers repeat, {quoted([*found])}, have {len(value)} bytes as JSON"
        raise WireError(ErrorCode.INVALID_REQUEST, f"{what}, the limit is {MOST_BYTES}")
    return [(INTAKE_SOURCE, value)] if found else []


def values_at(fields: Fields, paths: Iterable[str]) -> dict[str, msgspec.Raw]:
    """What the record has at these paths, as JSON; what no JSON can hold is no value."""
    found = {}
    for path in paths:
        try:
            value = at_path(fields, path)
            if isinstance(value, msgspec.Raw):
                found[path] = value
            elif value is not UNSET:
                found[path] = msgspec.Raw(json_codec.encode(value))
        except Exception as error:  # noqa: BLE001 - of others, in a schema of theirs
            log.warning("%s of a record cannot be passed on: %s", quoted([path]), type(error).__name__)
    return found


def smallest_values(found: Mapping[str, msgspec.Raw]) -> dict[str, msgspec.Raw]:
    """Without the largest, as long as it is more than what is passed through."""
    sizes = sorted((len(json_codec.encode({path: value})), path) for path, value in found.items())
    kept, left = {}, MOST_BYTES
    for size, path in sizes:
        left -= size
        if left >= 0:
            kept[path] = found[path]
    return kept


def passed_of(egresses: Iterable[EgressRules], headers: HeaderPairs, value: bytes | None) -> Passed:
    """What the record of a request has for these."""
    paths = [path for rules in egresses for path in rules.fields.values()]
    source = _source_in(headers) if any(path.startswith(SOURCE) for path in paths) else {}
    return Passed(source, _metadata_in(headers, value) if any(path.startswith(METADATA) for path in paths) else {})


def _source_in(headers: HeaderPairs) -> Fields:
    value = next((value for name, value in headers if name == INTAKE_SOURCE), None) or b""
    try:
        return dict(json_codec.decode(value, dict[str, msgspec.Raw])) if len(value) <= MOST_BYTES else {}
    except MalformedError:
        return {}


def _metadata_in(headers: HeaderPairs, value: bytes | None) -> Fields:
    try:
        if format_of(headers) is WireFormat.PROTOBUF:
            return decode(Request, value, headers).metadata or {}
        return json_codec.decode(value or b"", _Metadata).metadata or {}
    except (MalformedError, WireError):
        return {}


def values_of(rules: EgressRules, own: Fields, passed: Passed) -> dict[str, Any]:
    """The fields of the foreign record of a turn, an event or an error (`own`), None for what has no value."""
    return {theirs: _value_of(path, own, passed) for theirs, path in rules.fields.items()}


def _value_of(path: str, own: Fields, passed: Passed) -> Any:
    if path.startswith(SOURCE):
        value = passed.source.get(path.removeprefix(SOURCE))
    elif path.startswith(METADATA):
        value = at_path(passed.metadata, path.removeprefix(METADATA))
    elif path == USER_NAME:
        value = user_name(own.get("user_id"))
    else:
        value = at_path(own, path)
    return None if value is UNSET else value


def user_name(user_id: str | None) -> str | None:
    """The user without its tenant."""
    return user_id if user_id is None or tenant_of(user_id) is None else user_id.partition(SEPARATOR)[2]
