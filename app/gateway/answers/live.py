"""Recent answers in memory: one consumer of this gateway's partitions of `tokens` serves all readers.

A gateway alone reads all partitions, from their ends. One that shares them with others reads those that the group gives
it (peers/), and begins some time before the end, so that the answers that another gateway was streaming are whole in
memory; otherwise each of them would have to be searched in the log. Memory is bounded in events and in bytes (held.py).
The answers that changed least recently are dropped first; answers with readers stay. Older answers are read from the
log (`archive`).

Answers that are erased are dropped, whichever gateway or producer has sent the erasure (erasure/).
"""

from __future__ import annotations

import asyncio
import logging
import math
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from app.gateway.answers.held import Held
from app.gateway.answers.recent_ends import RecentEnds
from app.gateway.answers.watch import Watch
from app.gateway.edge.errors import lasting
from app.kafka.clients import KafkaUnusableError, consumer, start, stop
from app.kafka.cluster import Cluster
from app.kafka.fetch_pace import FetchPace
from app.kafka.fetch_session import use_fetch_sessions
from app.reader import Answer, AtOffsets, ReaderRule, Update
from app.reader.position import seek
from app.reader.rule import Key
from app.wire.codec import decode
from app.wire.error import WireError
from app.wire.event import EventType, TokenEvent
from app.wire.ids import partition_for
from models.interface.unexpected import type_and_line
from tables.erasures import Scope

log = logging.getLogger(__name__)

_RETRY_S = 1.0
_POLL_MS = 1000
_BACK_MS = 60_000
_MOST_BACK = 10_000
"""How far before the end reading begins, in time and in records of a partition."""
_MOST_BEHIND_S = 3.0
"""A partition is served after this time even if that end is not reached: a marker at the end is no record."""


@dataclass(frozen=True, slots=True)
class _Behind:
    """The partition's end when its reading began, that moment (Unix time), and until when to wait (monotonic)."""

    end: int
    since: float
    until: float


class LiveObserver:
    """What becomes of answers; its methods must not block. Those that are not overridden do nothing."""

    def record_read(self) -> None:
        """A record of `tokens` was read."""

    def answer_grew(self, update: Update) -> None:
        """Called once for each record, also if its partition leaves, comes back, and is read from further back."""

    def first_token(self, user_id: str, request_id: str) -> None:
        """Another gateway has read the first token of an answer that is followed here."""

    def answer_forgotten(self, key: Key) -> None:
        """The answer has left the memory."""

    def assigned(self, partitions: Collection[int]) -> None:
        """These partitions are read up to where their ends were."""


