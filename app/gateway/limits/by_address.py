"""Behind a trusted proxy: limits the open requests of each client address.

All callers share the proxy's connections, so connections.py cannot tell them apart. Uvicorn puts the forwarded address
into the scope.
"""

from __future__ import annotations

from collections import Counter

from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from app.gateway.errors import ApiError
from app.gateway.limits.connections import group_of
from app.wire.error import ErrorCode


class ByAddress:
    def __init__(self, app: ASGIApp, most: int) -> None:
        self._app = app
        self._most = most
        self._open: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        address = group_of((scope.get("client") or ("",))[0])
        if self._open[address] >= self._most:
            refusal = ApiError(ErrorCode.OVERLOADED, "this address has too many open requests", retry_after_s=5)
            if scope["type"] == "websocket":
                await WebSocket(scope, receive, send).send_denial_response(refusal.response())
            else:
                await refusal.response()(scope, receive, send)
            return
        self._open[address] += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._open[address] -= 1
            if not self._open[address]:
                del self._open[address]
