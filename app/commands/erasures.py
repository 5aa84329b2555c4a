"""Erasures that are asked for while a command works with past turns, which it has read before them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from app.kafka.clients import consumer, partitions_of, start
from app.reader.position import Edge, seek
from app.search.kept_rows import up_to_end
from app.settings import Settings
from app.wire.codec import decode
from app.wire.control import Control, Erase
from app.wire.error import WireError


def user_to_erase(record: ConsumerRecord) -> str | None:
    """Whose erasure a record of `controls` asks for."""
    try:
        control = decode(Control, record.value, record.headers)
    except WireError:
        return None  # a dead letter
    return control.user_id if isinstance(control, Erase) else None


class Erasures:
    """Whose erasure was sent since it was opened; made by `erasures_from_now`."""

    def __init__(self, controls: AIOKafkaConsumer) -> None:
        self._controls = controls
        self._users: set[str] = set()
        self._reading = asyncio.Lock()

    async def include(self, user_id: str) -> bool:
        """Whether the user is to be erased by a record that is on `controls` by now. Raises `KafkaError`."""
        async with self._reading:
            async for record in up_to_end(self._controls, list(self._controls.assignment())):
                if (user := user_to_erase(record)) is not None:
                    self._users.add(user)
        return user_id in self._users


@asynccontextmanager
async def erasures_from_now(settings: Settings) -> AsyncIterator[Erasures]:
    """Open it before the turns are read. Raises `KafkaUnusableError`."""
    topic = settings.topic("controls")
    count = (await partitions_of(settings.cluster, [topic]))[topic]
    controls = consumer(settings.cluster)
    controls.assign([TopicPartition(topic, one) for one in range(count)])
    await start(controls)
    try:
        await seek(controls, controls.assignment(), Edge.END)
        yield Erasures(controls)
    finally:
        await controls.stop()
