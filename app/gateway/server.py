"""The gateway as a process: its sockets, its signals, and a shutdown that loses no answer."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from functools import partial
from signal import SIGINT, SIGTERM, signal
from types import FrameType
from typing import Any

import uvicorn

from app.gateway.application import create_application, create_operations
from app.gateway.asking.gateway import Gateway
from app.gateway.asking.reading import MAX_BODY_BYTES
from app.gateway.edge import bounds
from app.gateway.edge.certificate import RenewedCertificate
from app.gateway.edge.connections import GuardedHttp
from app.gateway.edge.guarded_socket import GuardedWebSocket
from app.gateway.peers.port import host_of
from app.process.key_files import EncryptedKeyError, show_certificate
from app.process.log_limit import LogLimit
from app.process.process_end import end_process
from app.settings import Settings

log = logging.getLogger(__name__)

_HURRY_S = 2.0
_QUIET_S = 0.3
_BACKLOG = 2048
_SEND_BUFFER = 128 * 1024
_NOT_UTF8 = "Invalid UTF-8"
_CUT = "ASGI callable returned without completing response."


class GatewayServer(uvicorn.Server):
    """Exits with code 0 at SIGTERM: streams are cut, to be resumed at another gateway, and other requests may
    finish.
    """

    def __init__(self, config: uvicorn.Config, on_exit: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_exit = on_exit

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        before = {number: signal(number, self._leave) for number in (SIGINT, SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal(number, handler)

    def _leave(self, _number: int, _frame: FrameType | None) -> None:
        """The second signal ends what the first one waits for, within `_HURRY_S`, the third one the process."""
        if self.force_exit:
            end_process(0)
        self.force_exit = self.should_exit
        self.should_exit = True
        if self.force_exit:
            last = threading.Timer(_HURRY_S, end_process, (0,))
            last.daemon = True
            last.start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        logging.getLogger("uvicorn.error").addFilter(_cut_off)
        self._on_exit()
        logging_wait = asyncio.create_task(self._log_wait())
        try:
            await super().shutdown(sockets)
            if self.force_exit:  # uvicorn leaves it out then, and its task would be interrupted
                await self.lifespan.shutdown()
        finally:
            logging_wait.cancel()

    async def _log_wait(self) -> None:
        """Log what is waited for, unless it ends at once."""
        await asyncio.sleep(_QUIET_S)
        if waiting := len(self.server_state.tasks):
            log.warning("leaving: waiting up to %s s for %s requests", self.config.timeout_graceful_shutdown, waiting)


def _cut_off(record: logging.LogRecord) -> bool:
    """Requests that outlast the grace period are cut off, and their answers go on without this gateway: no error."""
    if record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError):
        return False
    if record.levelno == logging.ERROR and str(record.msg).startswith("Cancel "):
        record.levelno, record.levelname = logging.WARNING, logging.getLevelName(logging.WARNING)
    return True


class OperatorsServer(uvicorn.Server):
    """Stops together with the public server, which handles the signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen(settings: Settings) -> socket.socket:
    """The public socket, bound before anything else starts; raises `OSError`."""
    listener = _bound(settings.gateway_host, settings.gateway_port)
    # Beyond this send buffer, a stalled reader uses no memory.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
    # The kernel drops what is unsent to a reader that has gone silent.
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(bounds.STALL_S * 1000))
    listener.listen(_BACKLOG)
    return listener


def listen_for_operators(settings: Settings) -> socket.socket:
    """The socket of health and metrics; raises `OSError`."""
    listener = _bound(settings.gateway_metrics_host, settings.gateway_metrics_port)
    listener.listen()
    return listener


def listen_for_gateways(settings: Settings) -> socket.socket:
    """The socket of the port for other gateways; raises `OSError`."""
    listener = _bound(host_of(settings), settings.gateway_peer_port)
    listener.listen()
    return listener


def _bound(host: str, port: int) -> socket.socket:
    # Asyncio turns Nagle's algorithm off only where the protocol is named, and accepted sockets inherit it. Otherwise
    # the first tokens on a kept connection wait some 40 ms for the client's delayed acknowledgement.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError:
        listener.close()
        raise
    return listener


def address_of(listener: socket.socket, *, tls: bool = False) -> str:
    host, port = listener.getsockname()[:2]
    return f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


