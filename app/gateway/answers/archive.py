"""Answers that are no longer in this gateway's memory: read from `tokens`, then from `turns`.

A UUIDv7 contains its creation time; a margin allows for clock differences. For other ids, a bounded number of records
of the user's partition is read. All callers that ask for the same answer share one search, which is cancelled when the
last of them leaves. A search reads `tokens` up to the end of the topic at its start. The live reader began before that,
so the two parts join without a gap.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncGenerator, Callable
from collections.abc import Set as AbstractSet
from contextlib import aclosing
from dataclasses import dataclass

import msgspec
from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from app.gateway.answers.live import LiveAnswers
from app.gateway.callers.fair_queue import FairQueue
from app.gateway.edge import bounds
from app.gateway.edge.errors import ApiError
from app.gateway.edge.metrics import GatewayMetrics
from app.gateway.erasure.erasures import ErasureBook
from app.kafka.clients import KafkaUnusableError, consumer, start, stop
from app.kafka.cluster import Cluster
from app.reader import Answer, ReaderRule
from app.reader.rule import Key
from app.settings import Settings
from app.wire.codec import decode
from app.wire.error import ErrorCode, WireError
from app.wire.event import TOOL_RESULTS, EventType, TokenEvent
from app.wire.ids import partition_for
from app.wire.turn import Turn

log = logging.getLogger(__name__)

MARGIN_S = 60.0
_AT_ONCE = 4
_POLL_MS = 200
_OPEN_S = 0.5
"""How long records of open transactions are waited for. A commit takes some hundredths of a second."""
_AWAITED_S = 5.0
"""How long a list waits for turns of which readers have the end. A dead worker's come with its successor."""
_MOST_OF_A_BATCH = 100
_SLICE_S = 0.002
"""Records of a batch, and time, after which other tasks of the event loop run."""


IsMissing = Callable[[], bool]


def nothing() -> bool:
    return False


class ShownResult(msgspec.Struct, frozen=True):
    """The beginning of a tool's result, as the notice of it shows it."""

    tool_call_id: str
    content: str


class _Results(msgspec.Struct, frozen=True):
    results: tuple[ShownResult, ...] = ()


@dataclass(slots=True)
class _Search:
    task: asyncio.Task[None]
    waiting: int = 0


