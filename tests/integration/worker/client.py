"""A user of the topics: sends records, reads answers, and looks at what was left behind."""

from __future__ import annotations

import asyncio
import itertools
import json
from types import TracebackType
from typing import Any, Self

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition

from app.reader import Answer, Edge, TokenReader
from app.search.milvus.connection import Milvus
from app.settings import Settings
from app.wire.codec import decode
from app.wire.ids import partition_for
from app.wire.turn import Turn

PATIENCE_S = 120.0


class Client:
    _numbers = itertools.count()

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.reader = TokenReader(settings.cluster, settings.topic("tokens"), position=Edge.BEGINNING)
        self.producer = AIOKafkaProducer(**settings.cluster.options())

    async def __aenter__(self) -> Self:
        await self.producer.start()
        await self.reader.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.reader.stop()
        await self.producer.stop()

    def user(self) -> str:
        """A user that no other test has."""
        return f"user-{next(self._numbers)}"

    async def ask(
        self, user: str, prompt: str | None = "hello", *, timestamp_ms: int | None = None, **fields: Any
    ) -> str:
        """Send a request; returns its id."""
        request = {"request_id": f"r{next(self._numbers)}", "user_id": user, "prompt": prompt, **fields}
        given = {name: value for name, value in request.items() if value is not None}
        await self.send("requests", given, user, timestamp_ms=timestamp_ms)
        return request["request_id"]

    async def send(
        self,
        topic: str,
        value: dict[str, Any] | bytes | None,
        key: str | bytes | None,
        headers: list[tuple[str, bytes]] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> tuple[int, int]:
        """Send a record, to the partition of its key unless `partition` is given; returns its partition and offset."""
        raw = json.dumps(value).encode() if isinstance(value, dict) else value
        raw_key = key.encode() if isinstance(key, str) else key
        sent = await self.producer.send_and_wait(
            self.settings.topic(topic),
            raw,
            key=raw_key,
            headers=headers or [],
            partition=partition,
            timestamp_ms=timestamp_ms,
        )
        return sent.partition, sent.offset

    async def cancel(self, user: str, request_id: str) -> None:
        await self.send("controls", {"type": "cancel", "user_id": user, "request_id": request_id}, user)

    async def answer(self, user: str, request_id: str, patience_s: float = PATIENCE_S) -> Answer:
        """The answer with its end."""
        following = self.reader.follow(user, request_id)
        async with asyncio.timeout(patience_s):
            async for update in following:
                answer = update.answer
        following.close()
        return answer

    async def begun(self, user: str, request_id: str, tokens: int = 1) -> Answer:
        """The answer once it has so many tokens."""
        following = self.reader.follow(user, request_id)
        async with asyncio.timeout(PATIENCE_S):
            async for update in following:
                if len(update.answer.tokens) >= tokens:
                    break
        following.close()
        return update.answer

    async def asked(self, user: str, prompt: str = "hello", **fields: Any) -> Answer:
        return await self.answer(user, await self.ask(user, prompt, **fields))

    async def records(self, topic: str) -> list[ConsumerRecord]:
        """All committed records of the topic, in offset order within each partition."""
        consumer = AIOKafkaConsumer(
            **self.settings.cluster.options(),
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            fetch_max_wait_ms=20,
        )
        await consumer.start()
        try:
            name = self.settings.topic(topic)
            partitions = [TopicPartition(name, number) for number in range(self.settings.partitions)]
            consumer.assign(partitions)
            ends = await consumer.end_offsets(partitions)
            await consumer.seek_to_beginning(*partitions)
            found: list[ConsumerRecord] = []
            while any([await consumer.position(partition) < ends[partition] for partition in partitions]):
                for records in (await consumer.getmany(timeout_ms=50)).values():
                    found.extend(records)
            return found
        finally:
            await consumer.stop()

    async def turns(self, user: str) -> list[Turn]:
        turns = [decode(Turn, record.value, record.headers) for record in await self.records("turns")]
        return [turn for turn in turns if turn.user_id == user]

    async def turns_of(self, user: str, count: int) -> list[Turn]:
        """The user's turns once there are so many: the finish comes a moment after the end."""
        async with asyncio.timeout(PATIENCE_S):
            while len(turns := await self.turns(user)) < count:
                await asyncio.sleep(0.1)
        return turns

    async def indexed(self, user: str, count: int) -> list[str]:
        """The texts of the user's rows in Milvus, once there are so many."""
        milvus = Milvus(self.settings.milvus_uri)
        try:
            async with asyncio.timeout(120):
                while len(found := await self._rows(milvus, user)) < count:
                    await asyncio.sleep(0.2)
            return [row["text"] for row in found]
        finally:
            await milvus.close()

    async def _rows(self, milvus: Milvus, user: str) -> list[Any]:
        try:
            found: list[Any] = await milvus.call(
                "query", self.settings.milvus_collection, filter=f'user_id == "{user}"', output_fields=["text"]
            )
        except Exception:  # noqa: BLE001 - the first row makes the collection
            return []
        return found

    async def dead_letter(self, topic: str, partition: int, offset: int) -> ConsumerRecord:
        """The dead letter of the record of that place."""
        source = (self.settings.topic(topic).encode(), b"%d" % partition, b"%d" % offset)
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for record in await self.records("dead-letters"):
                    headers = dict(record.headers)
                    if (headers["source-topic"], headers["source-partition"], headers["source-offset"]) == source:
                        return record
                await asyncio.sleep(0.1)

    def user_of(self, partition: int) -> str:
        """As `user`, one of this partition."""
        return next(user for user in iter(self.user, "") if self.partition(user) == partition)

    def partition(self, user: str) -> int:
        return partition_for(user, self.settings.partitions)
