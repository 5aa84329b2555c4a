"""The agent on `controls`: cancels requests, decides about calls that wait for an approval, erases users and
conversations, and audits what gateways report.

An erasure is of a user, or of one conversation (`Scope`). It takes these steps. After a crash the record is read again
and the steps are repeated:

1. One transaction writes the mark (table `erased`), and sends the erasure to all other partitions of `controls`,
   because a wrong partitioner may have put records of the user there. Sinks of other systems learn of it from the topic
   `erasures`. From then on, nothing older than the mark is remembered, indexed or served, although it is still there:
   whoever reads or keeps something of a conversation asks its marks (`PartitionMarks.of`), its user's and its own.
2. The running answers end, and nothing of them is kept. One that was asked later goes on; if it has read what is
   erased, nothing of it is kept either (`Run.forgets`).
3. The rows are deleted, some hundred in a transaction: a user may have a million. Answers that sleep are woken to end,
   and others lose what they have recalled of it.
4. Milvus deletes its rows.
5. One transaction notes in the mark that all is deleted, and commits the record's offset.

The two kinds have marks of their own, and neither waits for the other: a conversation is erased up to the later one. An
answer in another conversation may have recalled a turn of an erased one. It goes on at this worker; the next one builds
the prompt without that turn, so there it ends as `partial`. What has been said stays said: it belongs to the other
conversation. Caches drop all of the user in both cases.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import msgspec

from agents.turns import Turns
from app.audit.records import audit_of_erasure, audit_of_gateway
from app.delivery.cancels import REMEMBERED_S, Cancels
from app.delivery.commits.commit import Commit
from app.delivery.dead_letters import commit_of_letter
from app.delivery.partition import Partition, State
from app.delivery.record import CONTROLS, Outgoing, Record, outgoing
from app.features.tool_rounds import ToolsOverKafka
from app.features.waits.approvals import decide
from app.features.waits.wake import commit as commit_woken
from app.features.waits.wake import stop, wake_erased
from app.settings import Settings
from app.wire.codec import FORWARDED, WITH_SOURCE, decode, is_forwarded, is_with_source
from app.wire.control import Audit, Cancel, Control, Decide, Erase, EraseConversation, Expire, erase
from app.wire.erasure import Erasure
from app.wire.error import WireError
from app.wire.validation import check_partition, validate_control
from models.interface.generation import FinishReason
from tables import records
from tables.erasures import Scope, copies_of, erasure, has_rows, mark_of
from tables.expiry import some
from tables.records import Erased, RowChange, Table

_MOST_DIGITS = 15
_REST_S = 0.02
"""Between two steps of a scan that have deleted nothing, and before rows that were on their way are visited again."""


@dataclass(eq=False)
class Controls:
    """`forget` drops what caches hold of a user."""

    settings: Settings
    cancels: Cancels
    turns: Turns
    tools: ToolsOverKafka
    forget: Callable[[str], None] = lambda _user: None
    _erasing: dict[tuple[int, int], float] = field(default_factory=dict, init=False)

    def receive(self, partition: Partition, record: Record) -> None:
        """Called in offset order, again after each take-over; must not block."""
        try:
            record.check_readable()
            control = decode(Control, record.value, record.headers)
            validate_control(control, record.key)
            if not isinstance(control, Erase | EraseConversation):
                check_partition(control, record.partition, self.settings.partitions)
        except WireError as error:
            partition.spawn(partition.commit(commit_of_letter(record, error, self.settings)))
            return
        match control:
            case Cancel():
                self._cancel(partition, record, control)
            case Erase() | EraseConversation():
                scope = Scope(control.user_id, control.conversation_id)
                partition.spawn(self._erase(partition, record, scope), about=record)
            case Decide() | Expire():
                partition.spawn(self._decide(partition, record, control), about=record)
            case Audit():
                partition.spawn(partition.commit(Commit(record, audit=audit_of_gateway(control))), about=record)

    async def _decide(self, partition: Partition, record: Record, decision: Decide | Expire) -> None:
        try:
            await decide(partition, self.tools.calls_of(partition.ownership), record, decision)
        except WireError as error:
            await partition.commit(commit_of_letter(record, error, self.settings))

    def _cancel(self, partition: Partition, record: Record, cancel: Cancel) -> None:
        key = (cancel.user_id, cancel.request_id)
        ownership = partition.ownership
        now = ownership.clock.now()
        remembered_for = REMEMBERED_S - (now - record.timestamp) / 1000

        def may_come() -> bool:
            """Whether a request that was sent before the cancel may not have been read yet."""
            answered_until = ownership.watermark.at
            return answered_until is None or answered_until <= record.timestamp

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
        elif inflight is None and (woken := stop(partition, key)) is not None:
            partition.spawn(commit_woken(partition, [key], [woken], record))
        elif inflight is not None or ownership.known(key, now) or (remembered_for <= 0 and not may_come()):
            commit()
        else:
            self.cancels.remember(key, commit, may_come, min(remembered_for, REMEMBERED_S))

    async def _erase(self, partition: Partition, record: Record, scope: Scope) -> None:
        position = (record.partition, record.offset)
        self._erasing.setdefault(position, time.monotonic())
        try:
            await self._erase_everywhere(partition, record, scope)
        finally:
            self._erasing.pop(position, None)

    @property
    def oldest_erasure_s(self) -> float:
        """Seconds since the oldest erasure under way began; 0 without one."""
        return max((time.monotonic() - begun for begun in self._erasing.values()), default=0.0)

    async def _erase_everywhere(self, partition: Partition, record: Record, scope: Scope) -> None:
        ownership = partition.ownership
        at = ownership.clock.time_of(_forwarded_at(record) or record.timestamp)
        is_first = not is_forwarded(record.headers)
        self.forget(scope.user_id)
        async with ownership.marks.locks.of(scope.user_id):
            mark = mark_of(ownership.store, scope)
            if mark is None or mark.at < at:
                await self._forget(partition, record, scope, at)
                mark = Erased(at, applied=ownership.clock.now())
                if not is_first and not has_rows(ownership.store, scope.user_id):
                    mark = msgspec.structs.replace(mark, indexed=at)
        if not mark.done:
            await _delete_rows(partition, scope, mark)
            await wake_erased(partition, scope, mark)
            await self.turns.erase(partition, scope, mark.at)
            mark = msgspec.structs.replace(mark, indexed=mark.at)
        async with ownership.marks.locks.of(scope.user_id):
            newest = mark_of(ownership.store, scope)
            changes = () if newest is not None and newest.at > mark.at else (_marked(scope, mark),)
            audit = audit_of_erasure(scope.user_id, scope.conversation_id, ownership.clock.now()) if is_first else ()
            await partition.commit(Commit(record, changes, audit=audit))

    async def _forget(self, partition: Partition, record: Record, scope: Scope, at: int) -> None:
        """Do steps 1 and 2. Commits that are already queued run before ours, so what they write is hidden, too."""
        ownership = partition.ownership
        for inflight in ownership.inflight_requests.values():
            if scope.includes(*inflight.accepted.conversation) and inflight.accepted.at <= at:
                inflight.stop.now(FinishReason.CANCELLED)
        is_first = not is_forwarded(record.headers)
        now = ownership.clock.now()
        sent = (*self._forwarded(partition, scope, at), *self._for_sinks(scope, at, now)) if is_first else ()
        mark = Erased(at, applied=now)
        with ownership.marks.deciding(scope, mark):
            if scope.conversation_id is not None and not is_with_source(record.headers):
                sent = (*sent, *await self._of_copies(partition, scope, at))
            await partition.commit(Commit(None, (_marked(scope, mark),), sent), urgent=True)

    def _forwarded(self, partition: Partition, scope: Scope, at: int) -> Iterator[Outgoing]:
        headers = [(FORWARDED, f"{partition.number}@{at}".encode())]
        control = erase(scope.user_id, scope.conversation_id)
        record = outgoing(self.settings, CONTROLS, scope.user_id.encode(), control, headers)
        for number in range(self.settings.partitions):
            if number != partition.number:
                yield dataclasses.replace(record, partition=number)

    async def _of_copies(self, partition: Partition, scope: Scope, at: int) -> list[Outgoing]:
        """An erasure of each conversation that began as a copy of this one. No copy is missed: the mark counts already,
        and one that is made now is checked against it (app/features/forks.py).
        """
        names, more, rows = list[str](), True, copies_of(partition.ownership.store, scope, at)
        while more:
            some_names, more = some(rows)
            names += some_names
            await asyncio.sleep(0)
        key, header = scope.user_id.encode(), (WITH_SOURCE, (scope.conversation_id or "").encode())
        sent = [outgoing(self.settings, CONTROLS, key, erase(scope.user_id, name), [header]) for name in names]
        return [dataclasses.replace(one, partition=partition.number) for one in sent]

    def _for_sinks(self, scope: Scope, at: int, now: int) -> Iterator[Outgoing]:
        record = Erasure(user_id=scope.user_id, erased_at=at, created_at=now, conversation_id=scope.conversation_id)
        yield outgoing(self.settings, "erasures", scope.user_id.encode(), record)


async def _delete_rows(partition: Partition, scope: Scope, mark: Erased) -> None:
    """Delete what the mark hides, and return when it is committed.

    A row that a commit on its way replaces is left until that is committed: our deletion would come after it.
    """
    store, queue = partition.ownership.store, partition.context.queue
    again = True
    while again:
        again, more, rows = False, True, erasure(store, scope, mark)
        while more:
            candidates, more = some(rows)
            on_their_way = queue.keys_of(Table.CONVERSATIONS)
            now = tuple(row for row in candidates if row.key not in on_their_way)
            again |= len(now) < len(candidates)
            if now:
                await partition.commit(Commit(None, now), urgent=True)
            elif more or again:
                await asyncio.sleep(_REST_S)


def _marked(scope: Scope, mark: Erased) -> RowChange:
    return RowChange(Table.ERASED, scope.key, records.encode(mark))


def _forwarded_at(record: Record) -> int | None:
    """The time of a forwarded erasure; the forwarded record's own timestamp is a little later."""
    for name, value in record.headers:
        if name == FORWARDED and value is not None:
            _, _, at = value.partition(b"@")
            return int(at) if at.isdigit() and len(at) <= _MOST_DIGITS else None
    return None
