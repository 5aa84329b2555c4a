"""The gateway as a process: its socket, its signals, and an end that loses no answer."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from signal import SIGINT, SIGTERM, signal
from types import FrameType
from typing import Any

import uvicorn

from app.gateway.application import create_application
from app.gateway.body import MAX_BODY_BYTES
from app.gateway.gateway import Gateway
from app.settings import Settings

_BACKLOG = 2048
_SEND_BUFFER = 128 * 1024


class Server(uvicorn.Server):
    """Ends with exit code 0 at SIGTERM: streams are cut, to be resumed elsewhere, and the rest may finish."""

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
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._on_exit()
        await super().shutdown(sockets)


def listen(settings: Settings) -> socket.socket:
    """The socket, bound before anything else is started; raises `OSError`."""
    family = socket.AF_INET6 if ":" in settings.gateway_host else socket.AF_INET
    listener = socket.socket(family)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Beside what lies here, a reader that takes nothing costs nothing.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        # What lies in the socket of a reader that has gone silent is given up by the kernel.
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            stall_ms = int(settings.gateway_stall_s * 1000)
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, stall_ms)
        listener.bind((settings.gateway_host, settings.gateway_port))
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def address_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def serve(gateway: Gateway, listener: socket.socket, **options: Any) -> None:
    """Serve a gateway that was started, until SIGTERM or Ctrl-C."""
    config = uvicorn.Config(
        create_application(gateway),
        log_level="warning",
        access_log=False,
        server_header=False,
        ws="websockets-sansio",
        ws_max_size=MAX_BODY_BYTES,
        ws_per_message_deflate=False,  # 100 KiB a reader
        timeout_graceful_shutdown=max(1, round(gateway.settings.gateway_drain_s)),
        **options,
    )
    await Server(config, gateway.live.close).serve([listener])
