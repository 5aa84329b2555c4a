"""The queues of the writer: deletions, which are next, and micro-batches of turns in order.

`add` never blocks and never rejects, so it never delays the consumer. The caller pauses the topic when `len(intake)`
exceeds its limit.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial

from app.search.index import Indexed
from app.search.rows import IndexRow
from app.wire.turn import Turn
from tables.erasures import Scope

_MAX_BATCH_BYTES = 8 << 20
"""Well below the size limit of a gRPC message."""


@dataclass(slots=True, eq=False)
class Write:
    """A turn to write. A `forgotten` one is not written; its `done` is called all the same. That of a `revoked` one is
    its next owner's.
    """

    turn: Turn
    rows: list[IndexRow]
    done: Indexed
    partition: int
    since: float
    forgotten: bool = False
    failures: int = 0
    revoked: bool = False

    def forget(self, scope: Scope, until_ms: int) -> None:
        """Mark it as forgotten if it belongs to that and was asked up to that time."""
        if scope.includes(self.turn.user_id, self.turn.conversation_id) and not self.turn.outlives(until_ms):
            self.forgotten = True

    @property
    def size(self) -> int:
        return sum(len(row.text) * 4 for row in self.rows)


@dataclass(frozen=True, slots=True, eq=False)
class RowDeletion:
    """Delete all rows of requests that were sent up to `until_ms`; such turns had ended by `ended_ms`."""

    scope: Scope
    until_ms: int
    ended_ms: int
    done: Callable[[], object]
    partition: int
    since: float


@dataclass(frozen=True, slots=True, eq=False)
class Expiry:
    """Delete all rows of turns that ended before a time."""

    before_ms: int
    since: float
    partition: int = -1


class WriteQueue:
    def __init__(self, batch_rows: int, delay_s: float, clock: Callable[[], float]) -> None:
        self._batch_rows = batch_rows
        self._delay_s = delay_s
        self._clock = clock
        self._waiting: deque[Write] = deque()
        self._deletions: deque[RowDeletion | Expiry] = deque()
        self._changed = asyncio.Event()
        self._closed = False

    def __len__(self) -> int:
        return len(self._waiting) + len(self._deletions)

    @property
    def oldest(self) -> float | None:
        return min((queue[0].since for queue in (self._waiting, self._deletions) if queue), default=None)

    def add(self, entry: Write | RowDeletion | Expiry) -> None:
        if isinstance(entry, Write):
            self._waiting.append(entry)
        else:
            self._deletions.append(self._joined(entry) if isinstance(entry, RowDeletion) else entry)
        self._changed.set()

    def _joined(self, erasure: RowDeletion) -> RowDeletion:
        """Merge the erasure with a waiting one of the same: repeated erasures cost one deletion."""
        for entry in self._deletions:
            if isinstance(entry, RowDeletion) and (entry.scope, entry.partition) == (erasure.scope, erasure.partition):
                self._deletions.remove(entry)
                return dataclasses.replace(
                    erasure,
                    until_ms=max(entry.until_ms, erasure.until_ms),
                    ended_ms=max(entry.ended_ms, erasure.ended_ms),
                    done=partial(_both, entry.done, erasure.done),
                    since=entry.since,
                )
        return erasure

    def revoke(self, partitions: Collection[int]) -> None:
        """Drop what came from these partitions; their next owner reads it again."""
        self._waiting = deque(entry for entry in self._waiting if entry.partition not in partitions)
        self._deletions = deque(entry for entry in self._deletions if entry.partition not in partitions)

    def forget(self, scope: Scope, until_ms: int) -> None:
        """Mark its turns up to that time as forgotten; they stay queued, so that `done` is called in order."""
        for entry in self._waiting:
            entry.forget(scope, until_ms)

    def close(self) -> None:
        """From now on `next_batch` returns the rest without delay, and then None."""
        self._closed = True
        self._changed.set()

    async def next_batch(self, until: float) -> list[Write] | RowDeletion | Expiry | None:
        """The next batch or deletion; an empty batch if there is none by `until`, None at the end."""
        while True:
            self._changed.clear()
            if self._deletions:
                return self._deletions.popleft()
            if not self._waiting:
                if self._closed:
                    return None
                wake = until
            else:
                count, full = self._head()
                wake = min(until, self._waiting[0].since + self._delay_s)
                if full or self._closed or self._clock() >= self._waiting[0].since + self._delay_s:
                    return self._pop(count)
            if self._clock() >= until:
                return []
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), max(0.0, wake - self._clock()))

    def _head(self) -> tuple[int, bool]:
        """The size of the next batch, and whether no more turns could join it."""
        rows = size = 0
        for count, entry in enumerate(self._waiting):
            if count and (rows + len(entry.rows) > self._batch_rows or size + entry.size > _MAX_BATCH_BYTES):
                return count, True
            rows += len(entry.rows)
            size += entry.size
        return len(self._waiting), rows >= self._batch_rows

    def _pop(self, count: int) -> list[Write]:
        return [self._waiting.popleft() for _ in range(count)]


def _both(one: Callable[[], object], other: Callable[[], object]) -> None:
    one()
    other()
