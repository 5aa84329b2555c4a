"""The agent on `turns`: writes each turn to Milvus.

Answers never wait for Milvus. The index accepts turns without blocking; a long backlog pauses this topic only.

An erased row can come back in one way: Milvus executes a delayed call of a former owner. Therefore the deletion is
repeated three times within the hour after an erasure (`_AGAIN_MS`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial

from app.delivery.commits.commit import Commit
from app.delivery.dead_letters import commit_of_letter
from app.delivery.observer import UNOBSERVED, Observer
from app.delivery.ownership import Ownership
from app.delivery.partition import Partition, State
from app.delivery.record import Record
from app.delivery.sweeper import REPEATED_FOR_MS
from app.search.index import Index
from app.settings import Settings
from app.wire.codec import decode
from app.wire.error import ErrorCode, WireError
from app.wire.turn import Turn
from tables.erasures import Scope
from tables.records import Erased

_AGAIN_MS = (60_000, 600_000, 3_600_000)


@dataclass(eq=False)
class Turns:
    settings: Settings
    index: Index
    observer: Observer = UNOBSERVED
    _repeated: dict[tuple[int, Scope, int], int] = field(default_factory=dict, init=False)

    def receive(self, partition: Partition, record: Record) -> None:
        """Called in offset order, again after each take-over; must not block."""
        try:
            record.check_readable()
            turn = decode(Turn, record.value, record.headers)
        except WireError as error:
            partition.spawn(partition.commit(commit_of_letter(record, error, self.settings)))
            return
        if turn.is_refused or self._is_forgotten(partition, turn):
            partition.spawn(partition.commit(Commit(record)))
            return
        done = partial(self._indexed, partition, partition.ownership, record, turn, time.time_ns())
        self.index.submit(turn, done, partition.number)

    def release(self, partition: int) -> None:
        """Drop the pending turns of a partition that was lost; its next owner reads them again."""
        self.index.revoke({partition})

    async def erase(self, partition: Partition, scope: Scope, at: int) -> None:
        """Delete the rows of all requests up to the time `at`; returns when Milvus has done it."""
        deleted = asyncio.Event()
        self.index.erase(scope, at, partition.ownership.clock.now(), deleted.set, partition.number)
        await deleted.wait()

    def erase_again(self, partition: Partition, marks: Iterable[tuple[Scope, Erased]]) -> None:
        """Repeat those deletions of the marks that are due; called at each sweep."""
        now = partition.ownership.clock.now()
        for scope, mark in marks:
            key = (partition.number, scope, mark.at)
            due = sum(now - mark.at >= age for age in _AGAIN_MS)
            if mark.done and due > self._repeated.get(key, 0):
                self._repeated[key] = due
                self.index.erase(scope, mark.at, mark.at, lambda: None, partition.number)
        self._repeated = {key: due for key, due in self._repeated.items() if now - key[2] <= REPEATED_FOR_MS}

    def expire(self, partition: Partition) -> None:
        """Delete rows that are older than `PARLEY_INDEX_TTL_S`."""
        if self.settings.index_ttl:
            self.index.expire(partition.ownership.clock.now() - int(self.settings.index_ttl * 1000))

    def _indexed(
        self,
        partition: Partition,
        ownership: Ownership,
        record: Record,
        turn: Turn,
        received_ns: int,
        refusal: str | None,
    ) -> None:
        # If the partition was lost meanwhile, its next owner indexes the turn again.
        if partition.state is not State.OWNED or partition.ownership is not ownership:
            return
        if refusal is None:
            self.observer.indexed(record, turn, received_ns)
            partition.spawn(partition.commit(Commit(record)))
            return
        error = WireError(ErrorCode.INVALID_REQUEST, refusal)
        partition.spawn(partition.commit(commit_of_letter(record, error, self.settings)))

    def _is_forgotten(self, partition: Partition, turn: Turn) -> bool:
        return not turn.outlives(partition.ownership.marks.of(turn.user_id, turn.conversation_id).at)
