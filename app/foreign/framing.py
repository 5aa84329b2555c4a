"""The framing of a schema registry: a zero byte, four bytes with the schema's id, for Protobuf the message's path.

The bytes behind it have the meaning that this very schema gives them: read by another one, a user's text is his id. So
the id is compared, and so is the path. A policy that names the ids' files reads these. One that names a single file
reads the schema of the first record that became a request, as long as the intake lives (the row `Taken`); each other
one is a dead letter that says what to write. The format:
https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#wire-format
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from app.wire.json_codec import MalformedError

_FRAME = 5
_DEEPEST = 32

Read = Callable[[bytes], dict[str, Any]]
"""The fields of what stands behind the id; raises `MalformedError`."""
Write = Callable[[Mapping[str, Any]], bytes]
"""What stands behind the id, of these fields. Raises `MalformedError`, without a value of theirs in it."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """The fields of a record, and the id of its schema, which the records behind it have to have."""

    fields: dict[str, Any]
    schema_id: int | None = None


Decode = Callable[[bytes, int | None], Decoded]
"""A record, and the id of the schema of those before it; raises `MalformedError`."""


def of_one(read: Read, plain: Read | None = None) -> Decode:
    """The decoder of a policy that names one file. `plain` reads records without framing, of a format in which no byte
    string begins with a zero.
    """

    def decode(value: bytes, known: int | None) -> Decoded:
        if plain is not None and value[:1] != b"\0":
            return Decoded(plain(value))
        schema_id, body = _unframed(value)
        if known not in {None, schema_id}:
            ids = ", ".join(f'{one} = "..."' for one in (known, schema_id))
            raise MalformedError(
                f"its schema has the id {schema_id}, that of the records before {known}: another schema is read if the"
                f" policy names the files of both, schema = {{ {ids} }}"
            )
        return Decoded(read(body), schema_id)

    return decode


def by_id(reads: Mapping[int, Read]) -> Decode:
    """The decoder of a policy that names a file for each id."""

    def decode(value: bytes, _known: int | None) -> Decoded:
        schema_id, body = _unframed(value)
        if (read := reads.get(schema_id)) is None:
            ids = ", ".join(map(str, sorted(reads)))
            raise MalformedError(f"its schema has the id {schema_id}; the policy's table `schema` has {ids}")
        return Decoded(read(body))

    return decode


def _unframed(value: bytes) -> tuple[int, bytes]:
    if len(value) < _FRAME or value[0]:
        raise MalformedError("does not begin with a schema registry's framing (a zero byte and the schema's id)")
    return int.from_bytes(value[1:_FRAME]), value[_FRAME:]


def frame(schema_id: int, path: tuple[int, ...] | None = None) -> bytes:
    """What stands before a record of this schema; `path` is that of a Protobuf message."""
    numbers = () if path is None else (0,) if path == (0,) else (len(path), *path)
    return b"\0" + schema_id.to_bytes(4) + b"".join(map(_zigzag, numbers))


def _zigzag(number: int) -> bytes:
    """A number of at least 0 as a zigzag varint."""
    left, written = 2 * number, bytearray()
    while left > 0x7F:
        written.append(0x80 | (left & 0x7F))
        left >>= 7
    return bytes([*written, left])


def behind_path(body: bytes, path: tuple[int, ...]) -> bytes:
    """Behind the path of the message, which has to be this one: its length and its numbers, or a single zero for the
    first message.
    """
    at, count = _varint(body, 0)
    numbers = [] if count else [0]
    if count > _DEEPEST:
        raise MalformedError(f"the path of its message has {count} numbers")
    for _ in range(count):
        at, number = _varint(body, at)
        numbers.append(number)
    if tuple(numbers) != path:
        raise MalformedError(
            f"it is the message at {numbers} of its file, and the policy's `message` that at {[*path]}"
        )
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
            return at, (number >> 1) ^ -(number & 1)
    raise MalformedError("does not begin with the path of a Protobuf message")
