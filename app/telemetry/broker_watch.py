"""Where the partitions end, asked every few seconds: the lag of this worker, and whether the broker answers at all.

The consumer's own high watermark stands still while a partition is paused, which is when its lag matters. And with no
request under way nothing else would notice a broker that is gone: Faust goes on trying, and says so to nobody. The
question goes through a client of its own, for one that waits for a broker keeps Faust's consumer from all else.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping

from aiokafka import AIOKafkaConsumer, TopicPartition

from app.delivery.clients import TROUBLE, Clients
from app.delivery.record import SOURCES

log = logging.getLogger(__name__)

Place = tuple[str, int]
"""(topic without the prefix, partition)."""

EVERY_S = 2.0
_PATIENCE_S = 5.0


class BrokerWatch:
    """`ends` maps each place to the offset behind its last committed record; `numbers` tells which matter."""

    def __init__(self, clients: Clients, numbers: Callable[[], Collection[int]]) -> None:
        self.ends: Mapping[Place, int] = {}
        self._clients = clients
        self._numbers = numbers
        self._client: AIOKafkaConsumer | None = None
        self._task: asyncio.Task[None] | None = None
        self._heard_at = time.monotonic()

    @property
    def silent_s(self) -> float:
        """For how long the broker has not answered, in seconds; below a few of them all is well."""
        return time.monotonic() - self._heard_at

    def start(self) -> None:
        self._heard_at = time.monotonic()
        self._task = asyncio.create_task(self._watch(), name="broker-watch")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._client is not None:
            await self._client.stop()

    async def _watch(self) -> None:
        while True:
            try:
                async with asyncio.timeout(_PATIENCE_S):
                    self.ends = await self._ask()
            except TROUBLE as error:
                log.debug("the broker does not tell where partitions end: %r", error)
            else:
                self._heard_at = time.monotonic()
            await asyncio.sleep(EVERY_S)

    async def _ask(self) -> Mapping[Place, int]:
        client = await self._started()
        topic = self._clients.settings.topic
        # Somewhere, even where nothing is owned: a worker that stands by needs the broker too.
        numbers = list(self._numbers()) or [0]
        places = {TopicPartition(topic(name), number): (name, number) for name in SOURCES for number in numbers}
        return {places[at]: end for at, end in (await client.end_offsets(list(places))).items()}

    async def _started(self) -> AIOKafkaConsumer:
        if self._client is None:
            client = self._clients.log_reader()
            try:
                await client.start()
            except BaseException:
                await client.stop()
                raise
            self._client = client
        return self._client
