"""Encode and decode records, in JSON or Protobuf: every record enters and leaves through this module.

A decoder takes arbitrary bytes. It returns a record with correct types or raises `WireError`, with the `request_id` if
one can be read.
"""

from __future__ import annotations

from typing import Any

from app.wire import json_codec, protobuf_codec
from app.wire.audit import AuditRecord
from app.wire.codes import ErrorCode
from app.wire.comparison import Comparison
from app.wire.control import Control
from app.wire.erasure import Erasure
from app.wire.error import WireError
from app.wire.event import TokenEvent
from app.wire.headers import CONTENT_TYPE, PROTOBUF_TYPE, Headers, WireFormat, format_of
from app.wire.limits import is_request_id
from app.wire.malformed import MalformedError
from app.wire.request import Request
from app.wire.salvage import salvage
from app.wire.tool_records import ToolCallRecord, ToolResultRecord
from app.wire.turn import Turn
from app.wire.unsupported import unsupported
from app.wire.usage import UsageWindow

Record = (
    Request
    | TokenEvent
    | Turn
    | Control
    | UsageWindow
    | ToolCallRecord
    | ToolResultRecord
    | Comparison
    | AuditRecord
    | Erasure
)
Encoded = tuple[bytes, list[tuple[str, bytes]]]


def encode(record: Record, wire_format: WireFormat | str = WireFormat.JSON) -> Encoded:
    """The record's value and headers; a list, because aiokafka accepts nothing else."""
    if wire_format == WireFormat.JSON:
        return json_codec.encode(record), []
    return protobuf_codec.encode(record), [(CONTENT_TYPE, PROTOBUF_TYPE.encode())]


def decode_request(value: bytes | None, headers: Headers = None) -> Request:
    request: Request = _decode(value, headers, Request)
    if value is not None and format_of(headers) is WireFormat.JSON and (name := unsupported(value)) is not None:
        raise WireError(
            ErrorCode.INVALID_REQUEST,
            f"{name}: is not supported",
            request_id=request.request_id if is_request_id(request.request_id) else None,
            user_id=request.user_id,
            conversation_id=request.conversation_id,
        )
    return request


def decode_token_event(value: bytes | None, headers: Headers = None) -> TokenEvent:
    return _decode(value, headers, TokenEvent)


def decode_turn(value: bytes | None, headers: Headers = None) -> Turn:
    return _decode(value, headers, Turn)


def decode_usage(value: bytes | None, headers: Headers = None) -> UsageWindow:
    return _decode(value, headers, UsageWindow)


def decode_tool_call(value: bytes | None, headers: Headers = None) -> ToolCallRecord:
    return _decode(value, headers, ToolCallRecord)


def decode_tool_result(value: bytes | None, headers: Headers = None) -> ToolResultRecord:
    return _decode(value, headers, ToolResultRecord)


def decode_audit(value: bytes | None, headers: Headers = None) -> AuditRecord:
    return _decode(value, headers, AuditRecord)


def decode_comparison(value: bytes | None, headers: Headers = None) -> Comparison:
    return _decode(value, headers, Comparison)


def decode_erasure(value: bytes | None, headers: Headers = None) -> Erasure:
    return _decode(value, headers, Erasure)


def decode_control(value: bytes | None, headers: Headers = None) -> Control:
    return _decode(value, headers, Control)


def _decode(value: bytes | None, headers: Headers, record_type: Any) -> Any:
    wire_format = format_of(headers)
    try:
        if value is None:
            raise MalformedError("the record has no value")
        codec = json_codec if wire_format is WireFormat.JSON else protobuf_codec
        return codec.decode(value, record_type)
    except MalformedError as error:
        request_id, user_id, conversation_id = salvage(value, wire_format)
        raise WireError(
            ErrorCode.INVALID_REQUEST,
            str(error),
            request_id=request_id,
            user_id=user_id,
            conversation_id=conversation_id,
        ) from None
