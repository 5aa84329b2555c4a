"""What is erased, and the progress of erasures: the gateway's copy of the workers' table `erased`.

A gateway serves older data (answers in memory, `tokens`, `turns`, Milvus) only if it was asked for after the last
erasure of the user and of the conversation (`at`). It decides that by the same table as the workers: the table's
changelog is compacted and outlives everything that it protects. A topic with a shorter retention would not do: once the
erasure's record had left `controls`, the erased text would be served again.

Erasures that no worker has processed yet are not in the table. The gateway reads them from `controls`, starting at the
workers' committed offsets.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import GroupCoordinatorNotAvailableError, KafkaError

from app.delivery.commits.changelog import changelog_topic
from app.delivery.record import CONTROLS
from app.gateway.edge.errors import lasting
from app.gateway.erasure.erased_times import ErasedTimes
from app.kafka.clients import KafkaUnusableError, admin_of, consumer, start, stop
from app.search.vector_store import Hit
from app.settings import Settings
from app.wire.codec import decode, is_forwarded, is_withdrawal
from app.wire.control import Cancel, Control, Erase, EraseConversation
from app.wire.error import WireError
from app.wire.ids import partition_for
from app.wire.validation import validate_control
from tables.erasures import Scope
from tables.records import Erased, Table, decode_row

log = logging.getLogger(__name__)

_RETRY_S = 1.0
_CURRENT_S = 2.0
"""How long a caller waits for this gateway to have read what another one has just written."""
_POLL_MS = 1000


@dataclass(slots=True)
class ErasureProgress:
    """An incomplete erasure: the partitions that have applied it, and those whose rows in Milvus are deleted."""

    asked_at: int
    forgotten: set[int] = field(default_factory=set)
    indexed: set[int] = field(default_factory=set)


class ErasureBook:
    """`on_erased` is called with what each erasure that is read is about, and its time in Unix milliseconds;
    `on_withdrawn` with the user and the request of each response that is deleted.
    """

    def __init__(
        self,
        settings: Settings,
        partitions: int,
        on_erased: Callable[[Scope, int], None],
        on_withdrawn: Callable[[str, str], None],
    ) -> None:
        self._on_withdrawn = on_withdrawn
        self._settings = settings
        self._partitions = partitions
        self._on_erased = on_erased
        self._until = ErasedTimes()
        self._open: dict[Scope, ErasureProgress] = {}
        self._next: dict[TopicPartition, int] = {}
        self._has_table = False
        self._has_read = asyncio.Event()
        self._consumer: AIOKafkaConsumer | None = None
        self._reading: asyncio.Task[None] | None = None
        self._table = [TopicPartition(changelog_topic(settings, Table.ERASED), n) for n in range(partitions)]
        self._controls = [TopicPartition(settings.topic(CONTROLS), n) for n in range(partitions)]

    async def start(self) -> None:
        """Returns once everything written before is read; raises `KafkaUnusableError`."""
        self._consumer = await self._open_consumer()
        ends = await self._consumer.end_offsets(list(self._consumer.assignment()))
        while any([await self._consumer.position(tp) < end for tp, end in ends.items()]):
            await self._read_some(self._consumer)
        self._reading = asyncio.create_task(lasting("reading erasures", self._keep_reading), name="erasures")

    async def stop(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        if self._consumer is not None:
            await asyncio.gather(self._consumer.stop(), return_exceptions=True)

    async def current(self, user_id: str) -> None:
        """Wait for the erasures and deletions of the user that were written before this call, at whichever gateway."""
        controls = self._controls[partition_for(user_id, self._partitions)]
        if (records := self._consumer) is None:
            return
        with suppress(TimeoutError, KafkaError, OSError):
            async with asyncio.timeout(_CURRENT_S):
                end = (await records.end_offsets([controls]))[controls]
                while await records.position(controls) < end:
                    await self._has_read.wait()

    def at(self, user_id: str, conversation_id: str) -> int:
        """Time of the last erasure of the user or of this conversation in Unix milliseconds; 0 if there is none."""
        return self._until.at(user_id, conversation_id)

    def cover(self, hit: Hit) -> bool:
        """Whether the row belongs to a turn that is erased, and has not been deleted or was written again."""
        return 0 < hit.asked_at <= self.at(hit.user_id, hit.conversation_id)

    def of(self, scope: Scope) -> int:
        """Time of the last erasure of exactly that in Unix milliseconds; 0 if there is none."""
        return self._until.of(scope)

    def progress(self, scope: Scope) -> ErasureProgress | None:
        """Progress of the last erasure of exactly that; None if it is complete or there is none."""
        return self._open.get(scope)

    def under_way(self, user_id: str) -> dict[str, int]:
        """The user's conversations whose erasure is not complete, and its time."""
        return {
            scope.conversation_id: progress.asked_at
            for scope, progress in self._open.items()
            if scope.user_id == user_id and scope.conversation_id is not None
        }

    def asked(self, scope: Scope, at: int) -> None:
        """Record an erasure at that time."""
        if self._until.add(scope, at):
            self._open[scope] = ErasureProgress(at)
            self._on_erased(scope, at)

    async def _open_consumer(self) -> AIOKafkaConsumer:
        records = consumer(self._settings.cluster)
        await start(records)
        try:
            # The first worker creates the table. A gateway that starts before it has nothing to protect.
            self._has_table = self._table[0].topic in await records.topics()
            assigned = [*self._table, *self._controls] if self._has_table else self._controls
            records.assign(assigned)
            first: dict[TopicPartition, int] = await records.beginning_offsets(assigned)
            for tp, offset in {**first, **await self._unread(first), **self._next}.items():
                records.seek(tp, offset)
        except BaseException:
            await stop(records)
            raise
        return records

    async def _unread(self, first: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The workers' committed offset in `controls`; the beginning if it is unknown."""
        try:
            async with admin_of(self._settings.cluster) as admin:
                committed = await admin.list_consumer_group_offsets(self._settings.group)
        except GroupCoordinatorNotAvailableError:
            return {}  # no worker has run yet
        return {tp: max(first[tp], committed[tp].offset) for tp in self._controls if tp in committed}

    async def _keep_reading(self) -> None:
        while True:
            try:
                if self._consumer is None:
                    self._consumer = await self._open_consumer()
                await self._read_some(self._consumer)
                if not self._has_table and self._table[0].topic in await self._consumer.topics():
                    await stop(self._consumer)
                    self._consumer = None
            except (KafkaError, KafkaUnusableError, OSError) as error:
                log.warning("cannot read the erasures: %s; retrying", error)
                if self._consumer is not None:
                    await stop(self._consumer)
                    self._consumer = None
                await asyncio.sleep(_RETRY_S)

    async def _read_some(self, records: AIOKafkaConsumer) -> None:
        table = frozenset(self._table)
        for tp, batch in (await records.getmany(timeout_ms=_POLL_MS)).items():
            (self._read_marks if tp in table else self._read_controls)(batch)
            self._next[tp] = batch[-1].offset + 1
        self._has_read.set()
        self._has_read = asyncio.Event()

    def _read_controls(self, batch: Iterable[ConsumerRecord]) -> None:
        for record in batch:
            try:
                control = decode(Control, record.value, record.headers)
                validate_control(control, record.key)
            except WireError:
                continue  # the worker writes a dead letter for it
            if isinstance(control, Erase | EraseConversation) and not is_forwarded(record.headers):
                self.asked(Scope(control.user_id, control.conversation_id), record.timestamp)
            elif isinstance(control, Cancel) and is_withdrawal(record.headers):
                self._on_withdrawn(control.user_id, control.request_id)

    def _read_marks(self, batch: Iterable[ConsumerRecord]) -> None:
        for record in batch:
            try:
                scope = Scope.of_key(record.key or b"")
                mark = None if record.value is None else decode_row(record.value, Erased)
            except (msgspec.MsgspecError, ValueError):
                log.warning("%s[%d]@%d is not an erasure mark", record.topic, record.partition, record.offset)
                continue
            if mark is None:
                self._until.forget(scope)
                self._open.pop(scope, None)
            else:
                self._apply_mark(scope, record.partition, mark)

    def _apply_mark(self, scope: Scope, partition: int, mark: Erased) -> None:
        progress = self._open.get(scope)
        if self._until.add(scope, mark.at):
            self._on_erased(scope, mark.at)
            progress = progress or self._open.setdefault(scope, ErasureProgress(mark.at))
        if progress is None or mark.at < progress.asked_at:
            return
        progress.forgotten.add(partition)
        if mark.done:
            progress.indexed.add(partition)
        if len(progress.indexed) == self._partitions:
            del self._open[scope]
