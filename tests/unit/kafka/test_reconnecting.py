"""Attempts to connect are counted by a server that closes every connection, or that is not there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest
from aiokafka import client
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaConnectionError, KafkaError

from app.kafka import reconnecting
from app.local.ports import free_port

CLIENTS = 20
ROUND_S = 3.0


class Listener:
    """Counts connections and closes them at once."""

    def __init__(self) -> None:
        self.connections = 0

    async def closes(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        writer.close()


@asynccontextmanager
async def listening() -> AsyncIterator[tuple[Listener, int]]:
    listener = Listener()
    server = await asyncio.start_server(listener.closes, "127.0.0.1", 0)
    async with server:
        yield listener, server.sockets[0].getsockname()[1]


async def hammer(port: int) -> None:
    """As a client of a worker does: again and again, every 20 ms."""
    tries = AIOKafkaClient(bootstrap_servers=f"127.0.0.1:{port}")
    try:
        while True:
            with suppress(KafkaError):
                await tries.bootstrap()
            await asyncio.sleep(0.02)
    finally:
        await tries.close()


async def for_a_round(work: Callable[[], Awaitable[None]], has_begun: Callable[[], bool]) -> None:
    clients = [asyncio.ensure_future(work()) for _ in range(CLIENTS)]
    async with asyncio.timeout(60):
        while not has_begun():
            await asyncio.sleep(0.02)
    await asyncio.wait(clients, timeout=ROUND_S)
    for one in clients:
        one.cancel()
    await asyncio.gather(*clients, return_exceptions=True)


async def test_all_clients_of_a_process_share_few_attempts() -> None:
    async with listening() as (listener, port):
        await for_a_round(lambda: hammer(port), lambda: listener.connections >= CLIENTS)
        # One attempt of each client, and then one at a time: after 0.1, 0.2, 0.4, 0.8, 1.6 s or half of it.
        assert CLIENTS <= listener.connections <= CLIENTS + 12


async def test_a_broker_that_is_back_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    options = {"request_timeout_ms": 1000}
    for _ in range(3):
        with pytest.raises((OSError, KafkaConnectionError)):
            await client.create_conn("127.0.0.1", port, **options)
    made = []

    async def create(host: str, port: int, **_options: object) -> object:
        made.append((host, port))
        return type("Connection", (), {"close": lambda _self: made.append("closed")})()

    monkeypatch.setattr(reconnecting, "open_connection", create)
    await asyncio.gather(*(client.create_conn("127.0.0.1", port, **options) for _ in range(3)))
    assert made.count("closed") == 1
    assert len(made) == 1 + 1 + 3
    await client.create_conn("127.0.0.1", port, **options)
    assert len(made) == 6, "no further probe"


async def test_a_caller_that_gives_up_leaves_the_attempt_to_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async with listening() as (listener, port):
        for _ in range(6):
            with pytest.raises((OSError, KafkaError)):
                await client.create_conn("127.0.0.1", port)
        before = listener.connections
        one, other = (asyncio.create_task(client.create_conn("127.0.0.1", port)) for _ in range(2))
        await asyncio.sleep(0)
        one.cancel()
        with pytest.raises(KafkaConnectionError, match="still away"):
            await other
        assert listener.connections == before + 1


def test_pauses_grow_up_to_a_bound_and_differ() -> None:
    for failures in range(1, 40):
        longest = min(reconnecting.MOST_S, reconnecting.FIRST_S * 2**failures)
        pauses = {reconnecting.pause_s(failures) for _ in range(50)}
        assert len(pauses) > 1
        assert all(longest / 2 <= pause <= longest for pause in pauses)
