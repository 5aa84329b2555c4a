"""Pages of other origins that browsers keep from calling: logged once each, with the setting that would let them.

The page itself learns nothing but that a call has failed; only the browser's console has the reason.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from starlette.types import ASGIApp, Receive, Scope, Send

from app.gateway.edge.middleware import Middleware
from app.process.printable import printable

log = logging.getLogger(__name__)

_MOST = 16
_LONGEST = 200


class ForeignPages(Middleware):
    """`origins` may call. Without keys (`refuses_all`) all others are refused; with keys a browser asks first."""

    def __init__(self, app: ASGIApp, origins: Collection[str], *, refuses_all: bool) -> None:
        super().__init__(app)
        self._allowed = frozenset(origin.lower() for origin in origins)
        self._refuses_all = refuses_all
        self._told: set[str] = set()

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {key: value.decode("latin-1") for key, value in scope["headers"]}
        origin = headers.get(b"origin", "").lower()
        if origin and origin not in self._told and len(self._told) < _MOST:
            asks_first = scope.get("method") == "OPTIONS" and b"access-control-request-method" in headers
            own = {f"{scheme}://{headers.get(b'host', '').lower()}" for scheme in ("http", "https")}
            if (self._refuses_all or asks_first) and origin not in self._allowed | own:
                self._told.add(origin)
                shown = printable(" ".join(origin.split()))[:_LONGEST]
                log.warning("a page of %s was refused: PARLEY_GATEWAY_ORIGINS=%s would let it call", shown, shown)
        await self._app(scope, receive, send)
