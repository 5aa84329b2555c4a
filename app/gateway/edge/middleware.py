"""What the middlewares have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from app.gateway.edge.errors import ApiError


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
