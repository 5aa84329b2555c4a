"""Encode and decode records, in JSON or Protobuf: every record enters and leaves through this module.

A decoder reads arbitrary bytes. It returns a record with correct types or raises `WireError`, with the `request_id` if
one can be read. Nothing else leaves it: what a parser raises unexpectedly is about these bytes, not about this process.
"""

from __future__ import annotations

import logging
from types import UnionType
from typing import Any, TypeVar, overload

from app.wire import json_codec, protobuf_codec
from app.wire.audit import AuditRecord
from app.wire.control import Control
from app.wire.erasure import Erasure
from app.wire.error import ErrorCode, WireError
from app.wire.event import TokenEvent
from app.wire.headers import CONTENT_TYPE, PROTOBUF_TYPE, Headers, WireFormat, format_of
from app.wire.json_codec import MalformedError
from app.wire.request import Request
from app.wire.salvage import Salvaged, salvage
from app.wire.tool_records import ToolCallRecord, ToolResultRecord
from app.wire.turn import Turn
from app.wire.unsupported import unsupported
from app.wire.usage import UsageWindow
from models.interface.unexpected import type_and_line

log = logging.getLogger(__name__)

Record = Request | TokenEvent | Turn | Control | UsageWindow | ToolCallRecord | ToolResultRecord | AuditRecord | Erasure
R = TypeVar("R")
Encoded = tuple[bytes, list[tuple[str, bytes]]]


def encode(record: Record, wire_format: WireFormat | str = WireFormat.JSON) -> Encoded:
    """The record's value and headers; a list, because aiokafka accepts nothing else."""
    if wire_format == WireFormat.JSON:
        return json_codec.encode(record), []
    return protobuf_codec.encode(record), [(CONTENT_TYPE, PROTOBUF_TYPE.encode())]


@overload
def decode(record_type: type[R], value: bytes | None, headers: Headers = None) -> R: ...
@overload
def decode(record_type: UnionType, value: bytes | None, headers: Headers = None) -> Any: ...
def decode(record_type: Any, value: bytes | None, headers: Headers = None) -> Any:
    """The record in this value. Raises `WireError`."""
    try:
        if value is None:
            raise MalformedError("the record has no value")
        if format_of(headers) is WireFormat.PROTOBUF:
            return protobuf_codec.decode(value, record_type)
        if record_type is Request:
            json_codec.check_depth(value)
            json_codec.check_brackets(value)
        record = json_codec.decode(value, record_type)
        if record_type is Request:
            _check_supported(value)
    except MalformedError as error:
        message = str(error)
    except Exception as error:  # noqa: BLE001 - bytes of others: whatever it is, it is about them
        log.warning("a record of %d bytes cannot be read: %s", len(value or b""), type_and_line(error))
        message = "the record cannot be read"
    else:
        return record
    request_id, user_id, conversation_id = _salvaged(value, headers)
    raise WireError(
        ErrorCode.INVALID_REQUEST, message, request_id=request_id, user_id=user_id, conversation_id=conversation_id
    )


def _check_supported(value: bytes) -> None:
    if (name := unsupported(value)) is not None:
        raise MalformedError(f"{name}: is not supported")


def _salvaged(value: bytes | None, headers: Headers) -> Salvaged:
    try:
        return salvage(value, format_of(headers))
    except Exception as error:  # noqa: BLE001 - bytes of others
        log.warning("nothing of an invalid record can be read: %s", type_and_line(error))
        return Salvaged()
