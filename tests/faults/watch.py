"""A reader that is there all the time: which answers are open, and how long a fault silences them."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from app.reader import ReaderRule
from app.settings import Settings
from app.wire import decode_token_event
from app.wire.event import EventType
from tests.faults.verdict import Key


@dataclass
class Watch:
    settings: Settings
    rule: ReaderRule = field(default_factory=lambda: ReaderRule(remember=1 << 60))
    open: set[Key] = field(default_factory=set)
    ended: set[Key] = field(default_factory=set)
    silences: list[float] = field(default_factory=list)
    """Seconds from a fault to the next event of each answer that was open then."""
    told: int = 0
    """Events taken, fences and notices aside."""
    _since: dict[Key, float] = field(default_factory=dict)

    async def __aenter__(self) -> Self:
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=self.settings.bootstrap_servers, isolation_level="read_committed"
        )
        await self._consumer.start()
        partitions = [TopicPartition(self.settings.topic("tokens"), n) for n in range(self.settings.partitions)]
        self._consumer.assign(partitions)
        await self._consumer.seek_to_beginning(*partitions)
        self._task = asyncio.create_task(self._read())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        await self._consumer.stop()

    @property
    def silenced(self) -> int:
        """Answers that have not gone on since a fault."""
        return len(self._since)

    def interrupted(self) -> None:
        """A fault happens now."""
        now = time.monotonic()
        for key in self.open:
            self._since.setdefault(key, now)

    async def _read(self) -> None:
        while True:
            try:
                records = await self._consumer.getmany(timeout_ms=200)
            except KafkaError:
                await asyncio.sleep(0.2)
                continue
            for record in (record for batch in records.values() for record in batch):
                event = decode_token_event(record.value, record.headers)
                if self.rule.read(record.partition, record.offset, event) is None:
                    continue
                key = (event.user_id or "", event.request_id or "")
                if event.type is EventType.NOTICE:
                    continue
                self.told += 1
                if key in self._since:
                    self.silences.append(time.monotonic() - self._since.pop(key))
                if event.is_end:
                    self.open.discard(key)
                    self.ended.add(key)
                else:
                    self.open.add(key)
