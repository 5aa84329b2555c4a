"""Foreign records as plain fields: JSON, or Avro and Protobuf behind the framing of a schema registry.

Only the fields that the policy names are decoded, so a megabyte in another one does not hold the event loop. Fields of
JSON are `msgspec.Raw` until they are read (mapping.py). The registry is not asked: the policy names files.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from app.foreign.avro import avro_reader
from app.foreign.framing import Decode, Decoded, Read, by_id, of_one
from app.foreign.protobuf import protobuf_reader
from app.policy.file import Policy, PolicyError
from app.policy.foreign import IntakeRules
from app.wire import json_codec
from app.wire.error import ErrorCode, WireError
from app.wire.json_codec import MalformedError


def decoders_of(policy: Policy) -> dict[str, Decode]:
    """How to read each topic of the policy's intakes. Raises `PolicyError` for a schema that cannot be used."""
    decoders = {}
    for rules in policy.intake:
        try:
            decoders[rules.topic] = decoder_of(rules)
        except PolicyError as error:
            raise PolicyError(f"policy: the intake of {rules.topic}: {error}") from None
    return decoders


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


def decoder_of(rules: IntakeRules) -> Decode:
    """How to read the records of an intake. Raises `PolicyError` for a schema that cannot be used."""
    if rules.format == "json":
        return decode_json
    if isinstance(rules.schema, dict):
        return by_id({int(number): _reader(rules, path) for number, path in rules.schema.items()})
    return of_one(_reader(rules, rules.schema or ""))


def _reader(rules: IntakeRules, file: str) -> Read:
    path = Path(file)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise PolicyError(f"schema {path}: {error.strerror or error}") from None
    names = {part for theirs in rules.paths for part in (theirs, *theirs.split("."))}
    if rules.format == "avro":
        return avro_reader(path, content, names)
    return protobuf_reader(path, content, rules.message or "", names)
