"""Programs beside Parley that read a topic and write another one: those that run tools, and desks that approve calls.

Calls are answered soon, late, several times, with rubbish, or not at all.
"""

from __future__ import annotations

import asyncio
import json
import random
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import ClassVar, Self

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from app.features.programs.history import is_step_name
from app.settings import Settings
from app.wire.codec import decode
from app.wire.tool_records import ToolCallRecord
from app.wire.waits import WaitRecord
from tests.faults.desks import Deciders
from tests.faults.records import Fetched

LATE_S = 3.0


@dataclass(frozen=True, slots=True)
class Planned:
    """A record for `tool-results`, to be sent after a while; a wrong one becomes a dead letter if a worker reads it."""

    after_s: float
    value: bytes
    is_wrong: bool = False


def planned(call: ToolCallRecord, chance: random.Random, most_bytes: int) -> Iterator[Planned]:
    """What a call gets. `most_bytes` is the limit of a result."""
    soon = chance.choice((0.0, 0.01, 0.3, 1.0)) * chance.random()
    share = chance.random()
    content = f"result of {call.tool_call_id}"
    if share < 0.1:
        return
    if share < 0.2:
        soon += LATE_S
    if share > 0.95:
        yield Planned(soon, _result(call, "x" * (most_bytes + 1)), is_wrong=True)
        return
    yield Planned(soon, _result(call, content))
    if share > 0.7:
        yield Planned(soon + chance.choice((0.0, 0.1, 4.0)), _result(call, f"another {content}"))
    if share > 0.85:
        yield Planned(soon, b"{not json", is_wrong=True)
        yield Planned(soon, _result(call, content, tool_call_id="call_of_nobody"), is_wrong=True)


def _result(call: ToolCallRecord, content: str, **other: str) -> bytes:
    names = ("tool_call_id", "request_id", "user_id")
    return json.dumps({**{name: getattr(call, name) for name in names}, "content": content, **other}).encode()


class Programs(ABC):
    """Reads a topic for as long as it is entered, and sends to another one what is planned about its records."""

    reads: ClassVar[str]
    writes: ClassVar[str]

    def __init__(self, settings: Settings) -> None:
        self.wrong: set[tuple[str, int, int]] = set()
        """Places of records that may become dead letters."""
        self._settings = settings
        self._tasks: set[asyncio.Task[None]] = set()

    @abstractmethod
    def planned(self, record: Fetched) -> Iterator[tuple[str, Planned]]:
        """What is sent because of a record, and for which user."""

    async def __aenter__(self) -> Self:
        options = self._settings.cluster.options()
        self._consumer = AIOKafkaConsumer(**options, isolation_level="read_committed", auto_offset_reset="earliest")
        self._producer = AIOKafkaProducer(**options, enable_idempotence=True, request_timeout_ms=600_000)
        await self._consumer.start()
        await self._producer.start()
        topic = self._settings.topic(self.reads)
        self._consumer.assign([TopicPartition(topic, number) for number in range(self._settings.partitions)])
        await self._consumer.seek_to_beginning()
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        for task in (self._reading, *self._tasks):
            task.cancel()
        with suppress(asyncio.CancelledError):
            await self._reading
        await self._consumer.stop()
        await self._producer.stop()

    async def _read(self) -> None:
        async for record in self._consumer:
            for user, one in self.planned(record):
                task = asyncio.create_task(self._send(user.encode(), one))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _send(self, key: bytes, one: Planned) -> None:
        await asyncio.sleep(one.after_s)
        sent = await self._producer.send_and_wait(self._settings.topic(self.writes), one.value, key=key)
        if one.is_wrong:
            self.wrong.add((sent.topic, sent.partition, sent.offset))


class ToolPrograms(Programs):
    """Answers calls."""

    reads, writes = "tool-calls", "tool-results"

    def __init__(self, settings: Settings, seed: int = 7) -> None:
        super().__init__(settings)
        self._chance = random.Random(seed)

    def planned(self, record: Fetched) -> Iterator[tuple[str, Planned]]:
        call = decode(ToolCallRecord, record.value, record.headers)
        if is_step_name(call.name):
            return
        for one in planned(call, self._chance, self._settings.max_prompt_bytes):
            yield call.user_id, one


class DeskPrograms(Programs):
    """Decides about calls that wait for an approval."""

    reads, writes = "waits", "controls"

    def __init__(self, settings: Settings, seed: int = 7) -> None:
        super().__init__(settings)
        self._deciders = Deciders(random.Random(seed), erases=False)

    def planned(self, record: Fetched) -> Iterator[tuple[str, Planned]]:
        state = None if record.value is None else decode(WaitRecord, record.value)
        for one in self._deciders.planned(state):
            yield one.value["user_id"], Planned(one.after_s, json.dumps(one.value).encode(), one.is_wrong)


class RecordedPrograms(Programs):
    """Answers calls at once, each with the content that it had before."""

    reads, writes = "tool-calls", "tool-results"

    def __init__(self, settings: Settings, contents: Mapping[str, str]) -> None:
        super().__init__(settings)
        self._contents = contents

    def planned(self, record: Fetched) -> Iterator[tuple[str, Planned]]:
        call = decode(ToolCallRecord, record.value, record.headers)
        yield call.user_id, Planned(0.0, _result(call, self._contents[call.tool_call_id]))