class Archive:
    def __init__(
        self, settings: Settings, live: LiveAnswers, erasures: ErasureBook, partitions: int, metrics: GatewayMetrics
    ) -> None:
        self._settings = settings
        self._live = live
        self._erasures = erasures
        self._partitions = partitions
        self._metrics = metrics
        self._turns = FairQueue(_AT_ONCE, "searches of the log")
        self._searches: dict[Key, _Search] = {}

    async def complete(self, user_id: str, request_id: str) -> None:
        """Make the live memory hold the whole answer, as far as it is written."""
        key = (user_id, request_id)
        answer = self._live.rule.answers.get(key)
        if answer is not None and not answer.missing:
            return
        if answer is None and self._must_be_live(user_id, request_id):
            return
        search = self._searches.get(key)
        if search is None:
            search = self._searches[key] = _Search(asyncio.create_task(self._search(key), name="search of the log"))
        search.waiting += 1
        try:
            await asyncio.shield(search.task)
        finally:
            search.waiting -= 1
            if not search.waiting:
                search.task.cancel()
                # A later caller must not wait for a cancelled search.
                if self._searches.get(key) is search:
                    del self._searches[key]

    async def turns(self, user_id: str, awaited: AbstractSet[str] = frozenset()) -> AsyncGenerator[Turn, None]:
        """The user's turns, oldest first, without erased ones; those of the requests `awaited` will come soon. Close it
        if you leave it early. Raises `ApiError`.
        """
        async with self._turns.turn(user_id), aclosing(self._read_turns(user_id, None, awaited)) as turns:
            async for turn in turns:
                yield turn

    async def _read_turns(
        self, user_id: str, since_ms: int | None, awaited: AbstractSet[str]
    ) -> AsyncGenerator[Turn, None]:
        missing = {*awaited}
        async with aclosing(self._of(user_id, "turns", since_ms, lambda: bool(missing))) as records:
            async for record in records:
                if record.key != user_id.encode():
                    continue  # other users share the partition
                turn = _turn(record)
                if turn is None or turn.user_id != user_id:
                    continue
                missing.discard(turn.request_id)
                if turn.outlives(self._erasures.at(user_id, turn.conversation_id)):
                    yield turn

    async def tool_results(self, user_id: str, request_id: str) -> list[ShownResult]:
        """What tools have answered to the calls of a request, as its readers saw it, as long as `tokens` keeps it.

        None for an id without a time, which may be anywhere in the log. Raises `ApiError`.
        """
        made_at = time_of(request_id)
        if made_at is None:
            return []
        found: dict[str, ShownResult] = {}
        begun_at, erased = None, 0
        async with self._turns.turn(user_id):
            self._metrics.scans.inc()
            async with aclosing(self._of(user_id, "tokens", int((made_at - MARGIN_S) * 1000))) as records:
                async for record in records:
                    if record.key != user_id.encode():
                        continue
                    event = _event(record)
                    if event is None or event.request_id != request_id:
                        continue
                    begun_at = record.timestamp if begun_at is None else begun_at
                    erased = self._erasures.at(user_id, event.conversation_id or "")
                    found |= {result.tool_call_id: result for result in _results(event)}
                    if event.is_end:
                        break
        # Whoever has chosen the id may have chosen a later time for it: the log has the time of the answer.
        return [] if begun_at is None or begun_at <= erased else list(found.values())

    def _of(
        self, user_id: str, topic: str, since_ms: int | None = None, is_missing: IsMissing = nothing
    ) -> AsyncGenerator[ConsumerRecord, None]:
        partition = TopicPartition(self._settings.topic(topic), partition_for(user_id, self._partitions))
        return scan(self._settings.cluster, partition, bounds.SCAN_RECORDS, since_ms=since_ms, is_missing=is_missing)

    def _must_be_live(self, user_id: str, request_id: str) -> bool:
        made_at = time_of(request_id)
        since = self._live.complete_since(user_id)
        return made_at is not None and since + MARGIN_S < made_at < time.time() + MARGIN_S

    async def _search(self, key: Key) -> None:
        user_id, request_id = key
        made_at = time_of(request_id)
        since_ms = None if made_at is None else int((made_at - MARGIN_S) * 1000)
        async with self._turns.turn(user_id):
            self._metrics.scans.inc()
            answer = await self._in_tokens(key, since_ms)
            if answer is None or not (answer.segments or answer.end):
                answer = await self._in_turns(key, since_ms) or answer
        is_erased = answer is not None and self._erased_at(answer) > (made_at or 0) * 1000 > 0
        if answer is not None and not is_erased:
            _join(answer, self._live.rule.answers.get(key))
            self._live.adopt(answer)

    def _erased_at(self, answer: Answer) -> int:
        return self._erasures.at(answer.user_id, answer.conversation_id)

    async def _in_tokens(self, key: Key, since_ms: int | None) -> Answer | None:
        rule = ReaderRule()
        async with aclosing(self._of(key[0], "tokens", since_ms)) as records:
            async for record in records:
                _read(rule, record, key)
                answer = rule.answers.get(key)
                if answer is not None and record.timestamp <= self._erased_at(answer):
                    rule.forget(key)  # an id without a time: events after the erasure belong to another answer
                    answer = None
                # Without a time, the scan may have begun after a fence, and this end may be a former owner's.
                if since_ms is not None and answer is not None and answer.complete:
                    break
        answer = rule.answers.get(key)
        # An answer that began before the erasure may have events after it.
        return None if answer is not None and answer.missing and self._erased_at(answer) else answer

    async def _in_turns(self, key: Key, since_ms: int | None) -> Answer | None:
        async with aclosing(self._read_turns(key[0], since_ms, frozenset())) as turns:
            async for turn in turns:
                if turn.request_id == key[1]:
                    return _answer_of(turn)
        return None


def time_of(request_id: str) -> float | None:
    """Creation time of a UUIDv7 in Unix seconds; a suffix after a dot is the client's own."""
    try:
        made = uuid.UUID(request_id.partition(".")[0])
    except ValueError:
        return None
    return (made.int >> 80) / 1000 if made.version == 7 else None


def _event(record: ConsumerRecord) -> TokenEvent | None:
    try:
        return decode(TokenEvent, record.value, record.headers)
    except WireError:
        return None  # the live reader has logged it


