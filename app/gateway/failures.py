"""What nobody expected about one request is that request's error, and its type and place are one line of the log.

The message of such an exception may quote a prompt, a path or a secret, so neither the caller nor the log gets it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

import msgspec
from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocketDisconnect

from app.gateway.errors import ApiError
from app.wire.error import ErrorCode
from models.unexpected import type_and_place

log = logging.getLogger(__name__)

_FAILED = 1011
_AGAIN_S = 1.0
_OF_VALUES = (ValueError, OverflowError, RecursionError, msgspec.MsgspecError)


def error_of(failure: Exception, what: str) -> ApiError:
    """What a caller gets for an exception that nobody expected, which is logged here.

    What cannot be read or converted is the caller's value.
    """
    log.warning("%s failed: %s", what, type_and_place(failure))
    if isinstance(failure, _OF_VALUES):
        return ApiError(ErrorCode.INVALID_REQUEST, "a value of this request cannot be used")
    return ApiError(ErrorCode.ENGINE_ERROR, "the gateway could not handle this request; its log names the place")


async def lasting(what: str, work: Callable[[], Awaitable[None]]) -> None:
    """Run work that ends by being cancelled only; one that fails begins again."""
    while True:
        try:
            await work()
        except Exception as failure:  # noqa: BLE001 - what one record or reply holds must not end it
            log.warning("%s failed: %s; beginning again", what, type_and_place(failure))
        await asyncio.sleep(_AGAIN_S)


class Failures:
    """Middleware, the outermost one that knows of requests: nothing that a handler raises passes it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return
        begun = ""

        async def noted(message: Message) -> None:
            nonlocal begun
            begun = message["type"]
            await send(message)

        try:
            await self._app(scope, receive, noted)
        except (ClientDisconnect, WebSocketDisconnect):
            return
        except Exception as failure:  # noqa: BLE001 - that is the rule
            error = error_of(failure, f"{scope.get('method', 'WebSocket')} {_route(scope)}")
            with suppress(Exception):  # its client has left
                await _end(scope, begun, send, error)


async def _end(scope: Scope, begun: str, send: Send, error: ApiError) -> None:
    """Reply, or end the reply that has begun."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": _FAILED})
    elif begun:
        await send({"type": "http.response.body", "body": b"", "more_body": False})
    else:
        reply = error.response()
        headers = MutableHeaders(raw=reply.raw_headers)
        headers["Connection"] = "close"  # the rest of the body may be unread
        await send({"type": "http.response.start", "status": reply.status_code, "headers": headers.raw})
        await send({"type": "http.response.body", "body": reply.body})


def _route(scope: Scope) -> str:
    return str(getattr(scope.get("route"), "path", "of an unknown route"))
