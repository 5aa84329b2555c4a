"""Middleware that writes one line of JSON for each HTTP request and WebSocket once it is over, to standard output.

    {"at": "2026-05-01T09:30:00.125Z", "from": "192.0.2.7", "caller": "acme/*", "method": "POST",
     "path": "/v1/chat/completions", "status": 200, "bytes": 5120, "ms": 830.2, "request_id": "..."}

`caller` is null if there was no valid key. Neither headers nor the query nor bodies are written: they may have keys,
tokens and texts. The path has ids of requests, conversations and users. `bytes` are those of the reply's body.
"""

from __future__ import annotations

import logging
import sys
import time
from datetime import UTC, datetime
from typing import Any

import msgspec
from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope, Send

from app.gateway.edge.http import Middleware

log = logging.getLogger("parley.access")

_SWITCHED = 101
_REFUSED = 403
_FAILED = 500


class AccessLog(Middleware):
    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        status, size, request_id = _FAILED, 0, ""

        async def noted(message: Message) -> None:
            nonlocal status, size, request_id
            match message["type"]:
                case "http.response.start" | "websocket.http.response.start":
                    status = message["status"]
                    request_id = Headers(raw=message["headers"]).get("X-Request-Id", "")
                case "http.response.body" | "websocket.http.response.body":
                    size += len(message.get("body", b""))
                case "websocket.accept":
                    status = _SWITCHED
                case "websocket.close" if status != _SWITCHED:
                    status = _REFUSED
                case "websocket.send":
                    size += len(message.get("bytes") or (message.get("text") or "").encode())
            await send(message)

        at, began = datetime.now(UTC), time.monotonic()
        try:
            await self._app(scope, receive, noted)
        finally:
            line: dict[str, Any] = {
                "at": f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z",
                "from": (scope.get("client") or ("",))[0],
                "caller": _caller(scope),
                "method": scope.get("method", "GET"),
                "path": scope["path"],
                "status": status,
                "bytes": size,
                "ms": round(1000 * (time.monotonic() - began), 1),
                "request_id": request_id,
            }
            log.info(msgspec.json.encode(line).decode())


def _caller(scope: Scope) -> str | None:
    caller = scope.get("state", {}).get("caller")
    return None if caller is None else str(caller.holder)


def write_access_log() -> None:
    """Write these lines, and nothing else, to standard output."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(logging.Formatter("%(message)s"))
    log.handlers = [handler]
    log.setLevel(logging.INFO)
    log.propagate = False
