"""A client over Kafka: requests to one topic, events from another, as Parley's contract has them."""

from __future__ import annotations

import asyncio
import json
from types import TracebackType
from typing import Self

import msgspec
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from app.kafka.fetch_session import use_fetch_sessions
from tests.benchmarks.client import Client
from tests.benchmarks.load import Ask, Load, Reply


class KafkaClient:
    """Reads with aiokafka's defaults but for fetch sessions, committed records only; every record's wait ends when it
    is in our hands.
    """

    def __init__(self, server: str, requests: str, replies: str) -> None:
        self._requests, self._replies = requests, replies
        self._producer = AIOKafkaProducer(bootstrap_servers=server, linger_ms=0)
        self._consumer = AIOKafkaConsumer(bootstrap_servers=server, isolation_level="read_committed")
        use_fetch_sessions(self._consumer)  # as librdkafka, Java's client and the gateway do
        self._client = Client(self._send)
        self._reading: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._producer.start()
        await self._consumer.start()
        numbers = await self._producer.partitions_for(self._replies)
        partitions = [TopicPartition(self._replies, number) for number in numbers]
        self._consumer.assign(partitions)
        await self._consumer.seek_to_end(*partitions)
        for partition in partitions:
            await self._consumer.position(partition)
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        assert self._reading is not None
        self._reading.cancel()
        await self._consumer.stop()
        await self._producer.stop()

    async def run(self, load: Load) -> list[Reply]:
        return await self._client.run(load)

    async def _send(self, ask: Ask, _reply: Reply) -> None:
        await self._producer.send(self._requests, msgspec.json.encode(ask), key=ask.user_id.encode())

    async def _read(self) -> None:
        async for record in self._consumer:
            event = json.loads(record.value)
            request_id = event.get("request_id")
            if request_id is None:
                continue
            kind = event.get("type")
            if kind in ("done", "error"):
                await self._client.ended(request_id, failed=kind == "error")
            elif kind != "notice":
                self._client.received(request_id, len(event.get("tokens") or ()))
                if kind is None:  # the echo has no more to say
                    await self._client.ended(request_id)
