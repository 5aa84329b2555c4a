"""What HTTP clients take for granted of every path, and what every reply has, whatever its handler raises."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import ClassVar
from urllib.parse import unquote_to_bytes

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from app.gateway.edge.errors import ApiError, error_of
from app.gateway.edge.metrics import GatewayMetrics
from app.wire.error import ErrorCode
from app.wire.ids import new_request_id

_REQUEST_ID = "X-Request-Id"
_HEAD = "parley.head"
_OWN = re.compile(r"[\x21-\x7e]{1,128}")
_SAFE = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
}
_FAILED = 1011


class Middleware(ABC):
    """A middleware of ASGI; scopes of other kinds, such as the lifespan, pass it."""

    kinds: ClassVar = frozenset({"http", "websocket"})

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        handler = self.handle if scope["type"] in self.kinds else self._app
        await handler(scope, receive, send)

    @abstractmethod
    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None: ...


async def refuse(error: ApiError, scope: Scope, receive: Receive, send: Send) -> None:
    """Reply with the error to a request, or to a WebSocket that was not accepted yet."""
    if scope["type"] == "websocket":
        await WebSocket(scope, receive, send).send_denial_response(error.response())
    else:
        await error.response()(scope, receive, send)


class Utf8Urls(Middleware):
    """Refuses a URL that is not UTF-8, as bodies are refused: servers read U+FFFD in place of what they cannot read,
    and that would be asked, or name another user.
    """

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            for part in (scope.get("raw_path") or b"", scope["query_string"]):
                unquote_to_bytes(part).decode()
        except UnicodeDecodeError:
            error = ApiError(ErrorCode.INVALID_REQUEST, "the URL is not UTF-8: percent-encode the bytes of UTF-8")
            await refuse(error, scope, receive, send)
            return
        await self._app(scope, receive, send)


class Paths(Middleware):
    """Takes trailing slashes, and `HEAD` on everything that has `GET`."""

    kinds = frozenset({"http"})

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if len(path) > 1 and path.endswith("/"):
            scope = {**scope, "path": path.rstrip("/") or "/"}
        if scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return
        head = _Head(receive, send)
        await self._app({**scope, "method": "GET", _HEAD: True}, head.receive, head.send)


def refuse_head(scope: Scope) -> None:
    """Of a `GET` that asks; raises `ApiError`."""
    if _HEAD in scope:
        raise ApiError(ErrorCode.INVALID_REQUEST, "HEAD is not supported here: it would send the prompt", status=405)


class _Head:
    """The reply without its body. A stream ends with its head, because its reader seems to have left."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._is_sent = False

    async def receive(self) -> Message:
        return {"type": "http.disconnect"} if self._is_sent else await self._receive()

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start" and not self._is_sent:
            self._is_sent = True
            await self._send(message)
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})


class RequestIds(Middleware):
    """Every reply has an `X-Request-Id`, the caller's own if it sent one.

    The id of the Parley request that a call has created is in `X-Parley-Request-Id`, and in `X-Request-Id` too if the
    caller sent none.
    """

    kinds = frozenset({"http"})

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        own = Headers(scope=scope).get(_REQUEST_ID, "")

        async def named(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                if created := headers.get(_REQUEST_ID):
                    headers["X-Parley-Request-Id"] = created
                if _OWN.fullmatch(own):
                    headers[_REQUEST_ID] = own
                elif not created:
                    headers[_REQUEST_ID] = new_request_id()
            await send(message)

        await self._app(scope, receive, named)


class Counting(Middleware):
    """Counts every reply, and adds security headers."""

    kinds = frozenset({"http"})

    def __init__(self, app: ASGIApp, metrics: GatewayMetrics) -> None:
        super().__init__(app)
        self._metrics = metrics

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _SAFE.items():
                    headers.setdefault(name, value)
                # What is for its caller may be erased.
                if scope["path"].startswith("/v1/") or "caller" in scope.get("state", ()):
                    headers.setdefault("Cache-Control", "no-store")
                # Route templates, because raw paths would create a series each.
                route = getattr(scope.get("route"), "path", "other")
                self._metrics.replies.labels(scope["method"], route, str(message["status"])).inc()
            await send(message)

        await self._app(scope, receive, counted)


class Failures(Middleware):
    """The outermost middleware that knows of requests: nothing that a handler raises passes it."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
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
