"""Reads the parked requests of a partition again, as soon as there is room for them (open_records.py)."""

from __future__ import annotations

import asyncio
import heapq
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, field

from aiokafka import AIOKafkaConsumer, TopicPartition

from app.delivery.clients import RETRIABLE_ERRORS, stop_client
from app.delivery.commits.commit import LostError
from app.delivery.open_records import OpenRecords
from app.delivery.ownership import PartitionContext
from app.delivery.record import REQUESTS, Record

log = logging.getLogger(__name__)

_POLL_MS = 250
_AT_ONCE = 16
_NEAR = 500
"""So many records are read and left out rather than that the broker is asked for another place."""
_REST_S = 0.05
_RETRY_S = 2.0

_Due = list[tuple[int, bytes | None]]
"""A heap: the offset of a user's next parked request, and the user."""


@dataclass(eq=False)
class ParkedReader:
    """Has a consumer of its own while requests are parked. A scan goes from one offset that is due to the next, and
    ends when no user of the scan has both room and parked requests. `process` gets each request that is read again,
    `drop` each that Kafka has deleted.
    """

    context: PartitionContext
    records: OpenRecords
    process: Callable[[Record], None]
    drop: Callable[[Record], None]
    _at: TopicPartition = field(init=False)
    _position: int = field(default=-1, init=False)

    def __post_init__(self) -> None:
        self._at = self.context.topic_partition(REQUESTS)

    async def run(self) -> None:
        """Until the ownership ends."""
        while True:
            await self._next_due()
            try:
                await self._follow()
            except LostError:
                return
            except RETRIABLE_ERRORS as error:
                log.warning("parked requests of partition %s: %r; reading again", self.context.number, error)
                await asyncio.sleep(_RETRY_S)
                self.records.wanted.set()

    async def _next_due(self) -> _Due:
        """The users for whose parked requests there is room; waits until there are some, or none is parked."""
        while True:
            await self.records.wanted.wait()
            await asyncio.sleep(_REST_S)  # more may end in this time
            self.records.wanted.clear()
            if (due := self.records.due()) or not self.records.parked:
                return due

    async def _follow(self) -> None:
        reader = self.context.clients.log_reader()
        try:
            await reader.start()
            reader.assign([self._at])
            self._position = -1
            due = self.records.due()
            while self.records.parked:
                await self._scan(reader, due)
                due = await self._next_due() if self.records.parked else []
        finally:
            await stop_client(reader)

    async def _scan(self, reader: AIOKafkaConsumer, due: _Due) -> None:
        heapq.heapify(due)
        while due:
            if not self._position <= due[0][0] < self._position + _NEAR:
                reader.seek(self._at, due[0][0])
            batch = (await reader.getmany(self._at, timeout_ms=_POLL_MS, max_records=_AT_ONCE)).get(self._at, [])
            for consumed in batch:
                self._lose(due, consumed.offset)
                if due and due[0][0] == consumed.offset:
                    _, user = heapq.heappop(due)
                    if self.records.next_parked(user) is not None:  # others may have had the room meanwhile
                        self.records.unpark(user, consumed.timestamp)
                        self.process(Record.of(REQUESTS, consumed))
                        self._go_on(due, user)
            self._position = await reader.position(self._at)
            end = math.inf if batch else (await reader.end_offsets([self._at]))[self._at]
            self._lose(due, self._position, end)

    def _lose(self, due: _Due, before: int, end: float = math.inf) -> None:
        """Finish the requests of which Kafka has deleted the records: they cannot be answered any more."""
        while due and not before <= due[0][0] < end:
            offset, user = heapq.heappop(due)
            log.error(
                "%s[%s]@%s: the request of %r is gone from the topic before it was answered; "
                "raise the topic's retention",
                self._at.topic,
                self._at.partition,
                offset,
                user,
            )
            self.records.unpark(user)
            self.drop(Record(REQUESTS, self._at.partition, offset, 0, user, None))
            self._go_on(due, user)

    def _go_on(self, due: _Due, user: bytes | None) -> None:
        if (following := self.records.next_parked(user)) is not None:
            heapq.heappush(due, (following, user))