class LiveAnswers:
    """`erased_at` returns when a user or a conversation was last erased: events from before are not kept, however late
    they arrive.
    """

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        partitions: int,
        erased_at: Callable[[str, str], int],
        *,
        most_events: int,
        most_bytes: int,
        observer: LiveObserver,
        reads_back: bool = False,
    ) -> None:
        self.rule = ReaderRule(remember=sys.maxsize)  # `_trim` drops answers
        self.next_offset: dict[int, int] = {}
        self._next_offset: dict[int, int] = {}
        self._complete_since = 0.0
        self._reads_since: dict[int, float] = {}
        self._reads_back = reads_back
        self._behind: dict[TopicPartition, _Behind] = {}
        self.held = Held()
        self.ends = RecentEnds()
        self.closing = False
        self._observer = observer
        self._cluster = cluster
        self._topic = topic
        self._partitions = partitions
        self._wanted: frozenset[int] = frozenset()
        self._changing = asyncio.Lock()
        self._erased_at = erased_at
        self._most_events = most_events
        self._most_bytes = most_bytes
        self._watches: dict[Key, set[Watch]] = {}
        self._consumer: AIOKafkaConsumer | None = None
        self._reading: asyncio.Task[None] | None = None

    async def read(self, partitions: Collection[int]) -> None:
        """Read these partitions from now on. Those that were read already go on where they are.

        Raises `KafkaUnusableError` or `KafkaError`; even then, reading begins once Kafka can be used.
        """
        async with self._changing:
            before, wanted = self._wanted, frozenset(partitions)
            if wanted == before:
                return
            await self._stop_reading()
            for number in before - wanted:
                self.next_offset.pop(number, None)
                self._reads_since.pop(number, None)
                self._behind.pop(TopicPartition(self._topic, number), None)
            self._wanted = wanted
            self._drop(before - wanted)
            if not wanted:
                return
            try:
                self._consumer = await self._open()
            finally:
                self._reading = asyncio.create_task(lasting("reading tokens", self._keep_reading), name="live answers")

    @property
    def partitions(self) -> Collection[int]:
        """Those that are read."""
        return self._reads_since.keys()

    def reads(self, user_id: str) -> bool:
        """Whether the user's partition is read."""
        return partition_for(user_id, self._partitions) in self._reads_since

    def reads_since(self, user_id: str) -> float:
        """Since when the user's partition is read, Unix time."""
        return self._reads_since.get(partition_for(user_id, self._partitions), math.inf)

    def complete_since(self, user_id: str) -> float:
        """Answers to the user's requests that were made after this Unix time are complete in memory."""
        return max(self._complete_since, self.reads_since(user_id))

    async def stop(self) -> None:
        self.close()
        async with self._changing:
            await self._stop_reading()

    async def _stop_reading(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        if self._consumer is not None:
            # While Kafka is unreachable, aiokafka raises the cancellation of its own fetches here; stopping has not
            # failed.
            await asyncio.gather(self._consumer.stop(), return_exceptions=True)
        self._reading = self._consumer = None

    def _drop(self, partitions: Collection[int]) -> None:
        """Forget what belongs to another gateway now, and wake its readers."""
        for key in [key for key in self.rule.answers if partition_for(key[0], self._partitions) in partitions]:
            self._forget(key)
        for key, watches in self._watches.items():
            if partition_for(key[0], self._partitions) in partitions:
                for watch in watches:
                    watch.wake()

    def close(self) -> None:
        """Tell every reader to continue elsewhere."""
        self.closing = True
        for watches in self._watches.values():
            for watch in watches:
                watch.wake()

    def answer(self, user_id: str, request_id: str) -> Answer | None:
        """The part of the answer that may be shown: none if it began before an erasure."""
        answer = self.rule.answers.get((user_id, request_id))
        return None if answer is None or self._is_rest(answer) else answer

    def _is_rest(self, answer: Answer) -> bool:
        return bool(answer.missing and self._erased_at(answer.user_id, answer.conversation_id))

    def watch(self, user_id: str, request_id: str) -> Watch:
        key = (user_id, request_id)
        watch = Watch(lambda: self.rule.answers.get(key), lambda one: self._detach(key, one))
        self._watches.setdefault(key, set()).add(watch)
        return watch

    def adopt(self, answer: Answer) -> None:
        """Add an answer that was read from the log up to this reader's position."""
        key = (answer.user_id, answer.request_id)
        self.rule.adopt(answer)
        self.held.measure(key, answer)
        for watch in self._watches.get(key, ()):
            watch.wake()

    def drop(self, scope: Scope, at: int | None = None) -> None:
        """Drop answers that are erased. Readers of them get what comes later. `at`: Unix milliseconds, None for now."""
        for key, answer in list(self.rule.answers.items()):
            if scope.includes(answer.user_id, answer.conversation_id) and _began_by(answer, at):
                self._forget(key)

    def _detach(self, key: Key, watch: Watch) -> None:
        watches = self._watches.get(key, set())
        watches.discard(watch)
        if not watches:
            self._watches.pop(key, None)
            answer = self.rule.answers.get(key)
            if answer is not None and self._is_rest(answer):
                self._forget(key)
            self._trim()

    async def _open(self) -> AIOKafkaConsumer:
        tokens = [TopicPartition(self._topic, number) for number in sorted(self._wanted)]
        records = consumer(self._cluster)
        use_fetch_sessions(records)
        records.assign(tokens)
        await start(records)
        try:
            await seek(records, tokens, AtOffsets(self.next_offset))
            for partition in [one for one in tokens if one.partition not in self.next_offset]:
                end = await records.position(partition)
                begin = await _some_time_before(records, partition, end) if self._reads_back else end
                if end < self._next_offset.get(partition.partition, 0):
                    del self._next_offset[partition.partition]  # the topic was created anew
                records.seek(partition, begin)
                self.next_offset[partition.partition] = begin
                self._behind[partition] = _Behind(end, time.time(), time.monotonic() + _MOST_BEHIND_S)
            await self._catch_up(records)
        except BaseException:
            await stop(records)
            raise
        return records

    async def _keep_reading(self) -> None:
        while True:
            try:
                if self._consumer is None:
                    self._consumer = await self._open()
                await self._read(self._consumer)
            except (KafkaError, KafkaUnusableError, OSError) as error:
                log.warning("cannot read tokens: %s; retrying", error)
                if self._consumer is not None:
                    await stop(self._consumer)
                    self._consumer = None
                await asyncio.sleep(_RETRY_S)

    async def _read(self, records: AIOKafkaConsumer) -> None:
        pace = FetchPace(records)
        while True:
            batches = (await records.getmany(timeout_ms=_POLL_MS)).values()
            pace.polled(sum(map(len, batches)))
            for batch in batches:
                for record in batch:
                    self._read_record(record)
            if self._behind:
                await self._catch_up(records)
            self._trim()

    async def _catch_up(self, records: AIOKafkaConsumer) -> None:
        """Serve the partitions that have been read up to where their ends were at the beginning."""
        for partition, behind in list(self._behind.items()):
            if await records.position(partition) >= behind.end or time.monotonic() > behind.until:
                del self._behind[partition]
                self._reads_since[partition.partition] = behind.since
                self._observer.assigned(self.partitions)

    def _read_record(self, record: ConsumerRecord) -> None:
        """Read one record; whatever it holds, it is that record's fault, and the next ones are read."""
        self.next_offset[record.partition] = record.offset + 1
        self._observer.record_read()
        try:
            self._read_event(record, decode(TokenEvent, record.value, record.headers))
        except WireError as error:
            log.warning("tokens[%d]@%d is skipped: %s", record.partition, record.offset, error)
        except Exception as error:  # noqa: BLE001 - one record must not stop the readers of others
            log.warning("tokens[%d]@%d is skipped: %s", record.partition, record.offset, type_and_line(error))

    def _read_event(self, record: ConsumerRecord, event: TokenEvent) -> None:
        update = self.rule.read(record.partition, record.offset, event)
        if update is None:
            return
        self.ends.add(event)
        key = (update.answer.user_id, update.answer.request_id)
        if record.offset >= self._next_offset.get(record.partition, 0):
            self._next_offset[record.partition] = record.offset + 1
            self._observer.answer_grew(update)
        erased_at = self._erased_at(update.answer.user_id, update.answer.conversation_id)
        if erased_at and (event.timestamp or 0) <= erased_at:
            self._forget(key)
            return
        if update.cut is not None:
            self.held.measure(key, update.answer)
        elif event.type is not EventType.NOTICE:
            self.held.grow(key, event)
        watches = self._watches.get(key, ())
        for watch in watches:
            watch.deliver(update)
        if not watches and self._is_rest(update.answer):
            self._forget(key)

    def _is_full(self) -> bool:
        return self.held.events > self._most_events or self.held.bytes > self._most_bytes

    def _trim(self) -> None:
        if not self._is_full():
            return
        for key in self.held:
            if not self._is_full():
                return
            if key not in self._watches:
                self._complete_since = time.time()
                self._forget(key)

    def _forget(self, key: Key) -> None:
        self.rule.forget(key)
        self.held.forget(key)
        self._observer.answer_forgotten(key)


async def _some_time_before(records: AIOKafkaConsumer, partition: TopicPartition, end: int) -> int:
    later = await records.offsets_for_times({partition: int(time.time() * 1000) - _BACK_MS})
    begin = end if later[partition] is None else later[partition].offset
    return max(begin, end - _MOST_BACK)


def _began_by(answer: Answer, at: int | None) -> bool:
    first = answer.segments[0] if answer.segments else answer.end
    return at is None or first is None or (first.timestamp or 0) <= at
