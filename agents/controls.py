"""The agent on `controls`: cancels requests, erases users, and audits what gateways report.

An erasure takes these steps. After a crash the record is read again and the steps are repeated:

1. One transaction writes the mark (table `erased`), and sends the erasure to all other partitions of `controls`,
   because a wrong partitioner may have put records of the user there. Sinks of other systems learn of it from the topic
   `erasures`. From then on, nothing older than the mark is remembered, indexed or served, although it is still there:
   every reader of a conversation asks the mark (`Erased.hides`).
2. The user's running answers end, and nothing of them is kept.
3. The user's rows are deleted, some hundred in a transaction: a user may have a million.
4. Milvus deletes the user's rows.
5. One transaction notes in the mark that all is deleted, and commits the record's offset.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import AsyncIterable, Callable, Iterator

import msgspec

from agents.turns import Turns
from app.audit.records import audit_of_erasure, audit_of_gateway
from app.delivery.cancels import REMEMBERED_S, Cancels
from app.delivery.commits.commit import Commit
from app.delivery.dead_letters import rejected
from app.delivery.inflight import Forgets, InFlight
from app.delivery.partition import Partition, State
from app.delivery.partitions import Partitions
from app.delivery.record import CONTROLS, Outgoing, Record, outgoing
from app.settings import Settings
from app.wire.codec import decode
from app.wire.control import Audit, Cancel, Control, Erase
from app.wire.erasure import Erasure
from app.wire.error import WireError
from app.wire.headers import FORWARDED, is_forwarded
from app.wire.validation import check_partition, validate_control
from models.generation import FinishReason
from tables import records
from tables.expiry import erasure, has_rows, mark_of, some
from tables.records import Change, Erased, Table

_MOST_DIGITS = 15
_REST_S = 0.02
"""Between two steps of a scan that have deleted nothing, and before rows that were on their way are visited again."""


class Controls:
    def __init__(
        self,
        settings: Settings,
        partitions: Partitions,
        cancels: Cancels,
        turns: Turns,
        forget: Callable[[str], None] = lambda _user: None,
    ) -> None:
        """`forget` drops what caches hold of a user."""
        self._forget_cached = forget
        self._settings = settings
        self._partitions = partitions
        self._cancels = cancels
        self._turns = turns
        self._erasing: dict[tuple[int, int], float] = {}

    async def agent(self, stream: AsyncIterable[Record]) -> None:
        """The Faust agent."""
        async for record in stream:
            self._partitions.accept(record, self.receive)

    def receive(self, partition: Partition, record: Record) -> None:
        """Called in offset order, again after each take-over; must not block."""
        try:
            record.check_readable()
            control = decode(Control, record.value, record.headers)
            validate_control(control, record.key)
            if not isinstance(control, Erase):
                check_partition(control, record.partition, self._settings.partitions)
        except WireError as error:
            partition.spawn(partition.commit(rejected(record, error, self._settings)))
            return
        match control:
            case Cancel():
                self._cancel(partition, record, control)
            case Erase():
                partition.spawn(self._erase(partition, record, control.user_id), about=record)
            case Audit():
                partition.spawn(partition.commit(Commit(record, audit=audit_of_gateway(control))), about=record)

    def _cancel(self, partition: Partition, record: Record, cancel: Cancel) -> None:
        key = (cancel.user_id, cancel.request_id)
        ownership = partition.ownership
        now = ownership.clock.now()
        remembered_for = REMEMBERED_S - (now - record.timestamp) / 1000

        def commit() -> None:
            if partition.state is State.OWNED and partition.ownership is ownership:
                partition.spawn(partition.commit(Commit(record)))

        inflight = ownership.inflight_requests.get(key)
        if inflight is not None and not inflight.stop.is_cancelled:
            # The cancel stays uncommitted as long as the request: the next owner of the request must read the cancel
            # again.
            inflight.stop.is_cancelled = True
            inflight.on_commit.append(commit)
            inflight.stop.now(FinishReason.CANCELLED)
        elif inflight is not None or ownership.known(key, now) or remembered_for <= 0:
            commit()
        else:
            self._cancels.remember(key, commit, min(remembered_for, REMEMBERED_S))

    async def _erase(self, partition: Partition, record: Record, user_id: str) -> None:
        position = (record.partition, record.offset)
        self._erasing.setdefault(position, time.monotonic())
        try:
            await self._erase_everywhere(partition, record, user_id)
        finally:
            self._erasing.pop(position, None)

    @property
    def oldest_erasure_s(self) -> float:
        """Seconds since the oldest erasure under way began; 0 without one."""
        return max((time.monotonic() - begun for begun in self._erasing.values()), default=0.0)

    async def _erase_everywhere(self, partition: Partition, record: Record, user_id: str) -> None:
        ownership = partition.ownership
        at = ownership.clock.time_of(_forwarded_at(record) or record.timestamp)
        is_first = not is_forwarded(record.headers)
        self._forget_cached(user_id)
        async with ownership.mark_locks.of(user_id):
            mark = mark_of(ownership.store, user_id)
            if mark is None or mark.at < at:
                await self._forget(partition, record, user_id, at)
                mark = Erased(at, applied=ownership.clock.now())
                if not is_first and not has_rows(ownership.store, user_id):
                    mark = msgspec.structs.replace(mark, indexed=at)
        if not mark.done:
            await _delete_rows(partition, user_id, mark)
            await self._turns.erase(partition, user_id, mark.at)
            mark = msgspec.structs.replace(mark, indexed=mark.at)
        async with ownership.mark_locks.of(user_id):
            newest = mark_of(ownership.store, user_id)
            changes = () if newest is not None and newest.at > mark.at else (_marked(user_id, mark),)
            audit = audit_of_erasure(user_id, ownership.clock.now()) if is_first else ()
            await partition.commit(Commit(record, changes, audit=audit))

    async def _forget(self, partition: Partition, record: Record, user_id: str, at: int) -> None:
        """Do steps 1 and 2. Commits that are already queued run before ours, so what they write is hidden, too."""
        ownership = partition.ownership
        for inflight in ownership.inflight_requests.values():
            if inflight.accepted.request.user_id == user_id:
                _forget_inflight(inflight, at)
        is_first = not is_forwarded(record.headers)
        now = ownership.clock.now()
        sent = (*self._forwarded(partition, user_id, at), *self._for_sinks(user_id, at, now)) if is_first else ()
        mark = Erased(at, applied=now)
        ownership.erasing[user_id] = mark
        await partition.commit(Commit(None, (_marked(user_id, mark),), sent))
        if ownership.erasing.get(user_id) is mark:
            del ownership.erasing[user_id]

    def _forwarded(self, partition: Partition, user_id: str, at: int) -> Iterator[Outgoing]:
        headers = [(FORWARDED, f"{partition.number}@{at}".encode())]
        record = outgoing(self._settings, CONTROLS, user_id.encode(), Erase(user_id=user_id), headers)
        for number in range(self._settings.partitions):
            if number != partition.number:
                yield dataclasses.replace(record, partition=number)

    def _for_sinks(self, user_id: str, at: int, now: int) -> Iterator[Outgoing]:
        record = Erasure(user_id=user_id, erased_at=at, created_at=now)
        yield outgoing(self._settings, "erasures", user_id.encode(), record)


async def _delete_rows(partition: Partition, user_id: str, mark: Erased) -> None:
    """Delete what the mark hides, and return when it is committed.

    A row that a commit on its way replaces is left until that is committed: our deletion would come after it.
    """
    store, queue = partition.ownership.store, partition.context.queue
    again = True
    while again:
        again, more, rows = False, True, erasure(store, user_id, mark)
        while more:
            candidates, more = some(rows)
            on_their_way = queue.keys_of(Table.CONVERSATIONS)
            now = tuple(row for row in candidates if row.key not in on_their_way)
            again |= len(now) < len(candidates)
            if now:
                await partition.commit(Commit(None, now))
            elif more or again:
                await asyncio.sleep(_REST_S)


def _forget_inflight(inflight: InFlight, at: int) -> None:
    if inflight.accepted.at <= at:
        inflight.forgets = Forgets.ALL
        inflight.stop.now(FinishReason.CANCELLED)
    elif inflight.reads_past:
        inflight.forgets = Forgets.ALL  # asked after the erasure, but it may quote what was erased
    else:
        inflight.forgets = max(inflight.forgets, Forgets.MEMORY)


def _marked(user_id: str, mark: Erased) -> Change:
    return Change(Table.ERASED, records.key(user_id), records.encode(mark))


def _forwarded_at(record: Record) -> int | None:
    """The time of a forwarded erasure; the forwarded record's own timestamp is a little later."""
    for name, value in record.headers:
        if name == FORWARDED and value is not None:
            _, _, at = value.partition(b"@")
            return int(at) if at.isdigit() and len(at) <= _MOST_DIGITS else None
    return None
