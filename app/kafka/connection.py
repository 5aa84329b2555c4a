"""One connection to the first broker that answers, and why there is none.

aiokafka's clients log the cause of a failed connection and do not return it. A port may also be one for another
protocol: a broker closes a connection that begins TLS where it speaks none, and one without TLS where it does.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from aiokafka.conn import AIOKafkaConnection
from aiokafka.errors import (
    AuthenticationFailedError,
    IllegalSaslStateError,
    KafkaError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
)
from aiokafka.protocol.admin import SaslHandShakeRequest

from app.kafka.cluster import Cluster
from app.kafka.errors import KafkaAwayError, KafkaSetupError, KafkaUnusableError

CONNECT_TIMEOUT_S = 5.0
_PROBE_S = 2.0
_CLOSE_S = 0.5
_HELLO = struct.pack(">ihhih", 10, 18, 0, 1, -1)
"""ApiVersions: length, API 18 in version 0, a correlation id, no client id."""
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


@asynccontextmanager
async def connected(cluster: Cluster) -> AsyncIterator[AIOKafkaConnection]:
    """Raises `KafkaUnusableError`."""
    try:
        connection = await _first(cluster)
    except (KafkaError, OSError, TimeoutError):
        raise await unreachable(cluster) from None
    try:
        yield connection
    finally:
        await _close(connection)


async def _first(cluster: Cluster) -> AIOKafkaConnection:
    *others, last = cluster.servers
    for server in others:
        with suppress(KafkaError, OSError, TimeoutError):
            return await _connection(cluster, server)
    return await _connection(cluster, last)


async def _connection(cluster: Cluster, server: str) -> AIOKafkaConnection:
    host, port = _address(server)
    options = cluster.options()
    del options["bootstrap_servers"]
    connection = AIOKafkaConnection(host, port, **options)
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            await connection.connect()
    except BaseException:
        await _close(connection)
        raise
    return connection


async def _close(connection: AIOKafkaConnection) -> None:
    """Returns once the socket is closed, if there was one."""
    closed = connection.close()
    if connection._protocol is not None:  # noqa: SLF001
        await asyncio.wait([closed], timeout=_CLOSE_S)


def _address(server: str) -> tuple[str, int]:
    host, _, port = server.rpartition(":")
    return host.strip("[]"), int(port)


async def unreachable(cluster: Cluster) -> KafkaUnusableError:
    """Why no client can use this Kafka."""
    for server in cluster.servers:
        if (error := await _trouble(cluster, server)) is not None:
            return error
    is_here = all(_address(server)[0] in _LOOPBACK for server in cluster.servers)
    remedy = (
        "start one with `parley local up`, or set PARLEY_BROKER"
        if is_here
        else "does it run, and is PARLEY_BROKER right?"
    )
    return KafkaAwayError(f"no Kafka answers at {cluster}: {remedy}")


async def _trouble(cluster: Cluster, server: str) -> KafkaUnusableError | None:
    """Why this broker cannot be used; None if nothing listens there."""
    host, port = _address(server)
    try:
        await _heard(host, port, None, b"")
    except socket.gaierror as error:
        return KafkaAwayError(f"the broker's name {host!r} has no address ({error.strerror}): is PARLEY_BROKER right?")
    except (OSError, TimeoutError):
        return None
    try:
        connection = await _connection(cluster, server)
    except (KafkaError, OSError, TimeoutError) as error:
        return _login_trouble(cluster, server, error) or await _port_trouble(cluster, server, error)
    try:
        return await _silent_login(cluster, server, connection)
    finally:
        await _close(connection)


def _login_trouble(cluster: Cluster, server: str, error: Exception) -> KafkaUnusableError | None:
    match error:
        case AuthenticationFailedError() | SaslAuthenticationFailed():
            return KafkaSetupError(f"Kafka at {server} rejects the login of {cluster.username!r}: {error}")
        case IllegalSaslStateError():
            why = "asks for no login there: unset PARLEY_KAFKA_SASL_MECHANISM, or set PARLEY_BROKER to another port"
            return KafkaSetupError(f"Kafka at {server} {why}")
        case UnsupportedSaslMechanismError():
            why = f"knows no login by {cluster.sasl_mechanism}: set PARLEY_KAFKA_SASL_MECHANISM to another one"
            return KafkaSetupError(f"Kafka at {server} {why}")
    return None


async def _port_trouble(cluster: Cluster, server: str, error: Exception) -> KafkaUnusableError:
    host, port = _address(server)
    is_plain, is_tls = await _is_kafka(host, port), await _speaks_tls(host, port)
    if cluster.tls and is_plain:
        return KafkaSetupError(
            f"Kafka at {server} speaks no TLS: unset PARLEY_KAFKA_TLS, or set PARLEY_BROKER to its TLS port"
        )
    if not cluster.tls and is_tls:
        return KafkaSetupError(f"{server} speaks TLS: set PARLEY_KAFKA_TLS=true, or PARLEY_BROKER to a port without it")
    if is_tls and isinstance(error, ssl.SSLError):
        return KafkaSetupError(f"TLS with Kafka at {server} failed: {error}; see the PARLEY_KAFKA_ settings")
    if is_tls and cluster.cert_file is None:
        why = "ends connections without a certificate of the client: set PARLEY_KAFKA_CERT_FILE"
        return KafkaSetupError(f"Kafka at {server} {why}")
    return KafkaAwayError(f"what answers at {server} is no Kafka, or not yet: is PARLEY_BROKER right?")


async def _silent_login(cluster: Cluster, server: str, connection: AIOKafkaConnection) -> KafkaUnusableError:
    """The connection is good. A broker that asks for a login tells so at the next request, by closing it."""
    with suppress(KafkaError, OSError, TimeoutError):
        names = [] if cluster.sasl_mechanism else (await connection.send(SaslHandShakeRequest(""))).enabled_mechanisms
        if names:
            how = (
                f"set PARLEY_KAFKA_SASL_MECHANISM ({', '.join(names)}), PARLEY_KAFKA_USERNAME and PARLEY_KAFKA_PASSWORD"
            )
            return KafkaSetupError(f"Kafka at {server} asks for a login: {how}")
    return KafkaAwayError(
        f"Kafka at {server} answers, but serves nothing yet: it is starting, or has lost its controller"
    )


async def _is_kafka(host: str, port: int) -> bool:
    """Whether it answers without TLS as Kafka does, with our correlation id."""
    with suppress(OSError, TimeoutError):
        return (await _heard(host, port, None, _HELLO))[4:8] == _HELLO[8:12]
    return False


async def _speaks_tls(host: str, port: int) -> bool:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nothing is told to it
    with suppress(OSError, TimeoutError):
        await _heard(host, port, context, b"")
        return True
    return False


async def _heard(host: str, port: int, tls: ssl.SSLContext | None, hello: bytes) -> bytes:
    """The beginning of what a server answers to `hello`; raises `OSError` and `TimeoutError`."""
    async with asyncio.timeout(_PROBE_S):
        reader, writer = await asyncio.open_connection(host, port, ssl=tls)
        try:
            writer.write(hello)
            return await reader.readexactly(8) if hello else b""
        except asyncio.IncompleteReadError as error:
            return error.partial
        finally:
            writer.close()
            with suppress(OSError, TimeoutError):
                await asyncio.wait_for(writer.wait_closed(), _CLOSE_S)
