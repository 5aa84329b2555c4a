"""A partition that is owned, without Kafka: commits are applied to a store in memory, and events are kept in a list."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from app.delivery.accepted import RequestKey
from app.delivery.commits.commit import Commit, CommitQueue
from app.delivery.commits.positions import Watermark
from app.delivery.inflight import InFlight
from app.delivery.partition import Partition, State
from app.delivery.record import Record
from app.delivery.resume.tokens import TokenLog
from app.delivery.sleepers import Sleepers
from app.settings import Settings
from app.wire.event import PLAN, EventType, TokenEvent
from tables import records
from tables.erasures import PartitionMarks
from tables.records import Ended, Table
from tests.simulation.memory_store import Disk, MemoryStore

NOW = 1_700_000_100_000


@dataclass
class Clock:
    ms: int = NOW

    def now(self) -> int:
        return self.ms

    def time_of(self, timestamp: int) -> int:
        return min(timestamp, self.ms)


class FakeLog:
    """Delivers each event at once."""

    def __init__(self) -> None:
        self.events: list[TokenEvent] = []

    delivered = staticmethod(TokenLog.delivered)

    def now(self) -> int:
        return NOW

    async def pause(self, _delivery: asyncio.Future[Any], _stream: object) -> None:
        pass

    async def send(self, event: TokenEvent, _key: bytes | None, _headers: object = ()) -> asyncio.Future[Any]:
        self.events.append(event)
        delivered = asyncio.get_running_loop().create_future()
        delivered.set_result(None)
        return delivered

    @property
    def plans(self) -> list[dict[str, Any]]:
        notices = [event.notice for event in self.events if event.notice is not None]
        return [notice.details or {} for notice in notices if notice.code == PLAN]

    @property
    def text(self) -> str:
        """Of the answers, as readers have it."""
        return "".join(event.text or "" for event in self.events if event.type is not EventType.NOTICE)


@dataclass(eq=False)
class Own:
    clock: Clock = field(default_factory=Clock)
    store: MemoryStore = field(default_factory=lambda: MemoryStore.open_on(Disk(), Path("p"), owner="test"))
    token_log: FakeLog = field(default_factory=FakeLog)
    inflight_requests: dict[RequestKey, InFlight] = field(default_factory=dict)
    states_former_models: bool = False
    watermark: Watermark = field(default_factory=Watermark)

    def __post_init__(self) -> None:
        self.marks = PartitionMarks(self.store)
        self.sleepers = Sleepers(self.store)

    def known(self, key: RequestKey, at: int) -> bool:
        raw = self.store.get(Table.ENDED, records.key(*key))
        return key in self.inflight_requests or (raw is not None and records.decode_row(raw, Ended).at <= at)


@dataclass
class Context:
    settings: Settings = field(default_factory=lambda: Settings(_env_file=None))
    queue: CommitQueue = field(default_factory=CommitQueue)
    too_large: set[RequestKey] = field(default_factory=set)

    def topic_partition(self, topic: str) -> tuple[str, int]:
        return topic, 3


class Slots:
    """Nothing else runs in the partition."""

    @asynccontextmanager
    async def without_slot(self) -> AsyncIterator[None]:
        yield

    def has_queue(self, _lane: object) -> bool:
        return False

    def items(self, _lane: object) -> list[InFlight]:
        return []


class NoRecords:
    def lent_by(self, _user: bytes | None) -> int:
        return 0


class FakePartition:
    def __init__(self, number: int = 3) -> None:
        self.number = number
        self.state = State.OWNED
        self.ownership = Own()
        self.context = Context()
        self.lanes = Slots()
        self.records = NoRecords()
        self.begun: dict[RequestKey, int] = {}
        self.released: list[InFlight] = []
        self.finished: list[Commit] = []
        self.commits = asyncio.Event()
        self.commits.set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def real(self) -> Partition:
        """As the code under test has it."""
        return cast(Partition, self)

    @property
    def log(self) -> FakeLog:
        return self.ownership.token_log

    async def commit(self, commit: Commit, *, urgent: bool = False) -> None:
        await self.commits.wait()
        self.finished.append(commit)
        self.ownership.store.apply(commit.changes, {}, now_ms=0)

    def release(self, inflight: InFlight) -> None:
        self.released.append(inflight)

    @asynccontextmanager
    async def without_slot(self, _inflight: InFlight) -> AsyncIterator[None]:
        yield

    def spawn(self, work: Coroutine[Any, Any, None], about: Record | None = None) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def idle(self) -> None:
        """Until nothing is left to be done."""
        while self._tasks:
            await asyncio.gather(*self._tasks)

    def put(self, table: Table, row: Any, *key: str) -> None:
        self.ownership.store.apply([records.RowChange(table, records.key(*key), records.encode(row))], {}, now_ms=0)

    def row(self, table: Table, kind: Any, *key: str) -> Any:
        raw = self.ownership.store.get(table, records.key(*key))
        return None if raw is None else records.decode_row(raw, kind)
