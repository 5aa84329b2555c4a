"""Erasures that are asked for while a command works with past turns, which it has read before them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaConsumer, TopicPartition

from app.kafka.clients import consumer, partitions_of, start
from app.reader.position import Edge, seek
from app.settings import Settings
from app.wire.codec import decode
from app.wire.control import Control, Erase
from app.wire.error import WireError


class Erasures:
    """Whose erasure was sent since it was opened; made by `erasures_from_now`."""

    def __init__(self, controls: AIOKafkaConsumer) -> None:
        self._controls = controls
        self._users: set[str] = set()
        self._reading = asyncio.Lock()

    async def include(self, user_id: str) -> bool:
        """Whether the user is to be erased by a record that is on `controls` by now. Raises `KafkaError`."""
        async with self._reading:
            ends = await self._controls.end_offsets(self._controls.assignment())
            while any([await self._controls.position(at) < end for at, end in ends.items()]):
                for batch in (await self._controls.getmany(timeout_ms=200)).values():
                    for record in batch:
                        try:
                            control = decode(Control, record.value, record.headers)
                        except WireError:
                            continue  # a dead letter
                        if isinstance(control, Erase):
                            self._users.add(control.user_id)
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
