"""Write turns to the vector store, however long it is unavailable.

The agent on `turns` submits turns without waiting, and commits a record when its `done` is called: then its rows are
stored, or `done` was given the reason why a row of it never can be. One task does the rest: it forms micro-batches,
with each key once, embeds and upserts them. A call that may succeed later is retried for ever. A batch that the server
rejects is halved until the bad row is isolated. An erasure is next, whatever waits: the turns that it covers are
marked and never written. An erasure that the store rejects is retried later and delays no turn. Private values are
replaced before a turn joins a batch (hiding.py).

The store has no fencing. A worker that was suspended, or disconnected from Kafka, may hold turns of a partition that
another worker owns by now, and of a user who was erased there since. Right before each upsert, and before each retry,
the writer therefore asks `owns` whether the partition is still this worker's, and leaves out the rows of others. Kafka
has confirmed that ownership within the session timeout (app/delivery/ownership.py).
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from app.search.hiding import Hiding
from app.search.index import Hide, Indexed, IndexStats
from app.search.intake import Expiry, RowDeletion, Write, WriteQueue
from app.search.patient_store import PatientStore
from app.search.rows import IndexRow, rows_of
from app.search.vector_store import IndexRefusedError, VectorStore
from app.wire.turn import Turn
from models.embedder import EmbedderError
from models.embedder.embedder import Embeds
from tables.erasures import Scope

log = logging.getLogger(__name__)

REFUSED_PAUSE_S = 30.0
Owns = Callable[[int], Awaitable[bool]]
"""Whether a partition is this worker's, according to Kafka."""


async def _always(_partition: int) -> bool:
    return True


