"""Connections to a broker that is away: one attempt at a time for the whole process, and fewer and fewer of them.

A worker has some thirty clients, and each tries again on its own every few milliseconds: 540 attempts a second of one
worker, while the broker starts. Here all clients of the process share an attempt and its failure, and the next attempt
waits, twice as long each time up to `MOST_S`, and a random part of it less, so that a fleet does not come back at the
same moment. A broker that has answered is tried at once.

Replaces a name of aiokafka, whose version is pinned (app/faust/pins.py).
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from aiokafka import client, conn
from aiokafka.errors import KafkaConnectionError, KafkaError

FIRST_S = 0.05
MOST_S = 3.0
_AWAY = (OSError, TimeoutError, KafkaError)


@dataclass(slots=True)
class _Broker:
    """`attempt` is the one that all callers wait for while the broker is away."""

    failures: int = 0
    not_before: float = 0.0
    attempt: asyncio.Task[BaseException | None] | None = None


_Brokers = defaultdict[tuple[str, int], _Broker]
_of_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _Brokers] = WeakKeyDictionary()


async def connect(host: str, port: int, **options: Any) -> Any:
    """A connection, as aiokafka makes it. While the broker is away, this waits for its turn, and raises the error of an
    attempt that another client has made meanwhile.
    """
    brokers = _of_loops.setdefault(asyncio.get_running_loop(), _Brokers(_Broker))
    broker = brokers[host, port]
    if broker.failures:
        if broker.attempt is None or broker.attempt.done():
            broker.attempt = asyncio.create_task(_probe(broker, host, port, options), name=f"probe of {host}:{port}")
        error = await asyncio.shield(broker.attempt)
        if error is not None:
            raise KafkaConnectionError(f"{host}:{port} is still away: {error}")
    return await _attempt(broker, host, port, options)


async def _probe(broker: _Broker, host: str, port: int, options: dict[str, Any]) -> BaseException | None:
    """Wait for the turn and try; returns the error of a broker that is still away."""
    await asyncio.sleep(max(0.0, broker.not_before - time.monotonic()))
    try:
        connection = await _attempt(broker, host, port, {**options, "on_close": None})
    except _AWAY as error:
        return error
    connection.close()
    return None


async def _attempt(broker: _Broker, host: str, port: int, options: dict[str, Any]) -> Any:
    try:
        connection = await open_connection(host, port, **options)
    except _AWAY:
        if time.monotonic() >= broker.not_before:  # clients that fail together count once
            broker.failures += 1
            broker.not_before = time.monotonic() + pause_s(broker.failures)
        raise
    broker.failures = 0
    return connection


async def open_connection(host: str, port: int, **options: Any) -> Any:
    """As aiokafka does, but a connection whose client gives up during the greeting is closed."""
    connection = conn.AIOKafkaConnection(host, port, **options)
    try:
        await connection.connect()
    except BaseException:
        connection.close()
        raise
    return connection


def pause_s(failures: int) -> float:
    """How long to wait after so many failures in a row."""
    longest = min(MOST_S, FIRST_S * 2 ** min(failures, 10))
    return random.uniform(longest / 2, longest)  # noqa: S311 - jitter


def install() -> None:
    client.create_conn = connect
