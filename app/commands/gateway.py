"""`parley gateway`: the HTTP gateway."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from functools import partial
from signal import SIGINT, SIGTERM
from socket import socket
from typing import TYPE_CHECKING, Any

import click

from app.commands.terminal import WrongUseError, note, plain_failures, settings_of_terminal
from app.kafka.patience import once_kafka_answers
from app.process.process_end import end_at_signals
from app.process.tune_interpreter import tune_interpreter
from app.settings import Settings
from app.telemetry.log_format import JsonFormatter

if TYPE_CHECKING:
    from app.gateway.callers.access import Access


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
    from app.gateway.asking.gateway import new_gateway
    from app.gateway.asking.tools import ToolsFileError
    from app.gateway.callers.access import Access, OpenHostError
    from app.gateway.callers.jwt import TokenSettingsError
    from app.gateway.callers.keys import KeysError
    from app.gateway.edge.access_log import write_access_log
    from app.gateway.peers.trust import SharingError
    from app.gateway.server import (
        TlsError,
        address_of,
        serve,
        tls_options,
    )
    from app.policy.file import PolicyError
    from app.telemetry.tracing import TracingError

    if settings.gateway_access_log:
        write_access_log()
    try:
        access = Access(settings)
        tls_options(settings)
    except (KeysError, TokenSettingsError, OpenHostError, TlsError) as error:
        raise WrongUseError(str(error)) from None
    with ExitStack() as probed:
        _listeners(settings, access, probed)  # before Kafka, for which it may have to wait
    try:
        edge = await once_kafka_answers(partial(new_gateway, settings, access), note)
    except (TracingError, ToolsFileError, PolicyError, SharingError) as error:
        raise WrongUseError(str(error)) from None
    with ExitStack() as bound:
        listener, operators, peers = _listeners(settings, access, bound)
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
        tune_interpreter()
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


def _listeners(settings: Settings, access: Access, bound: ExitStack) -> tuple[socket, socket | None, socket | None]:
    """The sockets for callers, for operators and for other gateways, bound until `bound` is closed."""
    from app.gateway.peers.port import host_of
    from app.gateway.server import listen, listen_for_gateways, listen_for_operators

    def listener(listens: Callable[[Settings], socket], host: str, port: int, option: str, names: str) -> socket:
        try:
            return bound.enter_context(listens(settings))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise WrongUseError(f"port {port} is in use: choose another with {option}") from None
            raise WrongUseError(f"port {port} of {host}: {error.strerror}; choose with {names}") from None

    host, port = settings.gateway_host, settings.gateway_port
    names = "PARLEY_GATEWAY_HOST and PARLEY_GATEWAY_PORT"
    public = listener(listen, host, port, "--port or PARLEY_GATEWAY_PORT", names)
    operators = peers = None
    if not access.development:
        host, port = settings.gateway_metrics_host, settings.gateway_metrics_port
        names = "PARLEY_GATEWAY_METRICS_HOST and PARLEY_GATEWAY_METRICS_PORT"
        operators = listener(listen_for_operators, host, port, "PARLEY_GATEWAY_METRICS_PORT", names)
    if settings.gateway_advertise:
        host, port = host_of(settings), settings.gateway_peer_port
        names = "PARLEY_GATEWAY_ADVERTISE and PARLEY_GATEWAY_PEER_PORT"
        peers = listener(listen_for_gateways, host, port, "PARLEY_GATEWAY_PEER_PORT", names)
    return public, operators, peers
