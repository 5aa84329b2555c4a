"""Limits that apply before the gateway knows the caller: connections, size of heads, time to receive a request.

Uvicorn's protocol has no such limits: a header may have any size, and a connection that sends one byte per minute stays
open. The classes here add limits to uvicorn's. A connection is in one phase at a time:

    HEAD   request line and headers are being received        at most `MAX_HEAD_BYTES`, `MAX_HEADERS`, `HEAD_S`
    BODY   the head is complete, the body is being received   at most `BODY_S`; asking/reading.py limits its bytes
    OPEN   the request is complete, or became a WebSocket     the limits of users apply

A request that exceeds a limit gets 431 or 408, a connection over the limit gets 503. In all cases the connection is
closed. So it is where many requests wait behind one another. Little is read at a time: what is read is parsed in one
step, and may be thousands of requests or chunks.
"""

from __future__ import annotations

import asyncio
import enum
import ipaddress
import resource
from collections import Counter
from typing import Any, cast

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from app.gateway.edge.errors import ApiError
from app.gateway.edge.http import Middleware, refuse
from app.wire.error import ErrorCode

MAX_HEAD_BYTES = 32 * 1024
MAX_HEADERS = 100
HEAD_S = 10.0
BODY_S = 30.0
MAX_PIPELINED = 16
"""Requests that wait for the replies to those before them: clients hardly send any, and each takes kilobytes."""
_READ_BYTES = 16 * 1024
_OTHER_FILES = 256
"""File descriptors reserved for Kafka, Milvus and files."""


class Phase(enum.Enum):
    HEAD = "head"
    BODY = "body"
    OPEN = "open"


class Gate:
    """Counts open connections, in total and per address.

    An IPv6 caller usually has a whole /64, which counts as one address. Connections of a trusted proxy count towards
    the total only; `ByAddress` counts the callers behind it.
    """

    def __init__(self, most: int, most_of_address: int, proxies: frozenset[str] = frozenset()) -> None:
        self.refused = 0
        self._most = min(most, max(1, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _OTHER_FILES))
        self._most_of_address = most_of_address
        self._proxies = tuple(ipaddress.ip_network(proxy, strict=False) for proxy in proxies)
        self._addresses: dict[asyncio.BaseTransport, str] = {}
        self._counts: Counter[str] = Counter()

    @property
    def open(self) -> int:
        return len(self._addresses)

    def enter(self, transport: asyncio.BaseTransport) -> bool:
        """Whether the connection is admitted; an admitted one counts until `leave`."""
        peer = transport.get_extra_info("peername")
        address = peer[0] if isinstance(peer, tuple) else ""
        group = group_of(address)
        full = len(self._addresses) >= self._most
        if full or (self._counts[group] >= self._most_of_address and not self._is_proxy(address)):
            self.refused += 1
            return False
        self._addresses[transport] = group
        self._counts[group] += 1
        return True

    def leave(self, transport: asyncio.BaseTransport) -> None:
        group = self._addresses.pop(transport, None)
        if group is None:
            return
        self._counts[group] -= 1
        if not self._counts[group]:
            del self._counts[group]

    def _is_proxy(self, address: str) -> bool:
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(parsed in network for network in self._proxies)


