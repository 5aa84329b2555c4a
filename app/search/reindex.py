"""Fill a new collection from `turns` and swap it with the one in use.

1. Create a collection of another name, with the embedder of the settings.
2. Fill it from `turns`, without erased, expired and refused turns. The collection in use keeps serving.
3. Point the name in use, which is an alias from now on, at the new collection. If a collection has that name itself,
   rename it.
4. Write the turns that have arrived since, and delete what was erased since.
5. Drop the former collection: erasures would no longer reach it.

Workers keep writing under the name in use. A worker whose embedder is not the new one notices within
30 s, holds its turns back, and writes them after a restart with the new `PARLEY_EMBEDDER`. Step 4
writes again, under the same keys, what it wrote before it noticed.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from aiokafka import AIOKafkaConsumer, TopicPartition

from app.kafka.clients import consumer, start, stop
from app.search.kept_rows import erasure_marks, guard_secrets, up_to_end
from app.search.rows import IndexRow, rows_of
from app.search.vector_store import VectorStore
from app.settings import Settings
from app.wire.codec import decode
from app.wire.error import WireError
from app.wire.turn import Turn
from models.embedder.embedder import Embeds
from tables.erasures import ErasedUntil

_BATCH_ROWS = 128
_PROGRESS_EVERY_S = 5.0
HideStored = Callable[[Turn, bytes], Awaitable[Turn]]
"""A turn without private values, as the workers index it, by the secret of its partition."""


@dataclass(slots=True)
class Reindexed:
    """A summary for people."""

    collection: str
    turns: int = 0
    rows: int = 0
    left_out: int = 0
    """Turns that were erased, have expired, or were refused by the guard."""


@dataclass(slots=True)
class Reindex:
    settings: Settings
    vectors: VectorStore
    embedder: Embeds
    report: Callable[[str], None]
    """Called with lines of progress."""
    hide: HideStored | None = None
    _marks: ErasedUntil = field(default_factory=ErasedUntil)
    _secrets: dict[int, bytes] = field(default_factory=dict)
    _reported_at: float = 0.0

    async def run(self) -> Reindexed:
        """Raises `SearchError`, `KafkaError`, `KafkaUnusableError` and the errors of `hide`; the collection in use is
        then unchanged.
        """
        done = Reindexed(f"{self.settings.milvus_collection}_{time.strftime('%Y%m%d%H%M%S', time.gmtime())}")
        fresh = self.vectors.named(done.collection)
        await fresh.open(self.embedder)
        turns = consumer(self.settings.cluster)
        swapped = False
        try:
            await start(turns)
            partitions = self._assign(turns, self.settings.topic("turns"))
            await turns.seek_to_beginning(*partitions)
            self._marks = await erasure_marks(self.settings)
            self._secrets = await guard_secrets(self.settings)
            await self._fill(fresh, turns, partitions, done)
            former = await self.vectors.replace_by(done.collection)
            swapped = True
            await self._fill(fresh, turns, partitions, done)
            await self._erase_newer(fresh)
            if former is not None:
                await self.vectors.named(former).drop()
        finally:
            await stop(turns)
            if not swapped:
                await fresh.drop()
        return done

    def _assign(self, records: AIOKafkaConsumer, topic: str) -> list[TopicPartition]:
        partitions = [TopicPartition(topic, number) for number in range(self.settings.partitions)]
        records.assign(partitions)
        return partitions

    async def _fill(
        self, fresh: VectorStore, turns: AIOKafkaConsumer, partitions: list[TopicPartition], done: Reindexed
    ) -> None:
        """Write all turns from the consumer's position up to the current end of the topic."""
        waiting: list[IndexRow] = []
        async for record in up_to_end(turns, partitions):
            try:
                turn = decode(Turn, record.value, record.headers)
            except WireError:
                continue  # a dead letter
            if not self._is_wanted(turn):
                done.left_out += 1
                continue
            done.turns += 1
            waiting += rows_of(await self._hidden(turn, record.partition))
            if len(waiting) >= _BATCH_ROWS:
                await self._write(fresh, done, waiting)
                waiting = []
        if waiting:
            await self._write(fresh, done, waiting)

    def _is_wanted(self, turn: Turn) -> bool:
        ttl_s = self.settings.index_ttl
        is_expired = bool(ttl_s) and turn.created_at < (time.time() - ttl_s) * 1000
        return turn.outlives(self._marks.at(turn.user_id, turn.conversation_id)) and not (is_expired or turn.is_refused)

    async def _write(self, fresh: VectorStore, done: Reindexed, rows: Sequence[IndexRow]) -> None:
        newest = {row.turn_id: row for row in rows}
        vectors = await self.embedder.embed([row.text for row in newest.values()])
        values = [
            {**dataclasses.asdict(row), "embedding": vector}
            for row, vector in zip(newest.values(), vectors, strict=True)
            if vector.any()
        ]
        await fresh.upsert(values)
        done.rows += len(values)
        if time.monotonic() - self._reported_at > _PROGRESS_EVERY_S:
            self._reported_at = time.monotonic()
            self.report(f"{done.turns} turns, {done.rows} rows in {done.collection}")

    async def _hidden(self, turn: Turn, partition: int) -> Turn:
        if self.hide is None or partition not in self._secrets:
            return turn
        return await self.hide(turn, self._secrets[partition])

    async def _erase_newer(self, fresh: VectorStore) -> None:
        for scope, at in (await erasure_marks(self.settings)).all().items():
            if at > self._marks.of(scope):
                await fresh.erase(scope, at, at)
