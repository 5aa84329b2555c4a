"""The answers of one ownership that have called tools over Kafka, and wait for results.

A result is decided when its record is read, and counts once it is committed. Between the two, another result of the
same answer may be decided, so decisions are kept here, ahead of the store. An answer goes on only when what it goes on
with is committed: after a crash, the next owner must decide the same. An end is decided in the same way: a result that
comes while it is committed is late, or it would write the row again that the end deletes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from app.delivery.accepted import RequestKey
from app.delivery.sleepers import Sleepers
from app.features.waits.schedule import Schedule
from tables import records
from tables.asleep import Part, rounds_in, row_of
from tables.records import RowChange, Table
from tables.store import PartitionStore
from tables.tool_calls import ToolRounds, row


class OpenCalls:
    """`some` is set while an answer waits, asleep or not. The rounds of one that has slept are rows of `asleep`."""

    def __init__(self, store: PartitionStore, sleepers: Sleepers) -> None:
        self.some = asyncio.Event()
        self._store, self._sleepers = store, sleepers
        self.schedule = Schedule()
        if sleepers.some.is_set():
            self.some.set()
        self._decided: dict[RequestKey, ToolRounds] = {}
        self._waiting: dict[RequestKey, asyncio.Event] = {}
        self._reads: list[asyncio.Future[None]] = []

    def decided(self, key: RequestKey) -> ToolRounds | None:
        """The rounds of a request with the results decided so far; None if it has made no calls, or has ended."""
        return self._decided.get(key) or self.committed(key)

    def committed(self, key: RequestKey) -> ToolRounds | None:
        raw = self._store.get(Table.CALLS, records.key(*key))
        if raw is None and self._sleepers.some.is_set():
            return rounds_in(self._store, *key)
        return None if raw is None else records.decode_row(raw, ToolRounds)

    def decide(self, key: RequestKey, rounds: ToolRounds) -> RowChange:
        """Keep the decision; returns the change to commit."""
        self._decided[key] = rounds
        return row(*key, rounds) if self._sleepers.head(key) is None else row_of(Part.ROUNDS, rounds, *key)

    def settle(self, decided: Mapping[RequestKey, ToolRounds]) -> None:
        """These rounds are committed; later decisions may have followed."""
        for key, rounds in decided.items():
            if self._decided.get(key) is rounds:
                del self._decided[key]

    def rest(self) -> None:
        """No answer sleeps any more."""
        if not self._waiting:
            self.some.clear()

    def end(self, key: RequestKey, rounds: ToolRounds) -> RowChange:
        """The request ends after these rounds; none lacks a result. Returns the change that deletes its row."""
        self._decided[key] = rounds
        return row(*key, None)

    def forget(self, key: RequestKey) -> None:
        """The end of the request is committed."""
        self._decided.pop(key, None)

    async def read_to_end(self) -> None:
        """Wait until all results that are in the log now are committed; called while an answer waits."""
        read: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._reads.append(read)
        try:
            await read
        finally:
            self._reads.remove(read)

    @property
    def reads(self) -> tuple[asyncio.Future[None], ...]:
        """The calls of `read_to_end` that wait."""
        return tuple(self._reads)

    def have_read(self, reads: Iterable[asyncio.Future[None]]) -> None:
        """All results that were in the log when these calls were made are committed."""
        for read in reads:
            if not read.done():
                read.set_result(None)

    @contextmanager
    def waiting(self, key: RequestKey) -> Iterator[asyncio.Event]:
        """While an answer waits; the event is set after each commit for it, and when it is to check again."""
        changed = self._waiting[key] = asyncio.Event()
        self.some.set()
        try:
            yield changed
        finally:
            del self._waiting[key]
            if not self._sleepers.some.is_set():
                self.rest()

    def wake(self, keys: Iterable[RequestKey]) -> None:
        """Results of these requests are committed."""
        for key in keys:
            if key in self._waiting:
                self._waiting[key].set()
