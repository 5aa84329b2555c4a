"""Workers and gateways wait for a broker that is away: a supervisor may start all of them together. Commands do not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from aiokafka.errors import KafkaError

from app.kafka.errors import KafkaAwayError

T = TypeVar("T")

START_WAIT_S = 300.0
_RETRY_S = 0.5


async def once_kafka_answers(begin: Callable[[], Awaitable[T]], report: Callable[[str], None]) -> T:
    """What `begin` returns, called again while Kafka is away. Raises `KafkaAwayError` after `START_WAIT_S`."""
    deadline, reported = time.monotonic() + START_WAIT_S, ""
    while True:
        try:
            return await begin()
        except (KafkaError, OSError, KafkaAwayError) as error:
            away = error if isinstance(error, KafkaAwayError) else KafkaAwayError(f"Kafka failed: {error!r}")
            if time.monotonic() > deadline:
                raise away from None
            if str(away) != reported:
                reported = str(away)
                report(f"{reported}; waiting for it for {max(1, round(deadline - time.monotonic()))} s")
            await asyncio.sleep(_RETRY_S)
