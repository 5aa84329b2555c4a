"""A partition that is owned, without Kafka: commits are applied to a store in memory, and kept in a list."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app.delivery.commits.commit import Commit, CommitQueue
from app.delivery.inflight import InFlightRequest
from app.delivery.partition import State
from app.delivery.record import Record
from app.delivery.resume.recovery import RequestKey
from app.delivery.user_locks import UserLocks
from tables import records
from tables.expiry import mark_of
from tables.records import Ended, Erased, Table
from tests.simulation.memory_store import Disk, MemoryStore

NOW = 1_700_000_100_000


@dataclass
class Clock:
    ms: int = NOW

    def now(self) -> int:
        return self.ms

    def time_of(self, timestamp: int) -> int:
        return min(timestamp, self.ms)


@dataclass
class Own:
    clock: Clock = field(default_factory=Clock)
    store: MemoryStore = field(default_factory=lambda: MemoryStore.open_on(Disk(), Path("p"), owner="test"))
    inflight_requests: dict[RequestKey, InFlightRequest] = field(default_factory=dict)
    erasing: dict[str, Erased] = field(default_factory=dict)
    mark_locks: UserLocks = field(default_factory=UserLocks)

    def mark_of(self, user_id: str) -> Erased | None:
        return self.erasing.get(user_id) or mark_of(self.store, user_id)

    def known(self, key: RequestKey, at: int) -> bool:
        raw = self.store.get(Table.ENDED, records.key(*key))
        return key in self.inflight_requests or (raw is not None and records.decode_row(raw, Ended).at <= at)


@dataclass
class Context:
    queue: CommitQueue = field(default_factory=CommitQueue)


class FakePartition:
    def __init__(self, number: int = 3) -> None:
        self.number = number
        self.state = State.OWNED
        self.ownership = Own()
        self.context = Context()
        self.finished: list[Commit] = []
        self.commits = asyncio.Event()
        self.commits.set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def commit(self, commit: Commit) -> None:
        await self.commits.wait()
        self.finished.append(commit)
        self.ownership.store.apply(commit.changes, {}, now_ms=0)

    def spawn(self, work: Coroutine[Any, Any, None], about: Record | None = None) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def settle(self) -> None:
        """Until nothing is left to be done."""
        while self._tasks:
            await asyncio.gather(*self._tasks)

    def put(self, table: Table, row: Any, *key: str) -> None:
        self.ownership.store.apply([records.Change(table, records.key(*key), records.encode(row))], {}, now_ms=0)

    def row(self, table: Table, kind: Any, *key: str) -> Any:
        raw = self.ownership.store.get(table, records.key(*key))
        return None if raw is None else records.decode_row(raw, kind)