def group_of(address: str) -> str:
    """The unit of counting: an IPv4 address, or the /64 of an IPv6 address."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if parsed.version == 4:
        return address
    if (mapped := parsed.ipv4_mapped) is not None:
        return str(mapped)
    return str(ipaddress.ip_network((int(parsed) >> 64 << 64, 64)))


class GuardedHttp(HttpToolsProtocol):
    """One HTTP connection, with the limits."""

    def __init__(self, *arguments: Any, gate: Gate, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._gate = gate
        self._phase = Phase.HEAD
        self._head_bytes = 0
        self._unparsed_bytes = 0
        self._closed = False
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast(asyncio.Transport, transport))
        read_little(transport, _READ_BYTES)
        if not self._gate.enter(transport):
            self._close_with(ApiError(ErrorCode.OVERLOADED, "too many open connections", retry_after_s=5))
            return
        self._expect(Phase.HEAD, HEAD_S)

    def connection_lost(self, exc: Exception | None) -> None:
        self._gate.leave(self.transport)
        self._expect(Phase.OPEN)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._closed:
            return
        self._unparsed_bytes += len(data)
        super().data_received(data)
        if self._phase is Phase.HEAD and self._unparsed_bytes > MAX_HEAD_BYTES:
            self._refuse_head()

    # The parser's callbacks. After a rejection it still processes the rest of its input.

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= MAX_PIPELINED:
            message = f"more than {MAX_PIPELINED} requests wait on this connection"
            self._close_with(ApiError(ErrorCode.RATE_LIMITED, message, retry_after_s=1))
        self._head_bytes = 0
        super().on_message_begin()
        self._expect(Phase.HEAD, HEAD_S)

    def on_url(self, url: bytes) -> None:
        self._head_bytes += len(url)
        if not self._closed:
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > MAX_HEAD_BYTES or len(self.headers) >= MAX_HEADERS:
            self._refuse_head()
        elif not self._closed:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if self._closed:
            return
        self._expect(Phase.BODY, BODY_S)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if not self._closed:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._unparsed_bytes = 0
        self._expect(Phase.OPEN)
        if not self._closed:
            super().on_message_complete()

    def handle_websocket_upgrade(self) -> None:
        if self._closed:
            return
        self._expect(Phase.OPEN)
        super().handle_websocket_upgrade()

    def send_400_response(self, msg: str) -> None:
        if not self._closed:
            self._close_with(ApiError(ErrorCode.INVALID_REQUEST, msg))

    def _refuse_head(self) -> None:
        message = f"the head of the request has more than {MAX_HEAD_BYTES} bytes or {MAX_HEADERS} headers"
        self._close_with(ApiError(ErrorCode.INVALID_REQUEST, message, status=431))

    def _expect(self, phase: Phase, within_s: float | None = None) -> None:
        self._phase = phase
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None if within_s is None else self.loop.call_later(within_s, self._too_late, within_s)

    def _too_late(self, within_s: float) -> None:
        if self._phase is Phase.HEAD and not self._unparsed_bytes:
            self._closed = True
            self.transport.close()  # no request has begun, so there is nothing to reply to
            return
        message = f"the {self._phase.value} of the request was not received within {within_s:g} s"
        self._close_with(ApiError(ErrorCode.INVALID_REQUEST, message, status=408))

    def _close_with(self, error: ApiError) -> None:
        """Reject the request, unless a reply has begun, and close the connection."""
        if self._closed:
            return
        self._closed = True
        if self.cycle is None or not self.cycle.response_started or self.cycle.response_complete:
            response = error.response()
            head = b"".join(b"%b: %b\r\n" % pair for pair in (*response.raw_headers, (b"connection", b"close")))
            self.transport.write(b"%b%b\r\n%b" % (STATUS_LINE[response.status_code], head, bytes(response.body)))
        self._expect(Phase.OPEN)
        self.transport.close()


class ByAddress(Middleware):
    """Behind a trusted proxy: limits the open requests of each client address.

    All callers share the proxy's connections, so `Gate` cannot distinguish them. Uvicorn puts the forwarded address
    into the scope.
    """

    def __init__(self, app: ASGIApp, most: int) -> None:
        super().__init__(app)
        self._most = most
        self._open: Counter[str] = Counter()

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        address = group_of((scope.get("client") or ("",))[0])
        if self._open[address] >= self._most:
            refusal = ApiError(ErrorCode.OVERLOADED, "this address has too many open requests", retry_after_s=5)
            await refuse(refusal, scope, receive, send)
            return
        self._open[address] += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._open[address] -= 1
            if not self._open[address]:
                del self._open[address]


def read_little(transport: asyncio.BaseTransport, size: int) -> None:
    """A quarter of a megabyte is read at a time by default; one of TLS is not changed by this."""
    if hasattr(transport, "max_size"):
        transport.max_size = size
