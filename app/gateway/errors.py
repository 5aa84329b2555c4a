"""Error replies, in the format that OpenAI's clients read."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import msgspec
from starlette.responses import Response

from app.wire.error import ErrorCode

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
}
_AT_ONCE_BYTES = 256 * 1024
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
    ) -> None:
        super().__init__(message)
        self.code = str(code)
        self.message = message
        self.status = status or _status_of(code)
        self.param = param
        self.retry_after_s = retry_after_s

    @property
    def body(self) -> dict[str, Any]:
        kind = _TYPES.get(self.status) or ("server_error" if self.status >= 500 else "invalid_request_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    def response(self) -> Response:
        headers = {}
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


def client_left() -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, "the client has disconnected", status=CLIENT_CLOSED_REQUEST)


def json_response(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(content), status, headers, media_type="application/json")


async def encoded(items: Iterable[Any]) -> list[msgspec.Raw]:
    """The items of a long list as JSON, with turns for other tasks in between."""
    found, size = [], 0
    for item in items:
        raw = msgspec.json.encode(item)
        found.append(msgspec.Raw(raw))
        size += len(raw)
        if size > _AT_ONCE_BYTES:
            size = 0
            await asyncio.sleep(0)
    return found


def _status_of(code: ErrorCode | str) -> int:
    """A worker may send a code that this gateway does not know."""
    try:
        return STATUS[ErrorCode(code)]
    except ValueError:
        return 500
