"""Records as JSON, parsed strictly: anything but valid JSON in UTF-8 is rejected, also in unknown fields."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeVar

import msgspec

from app.wire.depth import check_depth, check_digits
from app.wire.malformed import MalformedError

T = TypeVar("T")

_ENCODER = msgspec.json.Encoder()


def encode(record: object) -> bytes:
    return _ENCODER.encode(record)


def decode(value: bytes, record_type: Any) -> Any:
    """A record of that type, a struct or a union of structs."""
    check_depth(value)
    try:
        value.decode("utf-8")  # msgspec checks only the strings that it keeps
        record = _decoder(record_type).decode(value)
    except UnicodeDecodeError as error:
        raise MalformedError(f"not UTF-8 at byte {error.start}") from None
    except msgspec.DecodeError as error:
        raise MalformedError(str(error)) from None
    check_digits(value)
    return record


@lru_cache
def _decoder(record_type: type[T]) -> msgspec.json.Decoder[T]:
    return msgspec.json.Decoder(record_type)
