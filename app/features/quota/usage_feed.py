"""Follows `usage`, for the limits of tenants."""

from __future__ import annotations

import asyncio
import logging
import time

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from app.features.quota.figures import month_start
from app.features.quota.tenants import Tenants
from app.kafka.clients import KafkaUnusableError, consumer, start, stop
from app.reader.position import AtTime, seek
from app.settings import Settings
from app.wire.codec import decode
from app.wire.error import WireError
from app.wire.usage import UsageWindow

log = logging.getLogger(__name__)

_RETRY_S = 2.0
_POLL_MS = 1000


class UsageFeed:
    """Reads the windows of this month, and then new ones, while any tenant has a quota. Each is counted once: reading
    goes on where it stopped, whatever stopped it.
    """

    def __init__(self, settings: Settings, tenants: Tenants) -> None:
        self._settings = settings
        self._tenants = tenants
        self._next: dict[TopicPartition, int] = {}

    async def run(self) -> None:
        """Read until cancelled."""
        while True:
            if not self._tenants.has_quotas:
                await asyncio.sleep(_POLL_MS / 1000)
                continue
            try:
                await self._follow()
            except (KafkaError, KafkaUnusableError, OSError) as error:
                log.warning("usage cannot be read, so limits of tenants count this process alone: %s", error)
                await asyncio.sleep(_RETRY_S)

    async def _follow(self) -> None:
        records = consumer(self._settings.cluster)
        name = self._settings.topic("usage")
        records.assign([TopicPartition(name, number) for number in range(self._settings.partitions)])
        await start(records)
        try:
            await seek(records, records.assignment(), AtTime(month_start(time.time_ns() // 1_000_000)))
            for at, offset in self._next.items():
                records.seek(at, offset)
            while self._tenants.has_quotas:
                await self._read(records)
        finally:
            await stop(records)

    async def _read(self, records: AIOKafkaConsumer) -> None:
        for at, batch in (await records.getmany(timeout_ms=_POLL_MS)).items():
            for record in batch:
                self._next[at] = record.offset + 1
                try:
                    self._tenants.figures.add(decode(UsageWindow, record.value, record.headers))
                except (WireError, ValueError, OverflowError, OSError) as error:  # a time that no calendar has
                    log.warning("usage partition %s offset %s is skipped: %s", record.partition, record.offset, error)
