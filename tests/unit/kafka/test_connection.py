"""Why no Kafka answers: what listens there, and which setting fits it."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trustme

from app.kafka.clients import partitions_of
from app.kafka.cluster import Cluster
from app.kafka.errors import KafkaAwayError, KafkaSetupError
from app.process.process_end import ExitCode


@asynccontextmanager
async def server(greeting: bytes, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting)
        with contextlib.suppress(ConnectionError):
            await reader.read(64)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls) as listening:
        yield f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"


def certificate() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    return context


async def trouble(cluster: Cluster) -> str:
    with pytest.raises(KafkaSetupError) as wrong:
        await partitions_of(cluster, [])
    assert wrong.value.exit_code == ExitCode.WRONG_USE
    return str(wrong.value)


async def away(cluster: Cluster) -> str:
    with pytest.raises(KafkaAwayError) as gone:
        await partitions_of(cluster, [])
    assert gone.value.exit_code == ExitCode.FAILED
    return str(gone.value)


async def test_a_port_for_tls_is_told_as_such() -> None:
    async with server(b"", certificate()) as port:
        assert f"{port} speaks TLS: set PARLEY_KAFKA_TLS=true" in await trouble(Cluster((port,)))


async def test_another_server_is_no_kafka() -> None:
    async with server(b"HTTP/1.1 400 Bad Request\r\n\r\n") as port:
        for tls in (False, True):
            line = await away(Cluster((port,), tls=tls))
            assert "local up" not in line
            assert port in line


async def test_a_server_here_is_started_here() -> None:
    for name in ("127.0.0.1", "localhost", "[::1]"):
        assert "`parley local up`" in await away(Cluster((f"{name}:1",)))


async def test_a_server_elsewhere_is_not_started_here() -> None:
    line = await away(Cluster(("127.0.0.1:1", "127.99.0.1:1")))
    assert "no Kafka answers at 127.0.0.1:1, 127.99.0.1:1: " in line
    assert "local up" not in line


async def test_a_name_without_an_address_is_told_as_such() -> None:
    assert "'kafka.invalid' has no address" in await away(Cluster(("kafka.invalid:9092",)))


async def test_the_broker_that_listens_tells_more_than_the_one_that_does_not() -> None:
    async with server(b"", certificate()) as port:
        assert f"{port} speaks TLS" in await trouble(Cluster(("127.0.0.1:1", port)))
