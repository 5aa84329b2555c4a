"""Erasures that are asked for while a command works with past turns, which it has read before them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from app.kafka.clients import consumer, partitions_of, start, stop
from app.reader.position import Edge, seek
from app.search.kept_rows import up_to_end
from app.settings import Settings
from app.wire.codec import decode
from app.wire.control import Control, Erase, EraseConversation
from app.wire.error import WireError
from tables.erasures import Scope


def asked_to_erase(record: ConsumerRecord) -> Scope | None:
    """What a record of `controls` asks to erase."""
    try:
        control = decode(Control, record.value, record.headers)
    except WireError:
        return None  # a dead letter
    return Scope(control.user_id, control.conversation_id) if isinstance(control, Erase | EraseConversation) else None


class AskedErasures:
    """What was asked to be erased since it was opened; made by `erasures_from_now`."""

    def __init__(self, controls: AIOKafkaConsumer) -> None:
        self._controls = controls
        self._asked: set[Scope] = set()
        self._reading = asyncio.Lock()

    async def include(self, user_id: str, conversation_id: str) -> bool:
        """Whether the conversation is to be erased, or its user, by a record that is on `controls` by now. Raises
        `KafkaError`.
        """
        async with self._reading:
            async for record in up_to_end(self._controls, list(self._controls.assignment())):
                if (scope := asked_to_erase(record)) is not None:
                    self._asked.add(scope)
        return not self._asked.isdisjoint({Scope(user_id), Scope(user_id, conversation_id)})


@asynccontextmanager
async def erasures_from_now(settings: Settings) -> AsyncIterator[AskedErasures]:
    """Open it before the turns are read. Raises `KafkaUnusableError`."""
    topic = settings.topic("controls")
    count = (await partitions_of(settings.cluster, [topic]))[topic]
    controls = consumer(settings.cluster)
    controls.assign([TopicPartition(topic, one) for one in range(count)])
    await start(controls)
    try:
        await seek(controls, controls.assignment(), Edge.END)
        yield AskedErasures(controls)
    finally:
        await stop(controls)
