"""The port where other gateways ask for the users of this one's partitions: never the public one.

It speaks the protocol of frames.py with callers that have proved to be gateways of this service (trust.py), and nothing
else. Browsers are refused: they name an origin.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from ssl import SSLContext
from urllib.parse import urlsplit

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from app.gateway.peers.trust import HANDSHAKE_S, REFUSED, Trust, UnknownPeerError
from app.settings import Settings

log = logging.getLogger(__name__)

_MOST_UNKNOWN = 64
"""Connections that have not proved themselves yet."""
_LARGEST = 1024 * 1024
_LOG_EVERY_S = 60.0
_FULL = 1013


def host_of(settings: Settings) -> str:
    """The address that the port for gateways binds: the host that others connect to."""
    return urlsplit(settings.gateway_advertise).hostname or "127.0.0.1"


def address_of(settings: Settings, listener: socket.socket) -> str:
    """Where others reach that port: the advertised host, and the port that was bound."""
    advertised = urlsplit(settings.gateway_advertise)
    host = advertised.hostname or ""
    return f"{advertised.scheme}://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"


class PeerPort:
    """`serve_known` serves a gateway until it leaves; `on_refused`: an unknown caller was refused."""

    def __init__(
        self,
        trust: Trust,
        tls: SSLContext | None,
        serve_known: Callable[[ServerConnection], Awaitable[None]],
        on_refused: Callable[[], None],
    ) -> None:
        self._trust = trust
        self._tls = tls
        self._serve_known = serve_known
        self._on_refused = on_refused
        self._unknown = 0
        self._quiet_until = 0.0
        self._server: Server | None = None

    async def start(self, listener: socket.socket) -> None:
        self._server = await serve(
            self._serve,
            sock=listener,
            ssl=self._tls,
            origins=[None],
            compression=None,
            max_size=_LARGEST,
            open_timeout=HANDSHAKE_S,
            close_timeout=1.0,
            logger=_quiet(),
        )

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, connection: ServerConnection) -> None:
        if not await self._is_known(connection):
            return
        await self._serve_known(connection)

    async def _is_known(self, connection: ServerConnection) -> bool:
        if self._unknown >= _MOST_UNKNOWN:
            await connection.close(_FULL)
            return False
        self._unknown += 1
        try:
            await self._trust.answer(connection)
        except (UnknownPeerError, TimeoutError) as error:
            self._refuse(connection, str(error) or "it proves nothing")
            await connection.close(REFUSED, "unknown")
            return False
        except ConnectionClosed:
            return False
        finally:
            self._unknown -= 1
        return True

    def _refuse(self, connection: ServerConnection, why: str) -> None:
        self._on_refused()
        now = asyncio.get_running_loop().time()
        if now >= self._quiet_until:
            self._quiet_until = now + _LOG_EVERY_S
            log.error("a caller of the port for gateways, %s, is refused: %s", connection.remote_address, why)


def _quiet() -> logging.Logger:
    """The library's own lines have tracebacks of whatever strangers send."""
    logger = logging.getLogger("parley.gateways.port")
    logger.disabled = True
    return logger
