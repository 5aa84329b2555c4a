"""Request bodies: read within a limit and decoded into typed structs."""

from __future__ import annotations

import asyncio
import json
import re
import zlib
from codecs import BOM_UTF8
from collections.abc import Callable, Generator, Mapping
from typing import Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request

from app.gateway.asking.as_written import Ignored, as_written, named
from app.gateway.asking.gateway import Gateway, gateway_of
from app.gateway.asking.parameters import check_parameters
from app.gateway.edge.bodies import Body
from app.gateway.edge.bounds import MAX_ITEMS
from app.gateway.edge.errors import ApiError, client_left, invalid, refused
from app.process.tune_interpreter import uncollected
from app.wire.error import ErrorCode
from app.wire.json_codec import MalformedError, check_brackets, check_depth, in_words
from app.wire.request import MAX_MESSAGES

MAX_BODY_BYTES = 1024 * 1024
_SMALL_BYTES = 16 * 1024
_MOST = {
    "messages": (MAX_MESSAGES, f"are more than {MAX_MESSAGES}"),
    "input": (MAX_ITEMS, f"has more than {MAX_ITEMS} items"),
}
"""Objects in these fields, and why more are refused."""
_PLACE = re.compile(r" \(byte \d+\)$")
_PATH = re.compile(r" - at `\$\.?([^`]*)`$")

T = TypeVar("T", bound=msgspec.Struct)


async def read_parameters(request: Request, record_type: type[T]) -> tuple[T, list[str]]:
    """A body, and the names of its fields that have no effect, nested ones included; raises `ApiError`.

    Accepts JSON only: a page of another site cannot send that without a CORS preflight. The caller is known already
    (`Access.caller`): its body counts against its share of those in transfer, and waits for its turn to be decoded.
    """
    gateway, holder = gateway_of(request), request.state.caller.holder
    unpack = _unpacking(request)
    gateway.limits.charge_body(holder)
    with gateway.bodies.body(holder) as body:
        raw = await _read(request, body)
        async with gateway.bodies.turn(holder):
            parsed: tuple[T, list[str]] = await _parsed(unpack(raw, body), record_type)
    gateway.limits.return_body(holder)
    request.state.body_is_read = True
    return parsed


def read_query(request: Request, record_type: type[T], aliases: Mapping[str, str]) -> tuple[T, list[str]]:
    """The parameters of the query as a body, as `read_parameters`; `aliases` are further names of fields."""
    given: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        field = aliases.get(name, name)
        if field in given:
            raise invalid(name, "is there twice" if name == field else f"is another name of {field}")
        given[field] = value
    raw = {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in given.items()}
    ignored = check_parameters(raw, record_type.__struct_encode_fields__)
    return convert(given, record_type, strict=False), ignored


async def read_message(gateway: Gateway, holder: str, raw: str | bytes, record_type: Any) -> tuple[Any, list[str]]:
    """A message of a WebSocket, as a body is read: its holder is charged. Raises `ApiError`.

    However small they are and however many sockets there are, one message of a holder is read in a step of the loop.
    """
    with gateway.bodies.body(holder) as body:
        body.add(len(raw))
        async with gateway.bodies.turn(holder):
            try:
                gateway.limits.charge_body(holder)
                return await _parsed(raw, record_type)
            finally:
                await asyncio.sleep(0)


async def _read(request: Request, body: Body) -> bytearray:
    """The bytes as they come."""
    raw = bytearray()
    try:
        async for part in request.stream():
            body.add(len(part))
            raw += part
            _check_length(raw)
    except ClientDisconnect:
        raise client_left() from None
    return raw


def _check_length(raw: bytes | bytearray) -> None:
    if len(raw) > MAX_BODY_BYTES:
        message = f"the body has more than {MAX_BODY_BYTES} bytes"
        raise ApiError(ErrorCode.INVALID_REQUEST, message, status=413)


