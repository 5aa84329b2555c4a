"""Answers from Kafka: a consumer of the `tokens` topic that applies the reader rule.

It uses no consumer group: a reader chooses its partitions and its position, and any number of readers see the same.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from types import TracebackType
from typing import Self

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from app.kafka.clients import KafkaUnusableError, consumer, partitions_of, start, stop
from app.kafka.cluster import Cluster
from app.reader.following import Following
from app.reader.position import Edge, Position, seek
from app.reader.rule import Key, ReaderRule, Update
from app.wire.codec import decode
from app.wire.error import WireError
from app.wire.event import TokenEvent

logger = logging.getLogger(__name__)


class TokenReader:
    """Reads some or all partitions of a `tokens` topic.

    `async with TokenReader(Cluster(("localhost:9092",)), "tokens") as reader:` has its position once the block is
    entered: the answer to a request that is sent after that is seen completely.
    """

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        *,
        partitions: Collection[int] | None = None,
        position: Position = Edge.END,
    ) -> None:
        self.rule = ReaderRule()
        self._cluster = cluster
        self._topic = topic
        self._partitions = partitions
        self._position = position
        self._followers: dict[Key, set[Following]] = {}
        self._failure: KafkaUnusableError | None = None
        self._consumer: AIOKafkaConsumer | None = None
        self._reading: asyncio.Task[None] | None = None

    async def start(self) -> None:
        count = (await partitions_of(self._cluster, [self._topic]))[self._topic]
        chosen = range(count) if self._partitions is None else self._partitions
        assigned = [TopicPartition(self._topic, partition) for partition in chosen]
        self._consumer = consumer(self._cluster)
        self._consumer.assign(assigned)
        await start(self._consumer)
        try:
            await seek(self._consumer, assigned, self._position)
        except BaseException:
            await stop(self._consumer)
            raise
        self._reading = asyncio.create_task(self._read(self._consumer), name="token reader")

    async def stop(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait((self._reading,))
        if self._consumer is not None:
            await stop(self._consumer)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def follow(self, user_id: str, request_id: str) -> Following:
        """The updates of one answer, up to its end, starting with what has been read of it already."""
        key = (user_id, request_id)
        following = Following(lambda one: self._forget(key, one))
        for update in self._so_far(key):
            following.put(update)
        if self._failure is not None:
            following.put(self._failure)
        self._followers.setdefault(key, set()).add(following)
        return following

    def _forget(self, key: Key, following: Following) -> None:
        followers = self._followers.get(key, set())
        followers.discard(following)
        if not followers:
            self._followers.pop(key, None)

    def _so_far(self, key: Key) -> list[Update]:
        answer = self.rule.answers.get(key)
        if answer is None:
            return []
        return [Update(answer, event) for event in (*answer.events, *answer.waiting)]

    async def _read(self, records: AIOKafkaConsumer) -> None:
        try:
            async for record in records:
                try:
                    event = decode(TokenEvent, record.value, record.headers)
                except WireError as error:
                    logger.warning("%s[%d]@%d is skipped: %s", self._topic, record.partition, record.offset, error)
                    continue
                self._hand_on(record.partition, record.offset, event)
        except KafkaError as error:
            self._failure = KafkaUnusableError(f"the topic {self._topic!r} can no longer be read: {error}")
            for following in [one for followers in self._followers.values() for one in followers]:
                following.put(self._failure)

    def _hand_on(self, partition: int, offset: int, event: TokenEvent) -> None:
        update = self.rule.read(partition, offset, event)
        if update is None:
            return
        answer = update.answer
        for following in self._followers.get((answer.user_id, answer.request_id), ()):
            following.put(update)
