"""Middleware for what HTTP clients take for granted: trailing slashes, and `HEAD` on everything that has `GET`."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class Paths:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = scope["path"]
        if len(path) > 1 and path.endswith("/"):
            scope = {**scope, "path": path.rstrip("/") or "/"}
        if scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return
        head = _Head(receive, send)
        await self._app({**scope, "method": "GET"}, head.receive, head.send)


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
