"""Foreign records as plain fields: JSON, or Avro and Protobuf behind the framing of a schema registry.

The framing is a zero byte, four bytes with the schema's id, and for Protobuf the path of the message within its file.
The schema is a file that the policy names, and the id is not looked up: who changes the schema in a way that readers of
the old one do not understand changes the file as well.

The bytes are anybody's. Two kinds of Avro schemas let few bytes ask for endless work or memory, so they are refused: a
schema that contains itself, and lists of values that take no bytes.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from app.policy.file import Policy, PolicyError
from app.policy.foreign import IntakeRules
from app.wire import json_codec, protobuf_codec
from app.wire.error import ErrorCode, WireError
from app.wire.json_codec import MalformedError

Decode = Callable[[bytes], dict[str, Any]]
"""The fields of a record; raises `MalformedError`."""

_FRAME = 5


def decoders_of(policy: Policy) -> dict[str, Decode]:
    """How to read each topic of the policy's intakes. Raises `PolicyError` for a schema that cannot be used."""
    decoders = {}
    for rules in policy.intake:
        try:
            decoders[rules.topic] = decoder_of(rules)
        except PolicyError as error:
            raise PolicyError(f"policy: the intake of {rules.topic}: {error}") from None
    return decoders


def fields_of(decode: Decode, value: bytes | None) -> dict[str, Any]:
    """The fields of a record. Raises `WireError`."""
    try:
        if value is None:
            raise MalformedError("the record has no value")
        return decode(value)
    except MalformedError as error:
        raise WireError(ErrorCode.INVALID_REQUEST, str(error)) from None


def decode_json(value: bytes) -> dict[str, Any]:
    fields: dict[str, Any] = json_codec.decode(value, dict[str, Any])
    return fields


def decoder_of(rules: IntakeRules) -> Decode:
    """How to read the records of an intake. Raises `PolicyError` for a schema that cannot be used."""
    if rules.format == "json":
        return decode_json
    path = Path(rules.schema or "")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise PolicyError(f"schema {path}: {error.strerror or error}") from None
    return _avro(path, content) if rules.format == "avro" else _protobuf(path, content, rules.message or "")


def _avro(path: Path, content: bytes) -> Decode:
    try:
        import fastavro  # noqa: PLC0415 - an extra
    except ImportError:
        raise PolicyError("format = 'avro' needs the package fastavro: install Parley with its extra `avro`") from None
    try:
        given = json_codec.decode(content, dict[str, Any])
        if given.get("type") != "record":
            raise PolicyError(f"schema {path}: is no Avro record")
        schema = fastavro.parse_schema(given)
    except PolicyError:
        raise
    except Exception as error:  # noqa: BLE001 - a schema of others
        raise PolicyError(f"schema {path}: is no Avro schema: {error}") from None
    for wrong in _unbounded(given, {}, ()):
        raise PolicyError(f"schema {path}: {wrong}")

    def decode(value: bytes) -> dict[str, Any]:
        body = io.BytesIO(_unframed(value))
        try:
            fields: Any = fastavro.schemaless_reader(body, schema, None)
        except Exception as error:  # noqa: BLE001 - bytes of others
            raise MalformedError(f"not Avro of {path.name}: {type(error).__name__}") from None
        if body.read(1):
            raise MalformedError(f"not Avro of {path.name}: there are bytes behind the record")
        return dict(fields)

    return decode


def _unbounded(schema: Any, named: dict[str, Any], within: tuple[str, ...]) -> Iterator[str]:
    """Why records of the schema may take endless work or memory."""
    if isinstance(schema, list):
        for one in schema:
            yield from _unbounded(one, named, within)
    elif isinstance(schema, str):
        if schema.rpartition(".")[2] in within:
            yield f"{schema!r} contains itself"
    elif schema["type"] in {"record", "error"}:
        name = schema["name"].rpartition(".")[2]
        named[name] = schema
        for field in schema["fields"]:
            yield from _unbounded(field["type"], named, (*within, name))
    elif schema["type"] in {"array", "map"}:
        inner = schema["items" if schema["type"] == "array" else "values"]
        if schema["type"] == "array" and _is_empty(inner, named):
            yield "a list has items that take no bytes"
        yield from _unbounded(inner, named, within)
    elif isinstance(schema["type"], dict | list):
        yield from _unbounded(schema["type"], named, within)


def _is_empty(schema: Any, named: dict[str, Any]) -> bool:
    """Whether a value of this schema takes no bytes."""
    if isinstance(schema, str):
        known = named.get(schema.rpartition(".")[2])
        return schema == "null" or (known is not None and _is_empty(known, named))
    if isinstance(schema, list):
        return False  # the branch takes one
    if schema["type"] in {"record", "error"}:
        return all(_is_empty(field["type"], named) for field in schema["fields"])
    return schema["type"] == "null" or (schema["type"] == "fixed" and not schema["size"])


def _protobuf(path: Path, content: bytes, message: str) -> Decode:
    pool = descriptor_pool.DescriptorPool()
    try:
        for file in descriptor_pb2.FileDescriptorSet.FromString(content).file:
            pool.Add(file)
    except Exception:  # noqa: BLE001 - a file of others
        raise PolicyError(
            f"schema {path}: is no set of descriptors; make it with `protoc --include_imports --descriptor_set_out`"
        ) from None
    try:
        kind = message_factory.GetMessageClass(pool.FindMessageTypeByName(message))
    except KeyError:
        raise PolicyError(f"message: {path} has no message {message!r}") from None

    def decode(value: bytes) -> dict[str, Any]:
        try:
            return protobuf_codec.plain(kind.FromString(_behind_path(_unframed(value))))
        except DecodeError:
            raise MalformedError(f"not Protobuf of {message}") from None

    return decode


def _unframed(value: bytes) -> bytes:
    if len(value) < _FRAME or value[0]:
        raise MalformedError("does not begin with a schema registry's framing (a zero byte and the schema's id)")
    return value[_FRAME:]


def _behind_path(body: bytes) -> bytes:
    """Behind the path of the message: its length and its numbers, or a single zero for the first message."""
    at, count = _varint(body, 0)
    for _ in range(count):
        at, _number = _varint(body, at)
    return body[at:]


def _varint(body: bytes, at: int) -> tuple[int, int]:
    """The place behind the zigzag varint, and its value."""
    number = 0
    for shift in range(0, 35, 7):
        if at >= len(body):
            break
        number |= (body[at] & 0x7F) << shift
        at += 1
        if not body[at - 1] & 0x80:
            return at, number >> 1
    raise MalformedError("does not begin with the path of a Protobuf message")
