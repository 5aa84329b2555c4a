"""How large a record is, and how large it may be. Whatever bounds bytes of records counts with these functions."""

from __future__ import annotations

from app.wire.codec import HeaderPairs, WireFormat, format_of

MAX_RECORD_BYTES = 1 << 20
"""Of a record on any topic; `max.message.bytes`."""
MAX_TURN_BYTES = MAX_RECORD_BYTES - (16 << 10)
"""For prompt and answer of a turn together, as JSON; the rest is for its other fields, key and headers."""
MAX_QUESTION_BYTES = MAX_TURN_BYTES // 2
MAX_KEPT_BYTES = 3 * MAX_TURN_BYTES // 4
"""Of what a turn keeps beside the answer: the question, its context, calls, results and private values."""
MAX_PRIVATE_VALUES = 4096
MAX_PRIVATE_BYTES = 192 << 10
"""Of the private values of one request, as JSON: they stand in its plan, beside turns that are recalled."""

# Measured sizes as Python objects: an object of JSON, another value, and a header with its name.
_OBJECT_BYTES = 256
_VALUE_BYTES = 96
_HEADER_BYTES = 192
_FEW = 32
"""Short values of Protobuf that are not counted, as strings to stop at."""
_TOKEN_IDS = b"\x8a\x02"
"""The tag of `prompt_token_ids` in Protobuf."""

_BEYOND_BMP = (b"\xf0", b"\xf1", b"\xf2", b"\xf3", b"\xf4", b"\\ud", b"\\uD")


def record_bytes(key: bytes | None, value: bytes | None, headers: HeaderPairs = ()) -> int:
    """The bytes that a record brings with it."""
    pairs = sum(len(name.encode("utf-8", "replace")) + len(content or b"") for name, content in headers)
    return len(key or b"") + len(value or b"") + pairs


def held_bytes(key: bytes | None, value: bytes | None, headers: HeaderPairs = ()) -> int:
    """Upper bound of the memory that a record takes while it is held, raw and decoded.

    Python takes up to a hundred bytes for a JSON value of three characters, so values are counted as well as bytes.
    They are counted by their separators, which is cheaper than parsing. A header may be empty, and is three objects.
    """
    given = tuple(headers)
    whole = 2 * record_bytes(key, None, given) + _HEADER_BYTES * len(given) + _OBJECT_BYTES
    if value is None:
        return whole
    whole += (1 + _width(value)) * len(value)
    counts = _counts_of_protobuf if format_of(given) is WireFormat.PROTOBUF else _counts_of_json
    objects, values = counts(value)
    return whole + _OBJECT_BYTES * objects + _VALUE_BYTES * values


def _width(value: bytes) -> int:
    """The most bytes that a character of its texts takes: one emoji makes all of its text four bytes wide."""
    if value.isascii() and b"\\u" not in value:
        return 1
    return 4 if any(mark in value for mark in _BEYOND_BMP) else 2


def _counts_of_json(value: bytes) -> tuple[int, int]:
    return value.count(b"{"), value.count(b",") + value.count(b"[")


def _counts_of_protobuf(value: bytes) -> tuple[int, int]:
    """By the tags of messages, of a `Struct`'s objects and lists, and of first fields and items; schemas are JSON here,
    too. Token ids are packed: each byte may be one.
    """
    objects, values = _counts_of_json(value)
    ids = len(value) if _TOKEN_IDS in value else 0
    return objects + value.count(b"\x2a") + value.count(b"\x32"), values + value.count(b"\x0a") + ids + _FEW
