"""A task of a partition's owner that reads a topic of its own, beside the consumer group, until the ownership ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from app.delivery.clients import stop_client
from app.delivery.escalation import ESCALATING
from models.interface.unexpected import type_and_line

log = logging.getLogger(__name__)

_RETRY_S = 2.0


class TopicTask:
    """Reads one partition of a topic, read_committed."""

    def __init__(self, reader: AIOKafkaConsumer, at: TopicPartition) -> None:
        self._reader = reader
        self._at = at

    async def poll(self, wait_ms: int) -> tuple[Sequence[ConsumerRecord], int]:
        """The next records, none if none has come within `wait_ms`, and the offset behind them."""
        records = (await self._reader.getmany(self._at, timeout_ms=wait_ms)).get(self._at, [])
        return records, await self._reader.position(self._at)

    async def position(self) -> int:
        return await self._reader.position(self._at)

    async def end(self) -> int:
        """The offset behind the last record that may be read now; asks the broker."""
        return (await self._reader.end_offsets([self._at]))[self._at]


async def follow(
    at: TopicPartition,
    open_reader: Callable[[], AIOKafkaConsumer],
    start: Callable[[], int],
    read: Callable[[TopicTask], Awaitable[Any]],
) -> None:
    """Let `read` read the partition of a topic from the offset `start()` on, until it returns.

    What fails here delays only those who read this topic, so `read` begins again after any error but those that
    escalate.
    """
    while True:
        try:
            return await _read(at, open_reader(), start(), read)
        except ESCALATING:
            raise
        except Exception as error:  # noqa: BLE001 - see above
            log.warning("partition %s of %s: %s; reading again", at.partition, at.topic, type_and_line(error))
            await asyncio.sleep(_RETRY_S)


async def _read(
    at: TopicPartition, reader: AIOKafkaConsumer, start: int, read: Callable[[TopicTask], Awaitable[Any]]
) -> None:
    try:
        await reader.start()
        reader.assign([at])
        first = (await reader.beginning_offsets([at]))[at]
        reader.seek(at, max(first, start))
        await read(TopicTask(reader, at))
    finally:
        await stop_client(reader)
