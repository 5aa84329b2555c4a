"""Plain replies to readers that may be slow: a large one leaves in parts, and who accepts none for a while is cut."""

from __future__ import annotations

import asyncio

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.gateway.edge.bounds import STALL_S
from app.gateway.edge.unsent import PART_BYTES, parts_of, unsent


class JsonReply(Response):
    media_type = "application/json"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if len(self.body) <= PART_BYTES:
            await super().__call__(scope, receive, send)
            return
        if scope["method"] != "GET":
            scope["state"]["done"] = self.headers.get("x-request-id", "")
        with unsent(scope, len(self.body)):
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            try:
                for part, is_last in parts_of(self.body):
                    async with asyncio.timeout(STALL_S):
                        await send({"type": "http.response.body", "body": part, "more_body": not is_last})
            except TimeoutError:
                scope["app"].state.gateway.metrics.stalled.inc()
