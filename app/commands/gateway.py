"""`parley gateway`: the HTTP gateway."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from functools import partial
from signal import SIGINT, SIGTERM
from socket import socket
from typing import Any

import click

from app.commands.terminal import WrongUseError, note, plain_failures, settings_of_terminal
from app.process_end import end_at_signals
from app.settings import Settings
from app.telemetry.log_format import JsonFormatter


@click.command(short_help="Serve HTTP: the chat page, OpenAI's API, event streams.")
@click.option("--host", help="Address to bind instead of PARLEY_GATEWAY_HOST.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port instead of PARLEY_GATEWAY_PORT; 0 takes a free one.")
def gateway(host: str | None, port: int | None) -> None:
    """Serve HTTP: the chat page, OpenAI's API, and answers as event streams. SIGTERM stops it."""
    named = {"gateway_host": host, "gateway_port": port}
    settings = settings_of_terminal().model_copy(
        update={name: value for name, value in named.items() if value is not None}
    )
    with plain_failures():
        logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s: %(message)s")
        if settings.log_format == "json":
            logging.root.handlers[0].setFormatter(JsonFormatter())
        end_at_signals()
        asyncio.run(_serve(settings))


async def _serve(settings: Settings) -> None:
    from app.gateway.auth.access import Access, OpenHostError
    from app.gateway.auth.jwt import TokenSettingsError
    from app.gateway.auth.keys import KeysError
    from app.gateway.gateway import new_gateway
    from app.gateway.middleware.access_log import write_access_log
    from app.gateway.server import (
        TlsError,
        address_of,
        listen,
        listen_for_gateways,
        listen_for_operators,
        serve,
        tls_options,
    )
    from app.gateway.sharing.port import host_of
    from app.gateway.sharing.trust import SharingError
    from app.gateway.tools import ToolsFileError
    from app.policy.file import PolicyError
    from app.telemetry.tracing import TracingError

    if settings.gateway_access_log:
        write_access_log()
    try:
        access = Access(settings)
        tls_options(settings)
    except (KeysError, TokenSettingsError, OpenHostError, TlsError) as error:
        raise WrongUseError(str(error)) from None
    try:
        edge = await new_gateway(settings, access)
    except (TracingError, ToolsFileError, PolicyError, SharingError) as error:
        raise WrongUseError(str(error)) from None
    with ExitStack() as bound:
        host, port = settings.gateway_host, settings.gateway_port
        names = "PARLEY_GATEWAY_PORT, or PARLEY_GATEWAY_HOST"
        listener = bound.enter_context(_bound(partial(listen, settings), host, port, names))
        operators = None
        if not access.development:
            host, port = settings.gateway_metrics_host, settings.gateway_metrics_port
            names = "PARLEY_GATEWAY_METRICS_PORT, or PARLEY_GATEWAY_METRICS_HOST"
            operators = bound.enter_context(_bound(partial(listen_for_operators, settings), host, port, names))
        peers = None
        if settings.gateway_advertise:
            host, port = host_of(settings), settings.gateway_peer_port
            names = "PARLEY_GATEWAY_PEER_PORT, or PARLEY_GATEWAY_ADVERTISE"
            peers = bound.enter_context(_bound(partial(listen_for_gateways, settings), host, port, names))
        try:
            await _unless_interrupted(edge.start(peers))
        except BaseException:
            await edge.stop()
            raise
        if access.development:
            note("development mode: no API keys or JWT are configured; any caller may act as any user")
        click.echo(f"the gateway is at {address_of(listener, tls=settings.gateway_tls_cert is not None)}")
        if operators is not None:
            click.echo(f"its metrics are at {address_of(operators)}/metrics")
        await serve(edge, listener, operators)


async def _unless_interrupted(start: Coroutine[Any, Any, None]) -> None:
    """Until here, nothing is lost if a signal ends the process at once. From here on the gateway may be a member of its
    group, so it leaves first.
    """
    starting, loop = asyncio.ensure_future(start), asyncio.get_running_loop()
    interrupted = False

    def interrupt() -> None:
        nonlocal interrupted
        interrupted = bool(starting.cancel()) or interrupted

    for number in (SIGINT, SIGTERM):
        loop.add_signal_handler(number, interrupt)
    try:
        await starting
    except asyncio.CancelledError:
        if interrupted:
            raise SystemExit(0) from None
        raise
    finally:
        for number in (SIGINT, SIGTERM):
            loop.remove_signal_handler(number)
        end_at_signals()


def _bound(listener: Callable[[], socket], host: str, port: int, names: str) -> socket:
    """The socket; raises an error that names which of the settings `names` to change."""
    try:
        return listener()
    except OSError as error:
        remedy = f"set {names} to an address of this machine"
        raise click.ClickException(f"{host}:{port} cannot be bound: {error.strerror}; {remedy}") from None
