"""Which pages of browsers may call.

In development mode, without keys, only programs and pages of this machine are served. A browser lets any page send
requests to this machine. Two checks reject such requests, on every path:

- `Host`: a page that reaches the gateway by DNS rebinding uses a host name of its own. The raw header is checked,
  because frameworks fall back to the socket's address for a name that they cannot parse.
- `Origin` and `Sec-Fetch-Site`: browsers set them, and a page cannot change them. Only the gateway's own pages, and
  programs, which send neither, may call. A link on another page may open the chat page and nothing else.
"""

from __future__ import annotations

import ipaddress
import logging
import re
from collections.abc import Collection

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from app.gateway.edge.errors import ApiError
from app.gateway.edge.http import Middleware, refuse
from app.process.printable import printable
from app.wire.error import ErrorCode

log = logging.getLogger(__name__)

_MOST = 16
_LONGEST = 200
_LOOPBACK = re.compile(rb"(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])(?::\d{1,5})?", re.IGNORECASE)
_OWN_SITE = {b"same-origin", b"none"}


class LoopbackOnly(Middleware):
    def __init__(self, app: ASGIApp, origins: Collection[str] = ()) -> None:
        """`origins`: other pages that may call, by `PARLEY_GATEWAY_ORIGINS`."""
        super().__init__(app)
        self._origins = frozenset(origin.encode().lower() for origin in origins)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (refusal := _refusal(HTTPConnection(scope), self._origins)) is None:
            await self._app(scope, receive, send)
        else:
            await refuse(refusal, scope, receive, send)


def _refusal(request: HTTPConnection, origins: frozenset[bytes]) -> ApiError | None:
    hosts = _values(request, b"host")
    if len(hosts) != 1 or not _LOOPBACK.fullmatch(hosts[0]):
        return _forbidden("without keys the gateway serves only 127.0.0.1, [::1] and localhost")
    host = hosts[0].lower()
    called_from = {origin.lower() for origin in _values(request, b"origin")}
    if called_from and called_from <= origins:
        return None
    if not called_from <= {b"http://" + host, b"https://" + host}:
        return _forbidden("without keys the gateway serves only its own pages")
    if not _OWN_SITE.issuperset(_values(request, b"sec-fetch-site")) and not _opens_the_page(request):
        return _forbidden("without keys the gateway serves only its own pages")
    return None


def _opens_the_page(request: HTTPConnection) -> bool:
    """Whether this is a link on another page that opens the chat page in a tab."""
    return (
        request.scope.get("method") == "GET"
        and request.url.path == "/"
        and _values(request, b"sec-fetch-mode") == [b"navigate"]
        and _values(request, b"sec-fetch-dest") == [b"document"]
    )


def _values(request: HTTPConnection, name: bytes) -> list[bytes]:
    return [value for key, value in request.scope["headers"] if key == name]


def _forbidden(message: str) -> ApiError:
    return ApiError(ErrorCode.UNAUTHORIZED, message, status=403)


class ForeignPages(Middleware):
    """Logs pages of other origins that browsers keep from calling, once each, with the setting that would let them: the
    page itself learns nothing but that a call has failed.

    `origins` may call. Without keys (`refuses_all`) all others are refused; with keys a browser asks first.
    """

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
                if shown == "null":
                    log.warning("a page without an origin was refused, as a file's: serve it over HTTP")
                else:
                    log.warning("a page of %s was refused: PARLEY_GATEWAY_ORIGINS=%s would let it call", shown, shown)
        await self._app(scope, receive, send)


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
