"""A reader that is there all the time: which answers are open, and how long a fault silences them."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from app.reader import ReaderRule
from app.settings import Settings
from app.wire.codec import decode
from app.wire.event import WAITING, EventType, TokenEvent
from tests.faults.records import Key


@dataclass
class Watch:
    settings: Settings
    rule: ReaderRule = field(default_factory=lambda: ReaderRule(remember=1 << 60))
    open: set[Key] = field(default_factory=set)
    ended: set[Key] = field(default_factory=set)
    silences: list[float] = field(default_factory=list)
    """Seconds between the last event of a lost owner and the first of the one that resumed the answer."""
    pauses: list[float] = field(default_factory=list)
    """The same where an owner kept the answer under a new epoch."""
    events: int = 0
    """Events taken, fences and notices aside."""
    errors: Counter[str] = field(default_factory=Counter)
    """Answers that ended in an error, by its code."""
    _reading: asyncio.Event = field(default_factory=asyncio.Event)
    _silenced: set[Key] = field(default_factory=set)
    _last: dict[Key, tuple[float, int]] = field(default_factory=dict)
    _resumed: set[Key] = field(default_factory=set)

    async def __aenter__(self) -> Self:
        self._consumer = AIOKafkaConsumer(**self.settings.cluster.options(), isolation_level="read_committed")
        await self._consumer.start()
        partitions = [TopicPartition(self.settings.topic("tokens"), n) for n in range(self.settings.partitions)]
        self._consumer.assign(partitions)
        await self._consumer.seek_to_beginning(*partitions)
        self._reading.set()
        self._task = asyncio.create_task(self._read())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        await self._consumer.stop()

    @asynccontextmanager
    async def absent(self) -> AsyncIterator[None]:
        """Nobody reads while this is entered; what is read afterwards was not silent for so long."""
        self._reading.clear()
        try:
            yield
        finally:
            self._last = {key: (time.monotonic(), epoch) for key, (_, epoch) in self._last.items()}
            self._reading.set()

    @property
    def silenced(self) -> int:
        """Answers that have not gone on since a fault."""
        return len(self._silenced)

    def interrupted(self) -> None:
        """A fault happens now."""
        self._silenced |= self.open

    async def _read(self) -> None:
        while True:
            await self._reading.wait()
            try:
                records = await self._consumer.getmany(timeout_ms=200)
            except KafkaError:
                await asyncio.sleep(0.2)
                continue
            for record in (record for batch in records.values() for record in batch):
                event = decode(TokenEvent, record.value, record.headers)
                if self.rule.read(record.partition, record.offset, event) is None:
                    continue
                key = (event.user_id or "", event.request_id or "")
                if event.notice is not None and event.notice.code == WAITING:
                    self._rest(key)
                elif event.type is EventType.NOTICE:
                    self._resumed.add(key)
                else:
                    self._take(key, event)

    def _rest(self, key: Key) -> None:
        """The answer waits, and has nothing to say until it wakes."""
        self.open.discard(key)
        self._silenced.discard(key)
        self._last.pop(key, None)

    def _take(self, key: Key, event: TokenEvent) -> None:
        now, epoch = time.monotonic(), event.epoch or 0
        last, former = self._last.pop(key, (now, epoch))
        if epoch > former:
            (self.silences if key in self._resumed else self.pauses).append(now - last)
        self._resumed.discard(key)
        self._silenced.discard(key)
        self.events += 1
        if event.error is not None:
            self.errors[event.error.code] += 1
        if event.is_end:
            self.open.discard(key)
            self.ended.add(key)
        else:
            self._last[key] = now, epoch
            self.open.add(key)
