"""Avro records of others.

The bytes are anybody's. Two kinds of schemas let few bytes ask for endless work or memory, so they are refused: one
that contains itself, and one with lists of values that take no bytes. What a record may have beyond that is bounded
while it is read, because decoding holds the event loop, even for fields that the policy does not name. What is written
is Parley's own, so these rules are not for it.
"""

from __future__ import annotations

import io
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, cast

from app.foreign.framing import Read, Write
from app.policy.file import PolicyError
from app.wire import json_codec
from app.wire.json_codec import MalformedError

_ON_FIELD = re.compile(r"on field (\w+)\Z")
_MOST_READS = 100_000
"""Of one record: one or two a value, and one a byte of a number; a twentieth of a second."""


class _Bounded:
    def __init__(self, content: bytes) -> None:
        self._read = io.BytesIO(content).read
        self._left = _MOST_READS

    def read(self, size: int = -1) -> bytes:
        self._left -= 1
        if self._left < 0:
            raise MalformedError(f"has too many values: more than {_MOST_READS} reads of its bytes")
        return self._read(size)


def avro_reader(path: Path, content: bytes, names: Collection[str], known: set[str]) -> Read:
    """How to read the fields of these names; `known` gets the names of all. Raises `PolicyError` for a schema that
    cannot be used.
    """
    fastavro, given, schema = _parsed(path, content)
    known.update(one["name"] for one in given["fields"])
    for wrong in _unbounded(given, {}, ()):
        raise PolicyError(f"schema {path}: {wrong}")
    try:
        own = fastavro.parse_schema({**given, "fields": [one for one in given["fields"] if one["name"] in names]})
    except Exception:  # noqa: BLE001 - a named field has a type that one without a name defines: all are read
        own = None

    def read(body: bytes) -> dict[str, Any]:
        bounded = _Bounded(body)
        try:
            fields: Any = fastavro.schemaless_reader(cast(IO[bytes], bounded), schema, own)
        except MalformedError:
            raise
        except Exception as error:  # noqa: BLE001 - bytes of others
            raise MalformedError(f"not Avro of {path.name}: {type(error).__name__}") from None
        if bounded.read(1):
            raise MalformedError(f"not Avro of {path.name}: there are bytes behind the record")
        return dict(fields)

    return read


def avro_writer(path: Path, content: bytes, names: Collection[str]) -> Write:
    """How to write records of these fields. What has no value is null, or its default. Raises `PolicyError` for a
    schema that cannot be used.
    """
    fastavro, given, schema = _parsed(path, content)
    fields = {one["name"]: one for one in given["fields"]}
    if unknown := sorted({*names} - fields.keys()):
        raise PolicyError(f"schema {path}: has no field {unknown[0]!r}; there are {', '.join(fields)}")
    if open_ones := [name for name, one in fields.items() if name not in names and "default" not in one]:
        raise PolicyError(f"schema {path}: {open_ones[0]!r} has no default, so `fields` has to name it")
    defaults = {name for name, one in fields.items() if "default" in one and not _takes_null(one["type"])}

    def write(values: Mapping[str, Any]) -> bytes:
        out = io.BytesIO()
        own = {name: one for name, one in values.items() if one is not None or name not in defaults}
        try:
            fastavro.schemaless_writer(out, schema, own)
        except Exception as error:  # noqa: BLE001 - it quotes the value, which may be a prompt
            named = _ON_FIELD.search(str(error))
            raise MalformedError(f"{named[1] if named else 'a value'} does not fit {path.name}") from None
        return out.getvalue()

    return write


def _parsed(path: Path, content: bytes) -> tuple[Any, dict[str, Any], Any]:
    try:
        import fastavro  # noqa: PLC0415 - an extra
    except ImportError:
        raise PolicyError("format = 'avro' needs the package fastavro: install Parley with its extra `avro`") from None
    try:
        given = json_codec.decode(content, dict[str, Any])
        if given.get("type") != "record":
            raise PolicyError(f"schema {path}: is no Avro record")
        return fastavro, given, fastavro.parse_schema(given)
    except PolicyError:
        raise
    except Exception as error:  # noqa: BLE001 - a schema of others
        raise PolicyError(f"schema {path}: is no Avro schema: {error}") from None


def _takes_null(kind: Any) -> bool:
    kinds = kind if isinstance(kind, list) else [kind]
    return "null" in [one.get("type") if isinstance(one, dict) else one for one in kinds]


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
