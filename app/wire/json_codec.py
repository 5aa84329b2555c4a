"""Records as JSON, parsed strictly: anything but valid JSON in UTF-8 is rejected, also in unknown fields.

A text is also refused for its nesting and for the length of its numbers, before anything parses it. Parsers, templates
and grammars recurse into a text, and a number of hundreds of digits is none that floats can hold, so both rules are for
every JSON text of a record, also one that is a string in it. A text may have a megabyte, and the event loop waits for
its check: all of it is arithmetic on arrays (json_arrays.py), which is imported for the first text that needs it, as
NumPy takes a fifth of a command's start.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from functools import lru_cache
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

MAX_DEPTH = 32
"""Levels of nesting of a record, itself included: Protobuf's own limit of 100 leaves this for `metadata`."""
MAX_BRACKETS = 25_000
"""Objects and lists of a record or body. An empty one takes 2 bytes as JSON and 64 as a Python object, so a limit in
bytes bounds neither memory nor the time for which the event loop waits.
"""
MAX_DIGITS = 300
"""Of a number in JSON: fewer than the largest float has."""
_ENCODER = msgspec.json.Encoder()
_LONG_NUMBER = re.compile(rb"(?<![0-9])[0-9]{%d}" % (MAX_DIGITS + 1))
_OUT_OF_RANGE = re.compile(
    r"Expected `(?P<type>\w+)`(?: of length)? (?P<sign>[<>]=) (?P<bound>\S+)"
    r" - at (?P<key>`key` in )?`\$\.?(?P<field>.*?)(?P<inner>\[[^\]]*\])?`"
)
_CUT_OFF = "Input data was truncated"
_HALF_AT_END = re.compile(rb'\\u[dD][89abAB][0-9a-fA-F]{2}"')
_DIGITS = frozenset(b"0123456789")
_SHORT = 8192  # bytes, for which arrays cost more than they spare


class MalformedError(ValueError):
    """The bytes are not a record of the expected type; the message says why."""


def encode(record: object) -> bytes:
    return _ENCODER.encode(record)


def json_bytes(text: str) -> int:
    """The length of the text within a JSON string."""
    return len(encode(text)) - 2


def decode(value: bytes, record_type: Any) -> Any:
    """A record of that type, a struct or a union of structs."""
    value = without_mark(value)
    if not value or value.isspace():
        raise MalformedError("the value is empty")
    check_depth(value)
    try:
        value.decode("utf-8")  # msgspec checks only the strings that it keeps
        record = _decoder(record_type).decode(value)
    except UnicodeDecodeError as error:
        raise MalformedError(f"not UTF-8 at byte {error.start}") from None
    except msgspec.DecodeError as error:
        raise MalformedError(_cause(value, error)) from None
    check_digits(value)
    return record


def in_words(refusal: str) -> str:
    """What msgspec says of a number, text or list out of its range, as a sentence that begins with the field's name."""
    out = _OUT_OF_RANGE.fullmatch(refusal)
    if out is None:
        return refusal
    items = {"str": "characters", "array": "items", "object": "entries"}.get(out["type"])
    verb = "must be" if items is None else "must have"
    sign = "at least" if out["sign"] == ">=" else "at most"
    bound = f"{out['bound'].removesuffix('.0')} {items or ''}".rstrip()
    which = "each key " if out["key"] else "each " if out["inner"] else ""
    return f"{out['field']}: {which}{verb} {sign} {bound}"


def _cause(value: bytes, error: msgspec.DecodeError) -> str:
    """Msgspec takes a text that ends in half a surrogate pair for one that is cut off."""
    if str(error) == _CUT_OFF and _HALF_AT_END.search(value):
        return "JSON is malformed: half a surrogate pair"
    return in_words(str(error))


def without_mark(value: bytes) -> bytes:
    """The text without a byte order mark: a reader may ignore it (RFC 8259, 8.1)."""
    return value.removeprefix(BOM_UTF8)


@lru_cache
def _decoder(record_type: type[T]) -> msgspec.json.Decoder[T]:
    return msgspec.json.Decoder(record_type)


def check_depth(value: bytes | bytearray) -> None:
    """Raise `MalformedError` for a text that is nested too deeply."""
    if value.count(b"{") + value.count(b"[") <= MAX_DEPTH:
        return
    from app.wire import json_arrays

    if json_arrays.deepest(value) > MAX_DEPTH:
        raise MalformedError(f"nested deeper than {MAX_DEPTH} levels")


def check_brackets(value: bytes | bytearray) -> None:
    """Raise `MalformedError` for a text that has more objects and lists than a record may have."""
    if value.count(b"{") + value.count(b"[") <= MAX_BRACKETS:
        return
    from app.wire import json_arrays

    if json_arrays.openings(value) > MAX_BRACKETS:
        raise MalformedError(f"has more than {MAX_BRACKETS} objects and lists")


def check_digits(value: bytes) -> None:
    """Raise `MalformedError` for a text that has a number with too many digits."""
    if len(value) <= MAX_DIGITS or not _may_have_long_number(value):
        return
    from app.wire import json_arrays

    if _LONG_NUMBER.search(json_arrays.without_strings(value)):
        raise MalformedError(f"a number has more than {MAX_DIGITS} digits")


def top_level(value: bytes) -> bytes:
    """The text with a 0 in the place of each object and list below the top level."""
    from app.wire import json_arrays

    return json_arrays.top_level(value)


def _may_have_long_number(value: bytes) -> bool:
    """Of `MAX_DIGITS` + 1 successive digits, one is at a multiple of that, and so is one half as far away."""
    half, last = MAX_DIGITS // 2, len(value) - 1
    if len(value) <= _SHORT:
        return any(
            value[at] in _DIGITS and (value[max(at - half, 0)] in _DIGITS or value[min(at + half, last)] in _DIGITS)
            for at in range(MAX_DIGITS, len(value), MAX_DIGITS + 1)
        )
    from app.wire import json_arrays

    return json_arrays.may_have_digits(value, MAX_DIGITS)
