"""The idempotent producer that all partitions of a worker share for token events, replaced after a failure.

After a failed batch, the producer's sequence number no longer matches the broker's, so all further sends would fail.
"""

from __future__ import annotations

import asyncio

from aiokafka import AIOKafkaProducer

from app.delivery.clients import Clients, stop_client
from app.delivery.resume.token_pace import TokenPace


class TokenProducer:
    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self.pace = TokenPace()
        self._current: AIOKafkaProducer | None = None
        self._starting = asyncio.Lock()
        self._stopping: set[asyncio.Task[None]] = set()

    async def current(self) -> AIOKafkaProducer:
        """A working producer. Raises one of `RETRIABLE_ERRORS` if the broker cannot be reached."""
        async with self._starting:
            if self._current is None:
                producer = self._clients.token_producer()
                try:
                    await producer.start()
                except BaseException:
                    await stop_client(producer)
                    raise
                self._current = producer
            return self._current

    def retire(self, producer: AIOKafkaProducer) -> None:
        """Make the next `current` create a new producer. Of several reports about one producer, the first counts."""
        if self._current is producer:
            self._current = None
            task = asyncio.create_task(stop_client(producer))
            self._stopping.add(task)
            task.add_done_callback(self._stopping.discard)

    async def stop(self) -> None:
        if self._current is not None:
            self.retire(self._current)
        await asyncio.gather(*self._stopping)