async def serve(gateway: Gateway, listener: socket.socket, operators: socket.socket | None = None) -> None:
    """Run a started gateway until SIGTERM or Ctrl-C; with keys, `operators` has a socket of its own."""
    public = GatewayServer(_public(gateway), gateway.leave)
    logging.getLogger("uvicorn.error").addFilter(OfPeers())
    certificate, key = gateway.settings.gateway_tls_cert, gateway.settings.gateway_tls_key
    async with contextlib.AsyncExitStack() as stack:
        if certificate is not None:
            renewed = RenewedCertificate(certificate, key, lambda: _shown_by(public, gateway))
            await stack.enter_async_context(renewed.followed())
        await _serve(gateway, public, listener, operators)


def _shown_by(public: uvicorn.Server, gateway: Gateway) -> list[ssl.SSLContext]:
    """The contexts that show the gateway's certificate to callers and to other gateways."""
    served = getattr(public.config, "ssl", None)  # it has none before it is loaded
    return [] if served is None else [served, *gateway.tls_contexts]


async def _serve(
    gateway: Gateway, public: uvicorn.Server, listener: socket.socket, operators: socket.socket | None
) -> None:
    if operators is None:
        await public.serve([listener])
        return
    private = OperatorsServer(_private(gateway))
    serving = asyncio.create_task(private.serve([operators]), name="metrics of the gateway")
    try:
        await public.serve([listener])
    finally:
        private.should_exit = True
        await serving


def _public(gateway: Gateway) -> uvicorn.Config:
    settings, gate = gateway.settings, gateway.gate
    # Uvicorn accepts any callable that creates a protocol, but declares a class.
    protocols: dict[str, Any] = {
        "http": partial(GuardedHttp, gate=gate),
        "ws": partial(GuardedWebSocket, gate=gate, bodies=gateway.bodies),
    }
    return uvicorn.Config(
        create_application(gateway),
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        ws_max_size=MAX_BODY_BYTES,
        ws_per_message_deflate=False,  # 100 KiB per reader
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=sorted(settings.trusted_proxies),
        timeout_graceful_shutdown=max(1, round(settings.drain_s)),
        **tls_options(settings),
        **protocols,
    )


def _private(gateway: Gateway) -> uvicorn.Config:
    return uvicorn.Config(
        create_operations(gateway),
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="off",
        proxy_headers=False,
        ws="none",
        timeout_graceful_shutdown=1,
    )


class TlsError(Exception):
    """A certificate or key cannot be used; one line."""


def tls_options(settings: Settings) -> dict[str, Any]:
    """Uvicorn's options for TLS of the public port and client certificates; empty without a certificate.

    Raises `TlsError`.
    """
    certificate, key, clients = settings.gateway_tls_cert, settings.gateway_tls_key, settings.gateway_tls_client_ca
    if certificate is None:
        return {}
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        show_certificate(context, certificate, key)
    except EncryptedKeyError as error:
        raise TlsError(f"PARLEY_GATEWAY_TLS_CERT={certificate}: {error}") from None
    except (ssl.SSLError, OSError) as error:
        raise TlsError(
            f"PARLEY_GATEWAY_TLS_CERT={certificate}: {_reason(error)}; is the key the certificate's?"
        ) from None
    options: dict[str, Any] = {"ssl_certfile": certificate, "ssl_keyfile": key}
    if clients is None:
        return options
    try:
        context.load_verify_locations(clients)
    except (ssl.SSLError, OSError) as error:
        raise TlsError(f"PARLEY_GATEWAY_TLS_CLIENT_CA={clients}: {_reason(error)}") from None
    return {**options, "ssl_ca_certs": str(clients), "ssl_cert_reqs": ssl.CERT_REQUIRED}


def _reason(error: OSError) -> str:
    return getattr(error, "reason", None) or error.strerror or str(error)


class OfPeers(LogLimit):
    """A filter of `uvicorn.error`, for lines about what peers send: in the format of all others, and each text once in
    a while.

    Any peer can send what is no HTTP request, as often as it wants: a scan, or TLS to a plain port. These lines have
    nothing of what it has sent. Errors of this program keep their tracebacks and are not limited.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        if str(record.msg).startswith(_NOT_UTF8):  # of a WebSocket's peer; the traceback is uvicorn's own
            record.levelno, record.levelname = logging.WARNING, logging.getLevelName(logging.WARNING)
            record.exc_info = None
        if record.msg == _CUT:  # on purpose, and whoever did it has counted or logged the cause
            return False
        return record.exc_info is not None or super().filter(record)
