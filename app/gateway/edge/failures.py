"""The outermost middleware that knows of requests: nothing that a handler raises passes it."""

from __future__ import annotations

from contextlib import suppress

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope, Send
from starlette.websockets import WebSocketDisconnect

from app.gateway.edge.errors import ApiError, error_of
from app.gateway.edge.middleware import Middleware

_FAILED = 1011


class Failures(Middleware):
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
