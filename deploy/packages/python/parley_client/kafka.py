"""Over Kafka: requests are records of one topic, answers the events of another."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError
from aiokafka.partitioner import DefaultPartitioner

from parley_client.errors import ParleyError, UnreachableError
from parley_client.transport import Records, time_of

_MARGIN_MS = 60_000
"""Clocks of producers and brokers may differ by so much."""


class KafkaTransport:
    """Each answer has a consumer of its own, of its user's partition. `options` are aiokafka's."""

    def __init__(self, brokers: str, user: str, prefix: str, options: dict[str, Any]) -> None:
        self._user = user
        self._prefix = prefix
        self._options = {"bootstrap_servers": brokers, **options}
        self._producer = AIOKafkaProducer(enable_idempotence=True, **self._options)

    async def start(self) -> None:
        try:
            await self._producer.start()
        except KafkaError as error:
            await self._producer.stop()
            raise UnreachableError(f"{self._options['bootstrap_servers']}: {error}") from error

    async def stop(self) -> None:
        await self._producer.stop()

    async def ask(self, request: dict[str, Any]) -> Records:
        records = self._records(request["request_id"], request)
        await anext(records)  # it is at its place, and the request is sent
        return records

    async def follow(self, request_id: str, after: int) -> Records:  # noqa: ARG002 - a log is read from the beginning
        records = self._records(request_id, None)
        await anext(records)
        async for record in records:
            yield record

    async def cancel(self, request_id: str) -> None:
        await self._send("controls", {"type": "cancel", "request_id": request_id, "user_id": self._user})

    async def search(self, query: str, **filters: Any) -> list[dict[str, Any]]:  # noqa: ARG002 - nobody answers it
        raise ParleyError("search needs a gateway: Kafka has no index")

    async def conversations(self) -> list[str]:
        raise ParleyError("versions need a gateway: Kafka has no list of conversations")

    async def turns(self, conversation: str) -> list[dict[str, Any]]:  # noqa: ARG002 - nobody answers it
        return []

    async def _records(self, request_id: str, request: dict[str, Any] | None) -> Records:
        """First a record without a meaning, once nothing can be missed any more and the `request` is sent."""
        async with self._consumer() as (consumer, tokens):
            await self._seek(consumer, tokens, None if request is not None else time_of(request_id) or 0)
            if request is not None:
                await self._send("requests", {**request, "user_id": self._user})
            yield tokens.partition, None, {}
            async for record in consumer:
                if dict(record.headers).get("content-type") == b"application/x-protobuf":
                    raise ParleyError("the workers write Protobuf: read it through a gateway")
                event = json.loads(record.value)
                whose = event.get("user_id"), event.get("request_id")
                if event["type"] != "fence" and whose != (self._user, request_id):
                    # Its epoch counts for the partition all the same.
                    event = {"type": "other", "epoch": event.get("epoch")}
                yield record.partition, record.offset, event

    @asynccontextmanager
    async def _consumer(self) -> AsyncGenerator[tuple[AIOKafkaConsumer, TopicPartition], None]:
        try:
            partitions = sorted(await self._producer.partitions_for(self._prefix + "tokens"))
            number = DefaultPartitioner()(self._user.encode(), partitions, partitions)
            tokens = TopicPartition(self._prefix + "tokens", number)
            consumer = AIOKafkaConsumer(isolation_level="read_committed", enable_auto_commit=False, **self._options)
            consumer.assign([tokens])
            await consumer.start()
        except KafkaError as error:
            raise UnreachableError(f"{self._options['bootstrap_servers']}: {error}") from error
        try:
            yield consumer, tokens
        finally:
            await consumer.stop()

    @staticmethod
    async def _seek(consumer: AIOKafkaConsumer, tokens: TopicPartition, since_ms: int | None) -> None:
        """To the end, or to a time."""
        if since_ms is None:
            consumer.seek(tokens, (await consumer.end_offsets([tokens]))[tokens])
            return
        at = (await consumer.offsets_for_times({tokens: max(0, since_ms - _MARGIN_MS)}))[tokens]
        offset = (await consumer.end_offsets([tokens]))[tokens] if at is None else at.offset
        consumer.seek(tokens, offset)

    async def _send(self, topic: str, record: dict[str, Any]) -> None:
        try:
            value = json.dumps(record, ensure_ascii=False).encode()
            await self._producer.send_and_wait(self._prefix + topic, value, key=self._user.encode())
        except KafkaError as error:
            raise UnreachableError(f"{self._options['bootstrap_servers']}: {error}") from error
