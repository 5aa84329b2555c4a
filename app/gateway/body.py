"""Request bodies: read within a limit and decoded into typed structs."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request

from app.gateway.errors import ApiError, client_left
from app.gateway.gateway import gateway_of
from app.wire import ErrorCode

MAX_BODY_BYTES = 1024 * 1024
MAX_BRACKETS = 100_000
"""An empty object takes 2 bytes as JSON and 64 as a Python object, so a limit in bytes bounds neither memory nor
time.
"""
_PLACE = re.compile(r" - at `\$\.?([^`]*)`$")

T = TypeVar("T")


async def read_body(request: Request, record_type: type[T]) -> T:
    """Raises `ApiError`. Accepts JSON only: a page of another site cannot send that without a CORS preflight."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiError(ErrorCode.INVALID_REQUEST, "send `content-type: application/json`", status=415)
    with gateway_of(request).bodies.body() as body:
        raw = bytearray()
        try:
            async for part in request.stream():
                body.add(len(part))
                raw += part
                if len(raw) > MAX_BODY_BYTES:
                    message = f"the body has more than {MAX_BODY_BYTES} bytes"
                    raise ApiError(ErrorCode.INVALID_REQUEST, message, status=413)
        except ClientDisconnect:
            raise client_left() from None
        parsed: T = parse(raw, record_type)
        return parsed


def parse(raw: bytes | bytearray | str, record_type: Any) -> Any:
    """Decode a body of that type; raises `ApiError`."""
    text = raw.encode("utf-8", "surrogatepass") if isinstance(raw, str) else raw
    if text.count(b"{") + text.count(b"[") > MAX_BRACKETS:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"the body has more than {MAX_BRACKETS} objects and lists", status=413
        )
    try:
        return msgspec.json.decode(raw, type=record_type)
    except msgspec.ValidationError as error:
        message = str(error)
        place = _PLACE.search(message)
        param = place[1] if place and place[1] else None
        raise ApiError(ErrorCode.INVALID_REQUEST, message.replace("`$.", "`"), param=param) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise ApiError(ErrorCode.INVALID_REQUEST, "the body is not JSON") from None


def schema_of(record_type: type) -> dict[str, object]:
    """The body's schema for the OpenAPI document."""
    (schema,), parts = msgspec.json.schema_components([record_type], ref_template="#/components/schemas/{name}")
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": _inlined(schema, parts)}}}}


def _inlined(schema: object, parts: dict[str, object]) -> object:
    """Replace references by their targets: FastAPI does not know these types."""
    if isinstance(schema, dict):
        if reference := schema.get("$ref"):
            return _inlined(parts[reference.rpartition("/")[2]], parts)
        return {name: _inlined(value, parts) for name, value in schema.items()}
    return [_inlined(one, parts) for one in schema] if isinstance(schema, list) else schema
