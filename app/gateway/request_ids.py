"""Middleware for `X-Request-Id`: every reply has one, the caller's own if it sent one.

The id of the Parley request that a call has created is in `X-Parley-Request-Id`, and in `X-Request-Id` too if the
caller sent none.
"""

from __future__ import annotations

import re

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.wire.ids import new_request_id

_NAME = "X-Request-Id"
_OWN = re.compile(r"[\x21-\x7e]{1,128}")


class RequestIds:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        own = Headers(scope=scope).get(_NAME, "")

        async def named(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                if created := headers.get(_NAME):
                    headers["X-Parley-Request-Id"] = created
                if _OWN.fullmatch(own):
                    headers[_NAME] = own
                elif not created:
                    headers[_NAME] = new_request_id()
            await send(message)

        await self._app(scope, receive, named)
