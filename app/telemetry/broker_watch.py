"""Ask every few seconds where the partitions end: for this worker's lag, and to notice an unreachable broker.

The consumer's own high watermark does not advance while a partition is paused, which is when its lag matters. Without
open requests nothing else would notice that the broker is gone, because Faust retries silently. The query uses a client
of its own: a client that waits for a broker would block Faust's consumer.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from app.delivery.clients import RETRIABLE_ERRORS, Clients, start_client
from app.delivery.record import SOURCES
from app.kafka.clients import stop
from tables.store_errors import StoreError

log = logging.getLogger(__name__)

Place = tuple[str, int]
"""(topic without the prefix, partition)."""

EVERY_S = 2.0
_PATIENCE_S = 5.0
_RETRY_MS = 1000


class BrokerWatch:
    """`ends` maps each partition to the offset after its last committed record; `numbers` returns which ones matter.
    `foreign_ends` are those of `foreign` partitions, as of the last time when all of them could be asked.
    """

    def __init__(
        self,
        clients: Clients,
        numbers: Callable[[], Collection[int]],
        foreign: Callable[[], Collection[TopicPartition]] = tuple,
    ) -> None:
        self.ends: Mapping[Place, int] = {}
        self.foreign_ends: Mapping[TopicPartition, int] = {}
        self._foreign = foreign
        self._clients = clients
        self._numbers = numbers
        self._client: AIOKafkaConsumer | None = None
        self._task: asyncio.Task[None] | None = None
        self._heard_at = time.monotonic()

    @property
    def silent_s(self) -> float:
        """For how long the broker has not answered, in seconds; a few seconds are normal."""
        return time.monotonic() - self._heard_at

    def start(self) -> None:
        self._heard_at = time.monotonic()
        self._task = asyncio.create_task(self._watch(), name="broker-watch")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._client is not None:
            await stop(self._client)

    async def _watch(self) -> None:
        while True:
            try:
                async with asyncio.timeout(_PATIENCE_S):
                    self.ends = await self._ask()
            except RETRIABLE_ERRORS as error:
                log.debug("cannot find the ends of the partitions: %r", error)
            else:
                self._heard_at = time.monotonic()
                await self._ask_foreign()
            await asyncio.sleep(EVERY_S)

    async def _ask_foreign(self) -> None:
        """Apart from the others: a topic that somebody has deleted has no ends, and says nothing of the broker."""
        try:
            foreign = list(self._foreign())
            async with asyncio.timeout(_PATIENCE_S):
                self.foreign_ends = await (await self._started()).end_offsets(foreign) if foreign else {}
        except (TimeoutError, KafkaError, StoreError) as error:
            log.debug("cannot find the ends of topics of others: %r", error)

    async def _ask(self) -> Mapping[Place, int]:
        client = await self._started()
        topic = self._clients.settings.topic
        # Any partition, even if nothing is owned: a worker without partitions needs the broker, too.
        numbers = list(self._numbers()) or [0]
        partitions = {TopicPartition(topic(name), number): (name, number) for name in SOURCES for number in numbers}
        return {partitions[at]: end for at, end in (await client.end_offsets(list(partitions))).items()}

    async def _started(self) -> AIOKafkaConsumer:
        if self._client is None:
            client = self._clients.log_reader(retry_ms=_RETRY_MS)
            await start_client(client)
            self._client = client
        return self._client
