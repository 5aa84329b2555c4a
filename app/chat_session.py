"""One user's session over Kafka: sends requests, reads answers."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Self

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from app.kafka.clients import KafkaUnusableError, partitions_of, producer, start
from app.reader import Following, TokenReader
from app.settings import Settings
from app.wire.codec import Record, encode
from app.wire.control import Cancel
from app.wire.ids import new_request_id, partition_for
from app.wire.request import Request, WhileBusy

_STOP_S = 5.0


class ChatSession:
    """Writes to `requests` and `controls`, and reads the user's partition of `tokens`."""

    def __init__(
        self, settings: Settings, user_id: str, conversation_id: str, max_tokens: int | None, model: str | None = None
    ) -> None:
        self.settings = settings
        self.user_id = user_id
        self.conversation_id = conversation_id
        self._max_tokens = max_tokens
        self.model = model
        self._producer: AIOKafkaProducer | None = None
        self._reader: TokenReader | None = None

    async def start(self) -> Self:
        cluster, topic = self.settings.cluster, self.settings.topic
        topics = [topic("requests"), topic("tokens"), topic("controls")]
        counts = await partitions_of(cluster, topics)
        mine = partition_for(self.user_id, counts[topic("tokens")])
        self._reader = TokenReader(cluster, topic("tokens"), partitions=[mine])
        await self._reader.start()
        self._producer = producer(cluster)
        await start(self._producer)
        return self

    async def stop(self) -> None:
        """A cancelled caller still has `_STOP_S` to close its connections."""
        parts = [part for part in (self._producer, self._reader) if part is not None]
        stopping = asyncio.gather(*(part.stop() for part in parts))
        try:
            await asyncio.shield(stopping)
        except asyncio.CancelledError:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_STOP_S):
                    await stopping
            raise

    async def ask(self, prompt: str, while_busy: WhileBusy = WhileBusy.QUEUE) -> tuple[str, Following]:
        """Send the prompt. Returns its request id and the answer's updates."""
        assert self._reader is not None, "the session was not started"
        request = Request(
            request_id=new_request_id(),
            user_id=self.user_id,
            conversation_id=self.conversation_id,
            prompt=prompt,
            max_tokens=self._max_tokens,
            model=self.model,
            while_busy=while_busy,
        )
        following = self._reader.follow(self.user_id, request.request_id)
        try:
            await self._send("requests", request)
        except KafkaUnusableError:
            following.close()
            raise
        return request.request_id, following

    async def cancel(self, request_id: str) -> None:
        await self._send("controls", Cancel(request_id=request_id, user_id=self.user_id))

    async def _send(self, topic: str, record: Record) -> None:
        assert self._producer is not None, "the session was not started"
        value, headers = encode(record, self.settings.wire_format)
        try:
            await self._producer.send_and_wait(
                self.settings.topic(topic), value, key=self.user_id.encode(), headers=headers
            )
        except KafkaError as error:
            raise KafkaUnusableError(f"could not send to {self.settings.topic(topic)!r}: {error}") from None
