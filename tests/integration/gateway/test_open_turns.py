"""Turns whose transaction is about to be committed when they are asked for."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

from aiokafka import AIOKafkaProducer, TopicPartition

from app.gateway.answers.archive import scan
from app.settings import Settings


async def values(settings: Settings, at: TopicPartition, most: int = 100, open_s: float = 0.1) -> list[bytes]:
    async with aclosing(scan(settings.cluster, at, most, open_s=open_s)) as records:
        return [record.value async for record in records]


async def test_what_is_committed_a_moment_later_is_read_and_what_stays_open_is_not_waited_for(
    settings: Settings, tmp_path: Path
) -> None:
    at = TopicPartition(settings.topic("turns"), 0)
    producer = AIOKafkaProducer(bootstrap_servers=settings.cluster.servers, transactional_id=tmp_path.name)
    async with producer:
        async with producer.transaction():
            await producer.send_and_wait(at.topic, b"first", partition=0)
        await producer.begin_transaction()
        await producer.send_and_wait(at.topic, b"last", partition=0)
        reading = asyncio.create_task(values(settings, at, open_s=60.0))
        await asyncio.sleep(0.3)
        assert not reading.done()
        await producer.commit_transaction()
        assert await reading == [b"first", b"last"]
        await producer.begin_transaction()
        await producer.send_and_wait(at.topic, b"open", partition=0)
        assert await values(settings, at) == [b"first", b"last"]
        await producer.abort_transaction()
    assert await values(settings, at, most=1) == []
