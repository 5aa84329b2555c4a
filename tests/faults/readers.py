"""Readers that fall behind or begin late: they must get what all readers get, and nothing waits for them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiokafka import AIOKafkaConsumer, TopicPartition

from app.reader import ReaderRule
from app.wire.codec import decode
from app.wire.event import TokenEvent
from tests.faults.arena import Arena
from tests.faults.faults import kill

_AT_A_TIME = 5


@dataclass(frozen=True)
class SlowReader:
    """Takes ten records a second of the fifty that are written, while a worker is killed."""

    for_s: float = 15.0
    name: str = "reader slow"

    async def inflict(self, arena: Arena) -> None:
        async with _consumer(arena) as consumer:
            rule, until = ReaderRule(remember=1 << 60), time.monotonic() + self.for_s
            kill(arena, arena.any())
            while time.monotonic() < until:
                await _read(consumer, rule, _AT_A_TIME)
                await asyncio.sleep(_AT_A_TIME / 10)
            await _compare(arena, consumer, rule)


@dataclass(frozen=True)
class AbsentReader:
    """No reader is there while a worker is killed; a later one reads everything from the beginning."""

    for_s: float = 10.0
    name: str = "reader absent"

    async def inflict(self, arena: Arena) -> None:
        async with arena.watch.absent():
            kill(arena, arena.any())
            await asyncio.sleep(self.for_s)
        async with _consumer(arena) as consumer:
            await _compare(arena, consumer, ReaderRule(remember=1 << 60))


@asynccontextmanager
async def _consumer(arena: Arena) -> AsyncIterator[AIOKafkaConsumer]:
    settings = arena.settings
    consumer = AIOKafkaConsumer(**settings.cluster.options(), isolation_level="read_committed")
    await consumer.start()
    try:
        consumer.assign([TopicPartition(settings.topic("tokens"), number) for number in range(settings.partitions)])
        await consumer.seek_to_beginning()
        yield consumer
    finally:
        await consumer.stop()


async def _read(consumer: AIOKafkaConsumer, rule: ReaderRule, most: int | None = None) -> None:
    for records in (await consumer.getmany(timeout_ms=200, max_records=most)).values():
        for record in records:
            rule.read(record.partition, record.offset, decode(TokenEvent, record.value, record.headers))


async def _compare(arena: Arena, consumer: AIOKafkaConsumer, rule: ReaderRule) -> None:
    """Read up to now, and note the answers that differ from those of the reader that is always there."""
    ended = set(arena.watch.ended)
    ends = await consumer.end_offsets(list(consumer.assignment()))
    while any([await consumer.position(place) < end for place, end in ends.items()]):
        await _read(consumer, rule)
    expected = arena.watch.rule.answers
    arena.misread += [key for key in ended if key not in rule.answers or rule.answers[key].text != expected[key].text]
