"""Error replies, in the format that OpenAI's clients read.

What was not expected about one request is that request's error, and its type and place are one line of the log. The
message of such an exception may quote a prompt, a path or a secret, so neither the caller nor the log gets it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import msgspec
from starlette.responses import Response

from app.gateway.edge.slow_readers import JsonReply
from app.wire.error import ErrorCode
from models.interface.unexpected import type_and_line

log = logging.getLogger(__name__)

STATUS = {
    ErrorCode.INVALID_REQUEST: 400,
    ErrorCode.PROMPT_TOO_LONG: 400,
    ErrorCode.DEADLINE_EXCEEDED: 504,
    ErrorCode.MODEL_NOT_FOUND: 404,
    ErrorCode.OVERLOADED: 503,
    ErrorCode.ENGINE_ERROR: 500,
    ErrorCode.NOT_FOUND: 404,
    ErrorCode.UNAUTHORIZED: 401,
    ErrorCode.RATE_LIMITED: 429,
    ErrorCode.UNAVAILABLE: 503,
    ErrorCode.WAITING: 409,
    ErrorCode.CONVERSATION_BUSY: 409,
}
_AT_ONCE_BYTES = 256 * 1024
_AGAIN_S = 1.0
_OF_VALUES = (ValueError, OverflowError, RecursionError, msgspec.MsgspecError)
_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


class ApiError(Exception):
    """One error reply, for people and for programs."""

    def __init__(
        self,
        code: ErrorCode | str,
        message: str,
        *,
        status: int | None = None,
        param: str | None = None,
        retry_after_s: float | None = None,
        location: str | None = None,
    ) -> None:
        """`location`: where the answer is."""
        super().__init__(message)
        self.code = str(code)
        self.message = message
        self.status = status or _status_of(code)
        self.param = param
        self.retry_after_s = retry_after_s
        self.location = location

    @property
    def body(self) -> dict[str, Any]:
        kind = _TYPES.get(self.status) or ("server_error" if self.status >= 500 else "invalid_request_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    def response(self) -> Response:
        headers = {}
        if self.location is not None:
            headers["Location"] = self.location
        if self.code in {ErrorCode.WAITING, ErrorCode.CONVERSATION_BUSY}:  # OpenAI's clients send again what got 409
            headers["X-Should-Retry"] = "false"
        if self.retry_after_s is not None:
            headers["Retry-After"] = str(max(1, round(self.retry_after_s + 0.5)))
        if self.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        return json_response(self.body, self.status, headers)


CLIENT_CLOSED_REQUEST = 499
"""nginx's status for this. The client never sees it, but metrics do."""


def invalid(param: str, why: str) -> ApiError:
    """A parameter whose value is not accepted."""
    return ApiError(ErrorCode.INVALID_REQUEST, f"{param}: {why}", param=param)


def refused(code: ErrorCode | str, message: str) -> ApiError:
    """The refusal of a request by `validate_request` or by a worker, with the field that it names."""
    names_field = code in {ErrorCode.INVALID_REQUEST, ErrorCode.MODEL_NOT_FOUND}
    return ApiError(code, message, param=_field(message) if names_field else None)


def renamed(error: ApiError, names: Mapping[str, str]) -> ApiError:
    """The error in the words of a caller whose API has other names for fields of a request."""
    field, _, inner = (error.param or "").partition(".")
    if field not in names or not error.message.startswith(f"{error.param}:"):
        return error
    why = error.message.removeprefix(f"{error.param}:").strip()
    theirs = names[field]
    return ApiError(error.code, f"{theirs}: {f'{inner} ' if inner else ''}{why}", status=error.status, param=theirs)


def _field(message: str) -> str | None:
    """The field at the beginning of a refusal."""
    name, colon, _ = message.partition(":")
    return name if colon and name.replace(".", "_").isidentifier() else None


def client_left() -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, "the client has disconnected", status=CLIENT_CLOSED_REQUEST)


def error_of(failure: Exception, what: str) -> ApiError:
    """What a caller gets for an exception that was not expected, which is logged here.

    What cannot be read or converted is the caller's value.
    """
    log.warning("%s failed: %s", what, type_and_line(failure))
    if isinstance(failure, _OF_VALUES):
        return ApiError(ErrorCode.INVALID_REQUEST, "a value of this request cannot be used")
    return ApiError(ErrorCode.ENGINE_ERROR, "the gateway could not handle this request; its log names the place")


async def lasting(what: str, work: Callable[[], Awaitable[None]]) -> None:
    """Run work that ends by being cancelled only; one that fails begins again."""
    while True:
        try:
            await work()
        except Exception as failure:  # noqa: BLE001 - what one record or reply holds must not end it
            log.warning("%s failed: %s; beginning again", what, type_and_line(failure))
        await asyncio.sleep(_AGAIN_S)


def json_response(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return JsonReply(msgspec.json.encode(content), status, headers)


async def encoded(items: Iterable[Any]) -> list[msgspec.Raw]:
    """The items of a long list as JSON, with turns for other tasks in between."""
    encoded_items, size = [], 0
    for item in items:
        raw = msgspec.json.encode(item)
        encoded_items.append(msgspec.Raw(raw))
        size += len(raw)
        if size > _AT_ONCE_BYTES:
            size = 0
            await asyncio.sleep(0)
    return encoded_items


def _status_of(code: ErrorCode | str) -> int:
    """A worker may send a code that this gateway does not know."""
    try:
        return STATUS[ErrorCode(code)]
    except ValueError:
        return 500