def _unpacking(request: Request) -> Callable[[bytearray, Body], bytes | bytearray]:
    """What makes the text of the bytes. Raises `ApiError` for a body that is no JSON by its headers."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiError(ErrorCode.INVALID_REQUEST, "send `content-type: application/json`", status=415)
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in {"identity", "gzip", "x-gzip"}:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"the content-encoding {encoding} is not supported", status=415)
    return _as_it_is if encoding == "identity" else _unzipped


def _as_it_is(raw: bytearray, _: Body) -> bytearray:
    return raw.removeprefix(BOM_UTF8)  # RFC 8259, 8.1: a reader may ignore it


def _unzipped(raw: bytearray, body: Body) -> bytes:
    """Never more than the limit of a body; raises `ApiError`."""
    stream = zlib.decompressobj(wbits=31)
    try:
        plain = stream.decompress(raw, MAX_BODY_BYTES + 1)
    except zlib.error:
        raise ApiError(ErrorCode.INVALID_REQUEST, "the body is not gzip") from None
    body.add(len(plain))
    _check_length(plain)
    if not stream.eof:
        raise ApiError(ErrorCode.INVALID_REQUEST, "the body is not complete gzip")
    return plain.removeprefix(BOM_UTF8)


def parse(raw: bytes | bytearray | str, record_type: Any) -> tuple[Any, list[str]]:
    """A message of that type, and the names of its fields that have no effect; raises `ApiError`."""
    steps = _steps(raw, record_type)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


async def _parsed(raw: bytes | bytearray | str, record_type: Any) -> tuple[Any, list[str]]:
    """As `parse`, with turns for others: a megabyte of small objects takes tens of milliseconds."""
    steps = _steps(raw, record_type)
    while True:
        try:
            with uncollected():  # thousands of objects, and hardly any garbage
                next(steps)
        except StopIteration as end:
            return end.value
        if len(raw) > _SMALL_BYTES:
            await asyncio.sleep(0)


def _steps(raw: bytes | bytearray | str, record_type: Any) -> Generator[None, None, tuple[Any, list[str]]]:
    _check(raw.encode("utf-8", "surrogatepass") if isinstance(raw, str) else raw)
    fields = _decoded(raw, dict[str, msgspec.Raw])
    names = getattr(record_type, "__struct_encode_fields__", ())  # none of a union
    ignored: Ignored = {}
    vain = check_parameters(fields, names) if names else []
    _check_counts(fields, dict(zip(getattr(record_type, "__struct_fields__", ()), names, strict=True)))
    yield
    value = _decoded_fields(raw, fields)
    yield
    value = as_written(value, record_type, ignored)
    yield
    message = convert(value, record_type)
    if not names:
        vain = check_parameters(fields, {*message.__struct_encode_fields__, message.__struct_config__.tag_field or ""})
    yield
    return message, [*vain, *named(ignored)]


def _check(text: bytes | bytearray) -> None:
    try:
        check_brackets(text)
    except MalformedError as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"the body {error}", status=413) from None
    try:
        check_depth(text)
    except MalformedError as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"the body is {error}") from None


def _check_counts(fields: Mapping[str, msgspec.Raw], spelled: Mapping[str, str]) -> None:
    """Before what is refused anyway is decoded: 20,000 small messages would hold the event loop for 0.1 s."""
    for field, (most, why) in _MOST.items():
        name = spelled.get(field, field)
        value = bytes(fields.get(name, b""))
        if value.startswith(b"["):
            elements = _decoded(value, list[msgspec.Raw])
            if len(elements) > most and bytes(elements[0]).startswith(b"{"):  # an input may be tokens, too
                raise invalid(name, why)


def convert(value: Any, record_type: Any, *, strict: bool = True) -> Any:
    """A value of that type; unless `strict`, numbers may be texts. Raises `ApiError`."""
    try:
        return msgspec.convert(value, record_type, str_keys=True, strict=strict)
    except msgspec.ValidationError as error:
        raise _wrong(error) from None


def _decoded_fields(raw: bytes | bytearray | str, fields: Mapping[str, msgspec.Raw]) -> Any:
    """The whole body. An error names the field: msgspec does not, of a number that is too large."""
    try:
        return _decoded(raw, Any)
    except ApiError:
        for name, value in fields.items():
            try:
                _decoded(bytes(value), Any)
            except ApiError as error:
                raise invalid(name, error.message) from None
        raise


def _decoded(raw: bytes | bytearray | str, record_type: Any) -> Any:
    if not raw or raw.isspace():
        raise ApiError(ErrorCode.INVALID_REQUEST, "the body is empty")
    try:
        return msgspec.json.decode(raw, type=record_type)
    except msgspec.ValidationError as error:
        raise _wrong(error) from None
    except msgspec.DecodeError as error:  # it names a place and quotes nothing
        reason = str(error).removeprefix("JSON is malformed: ")
        if _has_lone_surrogate(raw):
            place = _PLACE.search(reason)
            reason = "half of a surrogate pair, as \\ud83d without \\ude00, is no character" + (
                place[0] if place else ""
            )
        raise ApiError(ErrorCode.INVALID_REQUEST, f"the body is not JSON: {reason}") from None
    except (UnicodeError, RecursionError):
        raise ApiError(ErrorCode.INVALID_REQUEST, "the body is not JSON: it is not UTF-8") from None


def _has_lone_surrogate(raw: bytes | bytearray | str) -> bool:
    """Whether the standard library, which lets them pass, can read it. msgspec calls some of them truncated data."""
    try:
        json.loads(raw if isinstance(raw, str) else raw.decode(), parse_constant=int)  # which refuses NaN
    except (ValueError, RecursionError):
        return False
    return True


def _wrong(error: msgspec.ValidationError) -> ApiError:
    message = in_words(str(error))
    if message != str(error):
        return refused(ErrorCode.INVALID_REQUEST, message)
    path = _PATH.search(message)
    param = path[1] if path and path[1] else None
    return ApiError(ErrorCode.INVALID_REQUEST, message.replace("`$.", "`"), param=param)
