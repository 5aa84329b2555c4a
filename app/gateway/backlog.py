"""Whether a request that comes now can be begun in time.

A worker commits the offset of a partition of `requests` behind the last request that has ended with all before it. What
lies between it and the end of the partition is under way or waits; the rate at which the committed offset moved says
how long. It is looked at every few seconds for all partitions at once, and never by a request, so it costs a caller
nothing. It is an estimate: what a request waits for in its own conversation it does not know.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from app.gateway.errors import ApiError
from app.kafka_clients import consumer
from app.settings import Settings
from app.wire import ErrorCode
from app.wire.ids import partition_for

log = logging.getLogger(__name__)

EVERY_S = 2.0
WINDOW_S = 60.0
_LONGEST_RETRY_S = 60.0


@dataclass(frozen=True, slots=True)
class Sample:
    """What was seen at one time of a monotonic clock; offsets by partition."""

    at: float
    ends: Mapping[int, int]
    committed: Mapping[int, int]


class Estimate:
    """How long a request would wait, from the samples of the last minute. No input or output."""

    def __init__(self, max_in_flight: int) -> None:
        self._max_in_flight = max_in_flight
        self._samples: deque[Sample] = deque()

    def add(self, sample: Sample) -> None:
        self._samples.append(sample)
        while self._samples[-1].at - self._samples[0].at > WINDOW_S:
            self._samples.popleft()

    def forget(self) -> None:
        self._samples.clear()

    def wait_s(self, partition: int) -> float:
        """Until a request at the end of the partition would be begun; 0 where nothing speaks against at once."""
        if not self._samples:
            return 0.0
        first, last = self._samples[0], self._samples[-1]
        done = last.committed.get(partition, 0)
        ahead = last.ends.get(partition, 0) - done - self._max_in_flight
        seconds = last.at - first.at
        if ahead < 0 or not seconds:
            return 0.0
        # Without progress all that is known is that the next one takes at least so long.
        ended = max(1, done - first.committed.get(partition, 0))
        return (ahead + 1) * seconds / ended


class Backlog:
    """Looks at the worker group's offsets while the gateway runs."""

    def __init__(self, settings: Settings, partitions: int) -> None:
        self._settings = settings
        self._topic = settings.topic("requests")
        self._partitions = [TopicPartition(self._topic, number) for number in range(partitions)]
        self._estimate = Estimate(settings.max_in_flight)
        self._looking: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._settings.gateway_start_s:
            self._looking = asyncio.create_task(self._keep_looking(), name="backlog")

    async def stop(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._looking

    def check(self, user_id: str) -> None:
        """Raise `ApiError` where the answer could not begin within `gateway_start_s`."""
        if not self._settings.gateway_start_s:
            return
        wait_s = self._estimate.wait_s(partition_for(user_id, len(self._partitions)))
        if wait_s > self._settings.gateway_start_s:
            raise ApiError(
                ErrorCode.OVERLOADED,
                f"the answer could begin in about {wait_s:.0f} s at the earliest",
                retry_after_s=min(wait_s - self._settings.gateway_start_s, _LONGEST_RETRY_S),
            )

    async def _keep_looking(self) -> None:
        while True:
            admin = AIOKafkaAdminClient(**self._settings.cluster.options())
            ends = consumer(self._settings.cluster)
            try:
                await admin.start()
                await ends.start()
                while True:
                    self._estimate.add(await self._look(admin, ends))
                    await asyncio.sleep(EVERY_S)
            except (KafkaError, OSError) as error:
                self._estimate.forget()
                log.warning("the backlog cannot be seen: %s; trying again", error)
            finally:
                await ends.stop()
                await admin.close()
            await asyncio.sleep(EVERY_S)

    async def _look(self, admin: AIOKafkaAdminClient, records: AIOKafkaConsumer) -> Sample:
        found = await admin.list_consumer_group_offsets(self._settings.group, partitions=self._partitions)
        ends = await records.end_offsets(self._partitions)
        firsts = await records.beginning_offsets(self._partitions)
        committed = {
            place.partition: max(found[place].offset if place in found else 0, firsts[place])
            for place in self._partitions
        }
        return Sample(time.monotonic(), {place.partition: end for place, end in ends.items()}, committed)