class IndexWriter:
    """Implements `Index`. `fatal` is called once with the error that ended it: an `IndexMismatchError` or a bug."""

    def __init__(
        self,
        vectors: VectorStore,
        embedder: Embeds,
        *,
        fatal: Callable[[Exception], None],
        owns: Owns = _always,
        hide: Hide | None = None,
        batch_rows: int = 128,
        delay_s: float = 0.5,
        flush_s: float = 30.0,
    ) -> None:
        self._embedder = embedder
        self._fatal = fatal
        self._owns = owns
        self._intake = WriteQueue(batch_rows, delay_s, time.monotonic)
        self._hiding = None if hide is None else Hiding(hide, self._intake.add)
        self._store = PatientStore(vectors, embedder, flush_s)
        self._stats = IndexStats()
        self._in_hand: Sequence[Write | RowDeletion | Expiry] = ()
        self._upserting = False
        self._refused: list[RowDeletion] = []
        self._retry_at = float("inf")
        self._task: asyncio.Task[None] | None = None

    def submit(self, turn: Turn, done: Indexed, partition: int = 0) -> None:
        """Never blocks. Turns without private values to search for are done in the order of the calls."""
        write = Write(turn, rows_of(turn), done, partition, time.monotonic())
        (self._intake if self._hiding is None else self._hiding).add(write)

    def erase(self, scope: Scope, until_ms: int, ended_ms: int, done: Callable[[], object], partition: int = 0) -> None:
        """Delete the rows of what was asked up to `until_ms`; such turns had ended by `ended_ms`."""
        self._intake.forget(scope, until_ms)
        if self._hiding is not None:
            self._hiding.forget(scope, until_ms)
        for entry in self._in_hand:
            if isinstance(entry, Write):
                entry.forget(scope, until_ms)
        self._intake.add(RowDeletion(scope, until_ms, ended_ms, done, partition, time.monotonic()))

    def expire(self, before_ms: int) -> None:
        """Delete all rows of turns that ended before that time."""
        self._intake.add(Expiry(before_ms, time.monotonic()))

    def revoke(self, partitions: Collection[int]) -> None:
        """Drop what waits of these partitions, and of the batch in hand what is not on its way to the store yet."""
        self._intake.revoke(partitions)
        if self._hiding is not None:
            self._hiding.revoke(partitions)
        for entry in self._in_hand:
            if isinstance(entry, Write) and entry.partition in partitions:
                entry.revoked = True
        self._refused = [erasure for erasure in self._refused if erasure.partition not in partitions]

    @property
    def backlog(self) -> int:
        """Turns and erasures that are not done yet."""
        hiding = 0 if self._hiding is None else len(self._hiding)
        return hiding + len(self._intake) + len(self._in_hand) + len(self._refused)

    def stats(self) -> IndexStats:
        hiding = None if self._hiding is None else self._hiding.oldest
        ages = (self._in_hand[0].since if self._in_hand else None, self._intake.oldest, hiding)
        since = min((age for age in ages if age is not None), default=None)
        return dataclasses.replace(
            self._stats,
            retries=self._store.retries,
            flushes=self._store.flushes,
            trouble=self._store.trouble,
            backlog=self.backlog,
            lag_s=time.monotonic() - since if since is not None else 0.0,
        )

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="index-writer")

    async def stop(self, grace_s: float = 5.0) -> None:
        """Write what waits if that takes at most `grace_s`, then stop; the rest stays uncommitted."""
        if self._hiding is not None:
            await self._hiding.stop(grace_s)
        self._intake.close()
        if self._task is not None:
            if len(self._intake) or not self._is_void:
                await asyncio.wait({self._task}, timeout=grace_s)
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._store.close()

    @property
    def _is_void(self) -> bool:
        """Whether the batch in hand is its next owners', and the store has not been asked to write it."""
        revoked = [isinstance(entry, Write) and entry.revoked for entry in self._in_hand]
        return bool(revoked) and all(revoked) and not self._upserting

    async def _run(self) -> None:
        try:
            await self._store.open()  # detect a collection that does not fit before the first turn
            while (batch := await self._intake.next_batch(min(self._store.flush_due, self._retry_at))) is not None:
                self._retry_refused()
                self._in_hand = batch if isinstance(batch, list) else [batch]
                if isinstance(batch, RowDeletion | Expiry):
                    await self._delete(batch)
                elif batch:
                    await self._write(batch)
                self._in_hand = ()
                await self._store.flush_if_due()
        except Exception as error:  # noqa: BLE001 - handed on
            self._fatal(error)

    async def _delete(self, deletion: RowDeletion | Expiry) -> None:
        """Delete rows. A rejected deletion is retried later; the entries after it do not wait."""
        try:
            if isinstance(deletion, Expiry):
                await self._store.expire(deletion.before_ms)
                return
            await self._store.erase(deletion.scope, deletion.until_ms, deletion.ended_ms)
        except IndexRefusedError as error:
            log.error("index: a deletion is rejected, retrying in %g s: %s", REFUSED_PAUSE_S, error)
            if isinstance(deletion, RowDeletion):  # the next sweep asks for expired rows again
                self._refused.append(deletion)
                self._retry_at = min(self._retry_at, time.monotonic() + REFUSED_PAUSE_S)
        else:
            self._stats.erasures += 1
            deletion.done()

    def _retry_refused(self) -> None:
        if time.monotonic() < self._retry_at:
            return
        refused, self._refused, self._retry_at = self._refused, [], float("inf")
        for erasure in refused:
            self._intake.add(erasure)

    async def _write(self, writes: list[Write]) -> None:
        # Some servers store a key twice if a batch contains it twice, others reject the batch.
        lost: set[int] = set()
        sources = {row.turn_id: write for write in writes for row in write.rows}
        rows = {row.turn_id: row for write in writes if write.partition not in lost for row in write.rows}
        faults: dict[str, str] = {}
        vectors: dict[str, npt.NDArray[np.float32]] = {}

        async def embed(part: Sequence[IndexRow]) -> None:
            for row, vector in zip(part, await self._embedder.embed([row.text for row in part]), strict=True):
                if np.isfinite(vector).all() and vector.any():
                    vectors[row.turn_id] = vector
                else:
                    faults[row.turn_id] = "its text has no embedding"

        async def wanted(row: dict[str, Any]) -> bool:
            write = sources[row["turn_id"]]
            if write.forgotten or write.revoked or write.partition in lost:
                return False
            if await self._owns(write.partition):
                return True
            lost.add(write.partition)
            return False

        async def upsert(part: Sequence[IndexRow]) -> None:
            values = [{**dataclasses.asdict(row), "embedding": vectors[row.turn_id]} for row in part]
            self._upserting = True
            try:
                await self._store.upsert(values, wanted)
            finally:
                self._upserting = False
            self._stats.rows += len(part)
            self._stats.batches += 1

        await _halving([*rows.values()], embed, EmbedderError, faults)
        await _halving([row for row in rows.values() if row.turn_id in vectors], upsert, IndexRefusedError, faults)
        for write in writes:
            if write.revoked or write.partition in lost:
                continue  # its next owner reads the turn again
            reason = next((faults[row.turn_id] for row in write.rows if row.turn_id in faults), None)
            self._stats.rejected += reason is not None
            write.done(reason)


async def _halving(
    rows: Sequence[IndexRow],
    work: Callable[[Sequence[IndexRow]], Awaitable[None]],
    refusal: type[Exception],
    faults: dict[str, str],
) -> None:
    """Do `work` on as many rows as possible, and note the faults of the others."""
    if not rows:
        return
    try:
        await work(rows)
    except refusal as error:
        if len(rows) == 1:
            faults[rows[0].turn_id] = str(error)
            return
        middle = len(rows) // 2
        await _halving(rows[:middle], work, refusal, faults)
        await _halving(rows[middle:], work, refusal, faults)