def _results(event: TokenEvent) -> tuple[ShownResult, ...]:
    """Those that the event tells; none if it is another one, or no worker's."""
    if event.notice is None or event.notice.code != TOOL_RESULTS:
        return ()
    try:
        return msgspec.convert(event.notice.details, _Results).results
    except msgspec.ValidationError:
        return ()


def _read(rule: ReaderRule, record: ConsumerRecord, key: Key) -> None:
    event = _event(record)
    if event is None:
        return
    if event.type is EventType.FENCE or (event.user_id, event.request_id) == key:
        rule.read(record.partition, record.offset, event)
    elif event.epoch is not None:
        rule.epochs[record.partition] = max(event.epoch, rule.epochs.get(record.partition, -1))


def _join(answer: Answer, live: Answer | None) -> None:
    """Append what the live reader has read since."""
    if live is None:
        return
    for event in live.events:
        answer.append(event)
    if live.events or live.waiting:
        answer.waiting = live.waiting
    answer.superseded = live.superseded or answer.superseded
    answer.steered = live.steered or answer.steered


def _turn(record: ConsumerRecord) -> Turn | None:
    try:
        return decode(Turn, record.value, record.headers)
    except WireError:
        return None  # not written by a worker


def _answer_of(turn: Turn) -> Answer:
    """An answer whose tokens have left the log: its end event, which contains the text."""
    answer = Answer(turn.user_id, turn.request_id, turn.conversation_id)
    answer.end = TokenEvent(
        type=EventType.DONE,
        request_id=turn.request_id,
        user_id=turn.user_id,
        conversation_id=turn.conversation_id,
        index=0,
        text=turn.answer,
        epoch=0,
        timestamp=turn.created_at,
        model_version=turn.model_version,
        finish_reason=turn.finish_reason,
        usage=turn.usage,
    )
    return answer


async def scan(
    cluster: Cluster,
    partition: TopicPartition,
    most: int,
    *,
    since_ms: int | None = None,
    open_s: float = _OPEN_S,
    is_missing: IsMissing = nothing,
) -> AsyncGenerator[ConsumerRecord, None]:
    """The records of `partition` since that time, or the last ones; at most `most`. Raises `ApiError`. Close it if you
    leave it early.

    A transaction is committed in one partition after the other. Whoever has read the end of an answer may ask for its
    turn in between, so records of open transactions are waited for, `open_s` at most; and `_AWAITED_S` at most while a
    record `is_missing` that will come, although its transaction has not begun.
    """
    records = consumer(cluster)
    records.assign([partition])
    try:
        await start(records)
        try:
            committed = end = (await records.end_offsets([partition]))[partition]
            if since_ms is None:
                first = max((await records.beginning_offsets([partition]))[partition], end - most)
            else:
                later = (await records.offsets_for_times({partition: since_ms}))[partition]
                first = end if later is None else later.offset
                end = min(end, first + most)
            records.seek(partition, first)
            position, written, read_at = first, None if first < end == committed else end, time.monotonic()
            while written is None or _goes_on(time.monotonic() - read_at, position < written, open_s, is_missing):
                batches = await records.getmany(timeout_ms=_POLL_MS, max_records=_MOST_OF_A_BATCH)
                since = time.perf_counter()
                for record in batches.get(partition, ()):
                    position = record.offset + 1
                    yield record
                    if time.perf_counter() - since > _SLICE_S:
                        await asyncio.sleep(0)
                        since = time.perf_counter()
                position = max(position, await records.position(partition))
                if written is None and position >= end:  # the consumer knows the log's end from its fetches
                    written, read_at = max(end, records.highwater(partition) or 0), time.monotonic()
        finally:
            await stop(records)
    except (KafkaError, KafkaUnusableError) as error:
        log.warning("%s[%d] cannot be read: %s", partition.topic, partition.partition, error)
        raise ApiError(ErrorCode.UNAVAILABLE, "Kafka cannot be read now", retry_after_s=5) from None


def _goes_on(waited_s: float, is_open: bool, open_s: float, is_missing: IsMissing) -> bool:
    """Whether a scan that has read what was committed reads on."""
    return (is_open and waited_s < open_s) or (waited_s < _AWAITED_S and is_missing())
