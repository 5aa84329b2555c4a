"""Reads the parked requests of a partition again, as soon as their users have room for them (open_records.py)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from aiokafka import AIOKafkaConsumer

from app.delivery.clients import RETRIABLE_ERRORS, stop_client
from app.delivery.commits.commit import LostError
from app.delivery.open_records import OpenRecords
from app.delivery.ownership import PartitionContext
from app.delivery.record import REQUESTS, Record

log = logging.getLogger(__name__)

_POLL_MS = 250
_AT_ONCE = 16
_RETRY_S = 2.0


class ParkedReader:
    """Has a consumer of its own while requests are parked. A scan reads from the first one that is due, and ends when
    no user of the scan has both room and parked requests.
    """

    def __init__(
        self,
        context: PartitionContext,
        records: OpenRecords,
        process: Callable[[Record], None],
        drop: Callable[[Record], None],
    ) -> None:
        """`process` gets each request that is read again, `drop` each that Kafka has deleted."""
        self._context = context
        self._records = records
        self._process = process
        self._drop = drop
        self._at = context.topic_partition(REQUESTS)
        self._position = -1

    async def run(self) -> None:
        """Until the ownership ends."""
        while True:
            await self._records.wanted.wait()
            try:
                await self._follow()
            except LostError:
                return
            except RETRIABLE_ERRORS as error:
                log.warning("parked requests of partition %s: %r; reading again", self._context.number, error)
                await asyncio.sleep(_RETRY_S)
                self._records.wanted.set()

    async def _follow(self) -> None:
        reader = self._context.clients.log_reader()
        try:
            await reader.start()
            reader.assign([self._at])
            self._position = -1
            while self._records.parked:
                await self._records.wanted.wait()
                self._records.wanted.clear()
                await self._scan(reader)
            self._records.wanted.clear()
        finally:
            await stop_client(reader)

    async def _scan(self, reader: AIOKafkaConsumer) -> None:
        due = self._records.due()
        first = min(due.values(), default=self._position)
        if first != self._position:
            reader.seek(self._at, first)
        while due:
            batch = (await reader.getmany(self._at, timeout_ms=_POLL_MS, max_records=_AT_ONCE)).get(self._at, [])
            for consumed in batch:
                if due.get(consumed.key) == consumed.offset:
                    self._records.unpark(consumed.key)
                    self._process(Record.of(REQUESTS, consumed))
                    self._go_on(due, consumed.key)
            self._position = await reader.position(self._at)
            end = None if batch else (await reader.end_offsets([self._at]))[self._at]
            for user, offset in list(due.items()):
                if offset < self._position or (end is not None and offset >= end):
                    self._lose(due, user)

    def _lose(self, due: dict[bytes, int], user: bytes) -> None:
        """Finish a request whose record Kafka has deleted: it cannot be answered any more."""
        record = self._records.unpark(user)
        log.error(
            "%s[%s]@%s: the request of %r is gone from the topic before it was answered; raise the topic's retention",
            self._at.topic,
            self._at.partition,
            record.offset,
            user,
        )
        self._drop(record)
        self._go_on(due, user)

    def _go_on(self, due: dict[bytes, int], user: bytes) -> None:
        following = self._records.next_parked(user)
        if following is None:
            del due[user]
        else:
            due[user] = following
