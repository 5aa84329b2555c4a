"""Foreign records as plain fields, and back: JSON, Avro, Protobuf, with the framing of a schema registry or without.

Only the fields that the policy names are decoded, so a megabyte in another one does not hold the event loop. Fields of
JSON are `msgspec.Raw` until they are read (mapping.py). The registry is not asked: the policy names files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from app.foreign.avro import avro_reader, avro_writer
from app.foreign.framing import Decode, Decoded, Read, by_id, frame, of_one
from app.foreign.mapping import value_of
from app.foreign.passed import Passed, source_paths, values_of
from app.foreign.plugged_format import PluggedFormat
from app.foreign.protobuf import protobuf_reader, protobuf_writer
from app.foreign.samples import samples_of
from app.policy.file import Policy, PolicyError
from app.policy.foreign import OWN_FORMATS, EgressRules, IntakeRules
from app.wire import json_codec
from app.wire.error import ErrorCode, WireError
from app.wire.ids import is_text
from app.wire.json_codec import MalformedError

Encode = Callable[[Mapping[str, Any]], bytes]
"""The value of a foreign record with these fields; raises `MalformedError` for what its format cannot hold."""


_LONG = 20
"""Digits of an integer that is left out."""


@dataclass(frozen=True, slots=True)
class EgressTopic:
    """Where answers are told, and how."""

    rules: EgressRules
    encode: Encode = field(compare=False)


@dataclass(frozen=True, slots=True)
class IntakeTopic:
    """A topic whose records are requests. `paths`: fields that egresses tell again; `refusals`: the egresses that tell
    of records that give no request.
    """

    rules: IntakeRules
    paths: tuple[str, ...]
    refusals: tuple[EgressTopic, ...]
    decode: Decode = field(compare=False)


@dataclass(frozen=True, slots=True)
class ForeignTopics:
    intakes: Mapping[str, IntakeTopic]
    egresses: tuple[EgressTopic, ...]


def foreign_topics(policy: Policy) -> ForeignTopics:
    """The topics of the policy, read and written. Raises `PolicyError` for a schema that cannot be used."""
    egresses, intakes = [], {}
    for one in policy.egress:
        try:
            egresses.append(EgressTopic(one, encoder_of(one)))
        except PolicyError as error:
            raise PolicyError(f"policy: the egress of {one.topic}: {error}") from None
    for rules in policy.intake:
        refusals = tuple(one for one in egresses if one.rules.tells_errors and one.rules.is_of(rules.topic))
        paths = source_paths(policy.egress, rules.topic)
        try:
            intakes[rules.topic] = IntakeTopic(rules, paths, refusals, decoder_of(rules, paths))
        except PolicyError as error:
            raise PolicyError(f"policy: the intake of {rules.topic}: {error}") from None
    return ForeignTopics(intakes, tuple(egresses))


def fields_of(decode: Decode, value: bytes | None, known: int | None = None) -> Decoded:
    """The fields of a record; `known` is the id of the schema of those before it. Raises `WireError`."""
    try:
        if value is None:
            raise MalformedError("the record has no value")
        return decode(value, known)
    except MalformedError as error:
        raise WireError(ErrorCode.INVALID_REQUEST, str(error)) from None


def decode_json(value: bytes, _known: int | None = None) -> Decoded:
    return Decoded(json_codec.decode(value, dict[str, msgspec.Raw]))


def readable_fields(rules: IntakeRules, value: bytes | None) -> dict[str, Any]:
    """What can be read of a record that is refused as a whole: texts and numbers at the top level of JSON."""
    if rules.format != "json":
        return {}
    try:
        text = json_codec.top_level(json_codec.without_mark(value or b"")).decode(errors="replace")
        fields = json.loads(text, parse_int=lambda digits: int(digits) if len(digits) < _LONG else 0)
    except (ValueError, RecursionError):
        return {}
    # A 0 may stand for what is nested.
    found = fields.items() if isinstance(fields, dict) else ()
    return {name: one for name, one in found if isinstance(one, str | int | float) and one and _is_whole(one)}


def _is_whole(value: str | float) -> bool:
    return not isinstance(value, str) or ("\ufffd" not in value and is_text(value))


def encoder_of(rules: EgressRules) -> Encode:
    """How to write the records of an egress. Raises `PolicyError` for a schema that cannot be used, or does not fit."""
    if rules.format not in OWN_FORMATS:
        return _sampled(rules, PluggedFormat(rules.format, _path_of(rules)).encode, rules.format)
    if rules.format == "json":
        return json_codec.encode
    named = rules.schema if isinstance(rules.schema, dict) else {"": rules.schema or ""}
    ((number, file),) = named.items()
    path, content = _content_of(file)
    place: tuple[int, ...] | None = None
    if rules.format == "avro":
        write = avro_writer(path, content, rules.fields)
    else:
        write, place = protobuf_writer(path, content, rules.message or "", rules.fields)
    before = frame(int(number), place) if number else b""

    def encode(values: Mapping[str, Any]) -> bytes:
        return before + write({name: value_of(one) for name, one in values.items()})

    return _sampled(rules, encode, f"schema {path}")


def _sampled(rules: EgressRules, encode: Encode, about: str) -> Encode:
    """Raise `PolicyError` unless it can write what an egress may have to."""
    for what, own in samples_of(rules):
        try:
            encode(values_of(rules, own, Passed()))
        except MalformedError as error:
            raise PolicyError(f"{about}: cannot hold {what}: {error}") from None
    return encode


def _path_of(rules: IntakeRules | EgressRules) -> str | None:
    return rules.schema if isinstance(rules.schema, str) else None


def decoder_of(rules: IntakeRules, others: Collection[str] = ()) -> Decode:
    """How to read the records of an intake; `others`: fields that egresses repeat. Raises `PolicyError` for a schema
    that cannot be used, or has none of these.
    """
    if rules.format not in OWN_FORMATS:
        return PluggedFormat(rules.format, _path_of(rules)).decode
    if rules.format == "json":
        return decode_json
    paths, known = rules.paths.union(others), set[str]()
    files = rules.schema if isinstance(rules.schema, dict) else {"0": rules.schema or ""}
    readers = {int(number): _readers(rules, path, paths, known) for number, path in files.items()}
    if absent := sorted(path for path in others if known.isdisjoint({path, path.partition(".")[0]})):
        there_are = ", ".join(sorted(known))
        raise PolicyError(f"an egress has source.{absent[0]}, which is no field of the schema; there are {there_are}")
    if isinstance(rules.schema, dict):
        return by_id({number: framed for number, (framed, _) in readers.items()})
    return of_one(*readers[0])


def _readers(rules: IntakeRules, file: str, paths: Collection[str], known: set[str]) -> tuple[Read, Read | None]:
    """For records behind a framing, and without; `known` gets the names of the schema's fields."""
    path, content = _content_of(file)
    names = {part for theirs in paths for part in (theirs, *theirs.split("."))}
    if rules.format == "avro":
        return avro_reader(path, content, names, known), None
    return protobuf_reader(path, content, rules.message or "", names, known)


def _content_of(file: str) -> tuple[Path, bytes]:
    path = Path(file)
    try:
        return path, path.read_bytes()
    except OSError as error:
        raise PolicyError(f"schema {path}: {error.strerror or error}") from None
